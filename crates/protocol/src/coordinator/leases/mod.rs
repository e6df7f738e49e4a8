//! Leases of stripes: who may decide about a stripe's updates, and what each term has made durable.
//!
//! A primary acquires a stripe's lease and notes under it what its successors must not forget
//! (`primaries`). The coordinator takes leases itself to repair, replace, convert or group a stripe (`own`);
//! `occupied` keeps two of its tasks from taking the same one.

pub(in crate::coordinator) mod occupied;
mod own;
mod primaries;

use super::core::Core;
use super::ground::Ground;
use super::members::nodes::Nodes;
use super::pool_facts::Pools;
use super::repair::backlog::Backlog;
use std::sync::Arc;

/// Grants leases and keeps the notes of their terms.
pub(in crate::coordinator) struct Leases<K> {
    core: Arc<Core<K>>,
    pools: Arc<Pools>,
    nodes: Arc<Nodes<K>>,
    backlog: Arc<Backlog<K>>,
}

impl<K> Leases<K> {
    pub(in crate::coordinator) fn new(ground: &Ground<K>) -> Self {
        Self {
            core: Arc::clone(&ground.core),
            pools: Arc::clone(&ground.pools),
            nodes: Arc::clone(&ground.nodes),
            backlog: Arc::clone(&ground.backlog),
        }
    }
}
