//! The notes of settlements that left nodes out, and the verdict on a returning node's chunk by them.
//! `exclusions.rs` has the rules of the notes.

use gabion_layout::{ChunkId, ChunkIndex, Epoch, NodeId, Sequence};
use serde::{Deserialize, Serialize};

/// Most exclusions kept for one stripe. A node that is away for longer is taken to have missed an
/// update.
pub(crate) const KEPT_COUNT_MAX: usize = 32;

/// A settlement that left nodes out, and its outcome for updates of earlier terms.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Exclusion {
    /// The term of the settlement.
    pub epoch: Epoch,
    /// The nodes that were not asked.
    pub nodes: Vec<NodeId>,
    /// The highest mark that one of the asked nodes knew: updates up to here that were not dropped
    /// stood already.
    pub known: Sequence,
    /// The updates above it that stand and in which one of the nodes takes part, in order.
    pub stood: Vec<StoodUpdate>,
}

/// An update that stands by the recovery rule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoodUpdate {
    /// The term of its primary.
    pub epoch: Epoch,
    /// Its number.
    pub sequence: Sequence,
    /// The chunks whose nodes have a record of it.
    pub participants: Vec<ChunkIndex>,
}

/// The exclusions of one stripe by term. Invariant: at most [`KEPT_COUNT_MAX`] of them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Exclusions {
    /// Exclusions up to this term may have been forgotten.
    pub(crate) forgotten: Epoch,
    pub(crate) kept: Vec<Exclusion>,
}

/// A returning node's report of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held<'a> {
    /// The node.
    pub node: NodeId,
    /// The chunk.
    pub chunk: ChunkId,
    /// The newest term of the stripe that the node knows.
    pub epoch: Epoch,
    /// The node knows the outcome of all updates up to here, and has the records of those that
    /// stand.
    pub mark: Sequence,
    /// The updates above the mark of which it has a record, by term and number.
    pub undecided: &'a [(Epoch, Sequence)],
}

/// The state of a returning node's chunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// The newest settlement that left the node out since the chunk was last settled, if any.
    /// Undecided records of earlier terms that do not stand were dropped.
    pub excluded_by: Option<Epoch>,
    /// Undecided records that stand.
    pub stands: Vec<(Epoch, Sequence)>,
    /// Undecided records that no settlement without the node has decided.
    pub open: Vec<(Epoch, Sequence)>,
    /// Set if the chunk has missed an update that stands: it has all up to this one.
    pub missed_after: Option<Sequence>,
    /// The last term of the stripe.
    pub last_epoch: Epoch,
}

impl Held<'_> {
    /// The newest term up to which the node is known to have all decisions.
    fn since(&self) -> Epoch {
        let oldest = self.undecided.iter().map(|&(epoch, _)| epoch).min();
        oldest.map_or(self.epoch, |oldest| oldest.min(self.epoch))
    }

    /// Judges the chunk by these notes, all those since the node was away, in the order of their
    /// terms. A record stands only if it stands on all valid chunks that took part; a chunk that
    /// lacks one has missed it.
    pub fn judge(&self, notes: &[Exclusion]) -> Verdict {
        let (held, since) = (self, self.since());
        let is_without = |e: &&Exclusion| e.epoch > since && e.nodes.contains(&held.node);
        let without: Vec<&Exclusion> = notes.iter().filter(is_without).collect();
        let mut verdict = Verdict {
            excluded_by: without.iter().map(|e| e.epoch).max(),
            stands: Vec::new(),
            open: Vec::new(),
            missed_after: None,
            last_epoch: Epoch(0),
        };
        let stood = || without.iter().flat_map(|e| &e.stood);
        for &(epoch, sequence) in held.undecided {
            let is_it = |update: &StoodUpdate| (update.epoch, update.sequence) == (epoch, sequence);
            // The first settlement without the node has decided. Updates that it knew as settled
            // were settled before the node was away, in the record's own term.
            let first = without.iter().find(|e| e.epoch > epoch);
            if stood().any(is_it) || first.is_some_and(|e| sequence <= e.known) {
                verdict.stands.push((epoch, sequence));
            } else if first.is_none() {
                verdict.open.push((epoch, sequence));
            }
        }
        let is_missed = |update: &&StoodUpdate| {
            let stamp = (update.epoch, update.sequence);
            let is_here = update.sequence <= held.mark || held.undecided.contains(&stamp);
            update.participants.contains(&held.chunk.index) && !is_here
        };
        let first_missed = stood()
            .filter(is_missed)
            .map(|update| update.sequence)
            .min();
        if let Some(first) = first_missed {
            let before = Sequence(first.0 - 1);
            verdict.stands.retain(|&(_, sequence)| sequence <= before);
            verdict.missed_after = Some(before);
        }
        verdict
    }
}

impl Exclusions {
    /// If notes that may have concerned the node are forgotten, nothing behind its own mark can be
    /// trusted.
    pub(crate) fn judge(&self, held: &Held<'_>) -> Verdict {
        let verdict = held.judge(&self.kept);
        if held.since() >= self.forgotten {
            return verdict;
        }
        Verdict {
            excluded_by: verdict.excluded_by.max(Some(self.forgotten)),
            stands: Vec::new(),
            open: Vec::new(),
            missed_after: Some(held.mark),
            last_epoch: verdict.last_epoch,
        }
    }
}
