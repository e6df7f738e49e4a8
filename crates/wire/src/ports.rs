//! The protocol's ports on tokio, of clients, nodes and the coordinator: connections, a clock, randomness, and
//! threads for the disk.

use crate::certificate_call::{CertificateReply, CertificateRequest};
use crate::clock::LeaseClock;
use crate::connection::Connection;
use crate::coordinators::Coordinators;
use crate::disk_watch::DiskWatch;
use crate::endpoint::Endpoint;
use crate::error::WireError;
use crate::handler::Handler;
use crate::link_rates::LinkRates;
use crate::peers::Peers;
use crate::randomness::random_bytes;
use crate::trust::Security;
use futures::FutureExt;
use futures::channel::mpsc::UnboundedReceiver;
use futures::future::BoxFuture;
use futures::stream::StreamExt;
use gabion_layout::NodeId;
use gabion_protocol::client_ports::{ClientPorts, FlowRouter, RunFlows};
use gabion_protocol::doubts::Doubts;
use gabion_protocol::event::Event;
use gabion_protocol::locks::lock;
use gabion_protocol::measure::Measure;
use gabion_protocol::message::{
    ArrayStatus, Cause, CoordinatorReply, CoordinatorRequest, Denial, EventPage, Flow, Meter,
    NodeReply, NodeRequest, NodeStatus, Purpose, Refusal, RunId, ask,
};
use gabion_protocol::ports::{Address, CallError, Passage, Ports};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

/// The coordinator's name in error messages.
const COORDINATOR: &str = "the coordinator";

/// Answers the process's calls to itself.
pub type Own = Box<dyn Fn(NodeRequest) -> BoxFuture<'static, NodeReply> + Send + Sync>;

/// Reports the health of the array that a process's store is on.
pub type ArrayLook = Box<dyn Fn() -> ArrayStatus + Send + Sync>;

/// Learns what a process does, for its metrics and its event log. Its methods must not block.
pub trait Observer: Send + Sync + 'static {
    /// Work has been measured.
    fn measured(&self, measure: &Measure<'_>);

    /// An event has happened.
    fn happened(&self, event: &Event);

    /// A part of the event log; empty where none is kept.
    fn event_page(&self, _asked: &ask::Events) -> EventPage {
        EventPage::default()
    }

    /// The reason if the disk of the coordinator's metadata is full; none where this is not monitored.
    fn full_metadata_disk(&self) -> Option<String> {
        None
    }
}

/// The ports of one process.
pub struct ProcessPorts {
    /// The coordinator's possible addresses; none for the coordinator itself.
    coordinator: Option<Arc<Coordinators>>,
    /// Replaced once, when a node learns its id.
    peers: RwLock<Arc<Peers>>,
    addresses: RwLock<BTreeMap<NodeId, String>>,
    /// Connections that requests came by, by [`origin_of`].
    origins: Mutex<BTreeMap<u64, Weak<Connection>>>,
    own: OnceLock<(NodeId, Own)>,
    clock: LeaseClock,
    random: Mutex<ChaCha20Rng>,
    /// Measured link rates.
    link_rates: Arc<LinkRates>,
    doubts: Doubts,
    disk: DiskWatch,
    /// The array that a node's store is on, if there is one.
    array: Option<ArrayLook>,
    /// Learns what this process does; none where nothing is measured.
    observer: Option<Arc<dyn Observer>>,
    /// The receivers of frames for the runs in which this process takes part as a client.
    router: Arc<FlowRouter>,
    /// Kept so that destructors can start tasks, wherever they run.
    runtime: Handle,
}

/// Passes the frames for a client to its runs. A client serves no requests.
#[derive(Clone, Default)]
pub(crate) struct ClientHandler(Arc<FlowRouter>);

impl Handler for ClientHandler {
    fn flow(&self, _: &Arc<Connection>, flow: Flow) {
        self.0.route(flow);
    }
}

impl ProcessPorts {
    /// Ports that talk through `endpoint`'s connections, with the coordinator at `coordinator` (`host:port`, or several
    /// separated by commas, of which one leads); the coordinator's own have none.
    ///
    /// # Errors
    /// When the system gives no randomness.
    ///
    /// # Panics
    /// Outside of a tokio run-time.
    pub fn new(
        coordinator: Option<String>,
        endpoint: Arc<Endpoint>,
    ) -> Result<Self, std::io::Error> {
        let seed = random_bytes()?;
        Ok(Self {
            coordinator: coordinator.map(|list| Arc::new(Coordinators::new(&list))),
            peers: RwLock::new(Arc::new(Peers::new(endpoint))),
            addresses: RwLock::default(),
            origins: Mutex::default(),
            own: OnceLock::new(),
            clock: LeaseClock::start(),
            random: Mutex::new(ChaCha20Rng::from_seed(seed)),
            link_rates: Arc::default(),
            doubts: Doubts::default(),
            disk: DiskWatch::default(),
            array: None,
            observer: None,
            router: Arc::default(),
            runtime: Handle::current(),
        })
    }

