//! The ports of nodes on the bed: to each other, to a clock that a test moves, and to a coordinator that grants
//! everything.

use crate::update::bed::{CHUNK_BYTES, STRIPE, stripe};
use crate::update::tickets::{TICKET_GRACE_MS, ticket_key};
use bytes::Bytes;
use futures::channel::mpsc::UnboundedReceiver;
use futures::future::{BoxFuture, pending, poll_fn, ready};
use futures::{FutureExt, StreamExt};
use gabion_layout::{
    AppendSpec, ChunkId, ChunkIndex, Epoch, NodeId, PoolId, RackId, Sequence, StripeRecord,
    UpdateScheme,
};
use gabion_meta::{FencingToken, PoolRecord, PoolSpec, PutId};
use gabion_protocol::message::{
    CoordinatorReply, CoordinatorRequest, Decided, Effect, EndCause, Flow, InventoryPage,
    JoinBegun, JoinCount, JoinSession, Joined, Liveness, NodeReply, NodeRequest, NodeStatus,
    Origin, PageAnswer, Refusal, Scope, StripeLease, TicketKeys, ask,
};
use gabion_protocol::node::Node;
use gabion_protocol::ports::{Address, Asker, CallError, Ports};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::task::Poll;

/// The chunks of which a primary told the coordinator that its updates leave them out.
pub(crate) type Note = (Epoch, Vec<(ChunkIndex, Sequence)>);

/// The state that the nodes share.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) nodes: BTreeMap<NodeId, Arc<Node>>,
    pub(crate) failed: Vec<NodeId>,
    /// Nodes whose parts of plans never come to an end.
    pub(crate) stuck: Vec<NodeId>,
    /// Nodes whose parts of plans begin after other futures have run.
    pub(crate) slow: Vec<NodeId>,
    pub(crate) tasks: Vec<BoxFuture<'static, ()>>,
    pub(crate) epoch: u64,
    pub(crate) notes: Vec<Note>,
    /// Nodes that have said that their stores failed.
    pub(crate) store_failures: Vec<NodeId>,
    pub(crate) refuses_notes: bool,
    /// The participants of each record that a node was to make.
    pub(crate) records: Vec<(Sequence, Vec<ChunkIndex>)>,
    pub(crate) drawn: u64,
    /// The number of the only key of tickets.
    pub(crate) ticket_key: u32,
    pub(crate) scheme: UpdateScheme,
    /// Whether the stripe is noted to be in an append phase.
    pub(crate) appends: bool,
    /// Parts from here on fail at this node.
    pub(crate) broken: Option<NodeId>,
    /// A node that answers nothing, and is not declared failed.
    pub(crate) mute: Option<NodeId>,
    /// The layout, if it is not the first any more.
    pub(crate) changed: Option<StripeRecord>,
    /// Nodes that may still have chunks that count elsewhere.
    pub(crate) former: Vec<NodeId>,
    pub(crate) now_ms: u64,
    /// Duration of a node's membership lease, and the time in which the coordinator answers a node.
    pub(crate) lease_ms: u64,
    pub(crate) answer_ms: u64,
    /// Nodes that send a heartbeat must join anew.
    pub(crate) must_rejoin: bool,
    /// The answers of nodes that had just told the coordinator that their membership has ended.
    pub(crate) last_answers: Vec<Option<NodeReply>>,
    /// Reasons for which memberships have ended.
    pub(crate) ends: Vec<EndCause>,
    /// Nodes whose disks hang.
    pub(crate) hung: Vec<NodeId>,
    /// Nodes on whose disks work waits, until one of them tries its disk, and those that did.
    pub(crate) delayed: BTreeSet<NodeId>,
    pub(crate) tried: Vec<NodeId>,
    /// Parts for stuck nodes, which a test may deliver, and what other nodes have said of theirs.
    pub(crate) held_back: Vec<NodeRequest>,
    pub(crate) part_replies: Vec<(NodeId, NodeReply)>,
    /// The decisions that a joining node is told.
    pub(crate) decided: Vec<Decided>,
    pub(crate) obsolete: Vec<ChunkId>,
    /// The chunks that joining nodes have reported, page by page.
    pub(crate) reports: Vec<Vec<ChunkIndex>>,
    /// The decisions about the stripe that are made one after another while a node ends its join.
    pub(crate) decided_late: VecDeque<Decided>,
    /// The file's fencing token.
    pub(crate) token: FencingToken,
}

