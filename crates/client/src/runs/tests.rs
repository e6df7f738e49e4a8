//! A client's conclusions about a run whose stripe has ended, from scripted nodes.

use crate::client::{Client, ClientOptions};
use crate::error::ClientError;
use crate::layout::sample;
use crate::open_runs::OpenRun;
use futures::channel::mpsc::UnboundedReceiver;
use futures::future::{BoxFuture, ready};
use futures::{FutureExt, StreamExt};
use gabion_layout::{
    ByteRange, ChunkId, ChunkIndex, Generation, NodeId, PoolId, RackId, Sequence, StripeId,
    StripeRecord,
};
use gabion_meta::Departure;
use gabion_protocol::client_ports::{ClientPorts, RunFlows};
use gabion_protocol::message::{
    CoordinatorReply, CoordinatorRequest, Damage, FileLayout, Flow, Liveness, NodeReply,
    NodeRequest, NodeStatus, Refusal, RunFate, RunId, RunMemory, RunQuestion,
};
use gabion_protocol::ports::{Address, CallError, Ports};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// Chunks of the ended stripe, chunk `i` on node `i`.
const CHUNK_COUNT: u32 = 3;
/// The only node whose memory reaches back to the run.
const KNOWS: NodeId = NodeId(0);
const STRIPE: StripeId = StripeId(7);

/// A cluster with an empty file, whose only stripe has ended.
struct Script {
    now_ms: Mutex<u64>,
    /// The first answers of the node that knows, and their number.
    refusal: Refusal,
    refusals_left: Mutex<u64>,
    /// A node that cannot be reached.
    silent: Option<NodeId>,
    /// A node that is declared failed in as many look-ups.
    failed: (NodeId, Mutex<u64>),
}

impl Script {
    fn new(refusal: Refusal, refusal_count: u64) -> Self {
        Self {
            now_ms: Mutex::default(),
            refusal,
            refusals_left: Mutex::new(refusal_count),
            silent: None,
            failed: (NodeId(0), Mutex::default()),
        }
    }

    fn look_up(&self) -> FileLayout {
        let mut layout = layout();
        let mut left = self.failed.1.lock().unwrap();
        if *left > 0 {
            *left -= 1;
            layout.nodes[self.failed.0.0 as usize].liveness = Liveness::Failed;
        }
        layout
    }

    fn now(&self) -> MutexGuard<'_, u64> {
        self.now_ms.lock().unwrap()
    }

    fn recollect(&self, node: NodeId) -> NodeReply {
        if node != KNOWS {
            return NodeReply::Recollection(RunMemory {
                sequence: None,
                complete_after: Sequence(9),
            });
        }
        let mut left = self.refusals_left.lock().unwrap();
        if *left > 0 {
            *left -= 1;
            return NodeReply::Refused(self.refusal.clone());
        }
        NodeReply::Recollection(RunMemory {
            sequence: None,
            complete_after: Sequence(0),
        })
    }
}

fn nodes() -> Vec<NodeStatus> {
    let status = |node| NodeStatus {
        node: NodeId(node),
        rack: RackId(node),
        address: format!("10.0.0.1:{node}"),
        liveness: Liveness::Up,
        departure: Departure::None,
    };
    (0..CHUNK_COUNT).map(status).collect()
}

fn ended_stripe() -> StripeRecord {
    StripeRecord {
        id: STRIPE,
        pool: PoolId(0),
        chunk_bytes: 4096,
        generation: Generation(1),
        nodes: (0..CHUNK_COUNT).map(NodeId).collect(),
        stale: Vec::new(),
    }
}

fn layout() -> FileLayout {
    FileLayout {
        nodes: nodes(),
        ..sample::layout()
    }
}

impl Ports for Script {
    fn call_node(
        &self,
        node: NodeId,
        request: NodeRequest,
        _: u64,
    ) -> BoxFuture<'static, Result<NodeReply, CallError>> {
        if self.silent == Some(node) {
            let reason = "is gone".to_owned();
            let peer = node.to_string();
            return ready(Err(CallError { peer, reason })).boxed();
        }
        let reply = match request {
            NodeRequest::Fate { .. } => NodeReply::Fate(RunFate::Never),
            NodeRequest::Unstage { .. } => NodeReply::Unstaged { was_waiting: false },
            NodeRequest::Recollect { .. } => self.recollect(node),
            _ => NodeReply::Done,
        };
        ready(Ok(reply)).boxed()
    }

    fn call_coordinator(
        &self,
        request: CoordinatorRequest,
        _: u64,
    ) -> BoxFuture<'static, Result<CoordinatorReply, CallError>> {
        let reply = match request {
            CoordinatorRequest::Nodes => CoordinatorReply::Nodes(nodes()),
            CoordinatorRequest::Lookup { .. } | CoordinatorRequest::LookupFile { .. } => {
                CoordinatorReply::File(Box::new(self.look_up()))
            }
            CoordinatorRequest::Ended(_) => CoordinatorReply::Ended {
                stripe: Some(ended_stripe()),
                nodes: nodes(),
            },
            other => panic!("{other:?}"),
        };
        ready(Ok(reply)).boxed()
    }

    fn send_flows(
        &self,
        _: Address,
        flows: UnboundedReceiver<Flow>,
    ) -> BoxFuture<'static, Result<(), Refusal>> {
        flows.for_each(|_| ready(())).map(Ok).boxed()
    }

    fn learn_nodes(&self, _: &[NodeStatus]) {}

    fn now_us(&self) -> u64 {
        self.now_ms() * 1000
    }

    fn now_ms(&self) -> u64 {
        *self.now()
    }

    fn sleep_ms(&self, ms: u64) -> BoxFuture<'static, ()> {
        *self.now() += ms;
        ready(()).boxed()
    }

    fn spawn(&self, _: BoxFuture<'static, ()>) {}

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }

    fn random(&self) -> u64 {
        4
    }
}

