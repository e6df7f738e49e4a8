//! The records of the tables, as callers see them. A change of any field here changes the stored
//! format: raise the table's version in `schema.rs`, and keep reading the old one.

use crate::attributes::{Attributes, NewAttributes, WallTime};
use crate::paths::{DirectoryId, RelativePath};
use crate::pool_spec::PoolSpec;
use gabion_layout::{
    Epoch, Generation, Lifecycle, NodeId, PoolId, RackId, Sequence, Start, StripeId,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Most bytes of a file's name.
pub const FILE_NAME_BYTES: usize = 4096;

/// Most bytes of a file.
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;
/// Most stripes of a file. No message and no transaction grows with them.
pub const FILE_STRIPES_MAX: u64 = 1 << 24;

/// Identifies a put. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct PutId(pub u64);

impl fmt::Display for PutId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "put {}", self.0)
    }
}

/// Identifies a map of extents: the layer of a file that is its own, or one that several files share. The first map of
/// a file has the number of the file's put. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct MapId(pub u64);

impl fmt::Display for MapId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "map {}", self.0)
    }
}

/// A storage node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Its id, kept for life.
    pub id: NodeId,
    /// Its rack, kept for life.
    pub rack: RackId,
    /// Its address, as `host:port`.
    pub address: String,
    /// Its capacity.
    pub capacity_bytes: u64,
    /// Declared failed: its chunks count as lost and it gets no new ones until it is declared
    /// returned.
    pub failed: bool,
    /// When it last joined, in milliseconds of the coordinator's clock.
    pub joined_ms: u64,
    /// The start that was admitted last. A directory that does not know it is an old copy.
    pub admitted: Option<Start>,
}

/// Decisions about a node other than its failure. A node without a record has the default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Standing {
    /// It is failed and the cluster no longer waits for it: its grace time is over, or a user has
    /// removed it. Cleared when it returns.
    pub abandoned: bool,
    /// Its departure.
    pub departure: Departure,
}

/// Progress of a node's departure from the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Departure {
    /// It stays.
    #[default]
    None,
    /// It gets no new chunks, and its chunks are moved to other nodes.
    Draining,
    /// It has no chunks and gets none: it can be switched off permanently.
    Drained,
}

/// A secret, which is never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(pub [u8; 32]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A key of tickets.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TicketKey {
    /// Its number; later keys have higher ones.
    pub number: u32,
    /// The secret.
    pub secret: Secret,
    /// When it was drawn, in milliseconds of the coordinators' total run time.
    pub drawn_ms: u64,
}

/// Users' settings of the repair manager.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RepairSettings {
    /// No repair begins.
    pub is_paused: bool,
    /// The repair scheme, if a user has chosen one. Opaque here: planners know it.
    pub scheme: Option<String>,
    /// Bandwidth limit of repairs into, and out of, each node.
    pub node_bytes_per_s: Option<u64>,
    /// Bandwidth limit of repairs into, and out of, each rack.
    pub rack_bytes_per_s: Option<u64>,
    /// Total bandwidth limit of repairs.
    pub total_bytes_per_s: Option<u64>,
    /// Repairs are throttled while the 99th percentile of the clients' latencies is above this.
    pub p99_target_ms: Option<u64>,
}

/// A pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolRecord {
    /// Its id.
    pub id: PoolId,
    /// Its parameters; checked when the pool was created.
    pub spec: PoolSpec,
    /// The lifecycle of its blocks, if they are replicated only at first.
    pub lifecycle: Option<Lifecycle>,
}

impl PoolRecord {
    /// Whether the bytes of a file of this size are inline, unless the file has stripes already.
    pub fn keeps_inline(&self, size_bytes: u64) -> bool {
        let most = self.spec.inline_bytes;
        most > 0 && size_bytes <= most && self.lifecycle.is_none()
    }
}

/// A user's request for a file whose blocks are replicated at first, which overrides its pool's
/// lifecycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RequestedForm {
    /// Replicate its blocks again, as if the file had been stored at `since_ms`.
    Replicated {
        /// Time of the request, in milliseconds that coordinators had run by then.
        since_ms: u64,
    },
    /// Encode all of its blocks now.
    Encoded,
}

/// A directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DirectoryRecord {
    /// The directory in which it lies.
    pub parent: DirectoryId,
    /// Its name there.
    pub name: String,
    /// Levels of directories below it, the most that it ever had.
    pub level_count: u32,
    /// The number of its renames: a late message of an earlier rename is told by it.
    pub generation: u64,
    /// Its permissions and times.
    pub attributes: Attributes,
    /// The directory whose quota counts what is made in it: itself, or one above it.
    pub quota: Option<DirectoryId>,
    /// Whether it is of a snapshot: it gets no names, and may lose them.
    pub is_read_only: bool,
}

/// The begin of an append phase.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct Phase {
    /// The term in which it began.
    pub(crate) epoch: Epoch,
    /// The mark at its begin: what is appended in it comes after that.
    pub(crate) mark: Sequence,
}

