//! A node process: a store, a listener, and the protocol's `Node` between them.

use crate::array_watch::ArrayWatch;
use crate::certificates::{check_loopback, warn_of_insecurity};
use crate::complaint::Complaint;
use crate::engine::Engine;
use crate::error::{ServerError, io_error, no_randomness};
use crate::identity::Identity;
use crate::listening::listen_on;
use crate::metrics::{Counting, MetricsListener, NodeMetrics, NodeParts, NodeWork, TimedDisk};
use futures::FutureExt;
use gabion_layout::{ClusterId, NodeId, RackId, Start};
use gabion_metrics::serve_metrics;
use gabion_protocol::limits::Limits;
use gabion_protocol::message::{Flow, NodeReply, NodeRequest, PAGE_CHUNK_COUNT, Refusal};
use gabion_protocol::node::{JoinError, Left, Node, NodeOptions};
use gabion_protocol::ports::{Address, Asker, Ports};
use gabion_store::Store;
use gabion_wire::trust::Security;
use gabion_wire::{
    ArrayLook, Connection, Endpoint, Handler, Hello, LinkTable, NotAdmitted, Options, PeerIdentity,
    ProcessPorts, Responder, Role, TrafficMeter, Versions, WireError, probe_links,
};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::Instant;

/// Pause before a node asks again to join.
const JOIN_AGAIN_AFTER: Duration = Duration::from_millis(300);

/// Parameters of a node's start.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Directory of all its files.
    pub directory: PathBuf,
    /// Whether to create a store if there is none. Without it a node without a store is refused:
    /// its disk may not be mounted.
    pub init: bool,
    /// Its rack.
    pub rack: RackId,
    /// Address to listen on, as `host:port`; port 0 takes a free one.
    pub listen: String,
    /// Address of the coordinator, as `host:port`.
    pub coordinator: String,
    /// Its storage engine.
    pub engine: Engine,
    /// Capacity in bytes of a directory; an array knows its own.
    pub capacity_bytes: u64,
    /// Journal segment size in bytes; two segments stay allocated.
    pub journal_segment_bytes: u64,
    /// Bytes of settled records above which logs are merged, for chunks that keep records in the
    /// log.
    pub log_bytes: u64,
    /// Bytes a second for shrinking and merging reserves while there are no updates.
    pub reserve_bytes_per_s: u64,
    /// Directory of the emulated links' table, if links are emulated.
    pub links: Option<PathBuf>,
    /// Its proof of its identity, and its check of its peers.
    pub security: Security,
    /// The versions of the wire that it speaks: [`Versions::CURRENT`], except in tests.
    pub versions: Versions,
    /// Address at which its metrics are served by HTTP, as `host:port`; none for no metrics.
    pub metrics: Option<String>,
    /// The time above which operations are logged with their reason; none for no such log.
    pub slow: Option<Duration>,
}

/// A node that has joined its cluster.
pub struct NodeProcess {
    node: Arc<Node>,
    ports: Arc<ProcessPorts>,
    endpoint: Arc<Endpoint>,
    listener: TcpListener,
    metrics: Option<(MetricsListener, NodeMetrics)>,
}

