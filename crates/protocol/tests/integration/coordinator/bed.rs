//! A coordinator on a bed of scripted nodes: one thread, virtual time, a metadata store in memory.
//! Nodes here hold no bytes; they say what a node would say, and the log says what they were asked.

use crate::coordinator::membership::beat;
use futures::channel::mpsc::UnboundedReceiver;
use futures::channel::oneshot;
use futures::executor::LocalPool;
use futures::future::{BoxFuture, ready};
use futures::task::LocalSpawnExt;
use futures::{FutureExt, StreamExt};
use gabion_layout::{
    ChunkId, Epoch, Generation, NodeId, RackId, Sequence, Start, StripeId, StripeRecord,
    UpdateScheme,
};
use gabion_meta::{
    ClusterId, MemoryStore, Meta, NewAttributes, PutId, Timing, WallClock, WallTime,
};
use gabion_protocol::coordinator::{Coordinator, CoordinatorOptions, TicketTimes};
use gabion_protocol::event::Event;
use gabion_protocol::message::{
    Applicant, Cause, ClusterStatus, CoordinatorReply, CoordinatorRequest, Damage, Flow, HeldChunk,
    Holding, JoinCount, JoinSession, NodeHealth, NodeReply, NodeRequest, NodeStatus, OpenPut,
    PoolRequest, Refusal, Scrubbed, ask,
};
use gabion_protocol::ports::{Address, CallError, Ports};
use gabion_store::AppendedState;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

pub(crate) const TIMING: Timing = Timing {
    lease_ms: 1_000,
    margin_ms: 200,
    grace_ms: 60_000,
};
const STEP_MS: u64 = 100;

pub(crate) type Reply = Result<NodeReply, CallError>;
type Hook = Box<dyn FnMut(NodeId, &NodeRequest) -> Option<BoxFuture<'static, Reply>> + Send>;

/// A request to a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Asked {
    pub(crate) node: NodeId,
    pub(crate) request: NodeRequest,
}

#[derive(Default)]
struct World {
    now_ms: u64,
    drawn: u64,
    timers: BTreeMap<(u64, u64), oneshot::Sender<()>>,
    timer_count: u64,
    tasks: Vec<BoxFuture<'static, ()>>,
    log: Vec<Asked>,
    /// The events in the coordinator's log.
    events: Vec<Event>,
    hook: Option<Hook>,
    /// Nodes that send heartbeats and answer calls, with their incarnations.
    alive: BTreeMap<NodeId, u64>,
    /// The findings of the next scrub of these chunks.
    damage: Vec<Damage>,
    /// Whether work on the metadata hangs.
    disk_hangs: bool,
    /// Whether the disk of the metadata is full.
    disk_is_full: bool,
}

#[derive(Default)]
struct FakePorts(Mutex<World>);

impl FakePorts {
    fn world(&self) -> std::sync::MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }
}

pub(crate) fn gone(node: NodeId) -> CallError {
    CallError {
        peer: node.to_string(),
        reason: "is gone".to_owned(),
    }
}

/// Asks for all files whose names have this prefix.
pub(crate) fn all_with(prefix: &str) -> ask::List {
    ask::List {
        prefix: prefix.to_owned(),
        after: None,
        delimiter: None,
        limit: u64::MAX,
    }
}

/// A node's answer that it holds no update of a stripe.
fn no_updates() -> NodeReply {
    NodeReply::Holding(Holding {
        mark: Sequence(0),
        records: Vec::new(),
        appended: AppendedState::default(),
    })
}

/// The same answer, after a while. Hooks may not ask for the time themselves.
pub(crate) fn no_updates_after(ports: &Arc<dyn Ports>, ms: u64) -> BoxFuture<'static, Reply> {
    let ports = Arc::clone(ports);
    let slow = async move {
        ports.sleep_ms(ms).await;
        Ok(no_updates())
    };
    slow.boxed()
}

fn usual(request: &NodeRequest, damage: &mut Vec<Damage>) -> NodeReply {
    match request {
        NodeRequest::Collect { .. } => no_updates(),
        NodeRequest::RunPart(_) => NodeReply::PartDone {
            as_of: gabion_layout::Sequence(0),
            progress: None,
        },
        NodeRequest::Scrub(ask::Scrub { chunks }) => NodeReply::Scrubbed(Scrubbed {
            chunk_count: chunks.len().max(1) as u64,
            bytes: 1000,
            damage: damage
                .extract_if(.., |found| chunks.contains(&found.chunk))
                .collect(),
        }),
        NodeRequest::Missed { .. } => NodeReply::Missed(None),
        NodeRequest::RaiseTokens { .. } => NodeReply::Raised(Vec::new()),
        _ => NodeReply::Done,
    }
}