    /// The same ports for a client, whose runs get the frames of `handler`.
    pub(crate) fn of_client(self, handler: &ClientHandler) -> Self {
        Self {
            router: Arc::clone(&handler.0),
            ..self
        }
    }

    /// The same ports for a node with its store on this array, if there is one.
    #[must_use]
    pub fn keeping(self, array: Option<ArrayLook>) -> Self {
        Self { array, ..self }
    }

    /// The same ports for a process whose work is observed, if it is.
    #[must_use]
    pub fn observed_by(self, observer: Option<Arc<dyn Observer>>) -> Self {
        Self { observer, ..self }
    }

    /// Measured link rates.
    pub fn link_rates(&self) -> &Arc<LinkRates> {
        &self.link_rates
    }

    /// Connects to the coordinator, if it can be reached.
    ///
    /// # Errors
    /// [`WireError::WrongCluster`], [`WireError::Untrusted`], [`WireError::NoTls`] and [`WireError::WantsTls`]: all
    /// other errors may be temporary.
    pub async fn check_cluster(&self) -> Result<(), WireError> {
        let Some(coordinator) = &self.coordinator else {
            return Ok(());
        };
        match coordinator.reach(&self.peers()).await {
            Err(error) if error.is_lasting() => Err(error),
            _ => Ok(()),
        }
    }

    /// This process's proof of its identity, and its check of its peers.
    pub(crate) fn security(&self) -> Security {
        self.peers().endpoint().options.security.clone()
    }

    pub(crate) fn refresh_interval(&self) -> Duration {
        self.peers().endpoint().options.refresh_interval
    }

    /// Closes the connections of peers whose certificates are revoked by now.
    pub(crate) fn close_revoked(&self) {
        self.peers().endpoint().close_revoked();
    }

    /// Asks the coordinator about certificates.
    pub(crate) async fn ask_of_certificates(
        &self,
        request: &CertificateRequest,
        deadline: Instant,
    ) -> Result<CertificateReply, WireError> {
        let unknown = || WireError::Closed("this process is the coordinator".to_owned());
        let coordinator = self.coordinator.as_ref().ok_or_else(unknown)?;
        coordinator.call(&self.peers(), request, deadline).await
    }

    /// Switches to another endpoint.
    pub fn use_endpoint(&self, endpoint: Arc<Endpoint>) {
        let peers = Arc::new(Peers::new(endpoint));
        *self.peers.write().unwrap_or_else(PoisonError::into_inner) = peers;
    }

    /// Answers calls to `node` by itself from now on.
    ///
    /// # Panics
    /// When it is called a second time.
    pub fn set_own(&self, node: NodeId, own: Own) {
        assert!(
            self.own.set((node, own)).is_ok(),
            "a process is one node for all its life"
        );
    }

    /// The address of the peer that sends requests over `connection`.
    pub fn origin_of(&self, connection: &Arc<Connection>) -> Address {
        let id = Arc::as_ptr(connection) as usize as u64;
        lock(&self.origins)
            .entry(id)
            .or_insert_with(|| Arc::downgrade(connection));
        Address::Origin(id)
    }

    /// Forgets a connection that is closed.
    pub fn forget(&self, connection: &Arc<Connection>) {
        lock(&self.origins).remove(&(Arc::as_ptr(connection) as usize as u64));
    }

    fn peers(&self) -> Arc<Peers> {
        Arc::clone(&self.peers.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn address_of(&self, node: NodeId) -> Option<String> {
        self.addresses
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&node)
            .cloned()
    }

    /// A future that finds the connection to an address of flows.
    fn connection(&self, to: Address) -> BoxFuture<'static, Result<Arc<Connection>, CallError>> {
        match to {
            Address::Node(node) => {
                let (peers, address) = (self.peers(), self.address_of(node));
                async move {
                    let address = address.ok_or_else(|| unknown(node))?;
                    peers
                        .reach(node, &address)
                        .await
                        .map_err(|error| failed(node.to_string(), &error))
                }
                .boxed()
            }
            Address::Origin(id) => {
                let connection = lock(&self.origins).get(&id).and_then(Weak::upgrade);
                let gone = || CallError {
                    peer: "the asker".to_owned(),
                    reason: "has closed its connection".to_owned(),
                };
                futures::future::ready(connection.ok_or_else(gone)).boxed()
            }
        }
    }
}