impl NodeProcess {
    /// Opens the store (and recovers it), listens, and joins; waits for the coordinator without a
    /// limit.
    ///
    /// # Errors
    /// If the directory, the address or the store cannot be used, or belongs to another node; if
    /// the coordinator refuses, or belongs to another cluster.
    ///
    /// # Panics
    /// If recovery of the store panics, which is a bug.
    pub async fn start(config: NodeConfig) -> Result<Self, ServerError> {
        let NodeConfig {
            directory,
            init,
            rack,
            listen,
            coordinator,
            engine,
            capacity_bytes,
            journal_segment_bytes,
            log_bytes,
            reserve_bytes_per_s,
            links,
            security,
            versions,
            metrics,
            slow,
        } = config;
        let counting = Counting::begin(metrics.as_deref(), slow).await?;
        let store_options = store_options(journal_segment_bytes, log_bytes);
        let engine = (engine, counting.work.clone());
        let (opened, mut identity) = open(engine, directory, init, store_options).await?;
        identity.begin()?;
        let (listener, address) = listen_as(&listen, &security).await?;
        let links = open_links(links)?;
        let meter = Arc::new(TrafficMeter::default());
        let wire = wire_options(versions, &security);
        let handler = Arc::new(NodeHandler::new(counting.work.clone()));
        let unnamed = nameless(identity.member, &handler, (&meter, wire.clone()));
        let array = opened.array.clone();
        let array = array.map(|array| Box::new(move || array.status()) as ArrayLook);
        let ports = ProcessPorts::new(Some(coordinator), unnamed).map_err(no_randomness)?;
        let ports = Arc::new(ports.keeping(array).observed_by(counting.observer()));
        let options = NodeOptions {
            node: identity.member.map(|(_, node)| node),
            rack,
            address: address.to_string(),
            capacity_bytes: opened.capacity_bytes.unwrap_or(capacity_bytes),
            reserve_bytes_per_s,
            page_chunk_count: PAGE_CHUNK_COUNT,
            start: this_start(&identity, &ports),
            limits: Limits::default(),
        };
        let node = join(opened.store, &ports, options, &mut identity).await?;
        get_own_name(&ports, &security, node.id()).await?;
        identity.joined(node.cluster(), node.id())?;
        let member = (node.cluster(), node.id());
        let endpoint = endpoint(member, rack, Options { links, ..wire }, &handler, &meter);
        ports.use_endpoint(Arc::clone(&endpoint));
        ports.keep_fresh();
        answer_own_calls(&ports, &node);
        handler.serve(Serving {
            node: Arc::clone(&node),
            ports: Arc::clone(&ports),
        });
        let shown = NodeParts {
            node: Arc::clone(&node),
            rack,
            meter,
            array: opened.array,
        };
        Ok(Self {
            node,
            ports,
            endpoint,
            listener,
            metrics: counting.served(shown),
        })
    }

    /// The address of its metrics, if they are served.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(|(listener, _)| listener.address)
    }

    /// The node's id.
    pub fn id(&self) -> NodeId {
        self.node.id()
    }

    /// Serves until the node has been drained, its store or the listener fails, or the future is
    /// dropped.
    ///
    /// # Errors
    /// If the store has failed, or the listener fails.
    pub async fn run(self) -> Result<(), ServerError> {
        let alive = tokio::spawn(Arc::clone(&self.node).keep_alive());
        let (node, ports) = (Arc::clone(&self.node), Arc::clone(&self.ports));
        let rates = Arc::clone(ports.link_rates());
        let own = node.id();
        let meter = Arc::clone(self.endpoint.meter());
        let nodes = move || node.nodes();
        if let Some((MetricsListener { listener, .. }, metrics)) = self.metrics {
            tokio::spawn(serve_metrics(listener, Arc::new(metrics)));
        }
        tokio::spawn(probe_links(ports, rates, own, nodes, move || {
            meter.snapshot()
        }));
        tokio::select! {
            left = alive => match left {
                Ok(Left::StoreFailed(cause)) => {
                    tracing::error!(cause, "the store has failed; leaving");
                    Err(ServerError::StoreFailed { cause })
                }
                left => {
                    tracing::info!(?left, "drained; leaving");
                    Ok(())
                }
            },
            failed = self.endpoint.serve(self.listener) => Err(failed.into()),
        }
    }
}

/// Lets the node call itself without a connection, as a primary calls its participants.
fn answer_own_calls(ports: &ProcessPorts, node: &Arc<Node>) {
    let (id, own) = (node.id(), Arc::downgrade(node));
    let answer = move |request| match own.upgrade() {
        Some(node) => node.handle(request, Address::Node(id), Asker::Member),
        None => futures::future::ready(NodeReply::Refused(Refusal::NoLease)).boxed(),
    };
    ports.set_own(id, Box::new(answer));
}

fn store_options(segment_bytes: u64, log_bytes: u64) -> gabion_store::Options {
    gabion_store::Options {
        segment_bytes,
        log_bytes,
        ..gabion_store::Options::default()
    }
}

/// A store, with the properties of its disk.
struct Opened {
    store: Arc<Store>,
    /// Its capacity in bytes, if it is on an array.
    capacity_bytes: Option<u64>,
    array: Option<ArrayWatch>,
}