impl Ports for FakePorts {
    fn call_node(
        &self,
        node: NodeId,
        request: NodeRequest,
        deadline_ms: u64,
    ) -> BoxFuture<'static, Reply> {
        let reply = {
            let mut world = self.world();
            world.log.push(Asked {
                node,
                request: request.clone(),
            });
            let hooked = world.hook.as_mut().and_then(|hook| hook(node, &request));
            match hooked {
                Some(reply) => reply,
                None if !world.alive.contains_key(&node) => ready(Err(gone(node))).boxed(),
                None => ready(Ok(usual(&request, &mut world.damage))).boxed(),
            }
        };
        let timeout = self.sleep_ms(deadline_ms);
        async move {
            futures::select_biased! {
                reply = reply.fuse() => reply,
                () = timeout.fuse() => Err(gone(node)),
            }
        }
        .boxed()
    }

    fn call_coordinator(
        &self,
        _: CoordinatorRequest,
        _: u64,
    ) -> BoxFuture<'static, Result<CoordinatorReply, CallError>> {
        panic!("a coordinator does not call itself")
    }

    fn send_flows(
        &self,
        _: Address,
        flows: UnboundedReceiver<Flow>,
    ) -> BoxFuture<'static, Result<(), Refusal>> {
        let only_aborts = flows.for_each(|flow| {
            assert!(matches!(flow, Flow::Abort { .. }), "{flow:?}");
            ready(())
        });
        only_aborts.map(Ok).boxed()
    }

    fn learn_nodes(&self, _: &[NodeStatus]) {}

    fn now_ms(&self) -> u64 {
        self.world().now_ms
    }

    fn sleep_ms(&self, ms: u64) -> BoxFuture<'static, ()> {
        let mut world = self.world();
        let (sender, receiver) = oneshot::channel();
        world.timer_count += 1;
        let key = (world.now_ms + ms, world.timer_count);
        world.timers.insert(key, sender);
        receiver.map(|_| ()).boxed()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.world().tasks.push(task);
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }

    fn disk_hangs(&self) -> bool {
        self.world().disk_hangs
    }

    fn full_metadata_disk(&self) -> Option<String> {
        let is_full = self.world().disk_is_full;
        is_full.then(|| "the disk of the metadata is full".to_owned())
    }

    fn note_event(&self, event: &Event) {
        self.world().events.push(event.clone());
    }

    fn random(&self) -> u64 {
        let mut world = self.world();
        world.drawn += 1;
        world.drawn
    }
}

pub(crate) struct Bed {
    ports: Arc<FakePorts>,
    pool: LocalPool,
    store: &'static MemoryStore,
    pub(crate) options: CoordinatorOptions,
    /// The health that nodes report with their heartbeats.
    pub(crate) health: NodeHealth,
    /// The last start of each node that was let in.
    pub(crate) admitted: BTreeMap<NodeId, Start>,
    /// The joins before the last lease.
    pub(crate) joins: JoinCount,
    pub(crate) coordinator: Arc<Coordinator<&'static MemoryStore>>,
}

impl Bed {
    /// A cluster of `racks` racks of `nodes_per_rack` nodes each: node `v` is in rack
    /// `v / nodes_per_rack`.
    pub(crate) fn new(racks: u32, nodes_per_rack: u32) -> Self {
        Self::placed(racks, nodes_per_rack, None)
    }

