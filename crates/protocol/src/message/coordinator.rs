//! What the coordinator is asked, by nodes and by clients, and what it answers. How the cluster
//! fares is in [`ClusterStatus`].

use super::join::{InventoryPage, JoinBegun, JoinCount, JoinEnd, JoinSession, Joined, PageAnswer};
use super::refusal::Damage;
use super::status::{ClusterStatus, LinkRate, NodeStatus, Vitals};
use gabion_layout::{
    AppendSpec, ChunkIndex, ClusterId, EncodeAfter, Epoch, NodeId, RackId, ReplicaPlacement,
    ReserveSpec, Sequence, Start, StripeId, StripeRecord, Survive, UpdateScheme,
};
use gabion_meta::{Exclusion, FileRecord, PoolRecord, PutId};
use gabion_planner::manager::Limits;
use serde::{Deserialize, Serialize};

/// Which metadata the coordinator decides by. A node remembers the newest, so that a copy of an earlier time
/// gives itself away.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Origin {
    /// The coordinator's start.
    pub start: Start,
    /// How many changes its metadata has made, all of them durable.
    pub change_count: u64,
}

/// What a node says of itself when it joins.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Applicant {
    /// The cluster that it belongs to, if it has been in one.
    pub cluster: Option<ClusterId>,
    /// Its id, if it has been here before.
    pub node: Option<NodeId>,
    /// This start of it. The number, its incarnation, is higher than at any earlier start.
    pub start: Start,
    /// Its starts since the last one that it knows to have been let in, that one included. A
    /// directory whose earlier starts do not have the one that the coordinator let in last is a copy
    /// of another time.
    pub earlier: Vec<Start>,
    /// Where its journal ended when its store was first opened after the last start that was let in; for
    /// that start itself, up to where its journal is durable.
    pub position: u64,
    /// The newest coordinator that it has heard of.
    pub heard: Option<Origin>,
    /// Its rack.
    pub rack: RackId,
    /// Where it listens, as `host:port`.
    pub address: String,
    /// Bytes that it can store.
    pub capacity_bytes: u64,
}

/// Why a node ends its membership by itself. It joins anew when it can.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum EndCause {
    /// It was told to join anew.
    Told,
    /// Its disk hangs.
    DiskHangs,
}

/// A node's word that its store has failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoreFailure {
    /// The node.
    pub node: NodeId,
    /// Its incarnation.
    pub incarnation: u64,
    /// What the store's first failure was, as a sentence.
    pub reason: String,
}

