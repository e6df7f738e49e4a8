//! Nodes' journal positions, as the nodes themselves have reported them.
//!
//! Messages about durable changes carry the position up to which the node's journal is synced. A crash
//! never loses bytes before that position, and an old copy of the directory ends before it. So a process
//! that remembers the position can distinguish the two: the coordinator, from heartbeats, and other nodes,
//! in memory, from answers and marks. No decision is made here; the coordinator decides when the node
//! joins.

use crate::message::Progress;
use gabion_layout::NodeId;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The farthest known position of each node's newest run.
#[derive(Debug, Default)]
pub(crate) struct Heard(Mutex<BTreeMap<NodeId, Progress>>);

impl Heard {
    /// Notes a node's report.
    pub(crate) fn note(&self, node: NodeId, progress: Progress) {
        // The map is consistent after every step, even if a caller panics between two of them.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.entry(node).or_insert(progress);
        *known = progress.max(*known);
    }

    /// The farthest known position of a node.
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
            // A run that went back reports less, and reports of the last run do not apply to it.
            (word(3, 10), word(3, 10)),
            (word(2, 70), word(3, 10)),
        ] {
            heard.note(node, said);
            assert_eq!(heard.of(node), Some(known));
        }
        assert_eq!(heard.of(other), None);
    }
}
