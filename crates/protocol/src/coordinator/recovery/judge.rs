//! Whether a stripe's layout in an earlier copy of the metadata still holds, by what its nodes say.

use crate::message::{KnownStripe, StripeCounts};
use gabion_layout::{NodeId, StripeId, StripeRecord};
use std::collections::BTreeMap;

/// What a node has of the stripes about which it has answered; none of a stripe of which it has nothing.
pub(super) type Answered = BTreeMap<StripeId, Option<KnownStripe>>;

/// The answers of nodes.
pub(super) type Told = BTreeMap<NodeId, Answered>;

/// What is known of a stripe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// The layout holds, and enough chunks are at their places.
    Holds,
    /// A node knows a newer layout.
    Newer,
    /// Fewer chunks are at their places than the stripe has data chunks: it has left its file, or was moved.
    Missing,
    /// Too few nodes have answered.
    Unknown,
}

/// Judges a stripe with `k` data chunks.
///
/// A change of a layout reaches nodes of at least k chunks before it ends: they learn its generation, or remove their
/// chunks. So at most n-k nodes do not know of it, and n-k+1 that still have their chunks, and know no newer
/// generation, prove that there was none.
pub(super) fn judge(record: &StripeRecord, k: usize, told: &Told) -> Verdict {
    let (mut held_count, mut usable_count, mut lacking_count) = (0, 0, 0);
    for chunk in record.chunks() {
        let stripes = record.node_of(chunk).and_then(|node| told.get(&node));
        let Some(answer) = stripes.and_then(|stripes| stripes.get(&record.id)) else {
            continue;
        };
        match answer {
            Some(known) if known.generation > record.generation => return Verdict::Newer,
            Some(known) if known.chunks.contains(&chunk) => {
                held_count += 1;
                usable_count += usize::from(!record.is_stale(chunk));
            }
            _ => lacking_count += 1,
        }
    }
    let chunk_count = record.nodes.len();
    if held_count > chunk_count.saturating_sub(k) && usable_count >= k {
        Verdict::Holds
    } else if lacking_count > chunk_count.saturating_sub(k) {
        Verdict::Missing
    } else {
        Verdict::Unknown
    }
}

impl Verdict {
    /// The count of a stripe of which this is known.
    pub(super) fn counted(self) -> StripeCounts {
        let mut counts = StripeCounts::default();
        let count = match self {
            Self::Holds => &mut counts.held_count,
            Self::Newer => &mut counts.newer_count,
            Self::Missing => &mut counts.missing_count,
            Self::Unknown => &mut counts.unknown_count,
        };
        *count = 1;
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_layout::{ChunkIndex, Generation, PoolId, StaleChunk};

    const STRIPE: StripeId = StripeId(7);

    /// Six chunks on nodes 10 to 15, under a code with four data chunks.
    fn record() -> StripeRecord {
        StripeRecord {
            id: STRIPE,
            pool: PoolId(1),
            chunk_bytes: 4096,
            generation: Generation(3),
            nodes: (10..16).map(NodeId).collect(),
            stale: Vec::new(),
        }
    }

    /// The node of a chunk has it, and knows this generation.
    fn has(chunk: u8, generation: u64) -> (NodeId, Answered) {
        let known = KnownStripe {
            stripe: STRIPE,
            generation: Generation(generation),
            chunks: vec![ChunkIndex(chunk)],
        };
        let node = NodeId(10 + u32::from(chunk));
        (node, Answered::from([(STRIPE, Some(known))]))
    }

    /// The node of a chunk has nothing of the stripe.
    fn lacks(chunk: u8) -> (NodeId, Answered) {
        let node = NodeId(10 + u32::from(chunk));
        (node, Answered::from([(STRIPE, None)]))
    }

    #[track_caller]
    fn check(told: impl IntoIterator<Item = (NodeId, Answered)>, expected: Verdict) {
        let told: Told = told.into_iter().collect();
        assert_eq!(judge(&record(), 4, &told), expected, "{told:?}");
    }

    #[test]
    fn a_layout_holds_by_as_many_chunks_as_no_change_can_have_left() {
        check((0..6).map(|chunk| has(chunk, 3)), Verdict::Holds);
        check((2..6).map(|chunk| has(chunk, 3)), Verdict::Holds);
        // Three prove the layout, and are too few to decode.
        check((3..6).map(|chunk| has(chunk, 3)), Verdict::Unknown);
        check([], Verdict::Unknown);
        // Nodes that have answered about other stripes only prove nothing, nor that chunks are gone.
        let others = (0..6).map(|chunk| (NodeId(10 + chunk), Answered::new()));
        check(others, Verdict::Unknown);
        // With two data chunks, five of six nodes prove a layout, and four do not.
        let four: Told = (0..4).map(|chunk| has(chunk, 3)).collect();
        assert_eq!(judge(&record(), 2, &four), Verdict::Unknown);
        let five: Told = (0..5).map(|chunk| has(chunk, 3)).collect();
        assert_eq!(judge(&record(), 2, &five), Verdict::Holds);
    }

    #[test]
    fn one_node_that_knows_a_newer_layout_is_enough() {
        let others = (0..5).map(|chunk| has(chunk, 3));
        check(others.chain([has(5, 4)]), Verdict::Newer);
        // An earlier generation on a node proves nothing against the layout.
        let others = (0..5).map(|chunk| has(chunk, 3));
        check(others.chain([has(5, 2)]), Verdict::Holds);
    }

    #[test]
    fn a_stripe_whose_chunks_are_gone_is_missing() {
        let left = (0..3).map(lacks).chain((3..6).map(|chunk| has(chunk, 3)));
        check(left, Verdict::Missing);
        // Two chunks are lost, and the others are there.
        let left = (0..2).map(lacks).chain((2..6).map(|chunk| has(chunk, 3)));
        check(left, Verdict::Holds);
        // A chunk of another place is none of this layout.
        let (_, elsewhere) = has(0, 3);
        let misplaced = (10..13).map(|node| (NodeId(node + 1), elsewhere.clone()));
        check(misplaced, Verdict::Missing);
    }

    #[test]
    fn a_stale_chunk_proves_the_layout_and_is_not_read() {
        let mut record = record();
        record.stale = vec![StaleChunk {
            chunk: ChunkIndex(5),
            missed_after: None,
        }];
        let four: Told = (2..6).map(|chunk| has(chunk, 3)).collect();
        assert_eq!(judge(&record, 4, &four), Verdict::Unknown);
        let five: Told = (1..6).map(|chunk| has(chunk, 3)).collect();
        assert_eq!(judge(&record, 4, &five), Verdict::Holds);
    }
}