/// A request to the coordinator.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CoordinatorRequest {
    /// A node comes up and begins to tell what it holds.
    BeginJoin {
        /// Which one.
        node: Box<Applicant>,
        /// How many chunks it holds.
        chunk_count: u64,
    },
    /// A joining node tells of some of its chunks.
    TellChunks(InventoryPage),
    /// A joining node asks whether it may set aside the chunks of which the coordinator knows nothing.
    /// Also how it says that it is still at work.
    SetAside(JoinSession),
    /// A joining node has told all and obeyed every answer.
    EndJoin(Box<JoinEnd>),
    /// The operator's word: the node that waits for it may set aside all that nobody knows.
    Accept(NodeId),
    /// A node is alive.
    Heartbeat {
        /// The node.
        node: NodeId,
        /// Its incarnation.
        incarnation: u64,
        /// The newest coordinator that it has heard of.
        heard: Option<Origin>,
        /// Up to where its journal is durable.
        position: u64,
        /// How it fares.
        vitals: Vitals,
    },
    /// A node serves nothing more as the member that it was since a session.
    EndMembership {
        /// The session with which the membership began.
        session: JoinSession,
        /// Why it ends.
        cause: EndCause,
    },
    /// A node's store has failed: the node serves nothing more, ends its membership, and its process
    /// ends.
    StoreFailed(StoreFailure),
    /// A node asks to be a stripe's primary.
    Acquire {
        /// The stripe.
        stripe: StripeId,
        /// The node.
        node: NodeId,
        /// Its incarnation.
        incarnation: u64,
    },
    /// A primary is about to settle a stripe without some of its nodes. Answered only when that is
    /// durable, and only while these nodes are declared failed.
    Settling {
        /// The stripe.
        stripe: StripeId,
        /// Which nodes are not asked, and what stands without them.
        exclusion: Exclusion,
    },
    /// A primary is about to run the first update of its term that leaves chunks out because they
    /// are lost. Answered only when it is durable that they are stale, and only in the current term
    /// and while each of them is stale already or its node is declared failed and cannot know the term.
    NoteDegraded {
        /// The stripe.
        stripe: StripeId,
        /// The primary's term.
        epoch: Epoch,
        /// The joins before the term.
        since: JoinCount,
        /// The chunks, each with the last update that it can have: the mark before the update.
        chunks: Vec<(ChunkIndex, Sequence)>,
    },
    /// A primary is about to append the first update of a phase, or has committed the last. Answered
    /// when it is durable, and only in the current term.
    NotePhase {
        /// The stripe.
        stripe: StripeId,
        /// The primary's term.
        epoch: Epoch,
        /// Whether there may be updates of which parity knows nothing.
        appends: bool,
    },
    /// These data chunks were committed together, and would be better off in one rack. Answered at once;
    /// the coordinator moves them when it comes to it, and need not.
    Group {
        /// The stripe.
        stripe: StripeId,
        /// The data chunks.
        updated: Vec<ChunkIndex>,
    },
    /// Commit what waits on all stripes of a pool. Answered when all of it is committed, or with how much
    /// is left after some seconds; ask again then.
    CommitPool {
        /// The pool's name.
        name: String,
    },
    /// A node does not answer, or has closed its connection. Answered at once; the coordinator looks
    /// for itself.
    Suspect {
        /// The node.
        node: NodeId,
    },
    /// A node found damage.
    ReportDamage {
        /// The node that has found it.
        node: NodeId,
        /// What it has found in its own chunks.
        damage: Vec<Damage>,
    },
    /// The cluster's nodes.
    Nodes,
    /// Make a pool.
    CreatePool(PoolRequest),
    /// All pools.
    Pools,
    /// What the pools of these stripes promise of reserved space; stripes without any are left out.
    Reserves(Vec<StripeId>),
    /// Begin to store a file.
    BeginPut {
        /// The file's name.
        name: String,
        /// The pool; may be absent when there is only one.
        pool: Option<String>,
        /// The file's size.
        size_bytes: u64,
    },
    /// A node did not take its chunk of a stripe of a put: place the stripe anew. May be repeated; the
    /// answer is a [`CoordinatorReply::Put`] with the one stripe that has the segment's place now.
    PlaceAnew {
        /// The put.
        put: PutId,
        /// The id that the segment's stripe had when the put began.
        first: StripeId,
        /// The stripe that was not stored. No chunk of it counts from now on.
        failed: StripeId,
        /// Nodes that are to get no chunk of it.
        avoid: Vec<NodeId>,
    },
    /// The put is alive.
    TouchPut(PutId),
    /// All chunks are durable: make the file visible. May be repeated.
    CommitPut(PutId),
    /// Give the put up.
    AbortPut(PutId),
    /// One file with its layout.
    Lookup {
        /// The file's name.
        name: String,
    },
    /// Files whose names start so.
    List {
        /// The prefix.
        prefix: String,
    },
    /// Delete a file. May be repeated: that another of its name has come is no reason to delete that.
    RemoveFile {
        /// Its name.
        name: String,
        /// The put that brought it.
        file: PutId,
    },
    /// Redundancy and repair state of the cluster.
    Status,
    /// Repair all lost chunks now, without waiting for the grace period to end.
    RepairNow {
        /// The scheme from now on, if it is to change.
        scheme: Option<String>,
    },
    /// Change how repairs are made from now on.
    OrderRepair(RepairOrder),
    /// Move all chunks off a node, so that it can leave.
    Drain(NodeId),
    /// The node stays after all.
    Keep(NodeId),
    /// What links between nodes carry, as far as it was measured.
    Links,
    /// Verify every stored byte of the cluster.
    ScrubAll,
    /// Encode the blocks of files that are replicated, or have them replicated again, from now on. Answered
    /// when the request is durable; the layouts of the files tell when it is done.
    OrderForm(FormOrder),
    /// Begin to replace stripes of a file by new ones with other bytes. The stripes take no updates
    /// until the replacement is committed with [`CoordinatorRequest::CommitReplace`] or given up
    /// with [`CoordinatorRequest::AbortPut`].
    BeginReplace {
        /// The file's name.
        name: String,
        /// The put that brought the file.
        file: PutId,
        /// The stripes, in the file's order.
        stripes: Vec<StripeId>,
    },
    /// All chunks of the new stripes are durable: put them in the places of the old ones. May be
    /// repeated: the answer is [`CoordinatorReply::Done`] once it is committed and readers find no old
    /// chunk any more, and [`CoordinatorReply::NotCommitted`] when it is not and never will be.
    CommitReplace {
        /// The replacement.
        put: PutId,
        /// The old stripes.
        displaced: Vec<StripeId>,
    },
    /// A client has lost an answer about a stripe that is the file's no more: whose chunks counted when
    /// it ended. Answered with [`CoordinatorReply::Ended`].
    Ended(StripeId),
}

