//! Everything that processes say to each other. `wire` frames it; nothing here does I/O.
//!
//! Three kinds: a *request* to a node or to the coordinator gets exactly one *reply*; a *flow
//! frame* moves a plan's slices, and the credit for more of them, from node to node directly.

use bytes::Bytes;
use gabion_layout::{
    ByteRange, ChunkId, ChunkIndex, ChunkRange, Epoch, Generation, NodeId, RackId, Sequence,
    StripeId, StripeRecord, Survive,
};
use gabion_meta::{FileRecord, PoolRecord, PutId};
use gabion_plan::{Part, ValueId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One run of one plan. The initiator draws it at random.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RunId(pub u64);

/// Why bytes move; nodes count payload bytes by rack pair and purpose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Purpose {
    /// Deltas of updates.
    Update,
    /// Bytes to rebuild lost chunks.
    Repair,
    /// Bytes of new stripes.
    Encode,
    /// Bytes that a client reads.
    Read,
}

impl Purpose {
    /// All purposes, in the order of their display.
    pub const ALL: [Self; 4] = [Self::Update, Self::Repair, Self::Encode, Self::Read];

    /// The purpose's name in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Update => "update",
            Self::Repair => "repair",
            Self::Encode => "encode",
            Self::Read => "read",
        }
    }
}

/// A piece of a plan's data on its way from one node to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Flow {
    /// One slice of a sent value.
    Slice {
        /// The run.
        run: RunId,
        /// The step of the plan that sends.
        value: ValueId,
        /// Number of the slice.
        slice: u64,
        /// Why it moves.
        purpose: Purpose,
        /// The bytes.
        bytes: Bytes,
    },
    /// The receiver has room for more slices of a value.
    Credit {
        /// The run.
        run: RunId,
        /// The step of the plan that sends.
        value: ValueId,
        /// How many more.
        slices: u64,
    },
    /// The sender of this frame gave the run up; so should the receiver.
    Abort {
        /// The run.
        run: RunId,
    },
}

impl Flow {
    /// The run that the frame belongs to.
    pub const fn run(&self) -> RunId {
        match self {
            Self::Slice { run, .. } | Self::Credit { run, .. } | Self::Abort { run } => *run,
        }
    }
}

/// At which point in a stripe's history a part reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ReadCut {
    /// As of the committed mark. The reader vouches that in the lease term given, all updates up to
    /// this one are settled; (0, 0) vouches for nothing.
    Committed(Epoch, Sequence),
    /// Exactly as of this committed update.
    Exactly(Sequence),
}

/// What a part's writes and appends are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Effect {
    /// The part writes nothing on this node.
    None,
    /// Appends are the record of one update.
    Record {
        /// The update's number.
        sequence: Sequence,
        /// Chunks whose nodes must all hold a record for the update to stand.
        participants: Vec<ChunkIndex>,
    },
    /// Writes make new chunks, which contain all updates up to `base`.
    Install {
        /// The last update that the chunk contains.
        base: Sequence,
    },
}

/// A node's part of a plan with all that it needs to do it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunPart {
    /// The run.
    pub run: RunId,
    /// The steps.
    pub part: Part,
    /// The lease term under which the plan was made; nodes refuse older ones for anything that
    /// writes. Reads by clients carry 0.
    pub epoch: Epoch,
    /// The stripe's generation when the plan was made.
    pub generation: Generation,
    /// Where reads are.
    pub cut: ReadCut,
    /// What writes are.
    pub effect: Effect,
    /// Why bytes move.
    pub purpose: Purpose,
    /// Give up after so long.
    pub deadline_ms: u64,
}

/// A record above the committed mark, as a survivor reports it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PendingRecord {
    /// The survivor's chunk that the record changes.
    pub chunk: ChunkIndex,
    /// The update.
    pub sequence: Sequence,
    /// Chunks whose nodes must hold a record for the update to stand.
    pub participants: Vec<ChunkIndex>,
}