/// Opens the store in a node's directory and checks that it belongs to that node. Creates a missing
/// one only with `init`: an unmounted disk looks like a new one.
async fn open(
    (engine, work): (Engine, Option<Arc<NodeWork>>),
    directory: PathBuf,
    init: bool,
    options: gabion_store::Options,
) -> Result<(Opened, Identity), ServerError> {
    let opened = tokio::task::spawn_blocking(move || {
        let mut identity = Identity::read(&directory)?;
        let path = directory.join("store");
        let missing = || match identity.member {
            Some((cluster, node)) => ServerError::StoreGone {
                node,
                cluster,
                path: path.clone(),
            },
            None => ServerError::NoStore { path: path.clone() },
        };
        if let Some(has) = engine.other_in(&directory) {
            return Err(ServerError::OtherEngine { directory, has });
        }
        if init {
            std::fs::create_dir_all(&directory).map_err(io_error("create", &directory))?;
        } else if !engine.exists(&path) {
            return Err(missing());
        }
        let disk = engine.open(&path)?;
        if !init && !Store::is_on(&*disk.disk)? {
            return Err(missing());
        }
        let opened = match work {
            Some(work) => Arc::new(TimedDisk::new(disk.disk, work)),
            None => disk.disk,
        };
        let (store, report) = Store::open(opened, options)?;
        tracing::info!(?report, path = %path.display(), "store opened");
        identity.check(&store.identity())?;
        let opened = Opened {
            store: Arc::new(store),
            capacity_bytes: disk.capacity_bytes,
            array: disk.watch,
        };
        Ok((opened, identity))
    });
    opened.await.expect("recovery does not panic")
}

/// The address of a listener.
fn address_of(listener: &TcpListener, listen: &str) -> Result<SocketAddr, ServerError> {
    let address = listener.local_addr();
    address.map_err(|source| ServerError::Listen {
        address: listen.to_owned(),
        source,
    })
}

/// Listens on an address, which must be of loopback without certificates.
async fn listen_as(
    listen: &str,
    security: &Security,
) -> Result<(TcpListener, SocketAddr), ServerError> {
    let listener = listen_on(listen).await?;
    let address = address_of(&listener, listen)?;
    if security.name().is_none() {
        check_loopback(address)?;
        warn_of_insecurity();
    }
    Ok((listener, address))
}

/// This start of the node.
fn this_start(identity: &Identity, ports: &ProcessPorts) -> Start {
    Start {
        number: identity.incarnation,
        nonce: ports.random(),
    }
}