impl CoordinatorRequest {
    /// Whether whoever asks acts on what the metadata says of files, pools and stripes, or has it changed.
    pub(crate) const fn relies_on_metadata(&self) -> bool {
        matches!(
            self,
            Self::Acquire { .. }
                | Self::Settling { .. }
                | Self::NoteDegraded { .. }
                | Self::NotePhase { .. }
                | Self::CommitPool { .. }
                | Self::CreatePool(_)
                | Self::Reserves(_)
                | Self::Pools
                | Self::BeginPut { .. }
                | Self::PlaceAnew { .. }
                | Self::TouchPut(_)
                | Self::CommitPut(_)
                | Self::AbortPut(_)
                | Self::BeginReplace { .. }
                | Self::CommitReplace { .. }
                | Self::Ended(_)
                | Self::Lookup { .. }
                | Self::List { .. }
                | Self::RemoveFile { .. }
                | Self::OrderForm(_)
                | Self::Drain(_)
                | Self::Keep(_)
        )
    }
}

/// How repairs are to be made. Durable when it is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RepairOrder {
    /// Begin none; those under way end.
    Pause,
    /// Begin them again.
    Resume,
    /// Keep within these limits, and none but these.
    Limit {
        /// Bytes a second.
        limits: Limits,
        /// Make way while the 99th percentile of the clients' latencies is above this.
        p99_target_ms: Option<u64>,
    },
}

/// Which form files are to have whose blocks are replicated at first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FormOrder {
    /// The pool.
    pub pool: String,
    /// The file; all of the pool's when absent.
    pub file: Option<String>,
    /// Encoded, or replicated.
    pub is_encoded: bool,
}

/// What a pool is to be whose blocks are replicated at first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LifecycleRequest {
    /// Replicas of each block.
    pub replica_count: usize,
    /// When blocks are encoded.
    pub after: EncodeAfter,
    /// How replicas are placed.
    pub placement: ReplicaPlacement,
}

/// What a pool is to be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolRequest {
    /// Its name.
    pub name: String,
    /// What it must survive.
    pub survive: Survive,
    /// Its code; chosen when absent.
    pub code: Option<String>,
    /// Bytes a chunk.
    pub chunk_bytes: u64,
    /// How updates are kept until they are in their chunks.
    pub update: UpdateScheme,
    /// The space behind parity chunks; what is usual for the update scheme when absent.
    pub reserve: Option<ReserveSpec>,
    /// The append phases; what is usual for the update scheme when absent.
    pub append: Option<AppendSpec>,
    /// How blocks are replicated at first, if they are; all the rest is about the stripes that they become.
    pub lifecycle: Option<LifecycleRequest>,
}

