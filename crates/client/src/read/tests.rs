//! Reads of several stripes, from nodes that answer when a test lets them.

use super::*;
use crate::client::ClientOptions;
use crate::layout::sample;
use futures::FutureExt;
use futures::channel::mpsc::UnboundedReceiver;
use futures::channel::oneshot;
use futures::future::{BoxFuture, pending, ready};
use gabion_exec::{Sink, Source};
use gabion_layout::{Generation, PoolId, StripeId};
use gabion_protocol::client_ports::{ClientPorts, FlowRouter, RunFlows};
use gabion_protocol::message::{
    CoordinatorReply, CoordinatorRequest, FileLayout, Flow, NodeReply, NodeRequest, NodeStatus,
    Refusal, RunId, RunPart,
};
use gabion_protocol::ports::{Address, CallError, Ports};
use gabion_protocol::run::{LocalIo, RunContext, run_part};
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const CHUNK_BYTES: u64 = 4096;
/// Two data chunks.
const STRIPE_BYTES: u64 = 2 * CHUNK_BYTES;
/// Segments of the file.
const SEGMENT_COUNT: u64 = 20;
/// The segment without a stripe. The stripes of the others are numbered as they are.
const HOLE: u64 = 3;

/// A cluster with one file. Its nodes run each part of a plan only when they are told to.
#[derive(Clone, Default)]
struct Cluster(Arc<State>);

#[derive(Default)]
struct State {
    router: Arc<FlowRouter>,
    drawn: AtomicU64,
    waiting: Mutex<Vec<Waiting>>,
}

/// A part that its node has not begun.
struct Waiting {
    stripe: StripeId,
    /// Ends the wait, with the node's refusal if there is one.
    end: oneshot::Sender<Option<Refusal>>,
}

impl Cluster {
    /// The file, of a client that holds this many bytes.
    fn open(&self, in_flight_bytes: u64) -> File {
        let options = ClientOptions {
            in_flight_bytes,
            ..ClientOptions::default()
        };
        let opened = async {
            let client = Client::connect(Arc::new(self.clone()), options).await?;
            client.open("f").await
        };
        let opened = opened.now_or_never().expect("the coordinator answers");
        opened.expect("the file is there")
    }

    /// The stripes whose nodes were asked and have not answered.
    fn asked(&self) -> Vec<u64> {
        let waiting = self.0.waiting.lock().unwrap();
        let mut stripes: Vec<u64> = waiting.iter().map(|part| part.stripe.0).collect();
        stripes.sort_unstable();
        stripes.dedup();
        stripes
    }

    /// Lets the nodes of a stripe answer.
    fn answer(&self, stripe: u64, refusal: Option<&Refusal>) {
        let mut waiting = self.0.waiting.lock().unwrap();
        let is_meant = |part: &mut Waiting| part.stripe == StripeId(stripe);
        for part in waiting.extract_if(.., is_meant) {
            let told = part.end.send(refusal.cloned());
            assert!(told.is_ok(), "the client waits for stripe {stripe}");
        }
    }

    /// Whether the client waits for a node that has not answered.
    fn is_awaited(&self) -> bool {
        let waiting = self.0.waiting.lock().unwrap();
        waiting.iter().any(|part| !part.end.is_canceled())
    }

    async fn run(self, part: RunPart, end: oneshot::Receiver<Option<Refusal>>) -> NodeReply {
        match end.await {
            Ok(None) => {}
            Ok(Some(refusal)) => return NodeReply::Refused(refusal),
            Err(_) => return pending().await,
        }
        let context = RunContext {
            run: part.run,
            origin: Address::Origin(0),
            purpose: part.purpose,
            spread_ms: 0,
            deadline_ms: part.deadline_ms,
            stall_ms: None,
        };
        let chunk = Stored(part.part.stripe);
        let mut credits = stream::pending();
        let ran = run_part(&self, &chunk, &part.part, context, &mut credits).await;
        ran.expect("one slice needs no credits");
        NodeReply::PartDone {
            as_of: Sequence(1),
            progress: None,
        }
    }
}

/// The chunks of a stripe.
struct Stored(StripeId);

impl LocalIo for Stored {
    fn fetch(
        &self,
        source: Source,
        range: ByteRange,
    ) -> BoxFuture<'static, Result<Bytes, Refusal>> {
        let Source::Chunk(chunk) = source else {
            panic!("{source:?} is not read");
        };
        let start = self.0.0 * STRIPE_BYTES + chunk.at() as u64 * CHUNK_BYTES;
        let range = ByteRange::new(start + range.offset, range.length);
        ready(Ok(content(range).into())).boxed()
    }

    fn store(&self, sink: Sink, _: ByteRange, _: Bytes) -> BoxFuture<'static, Result<(), Refusal>> {
        panic!("{sink:?} is not written")
    }
}