fn unknown(node: NodeId) -> CallError {
    CallError {
        peer: node.to_string(),
        reason: "is not known here".to_owned(),
    }
}

fn failed(peer: String, error: &WireError) -> CallError {
    CallError {
        peer,
        reason: format!("cannot be asked: {error}"),
    }
}

fn late(peer: String) -> CallError {
    let reason = "did not answer in time".to_owned();
    CallError { peer, reason }
}

fn deadline_in(ms: u64) -> Instant {
    Instant::now() + Duration::from_millis(ms)
}

impl Ports for ProcessPorts {
    fn call_node(
        &self,
        node: NodeId,
        request: NodeRequest,
        deadline_ms: u64,
    ) -> BoxFuture<'static, Result<NodeReply, CallError>> {
        let deadline = deadline_in(deadline_ms);
        if let Some((own, answer)) = self.own.get()
            && *own == node
        {
            // As on any other node, the work continues after its caller is cancelled.
            let answer = self.runtime.spawn(answer(request));
            return async move {
                match timeout_at(deadline, answer).await {
                    Ok(Ok(reply)) => Ok(reply),
                    Ok(Err(_)) => Err(CallError {
                        peer: node.to_string(),
                        reason: "has failed at it".to_owned(),
                    }),
                    Err(_) => Err(late(node.to_string())),
                }
            }
            .boxed();
        }
        let connection = self.connection(Address::Node(node));
        let peers = self.peers();
        let watched = self.address_of(node).and_then(|at| peers.watch(&at));
        async move {
            let call = async {
                match connection.await?.call_node(&request, deadline).await {
                    // Asking again is no use, as it is after a silence.
                    Err(error @ WireError::Unsupported { .. }) => Ok(NodeReply::NotBegun(
                        Refusal::Unsupported(format!("{node} cannot be asked: {error}")),
                    )),
                    reply => reply.map_err(|error| failed(node.to_string(), &error)),
                }
            };
            // Connecting may take longer than the deadline.
            let answered = timeout_at(deadline, call).await;
            if Instant::now() >= deadline
                && let Some(watched) = watched
            {
                peers.note_late(watched);
            }
            answered.unwrap_or_else(|_| Err(late(node.to_string())))
        }
        .boxed()
    }

    fn call_coordinator(
        &self,
        request: CoordinatorRequest,
        deadline_ms: u64,
    ) -> BoxFuture<'static, Result<CoordinatorReply, CallError>> {
        let peers = self.peers();
        let coordinator = self.coordinator.clone();
        let deadline = deadline_in(deadline_ms);
        async move {
            let coordinator = coordinator.ok_or_else(no_coordinator)?;
            let failed = |error| failed(COORDINATOR.to_owned(), &error);
            let call = coordinator.call(&peers, &request, deadline);
            let watched = peers.watch(coordinator.present());
            let answered = timeout_at(deadline, call).await;
            if Instant::now() >= deadline
                && let Some(watched) = watched
            {
                peers.note_late(watched);
            }
            match answered {
                Ok(Err(error @ WireError::Unsupported { .. })) => {
                    let why = format!("{COORDINATOR} cannot be asked: {error}");
                    Ok(CoordinatorReply::Refused(Denial::new(
                        Cause::Unsupported,
                        why,
                    )))
                }
                Ok(answered) => answered.map_err(failed),
                Err(_) => Err(late(COORDINATOR.to_owned())),
            }
        }
        .boxed()
    }

    fn send_flows(
        &self,
        to: Address,
        mut flows: UnboundedReceiver<Flow>,
    ) -> BoxFuture<'static, Result<(), Refusal>> {
        let connection = self.connection(to);
        let rates = Arc::clone(&self.link_rates);
        async move {
            let gone = |error: CallError| Refusal::Unavailable(error.peer);
            let connection = connection.await.map_err(gone)?;
            let _open = connection.usage().begin_stream();
            let (mut began, mut repair_bytes) = (None, 0);
            while let Some(flow) = flows.next().await {
                if let Flow::Slice { purpose, bytes, .. } = &flow
                    && *purpose == Purpose::Repair
                {
                    // The time starts at the first slice, which does not count.
                    match began {
                        None => began = Some(Instant::now()),
                        Some(_) => repair_bytes += bytes.len() as u64,
                    }
                }
                let sent = connection.send_flow(flow).await;
                sent.map_err(|_| Refusal::Unavailable(name(to)))?;
            }
            if let (Address::Node(node), Some(began)) = (to, began) {
                rates.note_stream(node, repair_bytes, began.elapsed());
            }
            Ok(())
        }
        .boxed()
    }

    fn learn_nodes(&self, nodes: &[NodeStatus]) {
        let mut addresses = self
            .addresses
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        for node in nodes {
            if node.address.is_empty() {
                addresses.remove(&node.node);
            } else {
                addresses.insert(node.node, node.address.clone());
            }
        }
    }

    fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    fn now_us(&self) -> u64 {
        self.clock.now_us()
    }

    fn sleep_ms(&self, ms: u64) -> BoxFuture<'static, ()> {
        tokio::time::sleep(Duration::from_millis(ms)).boxed()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.runtime.spawn(task);
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) {
        let waiting = self.disk.begin();
        self.runtime.spawn_blocking(move || {
            work();
            drop(waiting);
        });
    }

    fn disk_hangs(&self) -> bool {
        self.disk.hangs(Instant::now())
    }

    fn disk_hang(&self) -> BoxFuture<'static, ()> {
        self.disk.clone().hang().boxed()
    }

    fn disk_delay(&self) -> BoxFuture<'static, ()> {
        self.disk.clone().delay().boxed()
    }

    fn try_disk(&self, work: Box<dyn FnOnce() + Send>) {
        let disk = self.disk.clone();
        // The threads of other work may all wait for the disk. Without a thread there is no try.
        let thread = std::thread::Builder::new().name("disk-try".to_owned());
        let _ = thread.spawn(move || {
            let trying = disk.begin_try();
            work();
            drop(trying);
        });
    }

    fn take_link_rates(&self) -> Vec<(NodeId, u64)> {
        self.link_rates.take_news()
    }

    fn array(&self) -> Option<ArrayStatus> {
        self.array.as_ref().map(|look| look())
    }

    fn measure(&self, measure: &Measure<'_>) {
        if let Some(observer) = &self.observer {
            observer.measured(measure);
        }
    }

    fn note_event(&self, event: &Event) {
        if let Some(observer) = &self.observer {
            observer.happened(event);
        }
        let node = event.node().map(|node| node.0);
        let stripe = event.stripe().map(|stripe| stripe.0);
        if event.is_warning() {
            tracing::warn!(target: "cluster", node, stripe, "{event}");
        } else {
            tracing::info!(target: "cluster", node, stripe, "{event}");
        }
    }

    fn doubts(&self) -> Option<&Doubts> {
        Some(&self.doubts)
    }

    fn passage(&self, node: NodeId) -> Passage {
        let address = self.address_of(node);
        address.map_or_else(Passage::default, |address| self.peers().passage(&address))
    }

    fn meter(&self) -> Meter {
        self.peers().endpoint().meter().snapshot()
    }

    fn event_page(&self, asked: &ask::Events) -> EventPage {
        let observer = self.observer.as_ref();
        observer.map_or_else(EventPage::default, |observer| observer.event_page(asked))
    }

    fn full_metadata_disk(&self) -> Option<String> {
        let observer = self.observer.as_ref()?;
        observer.full_metadata_disk()
    }

    fn random(&self) -> u64 {
        lock(&self.random).next_u64()
    }
}

