//! What the tables hold and callers see. A change of any field here changes the stored format:
//! raise the table's version in `schema.rs`, and keep reading the old one.

use gabion_layout::{
    AppendSpec, Epoch, Generation, Geometry, GeometryError, Lifecycle, NodeId, PoolId, RackId,
    ReserveSpec, Start, StripeId, Survive, UpdateScheme,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A file on its way in. Never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct PutId(pub u64);

impl fmt::Display for PutId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "put {}", self.0)
    }
}

/// A storage node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Its id, kept for life.
    pub id: NodeId,
    /// Its rack, kept for life.
    pub rack: RackId,
    /// Where it listens, as `host:port`.
    pub address: String,
    /// What it offers.
    pub capacity_bytes: u64,
    /// Declared failed: its chunks count as lost and it gets no new ones until it is declared
    /// returned.
    pub failed: bool,
    /// When it last joined, in milliseconds of the coordinator's clock.
    pub joined_ms: u64,
    /// The start of it that was let in last. A directory that does not know it is a copy of another
    /// time.
    pub admitted: Option<Start>,
}

/// What is decided of a node beside whether it is failed. A node without a record has the default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Standing {
    /// It is failed and nobody waits for it any more: its time of grace is over, or a user has ended
    /// it. Taken back when it returns.
    pub given_up: bool,
    /// Whether it is on its way out.
    pub departure: Departure,
}

/// How far a node is on its way out of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Departure {
    /// It stays.
    #[default]
    None,
    /// It gets no new chunks, and those that it has are moved to others.
    Draining,
    /// It has nothing any more, and gets nothing: it may be switched off for good.
    Drained,
}

/// What users have told the repair manager.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RepairSettings {
    /// No repair begins.
    pub is_paused: bool,
    /// How lost chunks are brought together, if a user has chosen. Opaque here: planners know it.
    pub scheme: Option<String>,
    /// The most that repairs may send into, and out of, each node.
    pub node_bytes_per_s: Option<u64>,
    /// The most that they may send into, and out of, each rack.
    pub rack_bytes_per_s: Option<u64>,
    /// The most that all of them may send together.
    pub total_bytes_per_s: Option<u64>,
    /// They make way while the 99th percentile of the clients' latencies is above this.
    pub p99_target_ms: Option<u64>,
}

/// What a pool is asked to be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolSpec {
    /// The pool's name, unique in the cluster.
    pub name: String,
    /// The code in its text form, such as `rs(6,3)`. Opaque here: the codec reads it.
    pub code: String,
    /// Data chunks of a stripe.
    pub k: usize,
    /// Parity chunks of a stripe.
    pub m: usize,
    /// Rows that the code sees in a chunk.
    pub sub_chunks: usize,
    /// Bytes of a chunk of every stripe but a file's last.
    pub chunk_bytes: u64,
    /// The failure that the pool promises to survive.
    pub survive: Survive,
    /// Most chunks of one stripe that a rack may hold when the stripe is first placed.
    pub chunks_per_rack: usize,
    /// How updates are kept until they are in their chunks.
    pub update: UpdateScheme,
    /// The space behind parity chunks, if the update scheme reserves any.
    pub reserve: Option<ReserveSpec>,
    /// The append phases, if parity follows later under the update scheme.
    pub append: Option<AppendSpec>,
}

impl PoolSpec {
    /// The shape of a full stripe.
    ///
    /// # Errors
    /// [`GeometryError`] when the counts and sizes make no stripe; never for a stored pool.
    pub fn geometry(&self) -> Result<Geometry, GeometryError> {
        Geometry::new(self.k, self.m, self.sub_chunks, self.chunk_bytes)
    }
}

/// A pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolRecord {
    /// Its id.
    pub id: PoolId,
    /// What it was asked to be; checked when the pool was created.
    pub spec: PoolSpec,
    /// What becomes of its blocks, if they are replicated only at first.
    pub lifecycle: Option<Lifecycle>,
}

/// What a user wants of a file whose blocks are replicated at first, against what its pool says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Wish {
    /// Its blocks are to be replicated again, as if the file had come then, in milliseconds that
    /// coordinators had run by then.
    Replicated {
        /// When it was wished.
        since_ms: u64,
    },
    /// All of its blocks are to be encoded now.
    Encoded,
}

/// A wish of a file. It dies with the put that brought the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WishRecord {
    /// The put.
    pub file: PutId,
    /// What is wished.
    pub wish: Wish,
}

/// A file that a put has made visible.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileRecord {
    /// Its name.
    pub name: String,
    /// Its pool.
    pub pool: PoolId,
    /// Its bytes. Segments fill in order: each but the last holds `k` full chunks.
    pub size_bytes: u64,
    /// Its segments in order, one stripe each; a segment that is replicated has a stripe for each of its
    /// blocks. None for an empty file.
    pub segments: Vec<StripeId>,
    /// The put that brought it. A client that lost the answer to its commit compares this.
    pub put: PutId,
    /// When it was committed, in milliseconds that coordinators had run by then.
    pub created_ms: u64,
}

/// Where one segment is to go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Bytes of each of its chunks.
    pub chunk_bytes: u64,
    /// The node of each chunk, data chunks first; `n` distinct nodes.
    pub nodes: Vec<NodeId>,
}

/// A stripe that a replacement takes out of its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Displaced {
    /// The stripe.
    pub stripe: StripeId,
    /// The lease term under which the coordinator keeps others from updating it.
    pub epoch: Epoch,
}

/// What makes a put a replacement: its stripes go into a file that is there already.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReplacementRecord {
    /// The put that brought the file.
    pub file: PutId,
    /// What its stripes displace, one for one, in the file's order.
    pub displaced: Vec<Displaced>,
}

/// A put under way. Its stripes have ids `first_stripe..first_stripe + stripe_count`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PutRecord {
    /// Its id.
    pub id: PutId,
    /// The name that the file is to have, or has when stripes of it are replaced.
    pub name: String,
    /// The file's pool.
    pub pool: PoolId,
    /// The file's bytes.
    pub size_bytes: u64,
    /// Its first stripe.
    pub first_stripe: StripeId,
    /// How many stripes it has.
    pub stripe_count: u64,
    /// When its client was last heard of, in milliseconds of the coordinator's clock.
    pub touched_ms: u64,
}

/// Who may hold a stripe's lease. An incarnation numbers the runs of one process: a later run
/// never continues what an earlier run had begun.
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
        /// Its run, as [`crate::Meta::incarnation`] says.
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

/// The right to serialise a stripe's updates, for as long as nobody has a higher epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lease {
    /// The stripe.
    pub stripe: StripeId,
    /// The lease's term, higher than any that the stripe has had before.
    pub epoch: Epoch,
    /// The stripe's generation when the lease was handed out.
    pub generation: Generation,
    /// Who has it.
    pub holder: Holder,
}

/// What a stripe id stands for now; a node that finds an old chunk asks this.
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
