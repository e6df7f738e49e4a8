//! Real nodes of one stripe on a bed: one thread, no time, and a coordinator that grants everything
//! and remembers what it was told. Messages arrive when the test sends them.

use bytes::Bytes;
use futures::channel::mpsc::UnboundedReceiver;
use futures::future::{BoxFuture, Either, pending, poll_fn, ready};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use gabion_layout::{
    AppendSpec, ByteRange, ChunkId, ChunkIndex, ChunkRange, Epoch, Generation, Keeping, NodeId,
    PoolId, RackId, Sequence, StripeId, StripeRecord, UpdateScheme,
};
use gabion_meta::{PoolRecord, PoolSpec};
use gabion_protocol::message::{
    CoordinatorReply, CoordinatorRequest, Effect, Flow, Liveness, NodeReply, NodeRequest,
    NodeStatus, Refusal, RunId, StripeLease,
};
use gabion_protocol::node::{Node, NodeOptions};
use gabion_protocol::ports::{Address, CallError, Ports};
use gabion_store::{ChunkSpec, Cut, Options, SimDisk, Store};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::task::Poll;

pub(crate) const CHUNK_BYTES: u64 = 4096;
pub(crate) const STRIPE: StripeId = StripeId(1);

/// What a primary told the coordinator that its updates leave out.
pub(crate) type Note = (Epoch, Vec<(ChunkIndex, Sequence)>);

#[derive(Default)]
struct World {
    nodes: BTreeMap<NodeId, Arc<Node<SimDisk>>>,
    failed: Vec<NodeId>,
    /// Nodes whose parts of plans never come to an end.
    stuck: Vec<NodeId>,
    tasks: Vec<BoxFuture<'static, ()>>,
    epoch: u64,
    notes: Vec<Note>,
    refuses_notes: bool,
    /// The participants of each record that a node was to make.
    records: Vec<(Sequence, Vec<ChunkIndex>)>,
    drawn: u64,
    scheme: UpdateScheme,
    /// Whether the stripe is noted to be in an append phase.
    appends: bool,
    /// Parts from here on fail at this node.
    broken: Option<NodeId>,
}

#[derive(Clone)]
pub(crate) struct BedPorts {
    me: NodeId,
    world: Arc<Mutex<World>>,
}

/// Four nodes with the chunks of one stripe of zeros under `rs(2,2)`.
pub(crate) struct Bed {
    world: Arc<Mutex<World>>,
    stores: Vec<Arc<Store<SimDisk>>>,
}

fn update_of(
    run: u64,
    chunk: u8,
    length: usize,
    substitutes: &[(ChunkIndex, NodeId)],
) -> NodeRequest {
    NodeRequest::Update {
        run: RunId(run),
        stripe: STRIPE,
        generation: Generation(1),
        ranges: vec![ChunkRange {
            chunk: ChunkIndex(chunk),
            range: ByteRange::new(0, length as u64),
        }],
        substitutes: substitutes.to_vec(),
    }
}

pub(crate) fn stripe() -> StripeRecord {
    StripeRecord {
        id: STRIPE,
        pool: PoolId(1),
        chunk_bytes: CHUNK_BYTES,
        generation: Generation(1),
        nodes: (0..4).map(NodeId).collect(),
        stale: Vec::new(),
    }
}

fn pool(update: UpdateScheme) -> PoolRecord {
    PoolRecord {
        id: PoolId(1),
        spec: PoolSpec {
            name: "p".to_owned(),
            code: "rs(2,2)".to_owned(),
            k: 2,
            m: 2,
            sub_chunks: 1,
            chunk_bytes: CHUNK_BYTES,
            survive: "2-nodes".parse().expect("a promise"),
            chunks_per_rack: 4,
            update,
            reserve: None,
            append: update.appends().then(AppendSpec::default),
        },
        lifecycle: None,
    }
}

fn node_options(node: u32) -> NodeOptions {
    NodeOptions {
        node: Some(NodeId(node)),
        rack: RackId(node % 2),
        address: format!("host:{node}"),
        capacity_bytes: 1 << 30,
        reserve_bytes_per_s: 16 << 20,
        incarnation: 1,
    }
}

