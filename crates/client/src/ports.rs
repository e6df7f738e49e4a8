//! The protocol's ports for a client: it calls others and serves nothing; the flow frames that
//! nodes send it go to the runs that it started.

use futures::FutureExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::future::BoxFuture;
use futures::stream::StreamExt;
use gabion_layout::NodeId;
use gabion_protocol::message::{
    CoordinatorReply, CoordinatorRequest, Flow, Meter, NodeReply, NodeRequest, NodeStatus, Refusal,
    RunId,
};
use gabion_protocol::ports::{Address, CallError, Passage, Ports};
use gabion_wire::{
    Connection, Doubts, Endpoint, Handler, Hello, LeaseClock, Options, Peers, TrafficMeter,
    WireError,
};
use rand::Rng as _;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng as _;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// A client's connections, clock and chance.
pub(crate) struct ClientPorts {
    coordinator: String,
    peers: Arc<Peers>,
    addresses: Mutex<BTreeMap<NodeId, String>>,
    doubts: Doubts,
    router: Arc<Router>,
    clock: LeaseClock,
    random: Mutex<ChaCha20Rng>,
    /// Kept so that tasks can be started from a destructor, which may run anywhere.
    runtime: Handle,
}

impl ClientPorts {
    /// Ports to the cluster of the coordinator at `coordinator`. Connects to nobody yet.
    ///
    /// # Errors
    /// When the system gives no randomness.
    pub(crate) fn new(coordinator: &str, options: Options) -> Result<Self, std::io::Error> {
        let mut seed = [0; 32];
        File::open("/dev/urandom")?.read_exact(&mut seed)?;
        let router = Arc::new(Router::default());
        let handler: Arc<dyn Handler> = Arc::<Router>::clone(&router);
        let meter = Arc::new(TrafficMeter::default());
        let endpoint = Endpoint::new(Hello::client(), handler, options, meter);
        Ok(Self {
            coordinator: coordinator.to_owned(),
            peers: Arc::new(Peers::new(endpoint)),
            addresses: Mutex::default(),
            doubts: Doubts::default(),
            router,
            clock: LeaseClock::start(),
            random: Mutex::new(ChaCha20Rng::from_seed(seed)),
            runtime: Handle::current(),
        })
    }

    /// The frames of a run, from now until the registration is dropped.
    pub(crate) fn register(&self, run: RunId) -> Registration {
        let (sender, flows) = unbounded();
        let previous = lock(&self.router.runs).insert(run, sender);
        assert!(previous.is_none(), "runs are drawn at random from 2^64");
        Registration {
            run,
            router: Arc::clone(&self.router),
            flows,
        }
    }

    /// Sees to it that there is a connection to the coordinator.
    ///
    /// # Errors
    /// When there is none in time; nothing has been asked then.
    pub(crate) async fn reach_coordinator(&self, deadline_ms: u64) -> Result<(), CallError> {
        let peer = || "the coordinator".to_owned();
        let deadline = Instant::now() + Duration::from_millis(deadline_ms);
        let reached = async {
            let reached = self.peers.get(&self.coordinator).await;
            reached.map(|_| ()).map_err(|error| failed(peer(), &error))
        };
        in_time(peer(), deadline, reached).await
    }

    /// Sees to it that there is a connection to a node.
    ///
    /// # Errors
    /// When there is none in time; nothing has been asked then.
    pub(crate) async fn reach_node(&self, node: NodeId, deadline_ms: u64) -> Result<(), CallError> {
        let deadline = Instant::now() + Duration::from_millis(deadline_ms);
        let reached = in_time(node.to_string(), deadline, self.connection(node));
        reached.await.map(drop)
    }

    /// What this process sent so far.
    pub(crate) fn meter(&self) -> Meter {
        self.peers.endpoint().meter().snapshot()
    }

    fn connection(&self, node: NodeId) -> BoxFuture<'static, Result<Arc<Connection>, CallError>> {
        let address = lock(&self.addresses).get(&node).cloned();
        let peers = Arc::clone(&self.peers);
        let connection = async move {
            let unknown = || CallError {
                peer: node.to_string(),
                reason: "is not known here".to_owned(),
            };
            let address = address.ok_or_else(unknown)?;
            peers
                .reach(node, &address)
                .await
                .map_err(|error| failed(node.to_string(), &error))
        };
        connection.boxed()
    }
}