/// What a node holds of a stripe.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Holding {
    /// Its committed mark.
    pub mark: Sequence,
    /// Its records above the mark.
    pub records: Vec<PendingRecord>,
}

/// What damage a node found in what it stores.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Damage {
    /// The chunk.
    pub chunk: ChunkId,
    /// Bytes that cannot be trusted; all of them when even the header is bad.
    pub range: ByteRange,
}

/// Payload bytes that a node sent, by receiver's rack and purpose. The client has no rack.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Meter {
    /// `(sender's rack, receiver's rack, purpose) -> payload bytes`.
    pub bytes: BTreeMap<(Option<RackId>, Option<RackId>, Purpose), u64>,
}

impl Meter {
    /// Counts bytes.
    pub fn count(
        &mut self,
        from: Option<RackId>,
        to: Option<RackId>,
        purpose: Purpose,
        bytes: u64,
    ) {
        *self.bytes.entry((from, to, purpose)).or_default() += bytes;
    }

    /// Adds another meter's counts.
    pub fn add(&mut self, other: &Self) {
        for (&(from, to, purpose), &bytes) in &other.bytes {
            self.count(from, to, purpose, bytes);
        }
    }

    /// Bytes of a purpose between nodes of different racks.
    pub fn cross_rack(&self, purpose: Purpose) -> u64 {
        let crosses = |(from, to, p): &(Option<RackId>, Option<RackId>, Purpose)| {
            *p == purpose && from.is_some() && to.is_some() && from != to
        };
        self.bytes
            .iter()
            .filter(|(key, _)| crosses(key))
            .map(|(_, bytes)| bytes)
            .sum()
    }
}

/// A request to a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NodeRequest {
    /// Keep new bytes of a data chunk for the run that will take them as input.
    Stage {
        /// The run.
        run: RunId,
        /// The data chunk.
        chunk: ChunkIndex,
        /// Where in the chunk they go.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// Do this part, and reply when it is done and durable.
    RunPart(Box<RunPart>),
    /// To a stripe's primary: run an update whose bytes are staged under `run`.
    Update {
        /// The run under which the bytes are staged.
        run: RunId,
        /// The stripe.
        stripe: StripeId,
        /// The generation that the client knows.
        generation: Generation,
        /// What changes.
        ranges: Vec<ChunkRange>,
    },
    /// To a stripe's primary: what is the committed mark?
    Mark {
        /// The stripe.
        stripe: StripeId,
        /// Settle the stripe anew first: a node holds records of an earlier term, which no mark of
        /// this term vouches for.
        settle: bool,
    },
    /// Fence off older lease terms, then say what is held of the stripe.
    Collect {
        /// The stripe.
        stripe: StripeId,
        /// The new term.
        epoch: Epoch,
        /// The stripe's generation.
        generation: Generation,
    },
    /// The outcome of the recovery rule.
    Resolve {
        /// The stripe.
        stripe: StripeId,
        /// The term.
        epoch: Epoch,
        /// All records up to here that are not dropped stand.
        mark: Sequence,
        /// Updates that nobody was told of.
        dropped: Vec<Sequence>,
    },
    /// All updates up to this one are committed. Sent without need; losing it loses nothing.
    Committed {
        /// The stripe.
        stripe: StripeId,
        /// The term.
        epoch: Epoch,
        /// The last committed update.
        sequence: Sequence,
    },
    /// Delete chunks of stripes that are gone.
    Remove {
        /// The chunks.
        chunks: Vec<ChunkId>,
    },
    /// Verify every stored byte of some chunks, all of them when none are named.
    Scrub {
        /// The chunks.
        chunks: Vec<ChunkId>,
    },
    /// Bytes sent so far.
    Meter,
}

