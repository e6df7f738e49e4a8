//! The coordinator's replies to nodes and clients. The state of the cluster is in [`ClusterStatus`].

use super::changes::ChangePage;
use super::denial::Denial;
use super::events::EventPage;
use super::join::{JoinBegun, JoinCount, Joined, PageAnswer};
use super::origin::Origin;
use super::recovery::RecoveryPage;
use super::refusal::Damage;
use super::session::SessionState;
use super::status::{ClusterStatus, LinkRate, NodeStatus};
use super::usage::{ClusterSpace, ClusterUsage};
use crate::ticket::{OpenPut, Ticket, TicketKeys};
use bytes::Bytes;
use gabion_layout::{
    AppendSpec, ByteRange, ChunkIndex, ClusterId, EncodeAfter, Epoch, NodeId, PoolId, RackId,
    ReplicaPlacement, ReserveSpec, Sequence, Start, StripeId, StripeRecord, Survive, UpdateScheme,
};
use gabion_meta::{
    Attributes, ClientSessionId, DirectoryEntry, Exclusive, FencingToken, FileRecord, Inline,
    InodeStatus, Listing, Locking, PoolRecord, PutId, QuotaStatus,
};
use gabion_planner::manager::Limits;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A joining node's report of itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Applicant {
    /// The cluster that it belongs to, if it has been in one.
    pub cluster: Option<ClusterId>,
    /// Its id, if it has one.
    pub node: Option<NodeId>,
    /// This start of it. The number, its incarnation, is higher than at any earlier start.
    pub start: Start,
    /// Its starts since the last one that was admitted to its knowledge, that one included. If the
    /// coordinator's last admitted start is not among them, the directory is an old copy.
    pub earlier: Vec<Start>,
    /// The end of its journal when its store was first opened after the last admitted start; for that start
    /// itself, the durable end of its journal.
    pub position: u64,
    /// The newest coordinator that it knows.
    pub heard: Option<Origin>,
    /// Its rack.
    pub rack: RackId,
    /// Its address, as `host:port`.
    pub address: String,
    /// Its capacity in bytes.
    pub capacity_bytes: u64,
}

/// The reason why a node ends its own membership. It joins again when it can.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum EndCause {
    /// It was told to join anew.
    Told,
    /// Its disk hangs.
    DiskHangs,
}

/// A node's report that its store has failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoreFailure {
    /// The node.
    pub node: NodeId,
    /// Its incarnation.
    pub incarnation: u64,
    /// The store's first failure, as a sentence.
    pub reason: String,
}

/// A change of the rules for repairs. Durable when it is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RepairOrder {
    /// Start no repairs; those under way end.
    Pause,
    /// Start repairs again.
    Resume,
    /// Replace all limits by these.
    Limit {
        /// Bytes a second.
        limits: Limits,
        /// Slow repairs while the 99th percentile of the clients' latencies is above this.
        p99_target_ms: Option<u64>,
    },
}

/// A request for the form of files whose blocks are replicated first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FormOrder {
    /// The pool.
    pub pool: String,
    /// The file; all of the pool's when absent.
    pub file: Option<String>,
    /// Encoded, or replicated.
    pub is_encoded: bool,
}

/// The replication of a pool whose blocks are replicated first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LifecycleRequest {
    /// Replicas of each block.
    pub replica_count: usize,
    /// When blocks are encoded.
    pub after: EncodeAfter,
    /// The placement of replicas.
    pub placement: ReplicaPlacement,
}

/// The properties of a new pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolRequest {
    /// Its name.
    pub name: String,
    /// The failures that it must survive.
    pub survive: Survive,
    /// Its code; chosen when absent.
    pub code: Option<String>,
    /// Bytes a chunk.
    pub chunk_bytes: u64,
    /// The keeping of updates until they are merged into their chunks.
    pub update: UpdateScheme,
    /// The space behind parity chunks; the default of the update scheme when absent.
    pub reserve: Option<ReserveSpec>,
    /// The append phases; the default of the update scheme when absent.
    pub append: Option<AppendSpec>,
    /// The size of the largest file whose bytes are inline in the metadata; 0 if none are.
    pub inline_bytes: u64,
    /// The replication of blocks before they are encoded, if there is one; all other fields describe the
    /// encoded stripes.
    pub lifecycle: Option<LifecycleRequest>,
}

