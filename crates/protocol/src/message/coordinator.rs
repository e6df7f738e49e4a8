//! What the coordinator answers to nodes and clients. How the cluster fares is in [`ClusterStatus`].

use super::join::{JoinBegun, JoinCount, Joined, PageAnswer};
use super::origin::Origin;
use super::refusal::Damage;
use super::status::{ClusterStatus, LinkRate, NodeStatus};
use gabion_layout::{
    AppendSpec, ChunkIndex, ClusterId, EncodeAfter, Epoch, NodeId, RackId, ReplicaPlacement,
    ReserveSpec, Sequence, Start, StripeId, StripeRecord, Survive, UpdateScheme,
};
use gabion_meta::{FileRecord, PoolRecord, PutId};
use gabion_planner::manager::Limits;
use serde::{Deserialize, Serialize};

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
    Put(PutPlaces),
    /// A file, all of it.
    File(FileLayout),
    /// Files.
    Files(Vec<FileRecord>),
    /// Redundancy and repair.
    Status(ClusterStatus),
    /// The links that were measured, by sender and receiver.
    Links(Vec<LinkRate>),
    /// What a scrub found.
    Scrubbed(ScrubReport),
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
    Replacement(Replacement),
    /// The stripe has ended.
    Ended {
        /// Its last record, while a node may still have a chunk of it. Stale are also chunks whose nodes
        /// a settlement has left out: they may have missed what it decided.
        stripe: Option<StripeRecord>,
        /// All nodes.
        nodes: Vec<NodeStatus>,
    },
}

/// Whether a node that is alive is a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// [`CoordinatorReply::Alive`].
    Alive {
        /// The coordinator, if it is known that its metadata is no old copy.
        coordinator: Option<Origin>,
        /// How long the lease lasts from when the node sent the heartbeat.
        lease_ms: u64,
        /// All nodes.
        nodes: Vec<NodeStatus>,
    },
    /// [`CoordinatorReply::Rejoin`].
    Rejoin,
    /// [`CoordinatorReply::Leave`].
    Leave,
}

/// Where to put a file's stripes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PutPlaces {
    /// The put.
    pub put: PutId,
    /// The pool.
    pub pool: PoolRecord,
    /// The stripes, in the file's order.
    pub stripes: Vec<StripeRecord>,
    /// All nodes.
    pub nodes: Vec<NodeStatus>,
}

/// The result of a scrub of the cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ScrubReport {
    /// Chunks verified.
    pub chunk_count: u64,
    /// Bytes verified.
    pub bytes: u64,
    /// Damage found; it is being repaired.
    pub damage: Vec<Damage>,
    /// Nodes that did not answer.
    pub unreachable: Vec<NodeId>,
}

/// Stripes that wait to be replaced by others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Replacement {
    /// The put that brings the new stripes.
    pub put: PutId,
    /// The old stripes, as they stay until the end of the replacement.
    pub settled: Vec<SettledStripe>,
    /// The new stripes, one for each old one.
    pub stripes: Vec<StripeRecord>,
    /// All nodes.
    pub nodes: Vec<NodeStatus>,
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