impl BedPorts {
    fn world(&self) -> std::sync::MutexGuard<'_, World> {
        self.world.lock().expect("nobody panics with it")
    }

    fn statuses(&self) -> Vec<NodeStatus> {
        let world = self.world();
        let status = |node: u32| NodeStatus {
            node: NodeId(node),
            rack: RackId(node % 2),
            address: format!("host:{node}"),
            liveness: if world.failed.contains(&NodeId(node)) {
                Liveness::Failed
            } else {
                Liveness::Up
            },
            departure: gabion_meta::Departure::None,
        };
        (0..4).map(status).collect()
    }

    /// The nodes that have joined by now: all that a node knows until its next heartbeat.
    fn joined(&self) -> Vec<NodeStatus> {
        let mut statuses = self.statuses();
        let world = self.world();
        statuses.retain(|status| {
            status.liveness == Liveness::Failed || world.nodes.contains_key(&status.node)
        });
        statuses
    }

    fn answer(&self, request: CoordinatorRequest) -> CoordinatorReply {
        match request {
            CoordinatorRequest::Join { node, .. } => CoordinatorReply::Joined {
                node: node.expect("nodes here have ids"),
                lease_ms: u64::MAX / 2,
                heartbeat_ms: u64::MAX / 2,
                obsolete: Vec::new(),
                decided: Vec::new(),
                nodes: self.joined(),
            },
            CoordinatorRequest::Acquire { renounced, .. } => {
                let nodes = self.statuses();
                let mut world = self.world();
                let pool = pool(world.scheme);
                if world.epoch == 0 || renounced == Some(Epoch(world.epoch)) {
                    world.epoch += 1;
                }
                CoordinatorReply::Lease(StripeLease {
                    epoch: Epoch(world.epoch),
                    stripe: stripe(),
                    pool,
                    nodes,
                    appends: world.appends,
                })
            }
            CoordinatorRequest::NoteDegraded { epoch, chunks, .. } => {
                let mut world = self.world();
                if world.refuses_notes {
                    return CoordinatorReply::Refused("its node has returned".to_owned());
                }
                world.notes.push((epoch, chunks));
                CoordinatorReply::Done
            }
            CoordinatorRequest::NotePhase { appends, .. } => {
                self.world().appends = appends;
                CoordinatorReply::Done
            }
            _ => CoordinatorReply::Done,
        }
    }
}

impl Ports for BedPorts {
    fn call_node(
        &self,
        node: NodeId,
        request: NodeRequest,
        _: u64,
    ) -> BoxFuture<'static, Result<NodeReply, CallError>> {
        let mut world = self.world();
        if let NodeRequest::RunPart(part) = &request
            && let Effect::Record {
                sequence,
                participants,
            }
            | Effect::Append {
                sequence,
                participants,
            } = &part.effect
        {
            world.records.push((*sequence, participants.clone()));
        }
        let is_part = matches!(request, NodeRequest::RunPart(_));
        if world.failed.contains(&node) || (is_part && world.broken == Some(node)) {
            let peer = node.to_string();
            let reason = "is gone".to_owned();
            return ready(Err(CallError { peer, reason })).boxed();
        }
        let is_part = matches!(request, NodeRequest::RunPart(_));
        if is_part && world.stuck.contains(&node) {
            return pending().boxed();
        }
        let called = Arc::clone(&world.nodes[&node]);
        drop(world);
        called
            .handle(request, Address::Node(self.me))
            .map(Ok)
            .boxed()
    }

    fn call_coordinator(
        &self,
        request: CoordinatorRequest,
        _: u64,
    ) -> BoxFuture<'static, Result<CoordinatorReply, CallError>> {
        ready(Ok(self.answer(request))).boxed()
    }

    fn send_flows(
        &self,
        to: Address,
        mut flows: UnboundedReceiver<Flow>,
    ) -> BoxFuture<'static, Result<(), Refusal>> {
        let Address::Node(node) = to else {
            unreachable!("nodes here send to nodes")
        };
        let to = self.world().nodes.get(&node).cloned();
        let send = async move {
            while let Some(flow) = flows.next().await {
                to.as_ref().expect("a node of the stripe").flow(flow);
            }
            Ok(())
        };
        send.boxed()
    }

    fn learn_nodes(&self, _: &[NodeStatus]) {}

    fn now_ms(&self) -> u64 {
        0
    }

    fn sleep_ms(&self, _: u64) -> BoxFuture<'static, ()> {
        pending().boxed()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.world().tasks.push(task);
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }

    fn random(&self) -> u64 {
        let mut world = self.world();
        world.drawn += 1;
        // Far from the names that tests choose.
        (1 << 32) + world.drawn
    }
}

impl Bed {
    /// Starts the nodes of a pool of parity logging; they believe those in `failed` to be gone.
    pub(crate) fn new(failed: &[u32]) -> Self {
        Self::with_scheme(UpdateScheme::Pl, failed)
    }

