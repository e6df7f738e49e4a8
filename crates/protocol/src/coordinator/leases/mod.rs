//! Leases of stripes: which node decides about a stripe's updates, and the durable notes of each term.
//!
//! A primary acquires a stripe's lease and notes under it the facts that its successors need (`primaries`).
//! The coordinator takes leases itself to repair, replace, convert or group a stripe (`own`); `occupied`
//! keeps two of its tasks from taking the same one.

pub(in crate::coordinator) mod occupied;
mod own;
mod primaries;

use super::core::Core;
use super::members::nodes::Nodes;
use super::pool_facts::Pools;
use super::repair::backlog::Backlog;
use super::shared_state::SharedState;
use std::sync::Arc;

/// Grants leases and keeps the notes of their terms.
pub(in crate::coordinator) struct Leases<K> {
    core: Arc<Core<K>>,
    pools: Arc<Pools>,
    nodes: Arc<Nodes<K>>,
    backlog: Arc<Backlog<K>>,
}

impl<K> Leases<K> {
    pub(in crate::coordinator) fn new(shared: &SharedState<K>) -> Self {
        Self {
            core: Arc::clone(&shared.core),
            pools: Arc::clone(&shared.pools),
            nodes: Arc::clone(&shared.nodes),
            backlog: Arc::clone(&shared.backlog),
        }
    }
}
