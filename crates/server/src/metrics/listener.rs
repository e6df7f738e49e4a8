//! The listener of scrapes.

use crate::error::ServerError;
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// Listens for scrapes.
pub(crate) struct MetricsListener {
    pub(crate) listener: TcpListener,
    pub(crate) address: SocketAddr,
}

impl MetricsListener {
    /// Listens on an address, if there is one.
    pub(crate) async fn bind(address: Option<&str>) -> Result<Option<Self>, ServerError> {
        let Some(address) = address else {
            return Ok(None);
        };
        let failed = |source| ServerError::Metrics {
            address: address.to_owned(),
            source,
        };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Some(Self { listener, address }))
    }
}