    /// The same in a pool of any scheme.
    pub(crate) fn with_scheme(scheme: UpdateScheme, failed: &[u32]) -> Self {
        let world: Arc<Mutex<World>> = Arc::default();
        world.lock().expect("no panic yet").scheme = scheme;
        world.lock().expect("no panic yet").failed = failed.iter().map(|&n| NodeId(n)).collect();
        let mut bed = Self {
            world,
            stores: Vec::new(),
        };
        for node in 0..4 {
            let options = Options {
                segment_bytes: 1 << 20,
                free_bytes: 0,
                ..Options::default()
            };
            let disk = SimDisk::new(u64::from(node));
            let store = Arc::new(Store::open(disk, options).expect("an empty disk").0);
            let chunk = ChunkId {
                stripe: STRIPE,
                index: ChunkIndex(node as u8),
            };
            let spec = ChunkSpec {
                generation: Generation(1),
                chunk_bytes: CHUNK_BYTES,
                base: Sequence(0),
                keeping: Keeping::InPlace,
            };
            let mut writer = store.create(chunk, spec).expect("there is room");
            let zeros = vec![0; CHUNK_BYTES as usize];
            writer.write_at(0, &zeros).expect("it fits");
            writer.finish().expect("it is whole");
            let ports: Arc<dyn Ports> = Arc::new(bed.ports(node));
            let joined = bed.run(Node::join(Arc::clone(&store), ports, node_options(node)));
            let node = joined.expect("everybody may join");
            bed.world().nodes.insert(node.id(), node);
            bed.stores.push(store);
        }
        bed
    }

    pub(crate) fn ports(&self, me: u32) -> BedPorts {
        let world = Arc::clone(&self.world);
        BedPorts {
            me: NodeId(me),
            world,
        }
    }