/// A node's reply.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NodeReply {
    /// Done; nothing to tell.
    Done,
    /// The part is done.
    PartDone {
        /// For a part that read at the committed mark: the mark.
        as_of: Sequence,
    },
    /// The update is committed.
    Updated {
        /// Its number.
        sequence: Sequence,
    },
    /// The committed mark.
    Mark {
        /// The lease term that vouches for it.
        epoch: Epoch,
        /// The last settled update.
        sequence: Sequence,
    },
    /// What is held of the stripe.
    Holding(Holding),
    /// What a scrub found.
    Scrubbed {
        /// Chunks verified.
        chunk_count: u64,
        /// Bytes verified.
        bytes: u64,
        /// What is wrong.
        damage: Vec<Damage>,
    },
    /// Bytes sent so far.
    Meter(Meter),
    /// Not done.
    Refused(Refusal),
}

/// Why a node did not do what it was asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// A newer primary has taken over.
    #[error("the stripe has a newer primary (epoch {})", current.0)]
    Fenced {
        /// The newest term that the node knows.
        current: Epoch,
    },
    /// The asker's layout is old.
    #[error("the stripe's layout has changed (generation {})", current.0)]
    StaleGeneration {
        /// The node's generation.
        current: Generation,
    },
    /// The read touches a record that may or may not be committed; ask the primary for its mark.
    #[error("an update of the stripe is not settled yet")]
    Unsettled,
    /// The base has gone past the cut; take a newer one.
    #[error("the stripe has moved past update {}", asked.0)]
    CutPassed {
        /// The cut asked for.
        asked: Sequence,
    },
    /// Stored bytes do not match their checksum.
    #[error("{} is damaged at bytes {}..{}", .0.chunk, .0.range.offset, .0.range.end())]
    Damaged(Damage),
    /// The node does not have the chunk.
    #[error("the node does not hold {0}")]
    NoSuchChunk(ChunkId),
    /// Another node is the primary; ask it.
    #[error("the stripe's primary is {0}")]
    NotPrimary(NodeId),
    /// A chunk that the update touches is on a node that is down.
    #[error("{chunk} is on {node}, which is down: the stripe takes no writes until it is repaired")]
    ParticipantDown {
        /// The chunk.
        chunk: ChunkIndex,
        /// Its node.
        node: NodeId,
    },
    /// Someone who is needed does not answer and has not been declared failed either.
    #[error("{0} does not answer; try again")]
    Unavailable(String),
    /// The node is not (or no longer) a member of the cluster and must not serve.
    #[error("the node's lease has run out; try again")]
    NoLease,
    /// The disk is full.
    #[error("the node's disk is full: it takes no new data, but reads and repairs go on")]
    NoSpace,
    /// The disk or the process failed.
    #[error("{0}")]
    Failed(String),
    /// The request makes no sense.
    #[error("{0}")]
    Invalid(String),
}

impl Refusal {
    /// Whether the same request may succeed later or elsewhere without harm.
    pub const fn is_temporary(&self) -> bool {
        !matches!(self, Self::NoSpace | Self::Failed(_) | Self::Invalid(_))
    }
}

