//! Why there is no plan: always something about the input, never a bug.

use gabion_codec::CodeError;
use gabion_layout::{ChunkIndex, GeometryError, Survive};
use thiserror::Error;

/// Errors for which a planner has no plan.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum PlanError {
    /// The requested chunks cannot be computed from those that are left.
    #[error(transparent)]
    NotEnoughHelpers(#[from] CodeError),
    /// A range does not fit the stripe.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// A stripe that is to be updated could lose data by losing one more chunk.
    #[error(
        "only {left_count} of the stripe's {chunk_count} chunks are left, and the loss of another could lose data: the \
        stripe takes no writes until it is repaired, but it can be read"
    )]
    TooFewLeft {
        /// Chunks that are not lost.
        left_count: usize,
        /// Chunks of the stripe.
        chunk_count: usize,
    },
    /// The scheme does not work around lost chunks.
    #[error(
        "{0} is lost, and this scheme needs all chunks of a stripe; update by delta until the stripe \
         is repaired"
    )]
    NeedsChunk(ChunkIndex),
    /// Appended bytes are in no log that is left.
    #[error("every node that has the last updates of {0} is lost")]
    NoCopy(ChunkIndex),
    /// A log is not at a node that could have it in this layout.
    #[error("the nodes that have the last updates of {0} belong to another layout")]
    MovedLog(ChunkIndex),
    /// A lost chunk has no node that it may be repaired onto.
    #[error(
        "there is no node for {0}: every node that is up holds another chunk of its stripe or would break its rack \
        limit; add a node"
    )]
    NoRequestor(ChunkIndex),
    /// More interim replicas than parity nodes that could keep them.
    #[error("{asked} interim replicas need {asked} parity nodes, but the code has {parity_nodes}")]
    TooManyReplicas {
        /// Replicas asked for.
        asked: usize,
        /// Parity nodes of the stripe.
        parity_nodes: usize,
    },
    /// The replicas of a block do not fit on distinct nodes.
    #[error(
        "{replica_count} replicas of a block need {replica_count} nodes, but there are {node_count}"
    )]
    TooManyCopies {
        /// Replicas asked for.
        replica_count: usize,
        /// Nodes that there are.
        node_count: usize,
    },
    /// A pool does not have what its update scheme needs, or has more.
    #[error("{0}")]
    Pool(String),
    /// A rule's name is not known.
    #[error("there is no rule '{text}'; choose from {known}")]
    UnknownRule {
        /// The name asked for.
        text: String,
        /// The names that there are.
        known: &'static str,
    },
    /// The ranges of one update overlap or are empty.
    #[error("an update needs ranges of data chunks; they must not be empty and must not overlap")]
    BadRanges,
    /// The topology cannot hold a stripe.
    #[error(
        "a stripe of {chunks} chunks with at most {per_rack} in each rack does not fit: the racks that are up have \
        room for {room}; add nodes or racks, or choose a code with fewer chunks or with more parity chunks"
    )]
    NoRoom {
        /// Chunks of the stripe.
        chunks: usize,
        /// The most chunks a rack may hold.
        per_rack: usize,
        /// Chunks that fit.
        room: usize,
    },
    /// No code can keep the promise on this topology.
    #[error("no code survives {survive} on {racks} racks with {nodes} nodes; {advice}")]
    Impossible {
        /// The promise.
        survive: Survive,
        /// Racks with nodes.
        racks: usize,
        /// Nodes in all.
        nodes: usize,
        /// A change that would make it possible.
        advice: &'static str,
    },
    /// The code that the user chose cannot keep the promise.
    #[error(
        "{code} survives any {survived} lost chunks, which is too few for {survive} on this topology; use more parity \
        chunks or a smaller failure to survive"
    )]
    WeakCode {
        /// The code.
        code: String,
        /// Losses that it always survives.
        survived: usize,
        /// The promise.
        survive: Survive,
    },
    /// A layout's text form is not understood or does not fit the code.
    #[error("{0}")]
    Layout(String),
}
