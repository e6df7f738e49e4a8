//! The messages of a recovery: a coordinator with an earlier copy of the metadata asks the nodes what they know and
//! hold, and reports it to the operator. None of them changes a node.

use super::origin::Origin;
use super::status::NodeStatus;
use crate::ticket::TicketKeys;
use gabion_layout::{ChunkIndex, Generation, NodeId, StripeId};
use gabion_meta::PutId;
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// Most stripes that a question about a node's chunks names.
pub const HELD_ASKED_MAX: usize = 4096;

/// What a node knows of its cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct KnownCluster {
    /// The newest coordinator that it has heard.
    pub heard: Option<Origin>,
    /// All nodes, from the coordinator's last message.
    pub nodes: Vec<NodeStatus>,
    /// The keys of tickets, from the same message.
    pub keys: TicketKeys,
}

/// The stripes that a question about a node's chunks is about.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum HeldScope {
    /// These, at most [`HELD_ASKED_MAX`].
    Of(Vec<StripeId>),
    /// A page of all that the node holds, behind this one.
    Behind(Option<StripeId>),
}

/// A stripe of which a node holds chunks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KnownStripe {
    /// The stripe.
    pub stripe: StripeId,
    /// The newest generation that the node knows.
    pub generation: Generation,
    /// Its chunks here, in their order, without damaged ones.
    pub chunks: Vec<ChunkIndex>,
}

/// Stripes of which a node holds chunks, in the order of their ids.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct KnownStripes {
    /// The stripes.
    pub stripes: Vec<KnownStripe>,
    /// The last one examined, if more follow.
    pub upto: Option<StripeId>,
}

/// A place in a recovery's findings: first all files, then the chunks of each node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RecoveryPlace {
    /// The bytes of a file from an offset on, and all later files.
    File {
        /// The put that brought the file.
        put: PutId,
        /// The offset; the largest number for none of its bytes.
        offset: u64,
    },
    /// The stripes of a node behind one, and those of all later nodes.
    Node {
        /// The node.
        node: NodeId,
        /// The stripe.
        after: Option<StripeId>,
    },
}

/// Stripes by what the nodes say about the layout that the metadata have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StripeCounts {
    /// The layout holds: these can be read, as of the last acknowledged write.
    pub held_count: u64,
    /// A node knows a newer layout.
    pub newer_count: u64,
    /// Fewer chunks are at their places than the stripe has data chunks.
    pub missing_count: u64,
    /// Too few nodes answer.
    pub unknown_count: u64,
}

impl StripeCounts {
    /// The number of stripes that are not served.
    pub const fn not_held_count(&self) -> u64 {
        self.newer_count + self.missing_count + self.unknown_count
    }
}

impl AddAssign for StripeCounts {
    fn add_assign(&mut self, other: Self) {
        self.held_count += other.held_count;
        self.newer_count += other.newer_count;
        self.missing_count += other.missing_count;
        self.unknown_count += other.unknown_count;
    }
}

/// A file of which something may be older in the metadata than in the cluster. A large file may have several, one for
/// each page.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileFinding {
    /// The put that brought the file.
    pub put: PutId,
    /// Its path as of the copy of the metadata.
    pub name: String,
    /// The stripes of the parts that are findings. A part whose stripes all hold is none.
    pub stripes: StripeCounts,
    /// Whether some of its bytes are those of the metadata and of no node: inline bytes, or holes, which may have been
    /// written since.
    pub is_of_metadata: bool,
}

/// Some findings of a recovery.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RecoveryPage {
    /// Files that begin on this page.
    pub file_count: u64,
    /// The stripes of files of this page.
    pub stripes: StripeCounts,
    /// The files of these that something is to be said about.
    pub findings: Vec<FileFinding>,
    /// Stripes of a node that no file of the metadata has, nor their garbage.
    pub strangers: Option<(NodeId, Vec<StripeId>)>,
    /// Nodes that do not answer.
    pub silent_nodes: Vec<NodeId>,
    /// The place of the next page, if there is one.
    pub next: Option<RecoveryPlace>,
}