/// The coordinator's reply.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CoordinatorReply {
    /// Done; nothing to tell.
    Done,
    /// The replacement was not committed, and never will be; why not.
    NotCommitted(String),
    /// The node may tell what it holds.
    JoinBegun(JoinBegun),
    /// What it has to do about the page.
    PageTold(PageAnswer),
    /// It may not set that much aside before the operator has said so: one plain sentence.
    JoinHeld(String),
    /// These stripes have changed since they were told: the node says again what it holds of them.
    Changed {
        /// What it has to do about what it said of stripes that had changed before.
        answer: PageAnswer,
        /// The stripes, sorted.
        stripes: Vec<StripeId>,
    },
    /// The node is a member.
    Joined(Joined),
    /// The lease goes on.
    Alive {
        /// The coordinator, which the node remembers; none while too few nodes have spoken to it to know that its
        /// metadata is no old copy.
        coordinator: Option<Origin>,
        /// How long from when the node sent the heartbeat.
        lease_ms: u64,
        /// All nodes.
        nodes: Vec<NodeStatus>,
    },
    /// The node was declared failed meanwhile: it must join anew.
    Rejoin,
    /// The node has been drained: it holds nothing that counts, and may stop.
    Leave,
    /// The node is the stripe's primary.
    Lease(StripeLease),
    /// Another node is.
    HeldBy(NodeId),
    /// All nodes.
    Nodes(Vec<NodeStatus>),
    /// The new pool.
    Pool(PoolRecord),
    /// All pools.
    Pools(Vec<PoolRecord>),
    /// The reserves of stripes that have any.
    Reserves(Vec<(StripeId, ReserveSpec)>),
    /// Where to put the file's stripes.
    Put {
        /// The put.
        put: PutId,
        /// The pool.
        pool: PoolRecord,
        /// The stripes, in the file's order.
        stripes: Vec<StripeRecord>,
        /// All nodes.
        nodes: Vec<NodeStatus>,
    },
    /// A file, all of it.
    File(FileLayout),
    /// Files.
    Files(Vec<FileRecord>),
    /// Redundancy and repair.
    Status(ClusterStatus),
    /// The links that were measured, by sender and receiver.
    Links(Vec<LinkRate>),
    /// What a scrub found.
    Scrubbed {
        /// Chunks verified.
        chunk_count: u64,
        /// Bytes verified.
        bytes: u64,
        /// What is wrong.
        damage: Vec<Damage>,
        /// Nodes that could not be asked.
        unreachable: Vec<NodeId>,
    },
    /// Not done: one plain sentence for the user.
    Refused(String),
    /// Not done now, but it may be soon: one plain sentence.
    Busy(String),
    /// Some stripes of the pool have been committed, and so many wait for their turn.
    Committing {
        /// Stripes.
        left_count: u64,
    },
    /// The stripes wait to be replaced.
    Replacement {
        /// The put that brings the new stripes.
        put: PutId,
        /// The old stripes, as they stay until the end of the replacement.
        settled: Vec<SettledStripe>,
        /// The new stripes, one for each old one.
        stripes: Vec<StripeRecord>,
        /// All nodes.
        nodes: Vec<NodeStatus>,
    },
    /// The stripe has ended.
    Ended {
        /// Its last record, while a node may still have a chunk of it. Stale are also chunks whose nodes
        /// a settlement has left out: they may have missed what it decided.
        stripe: Option<StripeRecord>,
        /// All nodes.
        nodes: Vec<NodeStatus>,
    },
}

/// A stripe that takes no updates until its replacement ends.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SettledStripe {
    /// The stripe.
    pub stripe: StripeRecord,
    /// The term that keeps others from updating it.
    pub epoch: Epoch,
    /// Its last update.
    pub mark: Sequence,
    /// Chunks whose nodes took no part in the settling: what they hold proves nothing.
    pub unsettled: Vec<ChunkIndex>,
}

/// A file with all that a client needs to read and write it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileLayout {
    /// The file.
    pub file: FileRecord,
    /// Its pool.
    pub pool: PoolRecord,
    /// The pool of those of its stripes that are encoded, if its blocks are replicated at first.
    pub encoded: Option<PoolRecord>,
    /// Its stripes, in order.
    pub stripes: Vec<StripeRecord>,
    /// Those of them that may have updates of which parity knows nothing, by id.
    pub appending: Vec<StripeId>,
    /// All nodes.
    pub nodes: Vec<NodeStatus>,
}

impl FileLayout {
    /// Whether the file is completely encoded, or completely replicated.
    pub fn has_form(&self, is_encoded: bool) -> bool {
        let mut stripes = self.stripes.iter();
        stripes.all(|stripe| (stripe.pool != self.file.pool) == is_encoded)
    }

    /// The pool that says what a stripe of the file is like.
    pub fn pool_of(&self, stripe: &StripeRecord) -> &PoolRecord {
        let encoded = self.encoded.as_ref();
        let encoded = encoded.filter(|pool| pool.id == stripe.pool);
        encoded.unwrap_or(&self.pool)
    }
}

/// A stripe's lease with all that its primary needs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StripeLease {
    /// The term.
    pub epoch: Epoch,
    /// The stripe.
    pub stripe: StripeRecord,
    /// Its pool.
    pub pool: PoolRecord,
    /// All nodes.
    pub nodes: Vec<NodeStatus>,
    /// Nodes that may still have chunks of the stripe that count elsewhere.
    pub former: Vec<NodeId>,
    /// Whether the stripe may have updates of which parity knows nothing.
    pub appends: bool,
    /// The joins before the term: none of them has told a node of it.
    pub joins: JoinCount,
}