    fn world(&self) -> std::sync::MutexGuard<'_, World> {
        self.world.lock().expect("nobody panics with it")
    }

    /// Runs a future to its end, and beside it all tasks that nodes start.
    pub(crate) fn run<R>(&self, future: impl Future<Output = R>) -> R {
        let mut future = std::pin::pin!(future);
        let mut running = FuturesUnordered::new();
        futures::executor::block_on(poll_fn(|context| {
            loop {
                running.extend(std::mem::take(&mut self.world().tasks));
                while let Poll::Ready(Some(())) = running.poll_next_unpin(context) {}
                if let Poll::Ready(result) = future.as_mut().poll(context) {
                    return Poll::Ready(result);
                }
                if self.world().tasks.is_empty() {
                    return Poll::Pending;
                }
            }
        }))
    }

    /// Sends a request to a node and waits for its reply.
    pub(crate) fn ask(&self, node: u32, request: NodeRequest) -> NodeReply {
        let called = Arc::clone(&self.world().nodes[&NodeId(node)]);
        self.run(called.handle(request, Address::Node(NodeId::CLIENT)))
    }

    /// Stages new bytes of a chunk at a node.
    pub(crate) fn stage(&self, node: u32, run: u64, chunk: u8, bytes: &'static [u8]) -> NodeReply {
        let request = NodeRequest::Stage {
            run: RunId(run),
            chunk: ChunkIndex(chunk),
            offset: 0,
            bytes: Bytes::from_static(bytes),
        };
        self.ask(node, request)
    }

    pub(crate) fn unstage(&self, node: u32, run: u64) -> NodeReply {
        self.ask(node, NodeRequest::Unstage { run: RunId(run) })
    }

    /// Asks node 0 to run an update of the first bytes of a chunk.
    pub(crate) fn update(
        &self,
        run: u64,
        chunk: u8,
        length: usize,
        substitutes: &[(ChunkIndex, NodeId)],
    ) -> NodeReply {
        self.ask(0, update_of(run, chunk, length, substitutes))
    }

    /// Asks node 0 to run an update that never comes to an end, and for the mark meanwhile.
    pub(crate) fn mark_beside_stuck_update(&self, run: u64, chunk: u8, length: usize) -> NodeReply {
        self.world().stuck.push(NodeId(chunk.into()));
        let primary = Arc::clone(&self.world().nodes[&NodeId(0)]);
        let origin = Address::Node(NodeId::CLIENT);
        let update = primary.handle(update_of(run, chunk, length, &[]), origin);
        let mark = NodeRequest::Mark {
            stripe: STRIPE,
            settle: false,
            reconstruct: false,
        };
        let mark = primary.handle(mark, origin);
        match self.run(futures::future::select(update, mark)) {
            Either::Left((reply, _)) => panic!("the update ended: {reply:?}"),
            Either::Right((reply, _)) => reply,
        }
    }

    /// The committed marks that the nodes know.
    pub(crate) fn marks(&self) -> Vec<u64> {
        let known = |store: &Arc<Store<SimDisk>>| store.held(STRIPE).expect("it has a chunk");
        self.stores.iter().map(|s| known(s).mark.0).collect()
    }

    /// The first bytes of a chunk as of an update.
    pub(crate) fn read(&self, chunk: u8, length: usize, as_of: u64) -> Vec<u8> {
        let id = ChunkId {
            stripe: STRIPE,
            index: ChunkIndex(chunk),
        };
        let (mut bytes, cut) = (Vec::new(), Cut::Exactly(Sequence(as_of)));
        let range = ByteRange::new(0, length as u64);
        let store = &self.stores[usize::from(chunk)];
        store
            .read(id, range, cut, &mut bytes)
            .expect("it can be read");
        bytes
    }

    /// The first bytes of a chunk as readers of data see them.
    pub(crate) fn newest(&self, chunk: u8, length: usize, as_of: u64) -> Vec<u8> {
        let id = ChunkId {
            stripe: STRIPE,
            index: ChunkIndex(chunk),
        };
        let (mut bytes, cut) = (Vec::new(), Cut::Newest(Sequence(as_of)));
        let range = ByteRange::new(0, length as u64);
        let read = self.stores[usize::from(chunk)].read(id, range, cut, &mut bytes);
        read.expect("it can be read");
        bytes
    }

    /// Has node 0 commit the stripe.
    pub(crate) fn commit(&self) -> NodeReply {
        self.ask(0, NodeRequest::Commit { stripe: STRIPE })
    }

    /// Asks node 0 for the mark.
    pub(crate) fn mark(&self, settle: bool, reconstruct: bool) -> NodeReply {
        let stripe = STRIPE;
        let request = NodeRequest::Mark {
            stripe,
            settle,
            reconstruct,
        };
        self.ask(0, request)
    }

    /// From now on parts at this node fail, or at none.
    pub(crate) fn break_node(&self, node: Option<u32>) {
        self.world().broken = node.map(NodeId);
    }

    /// Nodes fail for good; the others learn of it by a heartbeat.
    pub(crate) fn fail(&self, nodes: &[u32]) {
        self.world().failed.extend(nodes.iter().map(|&n| NodeId(n)));
    }

    /// Lets failed nodes return.
    pub(crate) fn mend(&self) {
        self.world().failed.clear();
    }

    /// Parity as of an update against data as of it, as the code has them: the bytes of both data
    /// chunks.
    pub(crate) fn parity_agrees(&self, length: usize, as_of: u64) -> bool {
        let code: gabion_codec::Code = "rs(2,2)".parse().expect("a code");
        let data = [0, 1].map(|chunk| self.read(chunk, length, as_of));
        (2..4).all(|parity| {
            let factor = |chunk| code.coefficient(parity, 0, chunk, 0);
            let sum = |at: usize| {
                gabion_codec::gf::multiply(factor(0), data[0][at])
                    ^ gabion_codec::gf::multiply(factor(1), data[1][at])
            };
            let expected: Vec<u8> = (0..length).map(sum).collect();
            self.read(parity as u8, length, as_of) == expected
        })
    }

    /// Data chunk 0 or 1 as the other one and the parity chunks have it.
    pub(crate) fn rebuilt(&self, chunk: u8, length: usize, as_of: u64) -> Vec<u8> {
        let code: gabion_codec::Code = "rs(2,2)".parse().expect("a code");
        let other = self.read(1 - chunk, length, as_of);
        let solved = [2, 3].map(|parity: usize| {
            let factor = |of: u8| code.coefficient(parity, 0, usize::from(of), 0);
            let sum = self.read(parity as u8, length, as_of);
            let solve = |at: usize| {
                let rest = sum[at] ^ gabion_codec::gf::multiply(factor(1 - chunk), other[at]);
                gabion_codec::gf::multiply(gabion_codec::gf::invert(factor(chunk)), rest)
            };
            (0..length).map(solve).collect::<Vec<u8>>()
        });
        assert_eq!(solved[0], solved[1], "the parity chunks agree");
        solved[0].clone()
    }

    /// Whether the coordinator knows the stripe to be in an append phase.
    pub(crate) fn appends(&self) -> bool {
        self.world().appends
    }

    /// Node 0 is started again: it knows who is gone, gets a new term, and remembers nothing.
    pub(crate) fn restart_primary(&self) {
        self.world().epoch += 1;
        let ports: Arc<dyn Ports> = Arc::new(self.ports(0));
        let joined = self.run(Node::join(
            Arc::clone(&self.stores[0]),
            ports,
            node_options(0),
        ));
        let node = joined.expect("everybody may join");
        self.world().nodes.insert(node.id(), node);
    }

    pub(crate) fn refuse_notes(&self) {
        self.world().refuses_notes = true;
    }

    pub(crate) fn notes(&self) -> Vec<Note> {
        self.world().notes.clone()
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.world().epoch
    }

    /// The participants of each update that was started, one entry a node that took part.
    pub(crate) fn records(&self) -> Vec<(Sequence, Vec<ChunkIndex>)> {
        self.world().records.clone()
    }
}
