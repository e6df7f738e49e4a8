//! Measures the time to let in a node that holds a million chunks.
//!
//! The node's own code and the coordinator's talk to each other directly in one thread, the metadata
//! lie in redb, and the node's disk in memory: this is the work of both without the wire and without seeks.
//! Two joins are timed: of a process that has just started and has read no chunk's header yet, and of
//! one that was told to join anew. Beside them stands what no join can do without: one look at each
//! of the node's rows in the metadata, and for the first join one read of each chunk's header.
//!
//! `cargo bench -p gabion-protocol --bench join [-- --quick]`; `--quick` takes a tenth.

mod disk;

use disk::SparseDisk;
use futures::FutureExt;
use futures::channel::mpsc::UnboundedReceiver;
use futures::executor::block_on;
use futures::future::{BoxFuture, pending, ready};
use gabion_layout::{
    ChunkId, ChunkIndex, ClusterId, Generation, Keeping, NodeId, RackId, Sequence, Start, StripeId,
    UpdateScheme,
};
use gabion_meta::{
    Existing, Meta, NewAttributes, Placement, PoolSpec, RedbStore, WallClock, WallTime,
};
use gabion_protocol::coordinator::{Coordinator, CoordinatorOptions};
use gabion_protocol::limits::Limits;
use gabion_protocol::message::{
    CoordinatorReply, CoordinatorRequest, Flow, NodeReply, NodeRequest, NodeStatus,
    PAGE_CHUNK_COUNT, Refusal,
};
use gabion_protocol::node::{Node, NodeOptions};
use gabion_protocol::ports::{Address, CallError, Ports};
use gabion_store::{ChunkSpec, Disk, Options, Store, chunk_path};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

const CHUNK_BYTES: u64 = 4096;
const STRIPES_PER_PUT: u64 = 10_000;
/// The goal for a join of a million chunks, in seconds.
const GOAL_S: f64 = 5.0;

type Boss = Coordinator<RedbStore>;

/// Calls reach the coordinator at once; nodes are not called.
struct BenchPorts {
    began: Instant,
    boss: OnceLock<Arc<Boss>>,
    page_count: AtomicU64,
}

impl Ports for BenchPorts {
    fn call_node(
        &self,
        node: NodeId,
        _: NodeRequest,
        _: u64,
    ) -> BoxFuture<'static, Result<NodeReply, CallError>> {
        let (peer, reason) = (node.to_string(), "is not there".to_owned());
        ready(Err(CallError { peer, reason })).boxed()
    }

    fn call_coordinator(
        &self,
        request: CoordinatorRequest,
        _: u64,
    ) -> BoxFuture<'static, Result<CoordinatorReply, CallError>> {
        if matches!(request, CoordinatorRequest::TellChunks(_)) {
            self.page_count.fetch_add(1, Ordering::Relaxed);
        }
        let boss = Arc::clone(self.boss.get().expect("the coordinator is there"));
        async move { Ok(boss.handle(request).await) }.boxed()
    }

    fn send_flows(
        &self,
        _: Address,
        _: UnboundedReceiver<Flow>,
    ) -> BoxFuture<'static, Result<(), Refusal>> {
        ready(Ok(())).boxed()
    }

    fn learn_nodes(&self, _: &[NodeStatus]) {}

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).expect("a benchmark ends")
    }

    fn sleep_ms(&self, _: u64) -> BoxFuture<'static, ()> {
        pending().boxed()
    }

    fn spawn(&self, _: BoxFuture<'static, ()>) {}

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }

    fn random(&self) -> u64 {
        self.began.elapsed().subsec_nanos().into()
    }
}

/// Deletes the metadata at the end.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn main() {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let chunk_count: u64 = if is_quick { 100_000 } else { 1_000_000 };
    let directory = std::env::temp_dir().join(format!("gabion-join-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a temporary directory");
    let directory = Directory(directory);
    println!("preparing {chunk_count} stripes and chunks");
    let meta = metadata(&directory.0.join("meta"), chunk_count);
    let disk = node_disk(chunk_count);

    let looked = seconds(|| look_at_rows(&meta, chunk_count));
    let read = seconds(|| read_headers(&disk, chunk_count));
    let ports = Arc::new(BenchPorts {
        began: Instant::now(),
        boss: OnceLock::new(),
        page_count: AtomicU64::new(0),
    });
    let dyn_ports: Arc<dyn Ports> = ports.clone();
    let boss = Coordinator::new(meta, dyn_ports, CoordinatorOptions::default());
    let boss = boss.expect("the metadata are whole");
    assert!(ports.boss.set(boss).is_ok(), "there is one coordinator");
    let (store, _) = Store::open(Arc::new(disk), Options::default()).expect("the store is whole");
    let store = Arc::new(store);
    let floors = [looked + read, looked];
    for (what, floor) in ["started anew", "told to join anew"]
        .into_iter()
        .zip(floors)
    {
        ports.page_count.store(0, Ordering::Relaxed);
        let took = seconds(|| join(&store, &ports));
        let rate = chunk_count as f64 / took;
        let goal = GOAL_S * chunk_count as f64 / 1e6;
        let word = if took <= goal { "met" } else { "missed" };
        println!(
            "{what:18} {took:6.2} s, {} pages, {rate:9.0} chunks/s; rows and headers alone {floor:5.2} s; \
             goal {goal:.1} s: {word}",
            ports.page_count.load(Ordering::Relaxed),
        );
    }
}

