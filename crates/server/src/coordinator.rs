//! The coordinator process: metadata on disk, a listener, and the protocol's `Coordinator`.

use crate::admission::begin_join;
use crate::audit::{AuditLog, AuditedOrder, Became, NotRecorded, Order, peer_of, quota_directory};
use crate::certificates::{CertificateOffice, Protection, check_loopback};
use crate::error::{ServerError, io_error, no_randomness, random_bytes};
use crate::events::{CoordinatorObserver, EventLog, Happening, Refusals, STORE_FAILED, order_of};
use crate::listening::{KeptAddress, listen_error, listen_on};
use crate::metadata::{MetadataPlace, MetadataStore, keep_log_short};
use crate::metrics::{CoordinatorMetrics, CoordinatorWork, MetricsListener};
use crate::own_disk::OwnDisk;
use gabion_meta::{ClusterId, Meta, RedbStore};
use gabion_metrics::serve_metrics;
use gabion_protocol::coordinator::{Coordinator, CoordinatorOptions};
use gabion_protocol::message::{Cause, CoordinatorReply, CoordinatorRequest, Denial, Flow, ask};
use gabion_sql::{Leadership, SqlError, StoreOptions};
use gabion_wire::trust::{Authority, TrustError};
use gabion_wire::{
    CertificateRequest, Connection, Endpoint, Handler, Hello, NotAdmitted, Options, PeerIdentity,
    ProcessPorts, Responder, Role, TrafficMeter, Versions, WireError,
};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpListener;

/// Time for which a stopped coordinator still reports the reason.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// The file that notes the last commit of metadata in a database.
const LAST_COMMIT: &str = "last-commit";

/// Pause of a process that stands by, between two looks whether another one leads.
const STAND_BY_PAUSE: Duration = Duration::from_secs(1);

/// Parameters of a coordinator's start.
#[derive(Clone, Debug)]
pub struct CoordinatorConfig {
    /// Directory of its files.
    pub directory: PathBuf,
    /// The place of the metadata.
    pub metadata: MetadataPlace,
    /// Maximum wait of the start for a database that cannot be reached.
    pub database_wait: Duration,
    /// Whether to create a new cluster if there is no metadata.
    pub init: bool,
    /// Address to listen on, as `host:port`; port 0 takes a free one.
    pub listen: String,
    /// Its timeouts and limits.
    pub options: CoordinatorOptions,
    /// Its proof of its identity, and its certification of others.
    pub protection: Protection,
    /// The versions of the wire that it speaks: [`Versions::CURRENT`], except in tests.
    pub versions: Versions,
    /// Address at which its metrics are served by HTTP, as `host:port`; none for no metrics.
    pub metrics: Option<String>,
    /// The time above which operations are logged with their reason; none for no such log.
    pub slow: Option<Duration>,
}

/// A listening coordinator.
pub struct CoordinatorProcess {
    coordinator: Arc<Coordinator<MetadataStore>>,
    leadership: Option<Leadership>,
    /// The store of metadata in a file.
    file: Option<Arc<RedbStore>>,
    endpoint: Arc<Endpoint>,
    listener: TcpListener,
    address: SocketAddr,
    office: Arc<CertificateOffice>,
    log: Arc<EventLog>,
    metrics: Option<(MetricsListener, Arc<CoordinatorMetrics>)>,
    disk: Arc<OwnDisk>,
}

impl CoordinatorProcess {
    /// Opens or creates the metadata, and listens. While another process leads on the same database, waits until that
    /// one ends: it stands by. `standing_by` is called then with the addresses at which it and its metrics will
    /// listen, and the process that leads.
    ///
    /// # Errors
    /// If the directory, the metadata or the address cannot be used; [`ServerError::NoMetadata`]
    /// when there is no metadata and `init` is off.
    ///
    /// # Panics
    /// If opening the metadata panics, which is a bug.
    pub async fn start(
        config: CoordinatorConfig,
        standing_by: impl FnOnce(SocketAddr, Option<SocketAddr>, &str),
    ) -> Result<Self, ServerError> {
        let CoordinatorConfig {
            directory,
            metadata,
            database_wait,
            init,
            listen,
            options,
            protection,
            versions,
            metrics,
            slow,
        } = config;
        let listener = listen_on(&listen).await?;
        let listening = MetricsListener::bind(metrics.as_deref()).await?;
        let is_observed = listening.is_some() || slow.is_some();
        // An alert waits for a store that fails.
        let work = is_observed.then(|| Arc::new(CoordinatorWork::new(slow, STORE_FAILED)));
        // After the address, so that an unusable one leaves nothing behind.
        if init {
            std::fs::create_dir_all(&directory).map_err(io_error("create", &directory))?;
        }
        let address = address_of(&listener, &listen, &protection)?;
        let opening = Opening {
            store: store_options(&directory, address, database_wait),
            directory,
            metadata,
            init,
            protection,
            work: work.clone(),
        };
        let sockets = (listener, listening);
        let (opened, (listener, listening)) = opening
            .open_or_stand_by(sockets, address, standing_by)
            .await?;
        let started = Happening::plain("started", "the coordinator has started");
        opened.log.note(started);
        let (handler, endpoint, ports) = environment(&opened, work.clone(), versions)?;
        let meta = opened.meta;
        // It reads the metadata.
        let made = tokio::task::spawn_blocking(move || Coordinator::new(meta, ports, options));
        let coordinator = made.await.expect("making a coordinator does not panic")?;
        assert!(
            handler.coordinator.set(Arc::clone(&coordinator)).is_ok(),
            "a process is one coordinator"
        );
        let metrics = listening.zip(work).map(|(listener, work)| {
            let of = (Arc::clone(&coordinator), Arc::clone(&opened.disk));
            (listener, Arc::new(CoordinatorMetrics::new(work, of)))
        });
        Ok(Self {
            coordinator,
            leadership: opened.leadership,
            file: opened.file,
            endpoint,
            listener,
            address,
            office: opened.office,
            log: opened.log,
            metrics,
            disk: opened.disk,
        })
    }