/// Bytes of the file.
fn content(range: ByteRange) -> Vec<u8> {
    let byte = |at: u64| match at / STRIPE_BYTES {
        HOLE => 0,
        _ => (at % 251) as u8,
    };
    (range.offset..range.end()).map(byte).collect()
}

fn layout() -> FileLayout {
    let mut layout = FileLayout {
        nodes: sample::nodes(3),
        ..sample::layout()
    };
    layout.file.size_bytes = SEGMENT_COUNT * STRIPE_BYTES;
    for segment in (0..SEGMENT_COUNT).filter(|&segment| segment != HOLE) {
        layout.offsets.push(segment * STRIPE_BYTES);
        layout.stripes.push(StripeRecord {
            id: StripeId(segment),
            pool: PoolId(0),
            chunk_bytes: CHUNK_BYTES,
            generation: Generation(1),
            nodes: (0..3).map(NodeId).collect(),
            stale: Vec::new(),
        });
        layout.file.stripe_count += 1;
    }
    layout
}

impl Ports for Cluster {
    fn call_node(
        &self,
        _: NodeId,
        request: NodeRequest,
        _: u64,
    ) -> BoxFuture<'static, Result<NodeReply, CallError>> {
        let NodeRequest::RunPart(part) = request else {
            return ready(Ok(NodeReply::Done)).boxed();
        };
        let (end, ended) = oneshot::channel();
        let stripe = part.part.stripe;
        self.0.waiting.lock().unwrap().push(Waiting { stripe, end });
        self.clone().run(*part, ended).map(Ok).boxed()
    }

    fn call_coordinator(
        &self,
        request: CoordinatorRequest,
        _: u64,
    ) -> BoxFuture<'static, Result<CoordinatorReply, CallError>> {
        let reply = match request {
            CoordinatorRequest::Nodes => CoordinatorReply::Nodes(sample::nodes(3)),
            CoordinatorRequest::Lookup { .. } | CoordinatorRequest::LookupFile { .. } => {
                CoordinatorReply::File(Box::new(layout()))
            }
            other => panic!("{other:?}"),
        };
        ready(Ok(reply)).boxed()
    }

    fn send_flows(
        &self,
        to: Address,
        flows: UnboundedReceiver<Flow>,
    ) -> BoxFuture<'static, Result<(), Refusal>> {
        let router = Arc::clone(&self.0.router);
        let is_to_client = matches!(to, Address::Origin(_));
        let sent = flows.for_each(move |flow| {
            if is_to_client {
                router.route(flow);
            }
            ready(())
        });
        sent.map(Ok).boxed()
    }

    fn learn_nodes(&self, _: &[NodeStatus]) {}

    fn now_ms(&self) -> u64 {
        0
    }

    fn sleep_ms(&self, _: u64) -> BoxFuture<'static, ()> {
        pending().boxed()
    }

    fn spawn(&self, _: BoxFuture<'static, ()>) {}

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }

    fn random(&self) -> u64 {
        self.0.drawn.fetch_add(1, Ordering::Relaxed)
    }
}

impl ClientPorts for Cluster {
    fn flows_of(&self, run: RunId) -> RunFlows {
        self.0.router.register(run)
    }

    fn reach_coordinator(&self, _: u64) -> BoxFuture<'static, Result<(), CallError>> {
        ready(Ok(())).boxed()
    }

    fn reach_node(&self, _: NodeId, _: u64) -> BoxFuture<'static, Result<(), CallError>> {
        ready(Ok(())).boxed()
    }
}

/// Polls until nothing more happens by itself.
fn poll<T>(mut future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    // What one poll wakes goes on in the next.
    (0..64).find_map(|_| future.as_mut().now_or_never())
}

/// All bytes, with those of holes.
fn joined(parts: Vec<ReadPart>) -> Vec<u8> {
    let bytes = |part| match part {
        ReadPart::Bytes(bytes) => bytes,
        ReadPart::Hole(length) => vec![0; length as usize],
    };
    parts.into_iter().flat_map(bytes).collect()
}

