//! Nodes that were silent recently. A doubt is no proof and expires.

use gabion_layout::NodeId;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Time for which a silent node is doubted, unless it answers before.
const DOUBTED_FOR: Duration = Duration::from_secs(5);

/// Nodes that were silent recently.
#[derive(Debug, Default)]
pub(crate) struct Doubts(Mutex<BTreeMap<NodeId, Instant>>);

impl Doubts {
    /// Notes that a node was silent, or that it has answered.
    pub(crate) fn note(&self, node: NodeId, is_silent: bool) {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if is_silent {
            since.insert(node, Instant::now());
        } else {
            since.remove(&node);
        }
    }

    /// Whether a node is doubted.
    pub(crate) fn holds(&self, node: NodeId) -> bool {
        let since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        since
            .get(&node)
            .is_some_and(|at| at.elapsed() < DOUBTED_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_doubt_ends_with_an_answer_or_with_time() {
        let (doubts, node) = (Doubts::default(), NodeId(3));
        doubts.note(node, true);
        assert!(doubts.holds(node) && !doubts.holds(NodeId(4)));
        doubts.note(node, false);
        assert!(!doubts.holds(node));
        doubts.note(node, true);
        tokio::time::advance(DOUBTED_FOR).await;
        assert!(!doubts.holds(node));
    }
}