/// A request to the coordinator.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CoordinatorRequest {
    /// A node comes up.
    Join {
        /// Its id, if it has been here before.
        node: Option<NodeId>,
        /// Its rack.
        rack: RackId,
        /// Where it listens, as `host:port`.
        address: String,
        /// Bytes that it can store.
        capacity_bytes: u64,
        /// Drawn anew at each start.
        incarnation: u64,
        /// The chunks that it holds.
        chunks: Vec<(ChunkId, Generation)>,
    },
    /// A node is alive.
    Heartbeat {
        /// The node.
        node: NodeId,
        /// Its incarnation.
        incarnation: u64,
    },
    /// A node asks to be a stripe's primary.
    Acquire {
        /// The stripe.
        stripe: StripeId,
        /// The node.
        node: NodeId,
        /// Its incarnation.
        incarnation: u64,
        /// A term that the node has given up, because it cannot vouch for its updates any more.
        renounced: Option<Epoch>,
    },
    /// A chunk missed a committed update. Answered only when that is durable.
    MarkStale {
        /// The stripe.
        stripe: StripeId,
        /// The lease term of the reporter.
        epoch: Epoch,
        /// The chunks.
        chunks: Vec<ChunkIndex>,
    },
    /// A node found damage.
    ReportDamage(Vec<Damage>),
    /// The cluster's nodes.
    Nodes,
    /// Make a pool.
    CreatePool {
        /// Its name.
        name: String,
        /// What it must survive.
        survive: Survive,
        /// Its code; chosen when absent.
        code: Option<String>,
        /// Bytes a chunk.
        chunk_bytes: u64,
    },
    /// All pools.
    Pools,
    /// Begin to store a file.
    BeginPut {
        /// The file's name.
        name: String,
        /// The pool; may be absent when there is only one.
        pool: Option<String>,
        /// The file's size.
        size_bytes: u64,
    },
    /// The put is alive.
    TouchPut(PutId),
    /// All chunks are durable: make the file visible.
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
    /// Delete a file.
    RemoveFile {
        /// Its name.
        name: String,
    },
    /// Redundancy and repair state of the cluster.
    Status,
    /// Repair all lost chunks now, without waiting for the grace period to end.
    RepairNow {
        /// The scheme from now on, if it is to change.
        scheme: Option<String>,
    },
    /// Verify every stored byte of the cluster.
    ScrubAll,
}

/// The coordinator's reply.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CoordinatorReply {
    /// Done; nothing to tell.
    Done,
    /// The node is a member.
    Joined {
        /// Its id.
        node: NodeId,
        /// How long its lease lasts from when it sent the request.
        lease_ms: u64,
        /// How often it should say that it is alive.
        heartbeat_ms: u64,
        /// Chunks that it should delete before it serves anything.
        obsolete: Vec<ChunkId>,
        /// All nodes.
        nodes: Vec<NodeStatus>,
    },
    /// The lease goes on.
    Alive {
        /// How long from when the node sent the heartbeat.
        lease_ms: u64,
        /// All nodes.
        nodes: Vec<NodeStatus>,
    },
    /// The node was declared failed meanwhile: it must join anew.
    Rejoin,
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
}

/// A file with all that a client needs to read and write it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileLayout {
    /// The file.
    pub file: FileRecord,
    /// Its pool.
    pub pool: PoolRecord,
    /// Its stripes, in order.
    pub stripes: Vec<StripeRecord>,
    /// All nodes.
    pub nodes: Vec<NodeStatus>,
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
}

/// What the coordinator knows of a node's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Liveness {
    /// Its lease is live.
    Up,
    /// Its lease has run out, but it is not declared failed yet.
    Suspect,
    /// Declared failed: it serves nothing, and its chunks count as lost.
    Failed,
}

/// A node as the coordinator sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The node.
    pub node: NodeId,
    /// Its rack.
    pub rack: RackId,
    /// Where it listens.
    pub address: String,
    /// Whether it lives.
    pub liveness: Liveness,
}

/// Redundancy and repair state of the cluster, never better than the truth.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// All nodes.
    pub nodes: Vec<NodeStatus>,
    /// Stripes by the number of further chunk losses that they survive; stripes that have lost
    /// data are under -1.
    pub stripes_by_failures_left: BTreeMap<i32, u64>,
    /// Chunks that are lost now.
    pub lost_chunk_count: u64,
    /// Whether chunks are being repaired.
    pub repair: RepairStatus,
}

/// What repair is doing.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RepairStatus {
    /// Chunks being repaired or waiting for it.
    pub queued_chunk_count: u64,
    /// Chunks repaired and verified since the coordinator started.
    pub repaired_chunk_count: u64,
    /// Bytes of those.
    pub repaired_bytes: u64,
    /// Cross-rack bytes that their plans said.
    pub planned_cross_rack_bytes: u64,
    /// Time that the repairs took, added up.
    pub busy_ms: u64,
    /// The scheme in use.
    pub scheme: String,
    /// Why the last failed repair failed.
    pub last_error: Option<String>,
}