/// Reads a range of five stripes and a hole, whose nodes answer in this order.
fn check_order(order: [u64; 5]) {
    let range = ByteRange::new(100, 6 * STRIPE_BYTES - 150);
    let cluster = Cluster::default();
    let file = cluster.open(256 << 20);
    let read = async { file.read(range).await };
    let parts = async { file.read_parts(range).await.map(joined) };
    for read in [read.boxed_local(), parts.boxed_local()] {
        let mut read = pin!(read);
        assert!(poll(read.as_mut()).is_none());
        assert_eq!(cluster.asked(), [0, 1, 2, 4, 5], "before any answer");
        for stripe in order {
            assert!(poll(read.as_mut()).is_none(), "stripe {stripe} is missing");
            cluster.answer(stripe, None);
        }
        let bytes = poll(read).expect("all have answered");
        assert!(bytes.unwrap() == content(range), "{order:?}");
    }
}

#[test]
fn all_stripes_are_asked_before_the_first_answers_and_each_answer_gets_its_place() {
    check_order([0, 1, 2, 4, 5]);
    check_order([5, 4, 2, 1, 0]);
    check_order([2, 5, 0, 4, 1]);
}

/// Reads the whole file. There are never more stripes in flight than this, and another one begins when any of them
/// ends.
fn check_limit(in_flight_bytes: u64, limit: usize) {
    let cluster = Cluster::default();
    let file = cluster.open(in_flight_bytes);
    let all = ByteRange::new(0, file.size_bytes());
    let mut read = pin!(file.read(all));
    let mut left = SEGMENT_COUNT as usize - 1;
    while left > 0 {
        assert!(poll(read.as_mut()).is_none());
        let asked = cluster.asked();
        assert_eq!(asked.len(), limit.min(left), "of {in_flight_bytes} bytes");
        // The first one is the last to answer.
        cluster.answer(*asked.last().unwrap(), None);
        left -= 1;
    }
    let bytes = poll(read).expect("all have answered");
    assert!(bytes.unwrap() == content(all));
}

#[test]
fn a_read_has_few_stripes_in_flight_and_few_bytes() {
    check_limit(u64::MAX, 8);
    check_limit(5 * STRIPE_BYTES - 1, 4);
    check_limit(2 * STRIPE_BYTES, 2);
    check_limit(1, 1);
}

#[test]
fn large_stripes_are_read_a_few_at_a_time() {
    let cluster = Cluster::default();
    let at_once = |in_flight_bytes, longest| {
        let client = cluster.open(in_flight_bytes).client;
        client.reads_at_once(longest, 1 << 40)
    };
    assert_eq!(at_once(256 << 20, 4 << 20), (8, 32 << 20));
    assert_eq!(at_once(256 << 20, 16 << 20), (4, 64 << 20));
    assert_eq!(at_once(256 << 20, 64 << 20), (3, 192 << 20));
    assert_eq!(at_once(32 << 20, 16 << 20), (2, 32 << 20));
    assert_eq!(at_once(32 << 20, 64 << 20), (1, 64 << 20));
}

#[test]
fn the_failure_of_one_stripe_ends_the_reads_of_all() {
    let cluster = Cluster::default();
    let file = cluster.open(256 << 20);
    let all = ByteRange::new(0, file.size_bytes());
    let mut read = pin!(file.read(all));
    assert!(poll(read.as_mut()).is_none());
    cluster.answer(1, None);
    assert!(poll(read.as_mut()).is_none());
    assert!(cluster.is_awaited());
    let asked = cluster.asked();
    let refusal = Refusal::Invalid("no".to_owned());
    cluster.answer(4, Some(&refusal));
    let error = poll(read).expect("it failed").unwrap_err();
    assert!(matches!(error, ClientError::Node { .. }), "{error}");
    assert!(!cluster.is_awaited(), "{:?}", cluster.asked());
    let begun_later = |stripe: &u64| !asked.contains(stripe);
    assert!(!cluster.asked().iter().any(begun_later));
}

#[test]
fn the_clients_own_part_has_no_moment() {
    let moment = |marks: &[(NodeId, u64)]| {
        let as_of = marks.iter().map(|&(node, mark)| (node, Sequence(mark)));
        is_one_moment(&as_of.collect())
    };
    assert!(moment(&[(NodeId::CLIENT, 0)]));
    assert!(moment(&[
        (NodeId(1), 5),
        (NodeId(2), 5),
        (NodeId::CLIENT, 0)
    ]));
    assert!(!moment(&[
        (NodeId(1), 5),
        (NodeId(2), 6),
        (NodeId::CLIENT, 0)
    ]));
    assert!(!moment(&[(NodeId(1), 0), (NodeId(2), 5)]));
}
