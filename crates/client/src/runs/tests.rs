//! A client's conclusions about a run whose stripe has ended, from scripted nodes.

use crate::client::{Client, ClientOptions};
use crate::error::ClientError;
use crate::layout::sample;
use crate::open_runs::OpenRun;
use crate::scripted_ports::{Script, ScriptedPorts};
use futures::FutureExt;
use gabion_layout::{
    ByteRange, ChunkId, ChunkIndex, Generation, NodeId, PoolId, Sequence, StripeId, StripeRecord,
};
use gabion_protocol::message::{
    CoordinatorReply, CoordinatorRequest, Damage, FileLayout, Liveness, NodeReply, NodeRequest,
    Refusal, RunFate, RunId, RunMemory, RunQuestion,
};
use gabion_protocol::ports::CallError;
use std::sync::{Arc, Mutex, OnceLock};

/// Chunks of the ended stripe, chunk `i` on node `i`.
const CHUNK_COUNT: u32 = 3;
/// The only node whose memory reaches back to the run.
const KNOWS: NodeId = NodeId(0);
const STRIPE: StripeId = StripeId(7);

/// A cluster with an empty file, whose only stripe has ended.
struct Ended {
    /// The first answers of the node that knows, and their number.
    refusal: Refusal,
    refusals_left: Mutex<u64>,
    /// A node that cannot be reached.
    silent: Option<NodeId>,
    /// A node that is declared failed in as many look-ups.
    failed: (NodeId, Mutex<u64>),
}

impl Ended {
    fn new(refusal: Refusal, refusal_count: u64) -> Self {
        Self {
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
        nodes: sample::nodes(CHUNK_COUNT),
        ..sample::layout()
    }
}

impl Script for Ended {
    fn ask_node(&self, node: NodeId, request: NodeRequest) -> Result<NodeReply, CallError> {
        if self.silent == Some(node) {
            let reason = "is gone".to_owned();
            let peer = node.to_string();
            return Err(CallError { peer, reason });
        }
        Ok(match request {
            NodeRequest::Fate { .. } => NodeReply::Fate(RunFate::Never),
            NodeRequest::Unstage { .. } => NodeReply::Unstaged { was_waiting: false },
            NodeRequest::Recollect { .. } => self.recollect(node),
            _ => NodeReply::Done,
        })
    }

    fn ask_coordinator(&self, request: CoordinatorRequest, _: &mut u64) -> CoordinatorReply {
        match request {
            CoordinatorRequest::Nodes => CoordinatorReply::Nodes(sample::nodes(CHUNK_COUNT)),
            CoordinatorRequest::Lookup { .. } | CoordinatorRequest::LookupFile { .. } => {
                CoordinatorReply::File(Box::new(self.look_up()))
            }
            CoordinatorRequest::Ended(_) => CoordinatorReply::Ended {
                stripe: Some(ended_stripe()),
                nodes: sample::nodes(CHUNK_COUNT),
            },
            other => panic!("{other:?}"),
        }
    }
}

/// The client's conclusion when the node that knows refuses this many times first.
fn find(refusal: Refusal, refusal_count: u64) -> Result<Option<Sequence>, ClientError> {
    let ports = Arc::new(ScriptedPorts::new(Ended::new(refusal, refusal_count)));
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
        let ports = Arc::new(ScriptedPorts::new(Ended {
            silent: Some(NodeId(1)),
            failed: (NodeId(1), Mutex::new(failed_count)),
            ..Ended::new(Refusal::NoLease, 0)
        }));
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
