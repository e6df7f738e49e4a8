//! Nodes that a process found silent lately: it detects their next silence sooner, and reports them to the coordinator.
//! A doubt is no proof and expires.

use crate::locks::lock;
use gabion_layout::NodeId;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Time for which a silent node is doubted, unless it answers before.
const DOUBTED_FOR_MS: u64 = 5_000;
/// Shortest time between two reports of a node to the coordinator.
const REPORT_EVERY_MS: u64 = 1_000;

/// The nodes that one process found silent lately. Times are of that process's clock, in milliseconds.
#[derive(Debug, Default)]
pub struct Doubts(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    silent_since_ms: BTreeMap<NodeId, u64>,
    reported_ms: BTreeMap<NodeId, u64>,
}

impl Doubts {
    /// Notes that a node was silent, or that it has answered.
    pub fn note(&self, node: NodeId, is_silent: bool, now_ms: u64) {
        let mut state = lock(&self.0);
        if is_silent {
            state.silent_since_ms.insert(node, now_ms);
        } else {
            state.silent_since_ms.remove(&node);
        }
    }

    /// Whether a node is doubted.
    pub fn holds(&self, node: NodeId, now_ms: u64) -> bool {
        let since_ms = lock(&self.0).silent_since_ms.get(&node).copied();
        since_ms.is_some_and(|since_ms| now_ms < since_ms.saturating_add(DOUBTED_FOR_MS))
    }

    /// Begins a report of a node to the coordinator, which the caller sends; false when one began in the last second.
    pub fn begin_report(&self, node: NodeId, now_ms: u64) -> bool {
        let mut state = lock(&self.0);
        let is_recent = |&mut told_ms: &mut u64| now_ms < told_ms.saturating_add(REPORT_EVERY_MS);
        state.reported_ms.retain(|_, told_ms| is_recent(told_ms));
        let is_due = !state.reported_ms.contains_key(&node);
        if is_due {
            state.reported_ms.insert(node, now_ms);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(3);

    #[test]
    fn a_doubt_ends_with_an_answer_or_with_time() {
        let doubts = Doubts::default();
        doubts.note(NODE, true, 0);
        assert!(doubts.holds(NODE, 10) && !doubts.holds(NodeId(4), 10));
        doubts.note(NODE, false, 20);
        assert!(!doubts.holds(NODE, 20));
        doubts.note(NODE, true, 30);
        assert!(doubts.holds(NODE, 30 + DOUBTED_FOR_MS - 1));
        assert!(!doubts.holds(NODE, 30 + DOUBTED_FOR_MS));
    }

    #[test]
    fn each_node_is_reported_at_most_once_a_second() {
        let doubts = Doubts::default();
        assert!(doubts.begin_report(NODE, 0) && doubts.begin_report(NodeId(4), 5));
        assert!(!doubts.begin_report(NODE, REPORT_EVERY_MS - 1));
        assert!(doubts.begin_report(NODE, REPORT_EVERY_MS));
        assert!(!doubts.begin_report(NODE, REPORT_EVERY_MS + 1));
    }
}