impl DirectoryRecord {
    /// The root of a new cluster. It has no name, and lies in itself.
    pub(crate) fn root(now: WallTime) -> Self {
        Self {
            parent: DirectoryId::ROOT,
            name: String::new(),
            level_count: 0,
            generation: 0,
            attributes: Attributes::new(NewAttributes::DIRECTORY, now),
            quota: None,
            is_read_only: false,
        }
    }
}

/// The file or directory to which a name belongs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Inode {
    /// The file that this put made.
    File(PutId),
    /// A directory.
    Directory(DirectoryId),
}

/// A file that a put has made visible: its inode. The bytes of its stripes are its extents, which are
/// rows of their own ([`Extent`](crate::Extent)); so is its name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileRecord {
    /// Its present path, or that of the name by which it was found; the last name of an orphan. The row has the last
    /// name of its first path only.
    pub name: String,
    /// The directory in which its first name lies; the root for an orphan.
    pub directory: DirectoryId,
    /// Its pool.
    pub pool: PoolId,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The number of its stripes, shared ones included, which is that of its extents. A segment without one is a hole;
    /// a replicated segment has one for each of its blocks.
    pub stripe_count: u64,
    /// The put that made it, which identifies it whatever its name. A client that lost the answer to its
    /// commit compares this.
    pub put: PutId,
    /// When it was committed, in milliseconds that coordinators had run by then.
    pub created_ms: u64,
    /// The number of changes of its names: a late message of an earlier change is told by it.
    pub generation: u64,
    /// The number of its truncations: a late message of an earlier growth is told by it.
    pub truncation_count: u64,
    /// Its permissions and times.
    pub attributes: Attributes,
    /// The number of its names; 0 if it is an orphan.
    pub link_count: u64,
    /// If it is a symbolic link, which has no bytes.
    pub symlink: Option<Symlink>,
    /// The map of its own extents.
    pub map: MapId,
    /// The number of its stripes that are in maps below its own: snapshots and clones may have them too.
    pub shared_stripe_count: u64,
    /// Stripes with lower ids are not updated in place: other files may have them too, or had them before they were
    /// removed. Of the others that this is true of, each is a copy, and noted as one.
    pub shared_below: StripeId,
    /// Whether it is a snapshot, whose bytes and size never change.
    pub is_read_only: bool,
    /// If its bytes are inline. Such a file has no extent.
    pub inline: Option<Inline>,
    /// The directory whose quota counts it.
    pub quota: Option<DirectoryId>,
}

/// The inline bytes of a file: they are a row of the metadata, and no stripe has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Inline {
    /// Raised with each change of the bytes or the size.
    pub version: u64,
    /// Their number. Bytes of the file behind them are zero.
    pub length_bytes: u64,
}

/// The outcome of a change with a number that its client has drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ChangeDone {
    pub(crate) number: u64,
    pub(crate) outcome: ChangeOutcome,
}

/// The same without the number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum ChangeOutcome {
    /// It was made.
    Made,
    /// It was made, and has made this file.
    MadeFile(PutId),
    /// It was refused, and its client knows.
    Refused,
}

impl FileRecord {
    /// Whether a stripe of the file's own map that is no copy has been in no other file, so that it is updated in
    /// place.
    pub(crate) fn owns(&self, stripe: StripeId) -> bool {
        stripe >= self.shared_below && !self.is_read_only
    }

    /// An empty file with one name, made now.
    pub(crate) fn new(
        (directory, name): (DirectoryId, String),
        (put, pool): (PutId, PoolId),
        attributes: Attributes,
        created_ms: u64,
    ) -> Self {
        Self {
            name,
            directory,
            pool,
            size_bytes: 0,
            stripe_count: 0,
            put,
            created_ms,
            generation: 0,
            truncation_count: 0,
            attributes,
            link_count: 1,
            symlink: None,
            map: MapId(put.0),
            shared_stripe_count: 0,
            shared_below: StripeId(0),
            is_read_only: false,
            inline: None,
            quota: None,
        }
    }
}

/// A symbolic link.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Symlink {
    /// The path to which it leads. Gateways follow it, and nothing else does.
    pub target: String,
}

/// A page of a list of files.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Listing {
    /// Files, in the byte order of their names.
    pub files: Vec<FileRecord>,
    /// Common beginnings of names up to the delimiter, each once, in the same order. If the delimiter is `/`, these are
    /// the directories, empty ones included.
    pub prefixes: Vec<String>,
    /// Whether more entries follow: the next page begins after the last of both lists.
    pub is_cut: bool,
}

impl Listing {
    /// The last entry, after which the next page begins.
    pub fn last(&self) -> Option<&str> {
        let file = self.files.last().map(|file| file.name.as_str());
        file.max(self.prefixes.last().map(String::as_str))
    }
}

/// The fate of a file that already has the name which a put or a rename asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Existing {
    /// It stays, and the operation is refused.
    #[default]
    Stays,
    /// It is removed in the transaction that gives its name away.
    IsReplaced,
    /// The same for the file of this put; any other file stays.
    IsReplacedIf(PutId),
}

