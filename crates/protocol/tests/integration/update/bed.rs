//! Real nodes of one stripe on a bed: one thread, no time, and a coordinator that grants everything
//! and remembers what it was told. Messages arrive when the test sends them.

use crate::update::ports::{BedPorts, Note, World};
use bytes::Bytes;
use futures::future::{Either, poll_fn, ready};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use gabion_layout::{
    ByteRange, ChunkId, ChunkIndex, ChunkRange, Epoch, Generation, Keeping, NodeId, PoolId, RackId,
    Sequence, Start, StripeId, StripeRecord, UpdateScheme,
};
use gabion_meta::{FencingToken, PutId};
use gabion_protocol::limits::Limits;
use gabion_protocol::message::{Decided, EndCause, NodeReply, NodeRequest, Refusal, RunId, ask};
use gabion_protocol::node::{Node, NodeOptions};
use gabion_protocol::ports::{Address, Asker, Ports};
use gabion_store::{
    ChunkSpec, Cut, DiskCounts, Options, Piece, Record, RecordKind, SimDisk, Store, UpdateStamp,
    chunk_path,
};
use std::sync::{Arc, Mutex};
use std::task::Poll;

pub(crate) const CHUNK_BYTES: u64 = 4096;
pub(crate) const STRIPE: StripeId = StripeId(1);
pub(crate) const FILE: PutId = PutId(6);
/// The code of the system for an error of a device.
const INPUT_OUTPUT_ERROR: i32 = 5;

/// Four nodes with the chunks of one stripe of zeros under `rs(2,2)`.
pub(crate) struct Bed {
    world: Arc<Mutex<World>>,
    stores: Vec<Arc<Store>>,
    disks: Vec<SimDisk>,
}

