//! A client on tokio: it connects to a cluster by its coordinator's address.

use crate::endpoint::{Endpoint, Options};
use crate::handler::Handler;
use crate::hello::Hello;
use crate::meter::TrafficMeter;
use crate::ports::{ClientHandler, ProcessPorts};
use crate::trust::Security;
use gabion_client::{Client, ClientError, ClientOptions};
use std::sync::Arc;

/// Connects to the cluster whose coordinator listens at `coordinator` (`host:port`), with this process's
/// credentials and the default limits of connections. See [`Client::connect`].
///
/// # Errors
/// [`ClientError::NoCoordinator`] when none answers there; [`ClientError::Io`] when the system gives no
/// randomness.
///
/// # Panics
/// Outside of a tokio run-time.
pub async fn connect(
    coordinator: &str,
    security: Security,
    options: ClientOptions,
) -> Result<Client, ClientError> {
    let wire = Options {
        security,
        ..Options::default()
    };
    connect_with(coordinator, wire, options).await
}

/// The same as [`connect`] with these limits of connections, and over emulated links if `wire` has any.
///
/// # Errors
/// Those of [`connect`].
///
/// # Panics
/// Outside of a tokio run-time.
pub async fn connect_with(
    coordinator: &str,
    wire: Options,
    options: ClientOptions,
) -> Result<Client, ClientError> {
    let handler = ClientHandler::default();
    let serving: Arc<dyn Handler> = Arc::new(handler.clone());
    let meter = Arc::new(TrafficMeter::default());
    let endpoint = Endpoint::new(Hello::of_user(&wire.security), serving, wire, meter);
    let ports = ProcessPorts::new(Some(coordinator.to_owned()), endpoint);
    let ports = ports.map_err(|source| ClientError::Io {
        operation: "prepare a client",
        source,
    })?;
    let ports = Arc::new(ports.of_client(&handler));
    ports.renew_at_start().await;
    ports.keep_fresh();
    Client::connect(ports, options).await
}