    /// The same with a seed of the places of stripes.
    pub(crate) fn placed(racks: u32, nodes_per_rack: u32, placement_seed: Option<u64>) -> Self {
        let options = CoordinatorOptions {
            timing: TIMING,
            heartbeat_ms: 200,
            repair_parallel: 1,
            placement_seed,
            ..CoordinatorOptions::default()
        };
        let store: &'static MemoryStore = Box::leak(Box::default());
        let meta =
            Meta::create(store, ClusterId(1), WallClock::stopped(WallTime::default())).unwrap();
        let ports = Arc::new(FakePorts::default());
        let dyn_ports: Arc<dyn Ports> = ports.clone();
        let coordinator = Coordinator::new(meta, dyn_ports, options.clone()).unwrap();
        // A first start draws a key. Tests know some of what is drawn afterwards, like the places of chunks.
        ports.world().drawn = 1;
        coordinator.start();
        let mut bed = Self {
            ports,
            pool: LocalPool::new(),
            store,
            options,
            health: NodeHealth::default(),
            admitted: BTreeMap::new(),
            joins: JoinCount::default(),
            coordinator,
        };
        for node in 0..racks * nodes_per_rack {
            let reply = bed.join_as(None, node, node / nodes_per_rack, vec![]);
            assert!(
                matches!(&reply, CoordinatorReply::Joined(joined) if joined.node.0 == node),
                "{reply:?}"
            );
        }
        bed
    }

    /// Work on the metadata hangs, or ends again.
    pub(crate) fn hang_disk(&self, hangs: bool) {
        self.ports.world().disk_hangs = hangs;
    }

    /// The disk of the metadata is full, or has room again.
    pub(crate) fn fill_disk(&self, is_full: bool) {
        self.ports.world().disk_is_full = is_full;
    }

    /// A cluster of three racks of three nodes with the pool `p`: `rs(4,2)`, at most two chunks a
    /// rack.
    pub(crate) fn three_racks() -> Self {
        let mut bed = Self::new(3, 3);
        let reply = bed.create_pool("p", "1-rack", Some("rs(4,2)"), 1 << 20);
        assert!(matches!(reply, CoordinatorReply::Pool(_)), "{reply:?}");
        bed
    }

    /// Ends the coordinator's process, with all its tasks, and starts another on its store.
    pub(crate) fn restart(&mut self) {
        {
            let mut world = self.ports.world();
            world.tasks.clear();
            world.timers.clear();
        }
        self.pool = LocalPool::new();
        let meta = Meta::open(self.store, WallClock::stopped(WallTime::default())).unwrap();
        let ports: Arc<dyn Ports> = self.ports.clone();
        self.coordinator = Coordinator::new(meta, ports, self.options.clone()).unwrap();
        self.coordinator.start();
        self.drive();
    }

    /// Starts the coordinator again with other times of tickets.
    pub(crate) fn change_keys_each(&mut self, times: TicketTimes) {
        self.options.tickets = times;
        self.restart();
        self.pass(TIMING.lease_ms);
    }

