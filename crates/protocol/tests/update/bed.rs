//! Real nodes of one stripe on a bed: one thread, no time, and a coordinator that grants everything
//! and remembers what it was told. Messages arrive when the test sends them.

use bytes::Bytes;
use futures::channel::mpsc::UnboundedReceiver;
use futures::future::{BoxFuture, Either, pending, poll_fn, ready};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use gabion_layout::{
    ByteRange, ChunkId, ChunkIndex, ChunkRange, Epoch, Generation, Keeping, NodeId, PoolId, RackId,
    Sequence, StripeId, StripeRecord, UpdateScheme,
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
const STRIPE: StripeId = StripeId(1);

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
}

#[derive(Clone)]
struct BedPorts {
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

fn stripe() -> StripeRecord {
    StripeRecord {
        id: STRIPE,
        pool: PoolId(1),
        chunk_bytes: CHUNK_BYTES,
        generation: Generation(1),
        nodes: (0..4).map(NodeId).collect(),
        stale: Vec::new(),
    }
}

fn pool() -> PoolRecord {
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
            update: UpdateScheme::Pl,
            reserve: None,
        },
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

    fn answer(&self, request: CoordinatorRequest) -> CoordinatorReply {
        match request {
            CoordinatorRequest::Join { node, .. } => CoordinatorReply::Joined {
                node: node.expect("nodes here have ids"),
                lease_ms: u64::MAX / 2,
                heartbeat_ms: u64::MAX / 2,
                obsolete: Vec::new(),
                decided: Vec::new(),
                nodes: self.statuses(),
            },
            CoordinatorRequest::Acquire { renounced, .. } => {
                let nodes = self.statuses();
                let mut world = self.world();
                if world.epoch == 0 || renounced == Some(Epoch(world.epoch)) {
                    world.epoch += 1;
                }
                CoordinatorReply::Lease(StripeLease {
                    epoch: Epoch(world.epoch),
                    stripe: stripe(),
                    pool: pool(),
                    nodes,
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
            } = &part.effect
        {
            world.records.push((*sequence, participants.clone()));
        }
        if world.failed.contains(&node) {
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
        world.drawn
    }
}

impl Bed {
    /// Starts the nodes; they believe those in `failed` to be gone.
    pub(crate) fn new(failed: &[u32]) -> Self {
        let world: Arc<Mutex<World>> = Arc::default();
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
            let options = NodeOptions {
                node: Some(NodeId(node)),
                rack: RackId(node % 2),
                address: format!("host:{node}"),
                capacity_bytes: 1 << 30,
                reserve_bytes_per_s: 16 << 20,
                incarnation: 1,
            };
            let ports: Arc<dyn Ports> = Arc::new(bed.ports(node));
            let joined = bed.run(Node::join(Arc::clone(&store), ports, options));
            let node = joined.expect("everybody may join");
            bed.world().nodes.insert(node.id(), node);
            bed.stores.push(store);
        }
        bed
    }

    fn ports(&self, me: u32) -> BedPorts {
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
    fn run<R>(&self, future: impl Future<Output = R>) -> R {
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