fn seconds(work: impl FnOnce()) -> f64 {
    let began = Instant::now();
    work();
    began.elapsed().as_secs_f64()
}

fn metadata(path: &std::path::Path, stripe_count: u64) -> Meta<RedbStore> {
    let store = RedbStore::create(path).expect("a new store");
    let meta = Meta::create(store, ClusterId(1), WallClock::stopped(WallTime::default()))
        .expect("a new cluster");
    for node in 0..3 {
        let address = format!("host:{}", 7000 + node);
        let joined = meta.join(None, RackId(node), &address, 1 << 40, 0);
        joined.expect("a new node");
    }
    let spec = PoolSpec {
        name: "p".to_owned(),
        code: "rs(2,1)".to_owned(),
        k: 2,
        m: 1,
        sub_chunks: 1,
        chunk_bytes: CHUNK_BYTES,
        survive: "1-node".parse().expect("a promise"),
        chunks_per_rack: 1,
        update: UpdateScheme::Pl,
        reserve: None,
        append: None,
        inline_bytes: 0,
    };
    let pool = meta.create_pool(&spec).expect("a new pool").id;
    let places: Vec<Placement> = (0..STRIPES_PER_PUT)
        .map(|_| Placement {
            chunk_bytes: CHUNK_BYTES,
            nodes: (0..3).map(NodeId).collect(),
        })
        .collect();
    for put in 0..stripe_count / STRIPES_PER_PUT {
        let bytes = STRIPES_PER_PUT * 2 * CHUNK_BYTES;
        let begun = meta.begin_put(
            (&format!("f{put}"), Existing::Stays, NewAttributes::FILE),
            pool,
            bytes,
            &places,
            0,
        );
        let put = begun.expect("a new file").id;
        meta.commit_put(put, 0).expect("the put is there");
    }
    meta
}

/// Node 0's chunk of a stripe.
fn chunk(stripe: u64) -> ChunkId {
    ChunkId {
        stripe: StripeId(stripe),
        index: ChunkIndex(0),
    }
}

fn node_disk(chunk_count: u64) -> SparseDisk {
    let disk = SparseDisk::default();
    let (store, _) = Store::open(Arc::new(disk.clone()), Options::default()).expect("a new store");
    let spec = ChunkSpec {
        generation: Generation(1),
        chunk_bytes: CHUNK_BYTES,
        base: Sequence(0),
        keeping: Keeping::Log,
    };
    let zeros = vec![0; CHUNK_BYTES as usize];
    for stripe in 0..chunk_count {
        let mut writer = store.create(chunk(stripe), spec).expect("there is room");
        writer.write_at(0, &zeros).expect("there is room");
        writer.finish().expect("there is room");
    }
    disk
}

fn look_at_rows(meta: &Meta<RedbStore>, stripe_count: u64) {
    let (mut after, mut count) = (None, 0);
    loop {
        let page = meta.facts_on(NodeId(0), (after, None), PAGE_CHUNK_COUNT);
        let page = page.expect("the metadata are whole");
        count += page.facts.len() as u64;
        after = page.upto;
        if after.is_none() {
            assert_eq!(count, stripe_count);
            return;
        }
    }
}

fn read_headers(disk: &SparseDisk, chunk_count: u64) {
    let mut header = vec![0; 4096];
    for stripe in 0..chunk_count {
        let file = disk.open(&chunk_path(chunk(stripe))).expect("it is there");
        file.read_exact_at(&mut header, 0).expect("it has a header");
    }
}

fn join(store: &Arc<Store>, ports: &Arc<BenchPorts>) {
    let options = NodeOptions {
        node: Some(NodeId(0)),
        rack: RackId(0),
        address: "host:7000".to_owned(),
        capacity_bytes: 1 << 40,
        reserve_bytes_per_s: 0,
        page_chunk_count: PAGE_CHUNK_COUNT,
        limits: Limits::default(),
        start: Start {
            number: 1,
            nonce: 1,
        },
    };
    let dyn_ports: Arc<dyn Ports> = ports.clone();
    let joined = block_on(Node::join(Arc::clone(store), dyn_ports, options));
    assert_eq!(joined.expect("the node may join").id(), NodeId(0));
}