impl ClientPorts for ProcessPorts {
    fn flows_of(&self, run: RunId) -> RunFlows {
        self.router.register(run)
    }

    fn reach_coordinator(&self, deadline_ms: u64) -> BoxFuture<'static, Result<(), CallError>> {
        let (peers, coordinator) = (self.peers(), self.coordinator.clone());
        let connection = async move {
            let coordinator = coordinator.ok_or_else(no_coordinator)?;
            let reached = coordinator.reach(&peers).await;
            reached.map_err(|error| failed(COORDINATOR.to_owned(), &error))
        };
        reached(COORDINATOR.to_owned(), connection, deadline_in(deadline_ms)).boxed()
    }

    fn has_several_coordinators(&self) -> bool {
        let coordinator = self.coordinator.as_ref();
        coordinator.is_some_and(|coordinator| coordinator.has_others())
    }

    fn reach_node(
        &self,
        node: NodeId,
        deadline_ms: u64,
    ) -> BoxFuture<'static, Result<(), CallError>> {
        let connection = self.connection(Address::Node(node));
        reached(node.to_string(), connection, deadline_in(deadline_ms)).boxed()
    }
}

/// Waits for a connection until the deadline.
async fn reached(
    peer: String,
    connection: impl Future<Output = Result<Arc<Connection>, CallError>>,
    deadline: Instant,
) -> Result<(), CallError> {
    match timeout_at(deadline, connection).await {
        Ok(connected) => connected.map(drop),
        Err(_) => Err(late(peer)),
    }
}

fn no_coordinator() -> CallError {
    CallError {
        peer: COORDINATOR.to_owned(),
        reason: "does not ask itself".to_owned(),
    }
}

fn name(address: Address) -> String {
    match address {
        Address::Node(node) => node.to_string(),
        Address::Origin(_) => "the asker".to_owned(),
    }
}
