//! The usable chunks of a stripe, as far as the client knows: pure functions of the layout.

use gabion_layout::{ChunkIndex, NodeId, StripeId, StripeRecord};
use gabion_protocol::message::{Liveness, NodeStatus};
use std::collections::{BTreeMap, BTreeSet};

/// Chunks that are lost until they are repaired: stale ones, and those on nodes that have been
/// declared failed.
pub(crate) fn lost_for_good(stripe: &StripeRecord, nodes: &[NodeStatus]) -> Vec<ChunkIndex> {
    let is_lost = |&chunk: &ChunkIndex| {
        stripe.is_stale(chunk)
            || matches!(
                liveness_of(stripe, nodes, chunk),
                Some(Liveness::Failed) | None
            )
    };
    stripe.chunks().filter(is_lost).collect()
}

/// Chunks that a read should avoid: lost ones, those on nodes with an expired lease, and those that
/// have failed it already.
pub(crate) fn lost_for_now(
    stripe: &StripeRecord,
    nodes: &[NodeStatus],
    avoided: &BTreeSet<ChunkIndex>,
) -> Vec<ChunkIndex> {
    let is_lost = |&chunk: &ChunkIndex| {
        stripe.is_stale(chunk)
            || avoided.contains(&chunk)
            || liveness_of(stripe, nodes, chunk) != Some(Liveness::Up)
    };
    stripe.chunks().filter(is_lost).collect()
}

fn liveness_of(stripe: &StripeRecord, nodes: &[NodeStatus], chunk: ChunkIndex) -> Option<Liveness> {
    let holder = stripe.node_of(chunk)?;
    nodes
        .iter()
        .find(|status| status.node == holder)
        .map(|status| status.liveness)
}

/// The guessed primaries of an open file's stripes, for a limited number of them.
#[derive(Debug, Default)]
pub(crate) struct PrimaryGuesses(BTreeMap<StripeId, PrimaryGuess>);

impl PrimaryGuesses {
    /// Most stripes. At the limit all guesses are forgotten, and each stripe may cost a redirection or a time-out
    /// again.
    const COUNT_MAX: usize = 65_536;

    /// The guess of a stripe's primary.
    pub(crate) fn of(&mut self, stripe: StripeId) -> &mut PrimaryGuess {
        if self.0.len() >= Self::COUNT_MAX && !self.0.contains_key(&stripe) {
            self.0.clear();
        }
        self.0.entry(stripe).or_default()
    }
}

/// A guess of a stripe's primary, with the results of earlier requests.
#[derive(Debug, Default)]
pub(crate) struct PrimaryGuess {
    /// The node that another node named.
    named: Option<NodeId>,
    /// Nodes that did not answer recently.
    silent: Vec<NodeId>,
}

impl PrimaryGuess {
    /// The node to ask next: the named one; else the holder of the first chunk whose node is up and
    /// has not been silent. Any node will do, since it becomes the primary or knows it.
    pub(crate) fn next(&mut self, stripe: &StripeRecord, nodes: &[NodeStatus]) -> Option<NodeId> {
        if self.named.is_some() {
            return self.named;
        }
        let up: Vec<NodeId> = stripe
            .chunks()
            .filter(|&chunk| liveness_of(stripe, nodes, chunk) == Some(Liveness::Up))
            .filter_map(|chunk| stripe.node_of(chunk))
            .collect();
        if up.iter().all(|node| self.silent.contains(node)) {
            self.silent.clear();
        }
        up.into_iter().find(|node| !self.silent.contains(node))
    }

    /// Notes that `node` is the primary, by its own or another node's reply.
    pub(crate) fn name(&mut self, node: NodeId) {
        self.named = Some(node);
    }

    /// Notes that `node` did not answer, or cannot serve.
    pub(crate) fn pass_over(&mut self, node: NodeId) {
        self.named = None;
        self.silent.push(node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_layout::{Generation, PoolId, RackId, StaleChunk, StripeId};

    fn gone(chunk: u8) -> StaleChunk {
        StaleChunk {
            chunk: ChunkIndex(chunk),
            missed_after: None,
        }
    }

    /// Chunk `j` on node `10 + j`.
    fn setting(liveness: &[Liveness], stale: &[u8]) -> (StripeRecord, Vec<NodeStatus>) {
        let node = |at: usize| NodeId(10 + at as u32);
        let stripe = StripeRecord {
            id: StripeId(1),
            pool: PoolId(1),
            chunk_bytes: 4096,
            generation: Generation(1),
            nodes: (0..liveness.len()).map(node).collect(),
            stale: stale.iter().map(|&chunk| gone(chunk)).collect(),
        };
        let status = |(at, &liveness)| NodeStatus {
            node: node(at),
            rack: RackId(at as u32),
            address: format!("127.0.0.1:{at}"),
            liveness,
            departure: gabion_meta::Departure::None,
        };
        (stripe, liveness.iter().enumerate().map(status).collect())
    }

    fn numbers(chunks: &[ChunkIndex]) -> Vec<u8> {
        chunks.iter().map(|chunk| chunk.0).collect()
    }

    #[test]
    fn suspects_are_lost_for_now_but_not_for_good() {
        use Liveness::{Failed, Suspect, Up};
        let (stripe, mut nodes) = setting(&[Up, Suspect, Failed, Up, Up, Up], &[3]);
        let avoided = BTreeSet::from([ChunkIndex(4)]);
        assert_eq!(
            numbers(&lost_for_now(&stripe, &nodes, &avoided)),
            [1, 2, 3, 4]
        );
        assert_eq!(numbers(&lost_for_good(&stripe, &nodes)), [2, 3]);
        // A node that the coordinator does not list cannot be read from.
        nodes.pop();
        assert_eq!(
            numbers(&lost_for_now(&stripe, &nodes, &BTreeSet::new())),
            [1, 2, 3, 5]
        );
        assert_eq!(numbers(&lost_for_good(&stripe, &nodes)), [2, 3, 5]);
    }

    #[test]
    fn primaries_are_remembered_of_a_limited_number_of_stripes() {
        let mut guesses = PrimaryGuesses::default();
        let count = PrimaryGuesses::COUNT_MAX as u64;
        for stripe in 0..count {
            guesses.of(StripeId(stripe)).name(NodeId(7));
        }
        assert_eq!(guesses.of(StripeId(0)).named, Some(NodeId(7)));
        assert_eq!(guesses.of(StripeId(count)).named, None);
        assert_eq!(guesses.0.len(), 1);
    }

    #[test]
    fn the_primary_is_the_named_node_or_the_first_that_is_not_silent() {
        use Liveness::{Suspect, Up};
        let (stripe, nodes) = setting(&[Suspect, Up, Up, Up], &[]);
        let mut guess = PrimaryGuess::default();
        assert_eq!(guess.next(&stripe, &nodes), Some(NodeId(11)));
        guess.name(NodeId(13));
        assert_eq!(guess.next(&stripe, &nodes), Some(NodeId(13)));
        guess.pass_over(NodeId(13));
        assert_eq!(guess.next(&stripe, &nodes), Some(NodeId(11)));
        guess.pass_over(NodeId(11));
        assert_eq!(guess.next(&stripe, &nodes), Some(NodeId(12)));
        // When all have been silent, they are asked again.
        guess.pass_over(NodeId(12));
        assert_eq!(guess.next(&stripe, &nodes), Some(NodeId(11)));
        let (_, down) = setting(&[Suspect; 4], &[]);
        assert_eq!(guess.next(&stripe, &down), None);
    }
}