    /// The address of its metrics, if they are served.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(|(listener, _)| listener.address)
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns true when the process, which runs meanwhile, answers clients: most nodes have contacted it, and none of
    /// these knows newer metadata. Returns false if it stops before.
    pub fn until_it_serves(&self) -> impl Future<Output = bool> + use<> {
        let coordinator = Arc::clone(&self.coordinator);
        async move { coordinator.until_it_serves().await }
    }

    /// Serves until the coordinator has to stop, the listener fails or the future is dropped.
    ///
    /// # Errors
    /// If the metadata failed or is an old copy, or the listener fails.
    pub async fn run(self) -> Result<(), ServerError> {
        self.run_until(std::future::pending()).await
    }

    /// The same until `end`. Metadata in a database are then free for another process at once, if the database answers
    /// within 3 s.
    ///
    /// # Errors
    /// Those of [`CoordinatorProcess::run`].
    ///
    /// # Panics
    /// If the end of the leadership panics, which is a bug.
    pub async fn run_until(self, end: impl Future<Output = ()>) -> Result<(), ServerError> {
        self.coordinator.start();
        let office = Arc::clone(&self.office);
        let fresh = office.keep_fresh(Arc::downgrade(&self.endpoint), Arc::clone(&self.log));
        tokio::spawn(fresh);
        if let Some(store) = &self.file {
            tokio::spawn(keep_log_short(Arc::downgrade(store)));
            // Metadata in a database are on another disk.
            tokio::spawn(OwnDisk::watch(Arc::downgrade(&self.disk)));
        }
        if let Some((MetricsListener { listener, .. }, metrics)) = self.metrics {
            tokio::spawn(serve_metrics(listener, metrics));
        }
        let stopped = async {
            let reason = self.coordinator.broken().await;
            tracing::error!(%reason, "the coordinator stops");
            // Pending and new requests get the reason before the process ends.
            tokio::time::sleep(LAST_WORDS).await;
            reason
        };
        let ended = tokio::select! {
            () = end => Ok(()),
            reason = stopped => Err(reason.into()),
            failed = Arc::clone(&self.endpoint).serve(self.listener) => Err(failed.into()),
        };
        if let Some(leadership) = self.leadership {
            let released = tokio::task::spawn_blocking(move || leadership.release()).await;
            if !released.expect("the end of the leadership does not panic") {
                tracing::warn!("cannot release the lease on the metadata's database; it expires");
            }
        }
        ended
    }
}

/// A coordinator's handler of requests, and its connections and ports.
type Environment = (Arc<CoordinatorHandler>, Arc<Endpoint>, Arc<ProcessPorts>);

fn environment(
    opened: &Opened,
    work: Option<Arc<CoordinatorWork>>,
    versions: Versions,
) -> Result<Environment, ServerError> {
    let (office, log) = (&opened.office, &opened.log);
    let handler = Arc::new(CoordinatorHandler {
        coordinator: OnceLock::new(),
        office: Arc::clone(office),
        work: work.clone(),
        log: Arc::clone(log),
        audit: Arc::clone(&opened.audit),
        disk: Arc::clone(&opened.disk),
        refusals: Refusals::default(),
    });
    let options = Options {
        versions,
        security: office.security().clone(),
        ..Options::default()
    };
    let served = Arc::clone(&handler) as Arc<dyn Handler>;
    let endpoint = endpoint(opened.meta.cluster(), served, options);
    let ports = ProcessPorts::new(None, Arc::clone(&endpoint)).map_err(no_randomness)?;
    let log = Arc::clone(log);
    let disk = Arc::clone(&opened.disk);
    let observer = CoordinatorObserver { log, work, disk };
    let ports = Arc::new(ports.observed_by(Some(Arc::new(observer))));
    Ok((handler, endpoint, ports))
}

