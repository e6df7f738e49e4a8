//! The reasons why a node refuses a request, by which the sender decides whether to retry, to ask another
//! node, or to fail.

use crate::ticket::TicketFault;
use gabion_layout::{
    ByteRange, ChunkId, ChunkIndex, Epoch, Generation, NodeId, Sequence, StripeId,
};
use gabion_meta::FencingToken;
use serde::{Deserialize, Serialize};

/// Damage that a node has found in its chunks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Damage {
    /// The chunk.
    pub chunk: ChunkId,
    /// The generation in which the node's chunk was made; where its header is bad, the newest that the node
    /// knows of the stripe.
    pub generation: Generation,
    /// Bytes that cannot be trusted; all of them if the header is damaged.
    pub range: ByteRange,
}

/// The reason why a node refuses a request.
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
    /// The node has nothing of the stripe: the stripe may have left its file in the meantime.
    #[error("the node has no data of {0}")]
    NoSuchStripe(StripeId),
    /// Another node is the primary; ask it.
    #[error("the stripe's primary is {0}")]
    NotPrimary(NodeId),
    /// A stripe that is to be updated could lose data by losing one more chunk.
    #[error(
        "only {left_count} of the stripe's {chunk_count} chunks are left, and the loss of another could lose data: the \
        stripe takes no writes until it is repaired, but it can be read"
    )]
    TooFewLeft {
        /// Chunks that are not lost.
        left_count: u8,
        /// Chunks of the stripe.
        chunk_count: u8,
    },
    /// New bytes of lost chunks belong at the nodes that act for them, and those of all other
    /// chunks at their own. Nothing was done; the asker stages them there under another run.
    #[error("the writer's list of the stripe's lost chunks is out of date")]
    StageAt(Vec<(ChunkIndex, NodeId)>),
    /// A required participant does not answer and has not been declared failed either.
    #[error("{0} does not answer; try again")]
    Unavailable(String),
    /// No progress for the stall timeout, because slices or credit of these nodes are missing. If the list
    /// is empty, the node itself is slow.
    #[error("the transfer has stalled{}", awaited_words(.0))]
    Stalled(Vec<NodeId>),
    /// The node is not (or no longer) a member of the cluster and must not serve.
    #[error("the node's lease has expired; try again")]
    NoLease,
    /// The node's store has failed: the node no longer serves and leaves the cluster. Its chunks count as
    /// lost, whether that is declared yet or not.
    #[error("the node's store has failed, and the node leaves the cluster: {0}")]
    StoreFailed(String),
    /// The node has no descriptor, memory or thread left for the request now.
    #[error("the node is busy: {0}")]
    Busy(String),
    /// The disk is full.
    #[error("the node's disk is full; it takes no new data, but serves reads and repairs")]
    NoSpace,
    /// The disk or the process failed.
    #[error("{0}")]
    Failed(String),
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// A session has opened the file exclusively since the client looked it up.
    #[error("another client has opened the file exclusively (fencing token {})", current.0)]
    Superseded {
        /// The file's token.
        current: FencingToken,
    },
    /// The request is a client's, and its ticket does not permit it. Nothing was done; with a new layout the client
    /// gets another ticket.
    #[error("{0}")]
    Ticket(TicketFault),
    /// Nothing is wrong with the request, and another run may succeed: messages were lost, late or repeated,
    /// or the stripe is being changed.
    #[error("{0}")]
    Interrupted(String),
    /// The node speaks a version of the wire that lacks the request. It was not sent.
    #[error("{0}")]
    Unsupported(String),
}

/// The nodes that a stalled part waits for, as the end of a sentence.
fn awaited_words(awaited: &[NodeId]) -> String {
    let names: Vec<String> = awaited.iter().map(NodeId::to_string).collect();
    if names.is_empty() {
        String::new()
    } else {
        format!("; it waits for {}", names.join(", "))
    }
}

impl Refusal {
    /// The name of its kind, in metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Fenced { .. } => "fenced",
            Self::StaleGeneration { .. } => "stale_generation",
            Self::Unsettled => "unsettled",
            Self::CutPassed { .. } => "cut_passed",
            Self::Damaged(_) => "damaged",
            Self::NoSuchChunk(_) => "no_such_chunk",
            Self::NoSuchStripe(_) => "no_such_stripe",
            Self::NotPrimary(_) => "not_primary",
            Self::TooFewLeft { .. } => "too_few_left",
            Self::StageAt(_) => "stage_at",
            Self::Unavailable(_) => "unavailable",
            Self::Stalled(_) => "stalled",
            Self::NoLease => "no_lease",
            Self::StoreFailed(_) => "store_failed",
            Self::Busy(_) => "busy",
            Self::NoSpace => "no_space",
            Self::Failed(_) => "failed",
            Self::Invalid(_) => "invalid",
            Self::Superseded { .. } => "superseded",
            Self::Interrupted(_) => "interrupted",
            Self::Ticket(_) => "ticket",
            Self::Unsupported(_) => "unsupported",
        }
    }

    /// Whether the same request may succeed later or elsewhere without harm.
    pub const fn is_temporary(&self) -> bool {
        !matches!(
            self,
            Self::NoSpace | Self::Failed(_) | Self::Invalid(_) | Self::Unsupported(_)
        )
    }
}