impl World {
    pub(crate) fn stripe(&self) -> StripeRecord {
        self.changed.clone().unwrap_or_else(stripe)
    }
}

/// One node's view of it.
#[derive(Clone)]
pub(crate) struct BedPorts {
    pub(crate) me: NodeId,
    pub(crate) world: Arc<Mutex<World>>,
}

/// The coordinator that speaks here.
const ORIGIN: Origin = Origin {
    start: gabion_layout::Start {
        number: 0,
        nonce: 0,
    },
    change_count: 0,
};

fn pool(update: UpdateScheme) -> PoolRecord {
    PoolRecord {
        id: PoolId(1),
        spec: PoolSpec {
            inline_bytes: 0,
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
            append: gabion_planner::update::descriptor(update)
                .appends()
                .then(AppendSpec::default),
        },
        lifecycle: None,
    }
}

impl BedPorts {
    fn world(&self) -> std::sync::MutexGuard<'_, World> {
        self.world.lock().expect("no thread panics with the lock")
    }

    fn decided(&self) -> Vec<Decided> {
        self.world().decided.clone()
    }

    fn obsolete(&self) -> Vec<ChunkId> {
        self.world().obsolete.clone()
    }

    /// Without end, unless a test is about leases.
    fn lease_ms(&self) -> u64 {
        match self.world().lease_ms {
            0 => u64::MAX / 2,
            ms => ms,
        }
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
        // The last of them holds nothing.
        (0..5).map(status).collect()
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

    /// Returns the answer to a joining node about its chunks, complete in one page.
    fn told(&self, page: &InventoryPage) -> CoordinatorReply {
        let Scope::Range { upto, .. } = page.scope else {
            panic!("nothing changes here: {page:?}")
        };
        let reported = page.chunks.iter().map(|held| held.chunk.index);
        self.world().reports.push(reported.collect());
        let mut answer = PageAnswer {
            upto,
            obsolete: self.obsolete(),
            ..PageAnswer::default()
        };
        if upto.is_none() {
            answer.decided = self.decided();
        }
        CoordinatorReply::PageTold(answer)
    }

    /// Asks a node that has just said that its membership has ended.
    fn hear_last_word(&self, node: NodeId) {
        let node = Arc::clone(&self.world().nodes[&node]);
        let probe = ask::Probe {
            bytes: Bytes::new(),
        };
        let asked = node.handle(probe.into(), Address::Node(NodeId::CLIENT), Asker::Member);
        // The node looks at the time, so nothing may be locked meanwhile.
        let answer = asked.now_or_never();
        self.world().last_answers.push(answer);
    }

    /// The keys of tickets, at the coordinator's time 0.
    fn keys(&self) -> TicketKeys {
        TicketKeys {
            now_ms: 0,
            grace_ms: TICKET_GRACE_MS,
            keys: vec![ticket_key(self.world().ticket_key)],
        }
    }

    /// The lease of the stripe in a new term, for the primary of a file.
    fn lease(&self, file: Option<PutId>) -> StripeLease {
        let nodes = self.statuses();
        let mut world = self.world();
        let pool = pool(world.scheme);
        world.epoch += 1;
        StripeLease {
            epoch: Epoch(world.epoch),
            stripe: world.stripe(),
            pool,
            nodes,
            former: world.former.clone(),
            appends: world.appends,
            joins: JoinCount::default(),
            token: file.map(|_| world.token),
        }
    }

    fn answer(&self, request: CoordinatorRequest) -> CoordinatorReply {
        match request {
            CoordinatorRequest::BeginJoin(ask::BeginJoin { node, .. }) => {
                CoordinatorReply::JoinBegun(JoinBegun {
                    session: JoinSession {
                        node: node.node.expect("nodes here have ids"),
                        number: 1,
                    },
                    cluster: gabion_layout::ClusterId(1),
                    coordinator: ORIGIN,
                })
            }
            CoordinatorRequest::TellChunks(page) => self.told(&page),
            CoordinatorRequest::EndJoin(_) if !self.world().decided_late.is_empty() => {
                let decided = self.world().decided_late.pop_front();
                CoordinatorReply::Changed {
                    answer: PageAnswer {
                        decided: decided.into_iter().collect(),
                        ..PageAnswer::default()
                    },
                    stripes: vec![STRIPE],
                }
            }
            CoordinatorRequest::EndJoin(end) => CoordinatorReply::Joined(Joined {
                node: end.session.node,
                lease_ms: self.lease_ms(),
                heartbeat_ms: u64::MAX / 2,
                answer: PageAnswer::default(),
                nodes: self.joined(),
                keys: self.keys(),
            }),
            CoordinatorRequest::Heartbeat { .. } if self.world().must_rejoin => {
                CoordinatorReply::Rejoin
            }
            CoordinatorRequest::Heartbeat { .. } => CoordinatorReply::Alive {
                coordinator: Some(ORIGIN),
                lease_ms: self.lease_ms(),
                nodes: self.joined(),
                keys: self.keys(),
            },
            CoordinatorRequest::Token(_) => CoordinatorReply::Exclusive(self.world().token),
            CoordinatorRequest::Acquire(asked) => CoordinatorReply::Lease(self.lease(asked.file)),
            CoordinatorRequest::Settling(_) if self.world().refuses_notes => {
                CoordinatorReply::Refused("its lease has ended".into())
            }
            CoordinatorRequest::NoteDegraded(ask::NoteDegraded { epoch, chunks, .. }) => {
                let mut world = self.world();
                if world.refuses_notes {
                    return CoordinatorReply::Refused("its node has returned".into());
                }
                world.notes.push((epoch, chunks));
                CoordinatorReply::Done
            }
            CoordinatorRequest::EndMembership(ask::EndMembership { session, cause }) => {
                self.world().ends.push(cause);
                self.hear_last_word(session.node);
                CoordinatorReply::Done
            }
            CoordinatorRequest::StoreFailed(failure) => {
                self.world().store_failures.push(failure.node);
                CoordinatorReply::Done
            }
            CoordinatorRequest::NotePhase(ask::NotePhase { appends, .. }) => {
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
        let is_mute = world.mute == Some(node) || (is_part && world.broken == Some(node));
        if world.failed.contains(&node) || is_mute {
            let peer = node.to_string();
            let reason = "is gone".to_owned();
            return ready(Err(CallError { peer, reason })).boxed();
        }
        if is_part && world.stuck.contains(&node) {
            world.held_back.push(request);
            return pending().boxed();
        }
        let called = Arc::clone(&world.nodes[&node]);
        let mut is_due = !(is_part && world.slow.contains(&node));
        drop(world);
        let ports = self.clone();
        let begins = poll_fn(move |context| {
            context.waker().wake_by_ref();
            if std::mem::replace(&mut is_due, true) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        let me = Address::Node(self.me);
        let called = begins.then(move |()| called.handle(request, me, Asker::Member));
        let called = called.map(move |reply| {
            if is_part {
                ports.world().part_replies.push((node, reply.clone()));
            }
            Ok(reply)
        });
        called.boxed()
    }

    fn call_coordinator(
        &self,
        request: CoordinatorRequest,
        _: u64,
    ) -> BoxFuture<'static, Result<CoordinatorReply, CallError>> {
        let answer = self.answer(request);
        let mut world = self.world();
        world.now_ms += world.answer_ms;
        ready(Ok(answer)).boxed()
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

    fn disk_hangs(&self) -> bool {
        self.world().hung.contains(&self.me)
    }

    fn disk_delay(&self) -> BoxFuture<'static, ()> {
        if self.world().delayed.remove(&self.me) {
            return ready(()).boxed();
        }
        pending().boxed()
    }

    fn try_disk(&self, work: Box<dyn FnOnce() + Send>) {
        self.world().tried.push(self.me);
        work();
    }

    fn now_ms(&self) -> u64 {
        self.world().now_ms
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
