//! The coordinator process: metadata on disk, a listener, and the protocol's `Coordinator`.

use crate::ServerError;
use crate::error::io_error;
use crate::node::listen_on;
use crate::ports::ServerPorts;
use gabion_meta::{ClusterId, Meta, MetaError, RedbStore};
use gabion_protocol::coordinator::{Coordinator, CoordinatorOptions};
use gabion_protocol::message::{CoordinatorRequest, Flow};
use gabion_protocol::ports::Ports;
use gabion_wire::{
    Connection, Endpoint, Handler, Hello, Options, PeerIdentity, Responder, Role, TrafficMeter,
};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use tokio::net::TcpListener;

/// How a coordinator starts.
#[derive(Clone, Debug)]
pub struct CoordinatorConfig {
    /// Where the metadata is; a new cluster is made in an empty directory.
    pub directory: PathBuf,
    /// Where it listens, as `host:port`; port 0 takes a free one.
    pub listen: String,
    /// What it does when.
    pub options: CoordinatorOptions,
}

/// A coordinator that listens.
pub struct CoordinatorProcess {
    coordinator: Arc<Coordinator<RedbStore>>,
    endpoint: Arc<Endpoint>,
    listener: TcpListener,
    address: SocketAddr,
}

impl CoordinatorProcess {
    /// Opens or makes the metadata, and listens.
    ///
    /// # Errors
    /// When the directory, the metadata or the address cannot be used.
    ///
    /// # Panics
    /// When opening the metadata does, which is a bug.
    pub async fn start(config: CoordinatorConfig) -> Result<Self, ServerError> {
        let CoordinatorConfig {
            directory,
            listen,
            options,
        } = config;
        std::fs::create_dir_all(&directory).map_err(io_error("create", &directory))?;
        let listener = listen_on(&listen).await?;
        let address = listener
            .local_addr()
            .map_err(|source| ServerError::Listen {
                address: listen.clone(),
                source,
            })?;
        let handler = Arc::new(CoordinatorHandler::default());
        let hello = Hello {
            cluster: None,
            role: Role::Coordinator,
            identity: PeerIdentity::default(),
        };
        let endpoint = Endpoint::new(
            hello,
            Arc::clone(&handler) as Arc<dyn Handler>,
            Options::default(),
            Arc::new(TrafficMeter::default()),
        )?;
        let ports = ServerPorts::new(None, Arc::clone(&endpoint))?;
        let cluster = u128::from(ports.random()) << 64 | u128::from(ports.random());
        let path = directory.join("metadata.redb");
        let opened = tokio::task::spawn_blocking(move || open(&path, ClusterId(cluster)));
        let meta = opened.await.expect("opening metadata does not panic")?;
        let coordinator = Coordinator::new(meta, Arc::new(ports), options)?;
        assert!(
            handler.coordinator.set(Arc::clone(&coordinator)).is_ok(),
            "a process is one coordinator"
        );
        Ok(Self {
            coordinator,
            endpoint,
            listener,
            address,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the listener fails or the future is dropped.
    ///
    /// # Errors
    /// When connections cannot be accepted any more.
    pub async fn run(self) -> Result<(), ServerError> {
        self.coordinator.start();
        Err(self.endpoint.serve(self.listener).await.into())
    }
}

/// Opens the metadata, or makes a cluster where there is none.
fn open(path: &Path, new_cluster: ClusterId) -> Result<Meta<RedbStore>, MetaError> {
    if path.exists() {
        match Meta::open(RedbStore::open(path)?) {
            // The process died between making the file and making the cluster in it.
            Err(MetaError::NoCluster) => Meta::create(RedbStore::open(path)?, new_cluster),
            opened => opened,
        }
    } else {
        Meta::create(RedbStore::create(path)?, new_cluster)
    }
}

/// Routes what connections bring to the coordinator.
#[derive(Default)]
struct CoordinatorHandler {
    coordinator: OnceLock<Arc<Coordinator<RedbStore>>>,
}

impl Handler for CoordinatorHandler {
    fn coordinator_request(
        &self,
        _: &Arc<Connection>,
        request: CoordinatorRequest,
        responder: Responder<CoordinatorRequest>,
    ) {
        let Some(coordinator) = self.coordinator.get() else {
            responder.refuse("the coordinator is still starting");
            return;
        };
        let coordinator = Arc::clone(coordinator);
        tokio::spawn(async move { responder.reply(&coordinator.handle(request).await) });
    }

    /// The coordinator moves no data, so nobody sends it any.
    fn flow(&self, _: &Arc<Connection>, _: Flow) {}
}