/// The coordinator's reply.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CoordinatorReply {
    /// Done, without a result.
    Done,
    /// Whether the stripe can be repaired.
    Hastened(bool),
    /// The replacement was not committed, and never will be: the reason.
    NotCommitted(String),
    /// The node may report its chunks.
    JoinBegun(JoinBegun),
    /// A later or other run of the node with this number has been a member: a run on an earlier copy of its
    /// directory numbers itself higher.
    StartAbove(u64),
    /// The orders for the page.
    PageTold(PageAnswer),
    /// It needs the operator's permission to set that many chunks aside: one plain sentence.
    JoinHeld(String),
    /// These stripes have changed since they were reported: the node reports its chunks of them again.
    Changed {
        /// The orders for stripes that had changed before.
        answer: PageAnswer,
        /// The stripes, sorted.
        stripes: Vec<StripeId>,
    },
    /// The node is a member.
    Joined(Joined),
    /// The lease is renewed.
    Alive {
        /// The coordinator, which the node remembers; none while too few nodes have contacted it to prove
        /// that its metadata is no old copy.
        coordinator: Option<Origin>,
        /// The lease's length from the sending of the heartbeat.
        lease_ms: u64,
        /// All nodes.
        nodes: Vec<NodeStatus>,
        /// The keys of tickets.
        keys: TicketKeys,
    },
    /// The node was declared failed: it must join again.
    Rejoin,
    /// The node has been drained: none of its chunks counts, and it may stop.
    Leave,
    /// The node is the stripe's primary.
    Lease(StripeLease),
    /// Another node is the primary.
    HeldBy(NodeId),
    /// All nodes.
    Nodes(Vec<NodeStatus>),
    /// The new pool.
    Pool(PoolRecord),
    /// All pools.
    Pools(Vec<PoolRecord>),
    /// The pools and reserves of stripes that have any.
    Reserves(Vec<(StripeId, PoolId, ReserveSpec)>),
    /// The places of a file's stripes.
    Put(Box<PutPlaces>),
    /// The file is stored inline.
    Stored {
        /// Its put.
        put: PutId,
        /// The file; none if it is gone by now.
        file: Option<Box<FileRecord>>,
        /// Its pool.
        pool: Box<PoolRecord>,
        /// Whether it counts as open in the session that the request names.
        is_open: bool,
    },
    /// The outcome of a write of inline bytes.
    InlineWritten(InlineWritten),
    /// A file with its layout.
    File(Box<FileLayout>),
    /// The file or directory.
    Inode(Box<InodeStatus>),
    /// The quota that counts an inode.
    DirectoryQuota(Option<Box<QuotaStatus>>),
    /// All attributes of the inode.
    Attributes(Attributes),
    /// Those that users have given to the inode.
    UserAttributes {
        /// The number of times clients have set attributes of it.
        version: u64,
        /// Values by names.
        user: BTreeMap<String, Vec<u8>>,
    },
    /// A page of a directory.
    Entries {
        /// The names.
        entries: Vec<DirectoryEntry>,
        /// Whether more follow.
        is_cut: bool,
    },
    /// The path to which the symbolic link leads.
    Target(Option<String>),
    /// The file or directory was removed.
    Gone,
    /// The file's size.
    Grown(Growth),
    /// The file's fencing token.
    Exclusive(FencingToken),
    /// The file is not opened exclusively.
    NotOpened(NotOpened),
    /// Whether an exclusive session goes on.
    Renewed(bool),
    /// A new session of a client.
    ClientSession(ClientSessionId),
    /// The state of a client's session.
    SessionState(SessionState),
    /// The outcome of a change of locks.
    Locking(Locking),
    /// A page of files.
    Listing(Listing),
    /// Redundancy and repair.
    Status(Box<ClusterStatus>),
    /// The links that were measured, by sender and receiver.
    Links(Vec<LinkRate>),
    /// The result of a scrub.
    Scrubbed(ScrubReport),
    /// Refused.
    Refused(Denial),
    /// Refused for now; a retry may succeed.
    Busy(Denial),
    /// Some stripes of the pool have been committed, and this many wait.
    Committing {
        /// Stripes.
        left_count: u64,
    },
    /// The stripes wait to be replaced.
    Replacement(Replacement),
    /// The stripe has ended.
    Ended {
        /// Its last record, while a node may still have a chunk of it. Chunks whose nodes a settlement has
        /// left out are also stale: they may have missed its outcome.
        stripe: Option<StripeRecord>,
        /// All nodes.
        nodes: Vec<NodeStatus>,
    },
    /// The space of the cluster.
    Usage(ClusterUsage),
    /// Some of the event log.
    Events(EventPage),
    /// Changes of names and inodes.
    Changes(ChangePage),
    /// Some findings of a recovery.
    Recovery(Box<RecoveryPage>),
    /// The space for new chunks.
    Space(ClusterSpace),
}