/// A run that this client takes part in.
pub(crate) struct Registration {
    run: RunId,
    router: Arc<Router>,
    /// The run's frames.
    pub(crate) flows: UnboundedReceiver<Flow>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        lock(&self.router.runs).remove(&self.run);
    }
}

/// Hands incoming flow frames to their runs.
#[derive(Default)]
struct Router {
    runs: Mutex<BTreeMap<RunId, UnboundedSender<Flow>>>,
}

impl Handler for Router {
    fn flow(&self, _: &Arc<Connection>, flow: Flow) {
        // Frames of a run that is over have nobody to go to.
        if let Some(run) = lock(&self.runs).get(&flow.run()) {
            let _ = run.unbounded_send(flow);
        }
    }
}

fn failed(peer: String, error: &WireError) -> CallError {
    CallError {
        peer,
        reason: format!("cannot be asked: {error}"),
    }
}

/// Waits for `call` until the deadline, connecting included.
async fn in_time<R>(
    peer: String,
    deadline: Instant,
    call: impl Future<Output = Result<R, CallError>>,
) -> Result<R, CallError> {
    let late = |_| CallError {
        peer,
        reason: "did not answer in time".to_owned(),
    };
    tokio::time::timeout_at(deadline, call)
        .await
        .map_err(late)?
}

impl Ports for ClientPorts {
    fn call_node(
        &self,
        node: NodeId,
        request: NodeRequest,
        deadline_ms: u64,
    ) -> BoxFuture<'static, Result<NodeReply, CallError>> {
        let connection = self.connection(node);
        let deadline = Instant::now() + Duration::from_millis(deadline_ms);
        let call = async move {
            let reply = connection.await?.call_node(&request, deadline).await;
            reply.map_err(|error| failed(node.to_string(), &error))
        };
        in_time(node.to_string(), deadline, call).boxed()
    }

    fn call_coordinator(
        &self,
        request: CoordinatorRequest,
        deadline_ms: u64,
    ) -> BoxFuture<'static, Result<CoordinatorReply, CallError>> {
        let peers = Arc::clone(&self.peers);
        let address = self.coordinator.clone();
        let deadline = Instant::now() + Duration::from_millis(deadline_ms);
        let peer = || "the coordinator".to_owned();
        let call = async move {
            let failed = |error| failed(peer(), &error);
            let connection = peers.get(&address).await.map_err(failed)?;
            connection
                .call_coordinator(&request, deadline)
                .await
                .map_err(failed)
        };
        in_time(peer(), deadline, call).boxed()
    }

    fn send_flows(
        &self,
        to: Address,
        mut flows: UnboundedReceiver<Flow>,
    ) -> BoxFuture<'static, Result<(), Refusal>> {
        let Address::Node(node) = to else {
            // Nobody asks a client for anything.
            let nobody = Refusal::Invalid("a client has no asker".to_owned());
            return futures::future::ready(Err(nobody)).boxed();
        };
        let connection = self.connection(node);
        let send = async move {
            let connection = connection
                .await
                .map_err(|error| Refusal::Unavailable(error.peer))?;
            while let Some(flow) = flows.next().await {
                let sent = connection.send_flow(flow).await;
                sent.map_err(|_| Refusal::Unavailable(node.to_string()))?;
            }
            Ok(())
        };
        send.boxed()
    }

    fn learn_nodes(&self, nodes: &[NodeStatus]) {
        let mut addresses = lock(&self.addresses);
        for node in nodes {
            addresses.insert(node.node, node.address.clone());
        }
    }

    fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    fn sleep_ms(&self, ms: u64) -> BoxFuture<'static, ()> {
        tokio::time::sleep(Duration::from_millis(ms)).boxed()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.runtime.spawn(task);
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) {
        self.runtime.spawn_blocking(work);
    }

    fn doubt(&self, node: NodeId, is_silent: bool) {
        self.doubts.note(node, is_silent);
    }

    fn is_doubted(&self, node: NodeId) -> bool {
        self.doubts.holds(node)
    }

    fn passage(&self, node: NodeId) -> Passage {
        let address = lock(&self.addresses).get(&node).cloned();
        address.map_or_else(Passage::default, |address| self.peers.passage(&address))
    }

    fn random(&self) -> u64 {
        lock(&self.random).next_u64()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Maps and generators are whole after every call, whoever panics between two of them.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