    /// The metadata's store, to make it fail.
    pub(crate) fn store(&self) -> &'static MemoryStore {
        self.store
    }

    pub(crate) fn create_pool(
        &mut self,
        name: &str,
        survive: &str,
        code: Option<&str>,
        chunk_bytes: u64,
    ) -> CoordinatorReply {
        self.ask(CoordinatorRequest::CreatePool(PoolRequest {
            name: name.to_owned(),
            survive: survive.parse().unwrap(),
            code: code.map(str::to_owned),
            chunk_bytes,
            update: UpdateScheme::default(),
            reserve: None,
            append: None,
            inline_bytes: 0,
            lifecycle: None,
        }))
    }

    fn join_as(
        &mut self,
        id: Option<NodeId>,
        node: u32,
        rack: u32,
        chunks: Vec<ChunkId>,
    ) -> CoordinatorReply {
        let held = chunks.into_iter().map(|chunk| HeldChunk {
            chunk,
            generation: Generation(1),
            mark: Sequence(0),
            epoch: Epoch(0),
            undecided: vec![],
        });
        self.join_holding(id, node, rack, held.collect())
    }

    /// Lets a node join that says all this of its chunks.
    pub(crate) fn join_holding(
        &mut self,
        id: Option<NodeId>,
        node: u32,
        rack: u32,
        chunks: Vec<HeldChunk>,
    ) -> CoordinatorReply {
        let incarnation = self.ports.now_ms() + 1;
        self.ports.world().alive.insert(NodeId(node), incarnation);
        let applicant = self.applicant(id, node, rack, incarnation);
        self.let_in(applicant, chunks)
    }

    /// Lets a new run of an empty node join, and says by which session.
    pub(crate) fn rejoin_in_session(&mut self, node: NodeId) -> JoinSession {
        let incarnation = self.ports.now_ms() + 1;
        self.ports.world().alive.insert(node, incarnation);
        let applicant = self.applicant(Some(node), node.0, node.0 / 3, incarnation);
        let (session, _) = self.tell(applicant, &[]).unwrap();
        let reply = self.end_join(session, &[]);
        assert!(matches!(reply, CoordinatorReply::Joined(_)), "{reply:?}");
        session
    }

    /// Returns the application of a node that was let in at every start before.
    pub(crate) fn applicant(
        &self,
        id: Option<NodeId>,
        node: u32,
        rack: u32,
        incarnation: u64,
    ) -> Applicant {
        let admitted = id.and_then(|id| self.admitted.get(&id));
        Applicant {
            cluster: None,
            node: id,
            start: Start {
                number: incarnation,
                nonce: u64::from(node),
            },
            earlier: admitted.copied().into_iter().collect(),
            position: 0,
            heard: None,
            rack: RackId(rack),
            address: format!("10.0.0.1:{}", 1000 + node),
            capacity_bytes: 1 << 40,
        }
    }

    /// Lets a node of the three racks of three join again with the chunks that it holds.
    pub(crate) fn rejoin(&mut self, node: NodeId, chunks: Vec<ChunkId>) -> CoordinatorReply {
        self.join_as(Some(node), node.0, node.0 / 3, chunks)
    }

    /// As [`Bed::rejoin`], for a join that succeeds: the obsolete chunks.
    pub(crate) fn rejoin_obsolete(&mut self, node: NodeId, chunks: Vec<ChunkId>) -> Vec<ChunkId> {
        match self.rejoin(node, chunks) {
            CoordinatorReply::Joined(joined) => joined.answer.obsolete,
            other => panic!("{other:?}"),
        }
    }

    /// Puts a file of `stripe_count` full stripes of the pool `p`.
    pub(crate) fn put(&mut self, name: &str, stripe_count: u64) -> Vec<StripeRecord> {
        let (put, stripes) = self.begin_put(name, stripe_count * (4 << 20));
        let committed = self.ask(CoordinatorRequest::CommitPut(put));
        assert_eq!(committed, CoordinatorReply::Done);
        stripes
    }

    pub(crate) fn begin_put(
        &mut self,
        name: &str,
        size_bytes: u64,
    ) -> (OpenPut, Vec<StripeRecord>) {
        let reply = self.ask(ask::BeginPut {
            at: name.into(),
            existing: gabion_meta::Existing::Stays,
            pool: None,
            size_bytes,
            attributes: NewAttributes::FILE,
            whole: None,
            opener: None,
        });
        match reply {
            CoordinatorReply::Put(places) => (places.put, places.stripes),
            other => panic!("{other:?}"),
        }
    }

    /// The only stripe of a file.
    pub(crate) fn stripe(&mut self, file: &str) -> StripeRecord {
        let name = file.to_owned();
        match self.ask(ask::Lookup { name }) {
            CoordinatorReply::File(layout) => layout.stripes[0].clone(),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn status(&mut self) -> ClusterStatus {
        match self.ask(CoordinatorRequest::Status) {
            CoordinatorReply::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    /// Stripes by failures left, as pairs.
    pub(crate) fn failures_left(&mut self) -> Vec<(i32, u64)> {
        self.status().stripes_by_failures_left.into_iter().collect()
    }

    /// The node that holds a chunk finds that it is damaged.
    pub(crate) fn report_damage(&mut self, chunk: ChunkId) {
        let meta = Meta::open(self.store, WallClock::stopped(WallTime::default())).unwrap();
        let holder = meta.stripe(chunk.stripe).unwrap().node_of(chunk.index);
        // Of any generation, so it is the chunk that is there now.
        self.report_damage_of(holder.unwrap(), chunk, u64::MAX);
    }

    /// A node says that its chunk is damaged, which was made in a generation.
    pub(crate) fn report_damage_of(&mut self, node: NodeId, chunk: ChunkId, generation: u64) {
        let damage = Damage {
            chunk,
            generation: Generation(generation),
            range: gabion_layout::ByteRange::new(0, 1),
        };
        self.ports.world().damage = vec![damage.clone()];
        self.report_once(node, damage);
        self.ports.world().damage.clear();
    }

    /// Scrubs find this damage from now on.
    pub(crate) fn find_damage(&mut self, damage: Vec<Damage>) {
        self.ports.world().damage = damage;
    }

    /// A node says that it could not read a chunk, which it can read since.
    pub(crate) fn report_once(&mut self, node: NodeId, damage: Damage) {
        let damage = vec![damage];
        let report = ask::ReportDamage { node, damage };
        assert_eq!(self.ask(report), CoordinatorReply::Done);
    }

    pub(crate) fn acquire(&mut self, stripe: StripeId, node: NodeId) -> CoordinatorReply {
        self.acquire_for(stripe, node, None)
    }

    /// The same for a node that is to update the stripe as one of a file.
    pub(crate) fn acquire_for(
        &mut self,
        stripe: StripeId,
        node: NodeId,
        file: Option<PutId>,
    ) -> CoordinatorReply {
        let reply = self.ask(ask::Acquire {
            stripe,
            node,
            // Above any with which a node of these tests has joined.
            incarnation: u64::MAX,
            file,
        });
        if let CoordinatorReply::Lease(lease) = &reply {
            self.joins = lease.joins;
        }
        reply
    }

    /// Asks the coordinator; time passes only if the answer takes some.
    pub(crate) fn ask(&mut self, request: impl Into<CoordinatorRequest>) -> CoordinatorReply {
        let slot = self.begin(request);
        loop {
            if let Some(reply) = slot.borrow_mut().take() {
                return reply;
            }
            self.step(STEP_MS);
        }
    }

    /// Asks the coordinator, and lets no time pass: the reply is there as soon as it is given.
    pub(crate) fn begin(
        &mut self,
        request: impl Into<CoordinatorRequest>,
    ) -> Rc<RefCell<Option<CoordinatorReply>>> {
        let request = request.into();
        let slot = Rc::new(RefCell::new(None));
        let coordinator = Arc::clone(&self.coordinator);
        let task = {
            let slot = Rc::clone(&slot);
            async move {
                // Boxed as a server with several threads would: that needs `Send`.
                let reply = coordinator.handle(request).boxed().await;
                *slot.borrow_mut() = Some(reply);
            }
        };
        self.pool.spawner().spawn_local(task).unwrap();
        self.drive();
        slot
    }

    /// The run of a node that lives.
    pub(crate) fn incarnation(&self, node: NodeId) -> u64 {
        self.ports.world().alive[&node]
    }

    /// Has a node that lives report its health.
    pub(crate) fn heartbeat(&mut self, node: NodeId, health: NodeHealth) {
        let incarnation = self.ports.world().alive[&node];
        let reply = self.ask(beat(node, incarnation, health));
        assert!(matches!(reply, CoordinatorReply::Alive { .. }), "{reply:?}");
    }

    /// Lets a node answer and send heartbeats that has joined by itself.
    pub(crate) fn revive(&mut self, node: NodeId, incarnation: u64) {
        self.ports.world().alive.insert(node, incarnation);
    }

    /// Lets the node answer nothing and send nothing from now on.
    pub(crate) fn stop(&mut self, node: NodeId) {
        self.ports.world().alive.remove(&node);
    }

    /// Stops nodes, and lets the time pass until they are declared failed.
    pub(crate) fn fail(&mut self, nodes: &[NodeId]) {
        for &node in nodes {
            self.stop(node);
        }
        self.pass(TIMING.lease_ms + TIMING.margin_ms + 500);
    }

    /// Lets time pass, with heartbeats of all nodes that live.
    pub(crate) fn pass(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(STEP_MS) {
            self.step(STEP_MS);
        }
    }

    /// Lets time pass without heartbeats.
    pub(crate) fn pass_in_silence(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(STEP_MS) {
            self.pass_step(STEP_MS);
        }
    }

    /// The clock goes on, and the coordinator's process does not.
    pub(crate) fn stand_still(&mut self, ms: u64) {
        self.ports.world().now_ms += ms;
    }

    fn step(&mut self, ms: u64) {
        let alive = self.ports.world().alive.clone();
        for (node, incarnation) in alive {
            let request = beat(node, incarnation, self.health.clone());
            let reply = self.coordinator.handle(request.into()).now_or_never();
            let reply = reply.expect("a heartbeat waits for nothing");
            match reply {
                CoordinatorReply::Alive { .. } | CoordinatorReply::Rejoin => {}
                CoordinatorReply::Leave => self.stop(node),
                other => panic!("{other:?}"),
            }
        }
        self.pass_step(ms);
    }

    fn pass_step(&mut self, ms: u64) {
        let end_ms = self.ports.world().now_ms + ms;
        loop {
            let due = {
                let mut world = self.ports.world();
                match world.timers.first_key_value() {
                    Some((&(at_ms, _), _)) if at_ms <= end_ms => {
                        world.now_ms = world.now_ms.max(at_ms);
                        world.timers.pop_first()
                    }
                    _ => None,
                }
            };
            let Some((_, timer)) = due else { break };
            // The task that waited may have stopped waiting.
            let _ = timer.send(());
            self.drive();
        }
        self.ports.world().now_ms = end_ms;
        self.drive();
    }

    fn drive(&mut self) {
        loop {
            let tasks = std::mem::take(&mut self.ports.world().tasks);
            for task in tasks {
                self.pool.spawner().spawn_local(task).unwrap();
            }
            self.pool.run_until_stalled();
            if self.ports.world().tasks.is_empty() {
                return;
            }
        }
    }

    /// Returns the ports through which the coordinator calls and waits.
    pub(crate) fn ports(&self) -> Arc<dyn Ports> {
        Arc::<FakePorts>::clone(&self.ports)
    }

    /// Answers calls otherwise than usual where `hook` has something to say.
    pub(crate) fn hook(
        &mut self,
        hook: impl FnMut(NodeId, &NodeRequest) -> Option<BoxFuture<'static, Reply>> + Send + 'static,
    ) {
        self.ports.world().hook = Some(Box::new(hook));
    }

    pub(crate) fn unhook(&mut self) {
        self.ports.world().hook = None;
    }

    /// Returns the events that the coordinator has put into its log since the last time, but for joins.
    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        let mut events = std::mem::take(&mut self.ports.world().events);
        events.retain(|event| !matches!(event, Event::Joined(_)));
        events
    }

    /// Returns the requests to nodes since the last time.
    pub(crate) fn take_log(&mut self) -> Vec<Asked> {
        std::mem::take(&mut self.ports.world().log)
    }
}

/// The chunk of a stripe on a node.
pub(crate) fn chunk_on(stripe: &StripeRecord, node: NodeId) -> ChunkId {
    ChunkId {
        stripe: stripe.id,
        index: stripe.chunk_on(node).unwrap(),
    }
}

/// A log as short words: who was asked what.
pub(crate) fn words(log: &[Asked]) -> Vec<(u32, &'static str)> {
    // Whether nodes live is asked whenever something takes long.
    let log = log.iter();
    let word = |asked: &Asked| {
        let word = match &asked.request {
            NodeRequest::Collect { .. } => "collect",
            NodeRequest::Fence { .. } => "fence",
            NodeRequest::Resolve { .. } => "resolve",
            NodeRequest::RunPart(_) => "part",
            NodeRequest::Scrub { .. } => "scrub",
            NodeRequest::Pin { .. } => "pin",
            NodeRequest::Unpin { .. } => "unpin",
            NodeRequest::Missed { .. } => "missed",
            NodeRequest::Written { .. } => "written",
            NodeRequest::Remove { .. } => "remove",
            NodeRequest::Discard { .. } => "discard",
            NodeRequest::Probe { .. } | NodeRequest::Progress { .. } | NodeRequest::Renew => {
                return None;
            }
            other => panic!("a coordinator does not ask for {other:?}"),
        };
        Some((asked.node.0, word))
    };
    log.filter_map(word).collect()
}

/// Demands a refusal with these words.
pub(crate) fn refused(reply: &CoordinatorReply, words: &str) {
    match reply {
        CoordinatorReply::Refused(denial) => assert!(denial.sentence.contains(words), "{denial}"),
        other => panic!("{other:?}"),
    }
}

/// The cause of a refusal.
pub(crate) fn cause(reply: CoordinatorReply) -> Cause {
    match reply {
        CoordinatorReply::Refused(denial) => denial.cause,
        other => panic!("{other:?}"),
    }
}

/// The reply to a look-up of a file.
pub(crate) fn look_up(bed: &mut Bed, name: &str) -> CoordinatorReply {
    let name = name.to_owned();
    bed.ask(ask::Lookup { name })
}