/// Joins as soon as the coordinator can be reached.
async fn join(
    store: Arc<Store>,
    ports: &Arc<ProcessPorts>,
    mut options: NodeOptions,
    identity: &mut Identity,
) -> Result<Arc<Node>, ServerError> {
    let mut complaint = Complaint::default();
    loop {
        // A coordinator of another cluster will not become the right one.
        ports.check_cluster().await?;
        let world: Arc<dyn Ports> = Arc::clone(ports) as Arc<dyn Ports>;
        match Node::join(Arc::clone(&store), world, options.clone()).await {
            Ok(node) => return Ok(node),
            Err(JoinError::Unreachable(why)) => {
                if complaint.is_due(&why, Instant::now()) {
                    tracing::warn!(why, "waiting for the coordinator");
                }
            }
            Err(JoinError::Superseded(number)) => {
                tracing::warn!(
                    number,
                    "the directory is an earlier copy: a later run of this node has joined"
                );
                identity.begin_above(number)?;
                options.start = this_start(identity, ports);
            }
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(JOIN_AGAIN_AFTER).await;
    }
}

fn open_links(directory: Option<PathBuf>) -> Result<Option<Arc<LinkTable>>, WireError> {
    let opened = directory.map(|directory| LinkTable::open(&directory).map(Arc::new));
    opened.transpose()
}

/// The limits of a node's connections, without emulated links.
fn wire_options(versions: Versions, security: &Security) -> Options {
    Options {
        versions,
        security: security.clone(),
        ..Options::default()
    }
}

/// The endpoint until the coordinator has assigned an id: requests have no node id, and links no
/// emulation.
fn nameless(
    member: Option<(ClusterId, NodeId)>,
    handler: &Arc<NodeHandler>,
    (meter, options): (&Arc<TrafficMeter>, Options),
) -> Arc<Endpoint> {
    let hello = Hello {
        cluster: member.map(|(cluster, _)| cluster),
        role: Role::Node,
        identity: PeerIdentity::default(),
    };
    let handler: Arc<dyn Handler> = Arc::clone(handler) as Arc<dyn Handler>;
    Endpoint::new(hello, handler, options, Arc::clone(meter))
}

/// Gets a new node a certificate with its id; checks that of any other.
async fn get_own_name(
    ports: &ProcessPorts,
    security: &Security,
    node: NodeId,
) -> Result<(), ServerError> {
    if security.name().is_some_and(|name| name.node.is_none()) {
        ports.certify().await?;
    }
    match security.name() {
        Some(name) if name.node != Some(node) => Err(ServerError::OtherCertificate {
            found: name.holder(),
            wanted: node.to_string(),
        }),
        _ => Ok(()),
    }
}

fn endpoint(
    (cluster, node): (ClusterId, NodeId),
    rack: RackId,
    options: Options,
    handler: &Arc<NodeHandler>,
    meter: &Arc<TrafficMeter>,
) -> Arc<Endpoint> {
    let identity = PeerIdentity {
        node: Some(node),
        rack: Some(rack),
    };
    let hello = Hello {
        cluster: Some(cluster),
        role: Role::Node,
        identity,
    };
    let handler: Arc<dyn Handler> = Arc::clone(handler) as Arc<dyn Handler>;
    Endpoint::new(hello, handler, options, Arc::clone(meter))
}

/// Routes requests of connections to the node, once it has joined.
struct NodeHandler {
    serving: OnceLock<Serving>,
    /// Counts what does not reach the node; none without metrics.
    work: Option<Arc<NodeWork>>,
}

struct Serving {
    node: Arc<Node>,
    ports: Arc<ProcessPorts>,
}

impl NodeHandler {
    /// Refuses requests until it serves.
    fn new(work: Option<Arc<NodeWork>>) -> Self {
        let serving = OnceLock::new();
        Self { serving, work }
    }

    fn serve(&self, serving: Serving) {
        assert!(
            self.serving.set(serving).is_ok(),
            "a process serves one node"
        );
    }
}

impl Handler for NodeHandler {
    fn node_request(
        &self,
        connection: &Arc<Connection>,
        request: NodeRequest,
        responder: Responder<NodeRequest>,
    ) {
        let Some(serving) = self.serving.get() else {
            responder.refuse("the node has not joined its cluster yet");
            return;
        };
        let origin = serving.ports.origin_of(connection);
        let answer = serving
            .node
            .handle(request, origin, connection.sender().asker());
        tokio::spawn(async move { responder.reply(&answer.await) });
    }

    fn flow(&self, connection: &Arc<Connection>, flow: Flow) {
        if let Some(serving) = self.serving.get() {
            let origin = serving.ports.origin_of(connection);
            serving.node.flow_from(origin, flow);
        }
    }

    fn not_admitted(&self, _: &Arc<Connection>, why: NotAdmitted) {
        if let Some(work) = &self.work {
            work.not_admitted(why);
        }
    }

    fn not_accepted(&self, _: SocketAddr, reason: &WireError) {
        if let Some(work) = &self.work {
            work.not_accepted(reason);
        }
    }

    fn closed(&self, connection: &Arc<Connection>, reason: &WireError) {
        tracing::debug!(peer = ?connection.peer(), %reason, "connection closed");
        if let Some(serving) = self.serving.get() {
            serving.ports.forget(connection);
            if let Some(peer) = connection.lost_node(reason) {
                serving.ports.suspect(peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_store_is_created_only_with_init() {
        let root = tempfile::tempdir().unwrap();
        let open = async |init| {
            let directory = root.path().join("node");
            let options = gabion_store::Options::default();
            let opened = open((Engine::Files, None), directory, init, options).await;
            opened.map(|(opened, _)| opened.store.chunks().unwrap().len())
        };
        let refused = async || {
            let error = open(false).await.expect_err("there is no store");
            assert!(matches!(error, ServerError::NoStore { .. }), "{error}");
        };
        refused().await;
        assert!(!root.path().join("node").exists(), "nothing was made");
        // An unmounted disk leaves an empty directory.
        std::fs::create_dir_all(root.path().join("node/store")).unwrap();
        refused().await;
        assert_eq!(open(true).await.unwrap(), 0);
        assert_eq!(open(false).await.unwrap(), 0);
    }

    #[test]
    fn a_lasting_problem_is_logged_once_a_minute() {
        let begun = Instant::now();
        let mut complaint = Complaint::default();
        let mut told = |what, after_s| complaint.is_due(what, begun + Duration::from_secs(after_s));
        assert!(told("no process answers", 0));
        assert!(!told("no process answers", 1));
        assert!(!told("no process answers", 59));
        assert!(told("the operator has not agreed", 59), "that is news");
        assert!(!told("the operator has not agreed", 100));
        assert!(told("the operator has not agreed", 119));
    }
}
