//! How far nodes' journals have come, as the nodes themselves have said.
//!
//! A node says with what it makes durable for others up to which position its journal is synced. A crash
//! never takes it back behind that, and an old copy of its directory lies behind it. So whoever remembers
//! can tell the two apart: the coordinator, from heartbeats, and other nodes, in memory, from answers
//! and marks. Nothing here decides anything; the coordinator does, when the node joins.

use crate::message::Progress;
use gabion_layout::NodeId;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The farthest that each node's newest run is known to have come.
#[derive(Debug, Default)]
pub(crate) struct Heard(Mutex<BTreeMap<NodeId, Progress>>);

impl Heard {
    /// Takes a node's word.
    pub(crate) fn note(&self, node: NodeId, progress: Progress) {
        // The map is whole after every step, whoever panics between two of them.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.entry(node).or_insert(progress);
        *known = progress.max(*known);
    }

    /// The farthest that a node is known to have come.
    pub(crate) fn of(&self, node: NodeId) -> Option<Progress> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&node).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_farthest_word_of_the_newest_run_counts() {
        let heard = Heard::default();
        let word = |incarnation, position| Progress {
            incarnation,
            position,
        };
        let (node, other) = (NodeId(3), NodeId(4));
        for (said, known) in [
            (word(2, 50), word(2, 50)),
            (word(2, 40), word(2, 50)),
            (word(2, 60), word(2, 60)),
            // A run that went back says less, and what was heard of the last one is over.
            (word(3, 10), word(3, 10)),
            (word(2, 70), word(3, 10)),
        ] {
            heard.note(node, said);
            assert_eq!(heard.of(node), Some(known));
        }
        assert_eq!(heard.of(other), None);
    }
}