/// Whether a node that is alive is a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// [`CoordinatorReply::Alive`].
    Alive {
        /// The coordinator, if its metadata is known to be no old copy.
        coordinator: Option<Origin>,
        /// The lease's length from the sending of the heartbeat.
        lease_ms: u64,
        /// All nodes.
        nodes: Vec<NodeStatus>,
        /// The keys of tickets.
        keys: TicketKeys,
    },
    /// [`CoordinatorReply::Rejoin`].
    Rejoin,
    /// [`CoordinatorReply::Leave`].
    Leave,
}

/// All bytes of a small file that is to be stored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WholeFile {
    /// The bytes, as many as the file's size says.
    pub bytes: Bytes,
    /// Drawn at random for this file: a repetition of the request is told by it.
    pub number: u64,
}

/// The outcome of a write of inline bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum InlineWritten {
    /// It was made. The file now; none if it is gone since.
    Made(Option<Box<FileRecord>>),
    /// It was not made, and never will be: the file has another version of its bytes, has or needs stripes, or takes no
    /// writes under the token.
    NotMade,
}

/// The beginning of a put.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BegunPut {
    /// The stripes are to be stored.
    Places(Box<PutPlaces>),
    /// The file is stored inline: the put has ended.
    Stored {
        /// The put.
        put: PutId,
        /// The file; none if it is gone by now.
        file: Option<Box<FileRecord>>,
        /// The pool.
        pool: Box<PoolRecord>,
        /// Whether the client has it open in its session.
        is_open: bool,
    },
}

/// The places of a file's stripes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PutPlaces {
    /// The put. Later requests about it must name it by this.
    pub put: OpenPut,
    /// The pool.
    pub pool: PoolRecord,
    /// The stripes, in the file's order. Those of a large file are only the first ones: the others are reserved when
    /// these are stored.
    pub stripes: Vec<StripeRecord>,
    /// The tickets to store them.
    pub tickets: Vec<Ticket>,
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

/// An extent that a file is to get.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NewExtent {
    /// Its offset in the file: the beginning of a segment.
    pub offset: u64,
    /// Bytes of a chunk of its stripe.
    pub chunk_bytes: u64,
}

/// The answer to a request that a file grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Growth {
    /// The file's size.
    pub size_bytes: u64,
    /// The number of truncations of the file before it had this size.
    pub truncation_count: u64,
    /// The version and the number of its inline bytes, if it is inline.
    pub inline: Option<Inline>,
    /// Whether it has the size that was asked for. False if it was truncated in between, or had another size than the
    /// request demands.
    pub is_done: bool,
}

/// Stripes that wait for their replacement.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Replacement {
    /// The put that brings the new stripes. Later requests about it must name it by this.
    pub put: OpenPut,
    /// The displaced stripes, as they stay until the end of the replacement.
    pub settled: Vec<SettledStripe>,
    /// The new stripes, one for each new extent.
    pub stripes: Vec<StripeRecord>,
    /// Those that are to be copies of displaced stripes, because other files share these, with the offsets of these.
    pub copies: Vec<(u64, StripeRecord)>,
    /// The tickets to read the displaced stripes, and to store the new ones.
    pub tickets: Vec<Ticket>,
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
    /// Chunks whose nodes took no part in the settlement: their records prove nothing.
    pub unsettled: Vec<ChunkIndex>,
}

