//! The messages between a node and the coordinator during a join: a session in pages.

use super::origin::Origin;
use super::status::NodeStatus;
use crate::ticket::TicketKeys;
use gabion_layout::{ChunkId, ClusterId, Epoch, Generation, NodeId, Sequence, StripeId};
use serde::{Deserialize, Serialize};

/// Chunks, with their unsettled records, in one page of a node's report, up to one stripe more or less.
pub const PAGE_CHUNK_COUNT: usize = 4096;

/// Most chunks that a coordinator accepts in one page.
pub const PAGE_CHUNK_COUNT_MAX: usize = 2 * PAGE_CHUNK_COUNT;

/// A chunk that a joining node holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HeldChunk {
    /// The chunk.
    pub chunk: ChunkId,
    /// The generation under which it was made.
    pub generation: Generation,
    /// The newest term of the stripe that the node knows of.
    pub epoch: Epoch,
    /// The node's committed mark.
    pub mark: Sequence,
    /// Its records above the node's committed mark: the node does not know the outcome of these updates.
    pub undecided: Vec<(Epoch, Sequence)>,
}

/// The outcome of a stripe's updates that a returning node could not decide.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Decided {
    /// The stripe.
    pub stripe: StripeId,
    /// The node refuses earlier terms from now on, and drops its records of them that are not in
    /// `stands`.
    pub epoch: Epoch,
    /// The node refuses earlier layouts from now on; so no reader can use chunks that it may not serve any
    /// more.
    pub generation: Generation,
    /// Records above the node's mark that stand, in order.
    pub stands: Vec<(Epoch, Sequence)>,
}

/// A node's join, from its first message to its lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JoinSession {
    /// The node.
    pub node: NodeId,
    /// No other session of the node has it.
    pub number: u64,
}

/// A moment in the coordinator's count of joins. Answers to joining nodes about a stripe since then may
/// have reached those nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct JoinCount {
    /// The coordinator's run: it has no record of joins before it.
    pub incarnation: u64,
    /// The number of sessions of this run that have begun, ended or been dropped.
    pub count: u64,
}

/// The begin of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JoinBegun {
    /// The session.
    pub session: JoinSession,
    /// The cluster.
    pub cluster: ClusterId,
    /// The coordinator, which the node remembers.
    pub coordinator: Origin,
}

/// The stripes of a page.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Scope {
    /// Those behind `after` and up to `upto`; from the first, or to the last, where there is none.
    Range {
        /// The last stripe of the pages before.
        after: Option<StripeId>,
        /// The last stripe of this page.
        upto: Option<StripeId>,
    },
    /// These, sorted.
    Stripes(Vec<StripeId>),
}

/// A node's chunks of some stripes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InventoryPage {
    /// The session.
    pub session: JoinSession,
    /// The stripes.
    pub scope: Scope,
    /// The chunks of these that the node holds, in the order of their ids.
    pub chunks: Vec<HeldChunk>,
}

/// The coordinator's answer to a page: the required changes only.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PageAnswer {
    /// The page is answered up to this stripe, and the node reports the stripes after it again; none when
    /// it is answered to its end.
    pub upto: Option<StripeId>,
    /// Chunks that are not the node's own any more: it sets them aside.
    pub obsolete: Vec<ChunkId>,
    /// Chunks of unknown stripes: the node asks before it sets them aside.
    pub unknown: Vec<ChunkId>,
    /// The outcome of updates that were decided while the node was away: it makes that durable.
    pub decided: Vec<Decided>,
}

/// A digest of all pages that were reported and answered, kept by both sides. If only one side counts a
/// page, or counts it twice, the digests differ: then the session is void.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct InventoryDigest {
    /// Chunks.
    pub chunk_count: u64,
    /// A hash of the reports, in order. Not secure against malice.
    pub sum: u64,
}

impl InventoryDigest {
    /// Adds the chunks of a page, in their order.
    pub fn add(&mut self, chunks: &[HeldChunk]) {
        for held in chunks {
            let words = [
                held.chunk.stripe.0,
                u64::from(held.chunk.index.0),
                held.generation.0,
                held.epoch.0,
                held.mark.0,
                held.undecided.len() as u64,
            ];
            let undecided = held.undecided.iter();
            let undecided = undecided.flat_map(|(epoch, sequence)| [epoch.0, sequence.0]);
            self.sum = words.into_iter().chain(undecided).fold(self.sum, mix);
        }
        self.chunk_count += chunks.len() as u64;
    }
}

/// One round of the finaliser of `SplitMix64`, over what came before and the next word.
fn mix(sum: u64, word: u64) -> u64 {
    let mut mixed = sum.rotate_left(5) ^ word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The node has reported all chunks, and asks for its lease.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JoinEnd {
    /// The session.
    pub session: JoinSession,
    /// The digest of all pages that the node has sent.
    pub digest: InventoryDigest,
    /// Its chunks of the stripes that have changed since they were reported, as listed in the coordinator's
    /// last answer.
    pub changed: InventoryPage,
}

/// The node is a member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Joined {
    /// Its id.
    pub node: NodeId,
    /// The lease's length from the sending of the request.
    pub lease_ms: u64,
    /// The heartbeat period.
    pub heartbeat_ms: u64,
    /// The orders to execute before the node serves.
    pub answer: PageAnswer,
    /// All nodes.
    pub nodes: Vec<NodeStatus>,
    /// The keys of tickets.
    pub keys: TicketKeys,
}