/// The result of an open put.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PutTarget {
    /// A file of this name.
    New {
        /// The name.
        at: RelativePath,
        /// The fate of a file that has the name at the commit.
        existing: Existing,
        /// The file's pool.
        pool: PoolId,
        /// The file's bytes.
        size_bytes: u64,
        /// The file's attributes.
        attributes: NewAttributes,
    },
    /// Stripes for the file of this put.
    Stripes(PutId),
}

/// Placement of one segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Bytes of each of its chunks.
    pub chunk_bytes: u64,
    /// The node of each chunk, data chunks first; `n` distinct nodes.
    pub nodes: Vec<NodeId>,
}

/// A number of a file that grows with each exclusive open of the file. Writes with a
/// lower one are refused (M. Kleppmann, Designing Data-Intensive Applications, chapter 8).
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash, Serialize, Deserialize,
)]
pub struct FencingToken(pub u64);

/// A client's exclusive open of a file, drawn at random.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Serialize, Deserialize)]
pub struct SessionId(pub u64);

/// A client's session, which has its advisory locks and its open files. The coordinator numbers them, and uses no
/// number again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Serialize, Deserialize)]
pub struct ClientSessionId(pub u64);

/// The clients that may write a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Exclusive {
    /// The token of writes.
    pub token: FencingToken,
    /// The only session that may write; all clients may if there is none.
    pub session: Option<SessionId>,
    /// The run of the coordinator that lets no client write, because it takes a snapshot of the file.
    pub frozen_in: Option<u64>,
}

/// Consecutive stripe ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StripeRun {
    /// The first.
    pub first: StripeId,
    /// The number of ids.
    pub count: u64,
}

impl StripeRun {
    /// The id behind the last.
    pub const fn end(&self) -> StripeId {
        StripeId(self.first.0.saturating_add(self.count))
    }

    /// Whether an id is among them.
    pub fn contains(&self, id: StripeId) -> bool {
        (self.first..self.end()).contains(&id)
    }
}

/// An open put.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PutRecord {
    /// Its id.
    pub id: PutId,
    /// Its result.
    pub target: PutTarget,
    /// The ids that its stripes had when they were reserved, in the file's order, but for those that have entered the
    /// map of the file.
    pub runs: Vec<StripeRun>,
    /// The number of its first stripes, which are stored and have entered the map of the file.
    pub entered_count: u64,
    /// The bytes of the file in these.
    pub entered_bytes: u64,
    /// The number of its extensions: a late message of an earlier extension is told by it.
    pub step: u64,
    /// When it began or was last extended, in milliseconds of the coordinator's clock. Nothing depends on it: the
    /// coordinator knows in memory when it last heard the client of a put.
    pub touched_ms: u64,
}

/// A possible holder of a stripe's lease. An incarnation numbers the runs of one process: a later
/// run never continues the work of an earlier one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Holder {
    /// A node, as the stripe's primary.
    Node {
        /// The node.
        node: NodeId,
        /// Its run, growing from start to start.
        incarnation: u64,
    },
    /// The coordinator, for repair, encoding and commit.
    Coordinator {
        /// Its run, as [`crate::Meta::incarnation`].
        incarnation: u64,
    },
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node { node, .. } => write!(f, "{node}"),
            Self::Coordinator { .. } => f.write_str("the coordinator"),
        }
    }
}

/// The right to serialise a stripe's updates, as long as no higher epoch exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lease {
    /// The stripe.
    pub stripe: StripeId,
    /// The lease's term, higher than any that the stripe has had before.
    pub epoch: Epoch,
    /// The stripe's generation when the lease was granted.
    pub generation: Generation,
    /// The holder.
    pub holder: Holder,
}

/// The current status of a stripe id; a node that finds an old chunk asks for this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StripeStatus {
    /// A put under way is writing it.
    Pending,
    /// A file refers to it.
    Live,
    /// No file refers to it, and its chunks wait for removal.
    Garbage,
    /// It was reclaimed or never existed; its chunks may go.
    Unknown,
}

/// The journal position of a run of a node. A later run compares higher, whatever its position.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct Progress {
    /// The run: the number of the node's start.
    pub incarnation: u64,
    /// The journal is durable up to this position.
    pub position: u64,
}

/// A start of the coordinator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct StartRecord {
    /// Drawn at random.
    pub(crate) nonce: u64,
    /// The changes that earlier runs had made: all that they can have told anyone of.
    pub(crate) change_count: u64,
}

/// A growth of a file from an exact size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Growth {
    /// Drawn at random by the client.
    pub(crate) number: u64,
}

/// The last lease of a stripe. The epoch stays when the lease is released: it only grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct LeaseRecord {
    pub(crate) epoch: Epoch,
    /// None once it was released.
    pub(crate) holder: Option<Holder>,
    /// Whether the stripe was settled under it, so that no message of an earlier term takes effect any more,
    /// and it was released since without an update.
    pub(crate) is_settled: bool,
    /// The mark of the last commit that ended an append phase under it: a phase from before it is over.
    pub(crate) committed: Sequence,
}