pub(crate) fn update_of(
    run: u64,
    chunk: u8,
    length: usize,
    substitutes: &[(ChunkIndex, NodeId)],
    generation: Generation,
) -> ask::Update {
    let token = FencingToken::default();
    ask::Update {
        run: RunId(run),
        stripe: STRIPE,
        generation,
        ranges: vec![ChunkRange {
            chunk: ChunkIndex(chunk),
            range: ByteRange::new(0, length as u64),
        }],
        substitutes: substitutes.to_vec(),
        file: FILE,
        token,
        ticket: None,
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

const fn spec(base: u64) -> ChunkSpec {
    ChunkSpec {
        generation: Generation(1),
        chunk_bytes: CHUNK_BYTES,
        base: Sequence(base),
        keeping: Keeping::InPlace,
    }
}

/// The chunk of a node.
fn chunk_of(node: u32) -> ChunkId {
    ChunkId {
        stripe: STRIPE,
        index: ChunkIndex(node as u8),
    }
}

fn node_options(node: u32) -> NodeOptions {
    NodeOptions {
        node: Some(NodeId(node)),
        rack: RackId(node % 2),
        address: format!("host:{node}"),
        capacity_bytes: 1 << 30,
        reserve_bytes_per_s: 16 << 20,
        page_chunk_count: 1,
        start: Start {
            number: 1,
            nonce: 1,
        },
        limits: Limits::default(),
    }
}

impl Bed {
    /// Lets a node's disk fail for good.
    pub(crate) fn kill_disk(&self, node: u32) {
        self.disks[node as usize].die();
    }

    /// Lets a node join anew that is told that a chunk is not its any more; what is in its trash then.
    pub(crate) fn rejoin_without(&self, node: u32, chunk: ChunkId) -> Vec<String> {
        self.world().obsolete = vec![chunk];
        let store = Arc::clone(&self.stores[node as usize]);
        let ports: Arc<dyn Ports> = Arc::new(self.ports(node));
        let joined = self.run(Node::join(Arc::clone(&store), ports, node_options(node)));
        joined.expect("everybody may join");
        store.trash().expect("the disk works")
    }

    /// Nodes that have told the coordinator that their stores failed, in that order.
    pub(crate) fn store_failures(&self) -> Vec<NodeId> {
        self.world().store_failures.clone()
    }

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
            disks: Vec::new(),
        };
        for node in 0..4 {
            let options = Options {
                segment_bytes: 1 << 20,
                free_bytes: 0,
                ..Options::default()
            };
            let disk = SimDisk::new(u64::from(node));
            bed.disks.push(disk.clone());
            let store = Arc::new(
                Store::open(Arc::new(disk), options)
                    .expect("an empty disk")
                    .0,
            );
            let chunk = ChunkId {
                stripe: STRIPE,
                index: ChunkIndex(node as u8),
            };
            let mut writer = store.create(chunk, spec(0)).expect("there is room");
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

    /// Up to where a node's journal is durable.
    pub(crate) fn position(&self, node: u32) -> u64 {
        self.stores[node as usize].position()
    }

    pub(crate) fn ports(&self, me: u32) -> BedPorts {
        let world = Arc::clone(&self.world);
        BedPorts {
            me: NodeId(me),
            world,
        }
    }

    fn world(&self) -> std::sync::MutexGuard<'_, World> {
        self.world.lock().expect("no thread panics with the lock")
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
    pub(crate) fn ask(&self, node: u32, request: impl Into<NodeRequest>) -> NodeReply {
        self.ask_as(Asker::Member, node, request)
    }

    /// The same as this asker.
    pub(crate) fn ask_as(
        &self,
        asker: Asker,
        node: u32,
        request: impl Into<NodeRequest>,
    ) -> NodeReply {
        let request = request.into();
        let called = Arc::clone(&self.world().nodes[&NodeId(node)]);
        self.run(called.handle(request, Address::Node(NodeId::CLIENT), asker))
    }

    /// Stages new bytes of a chunk at a node.
    pub(crate) fn stage(&self, node: u32, run: u64, chunk: u8, bytes: &'static [u8]) -> NodeReply {
        let request = ask::Stage {
            run: RunId(run),
            stripe: STRIPE,
            chunk: ChunkIndex(chunk),
            offset: 0,
            bytes: Bytes::from_static(bytes),
            ticket: None,
        };
        self.ask(node, request)
    }

    /// A node gets its chunk anew, as of an update; its bytes are zeros.
    pub(crate) fn make_anew(&self, node: u8, base: u64) {
        let index = ChunkIndex(node);
        let stripe = STRIPE;
        let store = &self.stores[usize::from(node)];
        let mut writer = store
            .create(ChunkId { stripe, index }, spec(base))
            .expect("there is room");
        let zeros = vec![0; CHUNK_BYTES as usize];
        writer.write_at(0, &zeros).expect("it fits");
        writer.finish().expect("it is whole");
    }

    pub(crate) fn unstage(&self, node: u32, run: u64) -> NodeReply {
        self.ask(node, ask::Unstage { run: RunId(run) })
    }

    /// Asks node 0 to run an update of the first bytes of a chunk.
    pub(crate) fn update(
        &self,
        run: u64,
        chunk: u8,
        length: usize,
        substitutes: &[(ChunkIndex, NodeId)],
    ) -> NodeReply {
        let generation = self.world().stripe().generation;
        self.ask(0, update_of(run, chunk, length, substitutes, generation))
    }

    /// Asks node 0 to run all updates at once.
    pub(crate) fn update_all(&self, updates: Vec<ask::Update>) -> Vec<NodeReply> {
        let primary = Arc::clone(&self.world().nodes[&NodeId(0)]);
        let origin = Address::Node(NodeId::CLIENT);
        let handle = |update: ask::Update| primary.handle(update.into(), origin, Asker::Member);
        self.world().slow = (0..4).map(NodeId).collect();
        let made = self.run(futures::future::join_all(updates.into_iter().map(handle)));
        self.world().slow.clear();
        made
    }

    /// The same under a fencing token.
    pub(crate) fn update_under(&self, run: u64, token: FencingToken, length: usize) -> NodeReply {
        let generation = self.world().stripe().generation;
        let update = update_of(run, 0, length, &[], generation);
        self.ask(0, ask::Update { token, ..update })
    }

    /// The coordinator has another key of tickets from now on.
    pub(crate) fn change_ticket_key(&self, number: u32) {
        self.world().ticket_key = number;
    }

    /// A session opens the file at the coordinator; no node is told.
    pub(crate) fn set_token(&self, token: FencingToken) {
        self.world().token = token;
    }

    /// Declares a node failed, whose process goes on and joins again.
    pub(crate) fn join_again(&self, node: u32) {
        self.world().must_rejoin = true;
        let beaten = Arc::clone(&self.world().nodes[&NodeId(node)]);
        let joins = async {
            self.beat(node).await;
            self.world().must_rejoin = false;
            self.beat(node).await;
        };
        self.run(joins);
        drop(beaten);
    }

    /// Whether a request waits while an update of node 0 never comes to an end.
    pub(crate) fn raise_waits_for_stuck_update(
        &self,
        bytes: &'static [u8],
        raise: ask::RaiseTokens,
    ) -> bool {
        self.stage(1, 7, 1, bytes);
        self.world().stuck.push(NodeId(1));
        let primary = Arc::clone(&self.world().nodes[&NodeId(0)]);
        let origin = Address::Node(NodeId::CLIENT);
        let update = update_of(7, 1, bytes.len(), &[], Generation(1));
        let mut update = primary.handle(update.into(), origin, Asker::Member);
        let mut raise = primary.handle(raise.into(), origin, Asker::Member);
        let begun = self.until(|world| !world.held_back.is_empty());
        self.run(futures::future::select(&mut update, std::pin::pin!(begun)));
        self.run(poll_fn(|context| {
            Poll::Ready(raise.as_mut().poll(context).is_pending())
        }))
    }

    /// Asks node 0 to run an update that never comes to an end, and for the mark meanwhile.
    pub(crate) fn mark_beside_stuck_update(&self, run: u64, chunk: u8, length: usize) -> NodeReply {
        self.world().stuck.push(NodeId(chunk.into()));
        let primary = Arc::clone(&self.world().nodes[&NodeId(0)]);
        let origin = Address::Node(NodeId::CLIENT);
        let update = update_of(run, chunk, length, &[], Generation(1));
        let update = primary.handle(update.into(), origin, Asker::Member);
        let mark = ask::Mark {
            stripe: STRIPE,
            settle: false,
            decode: Vec::new(),
            ticket: None,
        };
        let mark = primary.handle(mark.into(), origin, Asker::Member);
        match self.run(futures::future::select(update, mark)) {
            Either::Left((reply, _)) => panic!("the update ended: {reply:?}"),
            Either::Right((reply, _)) => reply,
        }
    }

    /// The committed marks that the nodes know.
    pub(crate) fn marks(&self) -> Vec<u64> {
        let known = |store: &Arc<Store>| store.held(STRIPE).expect("it has a chunk");
        self.stores.iter().map(|s| known(s).mark.0).collect()
    }

    /// Whether a node holds records that are not settled.
    pub(crate) fn has_records(&self, node: u32) -> bool {
        let held = self.stores[node as usize].held(STRIPE);
        !held.expect("it has a chunk").records.is_empty()
    }

    /// The terms and numbers of a node's records that are not settled.
    pub(crate) fn undecided(&self, node: u32) -> Vec<(Epoch, Sequence)> {
        let held = self.stores[node as usize].held(STRIPE);
        let held = held.expect("it has a chunk").records.into_iter();
        held.map(|record| (record.stamp.epoch, record.stamp.sequence))
            .collect()
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
        self.ask(0, ask::Commit { stripe: STRIPE })
    }

    /// Asks node 0 for the mark, and for what logs have of some ranges.
    pub(crate) fn mark(&self, settle: bool, decode: &[ChunkRange]) -> NodeReply {
        let stripe = STRIPE;
        let request = ask::Mark {
            stripe,
            settle,
            decode: decode.to_vec(),
            ticket: None,
        };
        self.ask(0, request)
    }

    /// Lets a node know a mark, and bring all updates up to it into its chunk.
    pub(crate) fn merge(&self, node: u32, mark: u64) {
        let store = &self.stores[node as usize];
        store
            .commit(STRIPE, Sequence(mark))
            .expect("the disk works");
        store.apply(STRIPE).expect("the disk works");
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

    /// The file of a node's chunk cannot be opened any more, and the node notices that.
    pub(crate) fn lose_chunk(&self, node: u32) {
        let id = chunk_of(node);
        self.disks[node as usize].break_path(&chunk_path(id), INPUT_OUTPUT_ERROR);
        let (mut bytes, cut) = (Vec::new(), Cut::Newest(Sequence(0)));
        let store = &self.stores[node as usize];
        let read = store.read(id, ByteRange::new(0, 1), cut, &mut bytes);
        read.expect_err("it is lost");
    }

    /// Gives a node its chunk anew, with two undecided updates in its reserve, of which the first cannot be read any
    /// more.
    pub(crate) fn spoil_reserve(&self, node: u32) {
        let id = chunk_of(node);
        let store = &self.stores[node as usize];
        let keeping = Keeping::Reserve { bytes: 8192 };
        let reserving = ChunkSpec { keeping, ..spec(0) };
        let mut writer = store.create(id, reserving).expect("there is room");
        let zeros = vec![0; CHUNK_BYTES as usize];
        writer.write_at(0, &zeros).expect("it fits");
        writer.finish().expect("it is whole");
        let deltas: [&[u8]; 2] = [b"the first update", b"the second one"];
        for (sequence, &bytes) in (1..).map(Sequence).zip(&deltas) {
            let epoch = Epoch(1);
            let lsn = store.append(&Record {
                chunk: id,
                generation: Generation(1),
                stamp: UpdateStamp { epoch, sequence },
                runs: vec![RunId(sequence.0)],
                participants: vec![id.index],
                kind: RecordKind::ParityDelta,
                pieces: vec![Piece {
                    data: ChunkIndex(0),
                    offset: 0,
                    bytes,
                }],
            });
            store
                .sync(lsn.expect("there is room"))
                .expect("the disk works");
        }
        let (disk, path) = (&self.disks[node as usize], chunk_path(id));
        let file = disk.contents(&path).expect("it is there");
        let at = file
            .windows(deltas[0].len())
            .position(|some| some == deltas[0]);
        disk.flip_bit(&path, at.expect("it is in the reserve") as u64 * 8);
    }

    /// Joining nodes are told this of their updates from now on.
    pub(crate) fn decide(&self, decided: Vec<Decided>) {
        self.world().decided = decided;
    }

    /// The chunks that joining nodes have reported since the last call, page by page.
    pub(crate) fn take_reports(&self) -> Vec<Vec<ChunkIndex>> {
        std::mem::take(&mut self.world().reports)
    }

    /// Node 0 is started again: it knows who is gone, gets a new term, and remembers nothing.
    pub(crate) fn restart_primary(&self) {
        self.world().epoch += 1;
        self.restart(0);
    }

    /// Starts a node again on its store.
    pub(crate) fn restart(&self, node: u32) {
        let ports: Arc<dyn Ports> = Arc::new(self.ports(node));
        let store = Arc::clone(&self.stores[node as usize]);
        let joined = self.run(Node::join(store, ports, node_options(node)));
        let node = joined.expect("everybody may join");
        self.world().nodes.insert(node.id(), node);
    }

    /// The coordinator gives the stripe another layout; the nodes hear of it with the next term.
    pub(crate) fn change_layout(&self, change: impl FnOnce(&mut StripeRecord)) {
        let mut world = self.world();
        let mut changed = world.stripe();
        changed.generation.0 += 1;
        change(&mut changed);
        world.changed = Some(changed);
    }

    /// A node may still have a chunk that counts elsewhere.
    pub(crate) fn leave_behind(&self, node: u32) {
        self.world().former.push(NodeId(node));
    }

    /// Starts a node again, which finds this at the coordinator.
    pub(crate) fn restart_with(&self, node: u32, decided: Vec<Decided>) {
        self.world().decided = decided;
        self.restart(node);
    }

    /// The same, with decisions that are made one after another while it ends its join.
    pub(crate) fn restart_during(&self, node: u32, decided: impl IntoIterator<Item = Decided>) {
        self.world().decided_late = decided.into_iter().collect();
        self.restart(node);
    }

    /// Lets time pass: a node's lease lasts as long as the bed says.
    pub(crate) fn pass(&self, ms: u64) {
        self.world().now_ms += ms;
    }

    /// From now on leases last so long, and the coordinator takes some time to answer.
    pub(crate) fn grant_leases_of(&self, lease_ms: u64, answer_ms: u64) {
        let mut world = self.world();
        world.lease_ms = lease_ms;
        world.answer_ms = answer_ms;
    }

    /// Has a node send one heartbeat.
    pub(crate) fn heartbeat(&self, node: u32) {
        self.run(self.beat(node));
    }

    /// From now on the disk of one node does nothing, or everybody's does what it should.
    pub(crate) fn hang_disk(&self, of: Option<u32>) {
        self.world().hung = of.map(NodeId).into_iter().collect();
    }

    /// The counts of a node's disk.
    pub(crate) fn disk_counts(&self, node: usize) -> DiskCounts {
        self.disks[node].counts()
    }

    /// Work waits on the disk of a node. Returns the nodes that have tried their disks since the last call.
    pub(crate) fn delay_disk(&self, of: u32) -> Vec<NodeId> {
        self.world().delayed.insert(NodeId(of));
        self.heartbeat(of);
        // The tasks that have begun with the heartbeat.
        self.run(ready(()));
        std::mem::take(&mut self.world().tried)
    }

    /// Has a node send a heartbeat, and the next one when it is asked for that, after this time.
    pub(crate) fn ask_for_heartbeat(&self, node: u32, after_ms: u64) {
        let node = Arc::clone(&self.world().nodes[&NodeId(node)]);
        self.run(async {
            let mut beats = std::pin::pin!(Arc::clone(&node).keep_alive().fuse());
            for _ in 0..2 {
                futures::select_biased! {
                    _ = beats => {}
                    () = ready(()).fuse() => {}
                }
                self.pass(after_ms);
                let coordinator = Address::Node(NodeId::CLIENT);
                let asked = node.handle(NodeRequest::Renew, coordinator, Asker::Member);
                assert_eq!(asked.await, NodeReply::Done);
            }
        });
    }

    /// Reasons for which nodes have ended their memberships, and their answers then.
    pub(crate) fn take_ends(&self) -> Vec<(EndCause, Option<NodeReply>)> {
        let mut world = self.world();
        let causes = std::mem::take(&mut world.ends);
        causes
            .into_iter()
            .zip(std::mem::take(&mut world.last_answers))
            .collect()
    }

    async fn beat(&self, node: u32) {
        let node = Arc::clone(&self.world().nodes[&NodeId(node)]);
        let mut beats = std::pin::pin!(node.keep_alive().fuse());
        // It sends one at once, and then sleeps without an end.
        futures::select_biased! {
            _ = beats => {}
            () = ready(()).fuse() => {}
        }
    }

    /// Waits for something that tasks on the bed bring about.
    async fn until(&self, is_so: impl Fn(&World) -> bool) {
        poll_fn(|context| {
            if is_so(&self.world()) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Has node 0 run an update of chunk 1, and another node that takes part join anew after it has begun
    /// its part, and before it has anything from node 1. What that node says of its part.
    pub(crate) fn rejoin_during_update(&self, run: u64, length: usize, other: u32) -> NodeReply {
        self.world().stuck.push(NodeId(1));
        let origin = Address::Node(NodeId::CLIENT);
        let [primary, data] = [0, 1].map(|node| Arc::clone(&self.world().nodes[&NodeId(node)]));
        let update = update_of(run, 1, length, &[], Generation(1));
        let update = primary.handle(update.into(), origin, Asker::Member);
        let replies = |world: &World| {
            let mut replies = world.part_replies.iter();
            replies.find(|(node, _)| node.0 == other).cloned()
        };
        let script = async {
            self.until(|world| !world.held_back.is_empty()).await;
            self.world().must_rejoin = true;
            self.beat(other).await;
            let part = self.world().held_back.remove(0);
            data.handle(part, Address::Node(NodeId(0)), Asker::Member)
                .await;
            self.until(|world| replies(world).is_some()).await;
        };
        self.run(futures::future::select(update, std::pin::pin!(script)));
        let refused = NodeReply::Refused(Refusal::NoLease);
        assert_eq!(
            self.world().last_answers,
            [Some(refused)],
            "who says that its membership has ended serves nothing"
        );
        let (_, reply) = replies(&self.world()).expect("whatever ended first, it has answered");
        reply
    }

    /// From now on a node answers nothing, or each node does.
    pub(crate) fn silence(&self, node: Option<u32>) {
        self.world().mute = node.map(NodeId);
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