/// A file with the facts that a client needs to read and write a part of it, as of one moment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileLayout {
    /// The file.
    pub file: FileRecord,
    /// Its pool.
    pub pool: PoolRecord,
    /// The pool of those of its stripes that are encoded, if its blocks are replicated at first.
    pub encoded: Option<PoolRecord>,
    /// The part of the file that this describes. It begins and ends at borders of segments, and may reach past the
    /// end of the file.
    pub window: ByteRange,
    /// The offset of the last extent before the window.
    pub before: Option<u64>,
    /// The offset of the first extent behind the window.
    pub behind: Option<u64>,
    /// The stripes of the window, in order.
    pub stripes: Vec<StripeRecord>,
    /// The offset of each stripe's extent. Bytes without an extent are a hole.
    pub offsets: Vec<u64>,
    /// Those of them that may have updates that parity does not cover, by id.
    pub appending: Vec<StripeId>,
    /// Those of them that are not updated in place, because other files may have them too.
    pub shared: Vec<StripeId>,
    /// All inline bytes of the file, if some of them are in the window.
    pub inline: Option<InlineBytes>,
    /// The tickets to read and write the stripes.
    pub tickets: Vec<Ticket>,
    /// All nodes.
    pub nodes: Vec<NodeStatus>,
    /// The clients that may write it.
    pub exclusive: Exclusive,
}

impl FileLayout {
    /// The window of a file of the pool in which no extent is. No node, no ticket and no writer is known.
    pub fn without_extents(file: FileRecord, pool: PoolRecord, window: ByteRange) -> Self {
        Self {
            file,
            pool,
            encoded: None,
            window,
            before: None,
            behind: None,
            stripes: Vec::new(),
            offsets: Vec::new(),
            appending: Vec::new(),
            shared: Vec::new(),
            inline: None,
            tickets: Vec::new(),
            nodes: Vec::new(),
            exclusive: Exclusive::default(),
        }
    }
}

/// The inline bytes of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InlineBytes {
    /// Their version.
    pub version: u64,
    /// All of them.
    pub bytes: Bytes,
}

/// Period of the renewals of a session, in milliseconds.
pub const RENEW_EVERY_MS: u64 = 2_000;

/// Least time that a client's session outlives its last renewal, in milliseconds of the coordinator's clock.
pub const CLIENT_SESSION_MS: u64 = 10_000;

/// Time without a renewal after which the coordinator aborts a put, and frees its space. A put is renewed as often as a
/// session. Its stripes delay no other client, so its client may be disconnected for longer.
pub const PUT_LEASE_MS: u64 = 3 * CLIENT_SESSION_MS;

/// Most files of a report of open files.
pub const REPORTED_FILES_MAX: usize = 4_096;
/// Time that a client relies on its locks from the moment on at which it has sent a renewal, in milliseconds of its own
/// clock.
pub const CLIENT_LEASE_MS: u64 = 9_000;
/// Time that a request waits at the coordinator for a lock, in milliseconds.
pub const LONG_CALL_MS: u64 = 500;

/// The extent of a request's attempt to get a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LockAttempt {
    /// It only asks whether another owner's lock conflicts, and changes nothing.
    Find,
    /// It is answered at once.
    Once,
    /// If another owner's lock conflicts, it is answered when the change is done, or after some time.
    Wait {
        /// For how long its owner has waited before it, in milliseconds.
        waited_ms: u64,
    },
}

/// The reason why a file is not opened exclusively.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NotOpened {
    /// Another client has it. Without a further renewal, its session may be displaced after this time.
    InUse {
        /// The time in milliseconds.
        left_ms: u64,
    },
    /// The token is another one than the client has seen: it looks the file up again.
    Changed,
}

impl FileLayout {
    /// Whether the window is completely encoded, or completely replicated.
    pub fn has_form(&self, is_encoded: bool) -> bool {
        let mut stripes = self.stripes.iter();
        stripes.all(|stripe| (stripe.pool != self.file.pool) == is_encoded)
    }

    /// The pool that describes a stripe of the file.
    pub fn pool_of(&self, stripe: &StripeRecord) -> &PoolRecord {
        let encoded = self.encoded.as_ref();
        let encoded = encoded.filter(|pool| pool.id == stripe.pool);
        encoded.unwrap_or(&self.pool)
    }
}

/// A stripe's lease with the facts that its primary needs.
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
    /// Whether the stripe may have updates that parity does not cover.
    pub appends: bool,
    /// The joins before the term: their answers did not include it.
    pub joins: JoinCount,
    /// The fencing token of the file that the request names.
    pub token: Option<FencingToken>,
}

/// The outcome of a request to open a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Opening {
    /// It counts as open. Its first window.
    Open(Box<FileLayout>),
    /// It is gone, or has no name any more.
    Gone,
    /// The session has ended.
    Over,
}
