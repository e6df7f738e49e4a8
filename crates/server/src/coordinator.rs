//! The coordinator process: metadata on disk, a listener, and the protocol's `Coordinator`.

use crate::certificates::{CertificateOffice, Protection, check_loopback};
use crate::error::{ServerError, io_error, no_randomness, random_bytes};
use crate::metadata::{MetadataPlace, MetadataStore};
use crate::node::listen_on;
use gabion_meta::ClusterId;
use gabion_protocol::coordinator::{Coordinator, CoordinatorOptions};
use gabion_protocol::message::{CoordinatorReply, CoordinatorRequest, Flow, ask};
use gabion_wire::{
    CertificateRequest, Connection, Endpoint, Handler, Hello, Options, PeerIdentity, ProcessPorts,
    Responder, Role, TrafficMeter, WireError,
};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpListener;

/// How long a stopped coordinator still reports the reason.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Parameters of a coordinator's start.
#[derive(Clone, Debug)]
pub struct CoordinatorConfig {
    /// Directory of its files.
    pub directory: PathBuf,
    /// Where the metadata are.
    pub metadata: MetadataPlace,
    /// Whether to create a new cluster if there is no metadata.
    pub init: bool,
    /// Address to listen on, as `host:port`; port 0 takes a free one.
    pub listen: String,
    /// Its timeouts and limits.
    pub options: CoordinatorOptions,
    /// How it proves what it is, and certifies others.
    pub protection: Protection,
}

/// A listening coordinator.
pub struct CoordinatorProcess {
    coordinator: Arc<Coordinator<MetadataStore>>,
    endpoint: Arc<Endpoint>,
    listener: TcpListener,
    address: SocketAddr,
    office: Arc<CertificateOffice>,
}

impl CoordinatorProcess {
    /// Opens or creates the metadata, and listens.
    ///
    /// # Errors
    /// If the directory, the metadata or the address cannot be used; [`ServerError::NoMetadata`]
    /// when there is no metadata and `init` is off.
    ///
    /// # Panics
    /// If opening the metadata panics, which is a bug.
    pub async fn start(config: CoordinatorConfig) -> Result<Self, ServerError> {
        let CoordinatorConfig {
            directory,
            metadata,
            init,
            listen,
            options,
            protection,
        } = config;
        let listener = listen_on(&listen).await?;
        // After the address, so that an unusable one leaves nothing behind.
        if init {
            std::fs::create_dir_all(&directory).map_err(io_error("create", &directory))?;
        }
        let address = listener
            .local_addr()
            .map_err(|source| ServerError::Listen {
                address: listen.clone(),
                source,
            })?;
        if protection.is_insecure() {
            check_loopback(address)?;
        }
        let opened = tokio::task::spawn_blocking(move || {
            let new_cluster = if init {
                Some(new_cluster(&protection)?)
            } else {
                None
            };
            let meta = metadata.open_cluster(&holder(address), new_cluster)?;
            let office = CertificateOffice::open(protection, meta.cluster(), init)?;
            Ok::<_, ServerError>((meta, Arc::new(office)))
        });
        let (meta, office) = opened.await.expect("opening metadata does not panic")?;
        let handler = Arc::new(CoordinatorHandler {
            coordinator: OnceLock::new(),
            office: Arc::clone(&office),
        });
        let hello = Hello {
            cluster: Some(meta.cluster()),
            role: Role::Coordinator,
            identity: PeerIdentity::default(),
        };
        let endpoint = Endpoint::new(
            hello,
            Arc::clone(&handler) as Arc<dyn Handler>,
            Options {
                security: office.security().clone(),
                ..Options::default()
            },
            Arc::new(TrafficMeter::default()),
        );
        let ports = ProcessPorts::new(None, Arc::clone(&endpoint)).map_err(no_randomness)?;
        let made = tokio::task::spawn_blocking(move || {
            // It reads the metadata.
            Coordinator::new(meta, Arc::new(ports), options)
        });
        let coordinator = made.await.expect("making a coordinator does not panic")?;
        assert!(
            handler.coordinator.set(Arc::clone(&coordinator)).is_ok(),
            "a process is one coordinator"
        );
        Ok(Self {
            coordinator,
            endpoint,
            listener,
            address,
            office,
        })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the coordinator has to stop, the listener fails or the future is dropped.
    ///
    /// # Errors
    /// If the metadata failed or is an old copy, or the listener fails.
    pub async fn run(self) -> Result<(), ServerError> {
        self.coordinator.start();
        let fresh = Arc::clone(&self.office).keep_fresh(Arc::downgrade(&self.endpoint));
        tokio::spawn(fresh);
        let stopped = async {
            let reason = self.coordinator.broken().await;
            tracing::error!(%reason, "the coordinator stops");
            // Pending and new requests get the reason before the process ends.
            tokio::time::sleep(LAST_WORDS).await;
            reason
        };
        tokio::select! {
            reason = stopped => Err(reason.into()),
            failed = Arc::clone(&self.endpoint).serve(self.listener) => Err(failed.into()),
        }
    }
}

/// The id of a new cluster: that of its certificates, if there are some already.
fn new_cluster(protection: &Protection) -> Result<ClusterId, ServerError> {
    if let Some(cluster) = protection.cluster()? {
        return Ok(cluster);
    }
    random_bytes().map(|id| ClusterId(u128::from_le_bytes(id)))
}

/// What other processes are told about the one that uses the metadata.
fn holder(address: SocketAddr) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!(
        "the coordinator at {address} on host {} (process {})",
        host.trim(),
        std::process::id()
    )
}

/// Routes requests of connections to the coordinator.
struct CoordinatorHandler {
    coordinator: OnceLock<Arc<Coordinator<MetadataStore>>>,
    office: Arc<CertificateOffice>,
}

impl Handler for CoordinatorHandler {
    fn coordinator_request(
        &self,
        connection: &Arc<Connection>,
        request: CoordinatorRequest,
        responder: Responder<CoordinatorRequest>,
    ) {
        let Some(coordinator) = self.coordinator.get() else {
            responder.refuse("the coordinator is still starting");
            return;
        };
        if let CoordinatorRequest::StoreFailed(failure) = &request {
            let (node, reason) = (failure.node, &failure.reason);
            tracing::error!(%node, reason, "the node's store has failed; it leaves the cluster");
        }
        let coordinator = Arc::clone(coordinator);
        let connection = Arc::clone(connection);
        tokio::spawn(async move {
            let reply = coordinator.handle(request).await;
            if let CoordinatorReply::JoinBegun(begun) = &reply {
                // From now on a new node speaks for itself, and gets a certificate of its own.
                connection.note_joined(begun.session.node);
            }
            responder.reply(&reply);
        });
    }

    fn certificate_request(
        &self,
        connection: &Arc<Connection>,
        request: CertificateRequest,
        responder: Responder<CertificateRequest>,
    ) {
        let (office, connection) = (Arc::clone(&self.office), Arc::clone(connection));
        tokio::task::spawn_blocking(move || responder.reply(&office.answer(&connection, &request)));
    }

    /// The coordinator moves no data, so it receives none.
    fn flow(&self, _: &Arc<Connection>, _: Flow) {}

    /// If its connection ends, the node itself may have ended.
    fn closed(&self, connection: &Arc<Connection>, _: &WireError) {
        if let (Some(node), Some(coordinator)) = (connection.peer().node, self.coordinator.get()) {
            let coordinator = Arc::clone(coordinator);
            let request = ask::Suspect { node };
            tokio::spawn(async move { coordinator.handle(request.into()).await });
        }
    }
}