impl ClientPorts for Script {
    fn flows_of(&self, run: RunId) -> RunFlows {
        panic!("{run:?} takes no part in a plan")
    }

    fn reach_coordinator(&self, _: u64) -> BoxFuture<'static, Result<(), CallError>> {
        ready(Ok(())).boxed()
    }

    fn reach_node(&self, _: NodeId, _: u64) -> BoxFuture<'static, Result<(), CallError>> {
        ready(Ok(())).boxed()
    }
}

/// The client's conclusion when the node that knows refuses this many times first.
fn find(refusal: Refusal, refusal_count: u64) -> Result<Option<Sequence>, ClientError> {
    let ports = Arc::new(Script::new(refusal, refusal_count));
    let open = open_run();
    let found = async {
        let client = Client::connect(ports, ClientOptions::default()).await?;
        client.open("f").await?.decide(&open).await
    };
    found.now_or_never().expect("the script waits for nothing")
}

/// A run with bytes at node 1.
fn open_run() -> OpenRun {
    OpenRun {
        question: RunQuestion {
            stripe: STRIPE,
            generation: Generation(1),
            run: RunId(1),
            after: Sequence(0),
            chunks: vec![ChunkIndex(0)],
        },
        range: ByteRange::new(0, 1),
        staged_at: vec![NodeId(1)],
        holders: (0..CHUNK_COUNT).map(NodeId).collect(),
        fate: OnceLock::new(),
    }
}

/// By an old layout, the node with the bytes has failed. It has returned since, and cannot be reached for a moment: the
/// bytes may still be there, so a primary that knows nothing of the run may yet begin it.
#[test]
fn a_node_counts_as_failed_only_by_a_present_layout() {
    for (failed_count, is_known) in [(1, false), (2, true)] {
        let ports = Arc::new(Script {
            silent: Some(NodeId(1)),
            failed: (NodeId(1), Mutex::new(failed_count)),
            ..Script::new(Refusal::NoLease, 0)
        });
        let open = open_run();
        let found = async {
            let client = Client::connect(ports, ClientOptions::default()).await?;
            let file = client.open("f").await?;
            let layout = file.layout_of(open.range).await?;
            let stripe = ended_stripe();
            Ok::<_, ClientError>(file.close_run(&layout, Some(&stripe), &open, 1_000).await)
        };
        let found = found.now_or_never().expect("the script waits for nothing");
        let fate = found.expect("the file is there");
        assert_eq!(fate.ok(), is_known.then_some(RunFate::Never));
    }
}

#[test]
fn a_node_that_does_not_serve_yet_is_asked_again() {
    let passing = [
        Refusal::NoLease,
        Refusal::Busy("no descriptors".to_owned()),
        Refusal::StoreFailed("cannot sync".to_owned()),
    ];
    for refusal in passing {
        let found = find(refusal.clone(), 3);
        assert!(matches!(found, Ok(None)), "{refusal}: {found:?}");
        let found = find(refusal.clone(), u64::MAX);
        let is_open = matches!(found, Err(ClientError::Undecided { .. }));
        assert!(is_open, "{refusal}: {found:?}");
    }
}

#[test]
fn a_node_that_has_no_memory_of_a_chunk_is_not_asked_again() {
    let chunk = ChunkId {
        stripe: STRIPE,
        index: ChunkIndex(0),
    };
    let damage = Damage {
        chunk,
        generation: Generation(1),
        range: ByteRange::new(0, 1),
    };
    for refusal in [Refusal::NoSuchChunk(chunk), Refusal::Damaged(damage)] {
        let found = find(refusal.clone(), 1);
        let is_forgotten = matches!(found, Err(ClientError::Forgotten(_)));
        assert!(is_forgotten, "{refusal}: {found:?}");
    }
}