/// The address at which it listens.
pub(crate) fn address_of(
    listener: &TcpListener,
    listen: &str,
    protection: &Protection,
) -> Result<SocketAddr, ServerError> {
    let address = listener.local_addr().map_err(listen_error(&listen))?;
    if protection.is_insecure() {
        check_loopback(address)?;
    }
    Ok(address)
}

/// A coordinator's listening sockets, also that for its metrics if they are served.
type Sockets = (TcpListener, Option<MetricsListener>);

/// The parameters with which a coordinator opens its files.
#[derive(Clone)]
struct Opening {
    directory: PathBuf,
    metadata: MetadataPlace,
    store: StoreOptions,
    init: bool,
    protection: Protection,
    work: Option<Arc<CoordinatorWork>>,
}

impl Opening {
    async fn open(&self) -> Result<Opened, ServerError> {
        let opening = self.clone();
        let opened = tokio::task::spawn_blocking(move || Opened::open(opening));
        opened.await.expect("opening metadata does not panic")
    }

    /// Opens at once, or stands by, without listening, until no other process leads.
    async fn open_or_stand_by(
        &self,
        sockets: Sockets,
        address: SocketAddr,
        standing_by: impl FnOnce(SocketAddr, Option<SocketAddr>, &str),
    ) -> Result<(Opened, Sockets), ServerError> {
        match self.open().await {
            Err(ServerError::Sql(SqlError::InUse { holder, .. })) if !self.init => {
                // Clients and monitors that try these addresses must see that it does not lead.
                let (listener, metrics) = sockets;
                let kept = KeptAddress::of(listener, address);
                let metrics = metrics.map(MetricsListener::keep);
                let metrics_address = metrics.as_ref().map(KeptAddress::address);
                standing_by(address, metrics_address, &holder);
                let opened = self.open_when_it_leads().await?;
                let listener = kept.listen().await?;
                let metrics = match metrics {
                    Some(kept) => Some(MetricsListener::again(kept).await?),
                    None => None,
                };
                Ok((opened, (listener, metrics)))
            }
            opened => Ok((opened?, sockets)),
        }
    }

    /// Opens as soon as no other process leads. An error of the database while it stands by passes, or concerns the
    /// leader too; a paused leader may have locked the authority.
    async fn open_when_it_leads(&self) -> Result<Opened, ServerError> {
        let mut last_error = String::new();
        loop {
            tokio::time::sleep(STAND_BY_PAUSE).await;
            match self.open().await {
                Err(ServerError::Sql(SqlError::InUse { .. })) => last_error.clear(),
                Err(
                    error @ (ServerError::Sql(
                        SqlError::Unreachable { .. } | SqlError::Failed { .. },
                    )
                    | ServerError::Trust(TrustError::Locked { .. })),
                ) => {
                    if error.to_string() != last_error {
                        tracing::warn!(%error, "this coordinator is a standby and checks again");
                        last_error = error.to_string();
                    }
                }
                opened => return opened,
            }
        }
    }
}

/// The durable parts of a coordinator: the metadata, certificates and events.
struct Opened {
    meta: Meta<MetadataStore>,
    leadership: Option<Leadership>,
    /// The store of metadata in a file.
    file: Option<Arc<RedbStore>>,
    office: Arc<CertificateOffice>,
    log: Arc<EventLog>,
    audit: Arc<AuditLog>,
    disk: Arc<OwnDisk>,
}

impl Opened {
    fn open(opening: Opening) -> Result<Self, ServerError> {
        let Opening {
            directory,
            metadata,
            store,
            init,
            protection,
            work,
        } = opening;
        let new_cluster = if init {
            Some(new_cluster(&protection)?)
        } else {
            None
        };
        // One that could not certify must not lead.
        if let (false, MetadataPlace::Database(_), Protection::Managed { authority, .. }) =
            (init, &metadata, &protection)
        {
            Authority::open(authority)?;
        }
        let meta = metadata.open_cluster(&store, new_cluster)?;
        let (leadership, file) = (meta.store().leadership(), meta.store().file());
        let office = CertificateOffice::open(protection, meta.cluster(), init)?;
        let log = Arc::new(EventLog::open(&directory.join("events"), work)?);
        let audit = AuditLog::open(&directory, Arc::clone(&log))?;
        Ok(Self {
            meta,
            leadership,
            file,
            office: Arc::new(office),
            log,
            audit: Arc::new(audit),
            disk: Arc::new(OwnDisk::of(&directory)),
        })
    }
}

