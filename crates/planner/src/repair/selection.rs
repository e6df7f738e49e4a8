//! Greedy selection of the least recently selected helpers. It spreads the repairs of a
//! full-node recovery over the nodes that are left, without knowing what comes. `ECPipe` section
//! 3.3. [`super::recovery`] knows all stripes and balances them better.

use crate::Stripe;
use gabion_layout::{ChunkIndex, NodeId};
use std::collections::BTreeMap;

/// When each node was last selected, as a number that grows with each selection.
#[derive(Clone, Debug, Default)]
pub struct LeastRecentlySelected {
    last: BTreeMap<NodeId, u64>,
    selection_count: u64,
}

impl LeastRecentlySelected {
    /// The chunks of a stripe that can be read, on nodes that were selected the longest ago first;
    /// nodes that were never selected come before all others, in the chunks' order.
    #[must_use]
    pub fn order(&self, stripe: &Stripe<'_>) -> Vec<ChunkIndex> {
        let mut chunks: Vec<ChunkIndex> = stripe.available().collect();
        chunks.sort_by_key(|&chunk| (self.last.get(&stripe.node_of(chunk)), chunk));
        chunks
    }

    /// Notes that these helpers have been selected together.
    pub fn select(&mut self, stripe: &Stripe<'_>, helpers: &[ChunkIndex]) {
        self.selection_count += 1;
        for &helper in helpers {
            self.last
                .insert(stripe.node_of(helper), self.selection_count);
        }
    }
}