/// The endpoint of a process that is a cluster's coordinator.
pub(crate) fn endpoint(
    cluster: ClusterId,
    handler: Arc<dyn Handler>,
    options: Options,
) -> Arc<Endpoint> {
    let hello = Hello {
        cluster: Some(cluster),
        role: Role::Coordinator,
        identity: PeerIdentity::default(),
    };
    Endpoint::new(hello, handler, options, Arc::new(TrafficMeter::default()))
}

/// The id of a new cluster: that of its certificates, if there are some already.
fn new_cluster(protection: &Protection) -> Result<ClusterId, ServerError> {
    if let Some(cluster) = protection.cluster()? {
        return Ok(cluster);
    }
    random_bytes().map(|id| ClusterId(u128::from_le_bytes(id)))
}

/// Returns the options for metadata in a database.
fn store_options(directory: &Path, address: SocketAddr, wait: Duration) -> StoreOptions {
    StoreOptions {
        last_commit: Some(directory.join(LAST_COMMIT)),
        start_patience: wait,
        ..StoreOptions::of(holder(address))
    }
}

/// Returns the description of the process that uses the metadata, for other processes.
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
    /// Counts what does not reach the coordinator; none without metrics.
    work: Option<Arc<CoordinatorWork>>,
    log: Arc<EventLog>,
    audit: Arc<AuditLog>,
    disk: Arc<OwnDisk>,
    refusals: Refusals,
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
        let (coordinator, log) = (Arc::clone(coordinator), Arc::clone(&self.log));
        let connection = Arc::clone(connection);
        let (office, audit) = (Arc::clone(&self.office), Arc::clone(&self.audit));
        let disk = Arc::clone(&self.disk);
        tokio::spawn(async move {
            let directory = quota_directory(&coordinator, &request).await;
            let event = order_of(&request, directory.as_deref());
            let order = Order::of(&request, directory.as_deref());
            let order = order.map(|order| (order, peer_of(&connection)));
            let reply = match (request, order) {
                (CoordinatorRequest::BeginJoin(join), _) => {
                    let begun = begin_join(&coordinator, office, &connection, join).await;
                    begun.unwrap_or_else(CoordinatorReply::Refused)
                }
                (request, Some((order, peer))) => {
                    if let Some(refusal) = coordinator.refusal() {
                        refusal
                    } else {
                        let record = order.record(peer, &coordinator).await;
                        audited(&audit, record, coordinator.handle(request)).await
                    }
                }
                (request, None) => {
                    let mut reply = coordinator.handle(request).await;
                    if let CoordinatorReply::Status(status) = &mut reply {
                        status.audit_failure = audit.failure();
                        status.coordinator_space = disk.space().await;
                    }
                    reply
                }
            };
            let is_done = !matches!(
                reply,
                CoordinatorReply::Refused(_) | CoordinatorReply::Busy(_)
            );
            if let Some(event) = event.filter(|_| is_done) {
                log.note(event);
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

    fn not_admitted(&self, connection: &Arc<Connection>, why: NotAdmitted) {
        if let Some(work) = &self.work {
            work.not_admitted(why);
        }
        if why == NotAdmitted::Sender {
            let event = self.refusals.event_of_request(&connection.sender());
            if let Some(event) = event {
                self.log.note(event);
            }
        }
    }

    fn not_accepted(&self, address: SocketAddr, reason: &WireError) {
        if let Some(work) = &self.work {
            work.not_accepted(reason);
        }
        let event = self.refusals.event_of(address.ip(), reason);
        if let Some(event) = event {
            self.log.note(event);
        }
    }

    /// If its connection ends, the node itself may have ended.
    fn closed(&self, connection: &Arc<Connection>, reason: &WireError) {
        let node = connection.lost_node(reason);
        if let (Some(node), Some(coordinator)) = (node, self.coordinator.get()) {
            let coordinator = Arc::clone(coordinator);
            let request = ask::Suspect { node };
            tokio::spawn(async move { coordinator.handle(request.into()).await });
        }
    }
}

/// Carries an order out, unless its record in the audit log fails.
async fn audited(
    audit: &AuditLog,
    order: AuditedOrder,
    carry_out: impl Future<Output = CoordinatorReply>,
) -> CoordinatorReply {
    let number = match audit.order(order).await {
        Ok(number) => number,
        Err(NotRecorded { why, may_repeat }) => {
            let sentence = format!("{why}; nothing was changed");
            let denial = Denial::new(Cause::Failure, sentence);
            return if may_repeat {
                CoordinatorReply::Busy(denial)
            } else {
                CoordinatorReply::Refused(denial)
            };
        }
    };
    let reply = carry_out.await;
    audit.outcome(number, Became::of(&reply));
    reply
}
