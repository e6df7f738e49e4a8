//! Members: which nodes there are, how they join, stay, are suspected, fail and leave.
//!
//! `nodes` is what is known of them at any time; other rooms ask it and nothing else here. What changes it is
//! in the order of a node's life: `joins` (with `sessions`, `inventory` and `positions`), `membership`,
//! `suspicion`, `departures`. `starts` tells a coordinator with old metadata by what nodes have heard.

mod departures;
pub(in crate::coordinator) mod fleet;
mod inventory;
mod joins;
mod membership;
pub(in crate::coordinator) mod nodes;
mod positions;
mod roster;
mod sessions;
mod space;
mod starts;
mod suspicion;
mod suspicions;

use super::core::Core;
use super::garbage::leftovers::Leftovers;
use super::ground::Ground;
use super::pool_facts::Pools;
use super::repair::backlog::Backlog;
use gabion_meta::{KeyValue, MetaError};
use nodes::Nodes;
use positions::Positions;
use starts::Starts;
use std::sync::Arc;

/// Lets nodes in, watches over them and lets them go.
pub(in crate::coordinator) struct Members<K> {
    core: Arc<Core<K>>,
    pools: Arc<Pools>,
    nodes: Arc<Nodes<K>>,
    backlog: Arc<Backlog<K>>,
    leftovers: Arc<Leftovers>,
    /// This start of the coordinator and earlier ones.
    starts: Starts,
    /// How far nodes' journals have come.
    positions: Arc<Positions<K>>,
}

impl<K: KeyValue + Send + Sync + 'static> Members<K> {
    /// Notes this start of the coordinator. Waits for the disk.
    ///
    /// # Errors
    /// When the metadata cannot be read or written.
    pub(in crate::coordinator) fn new(ground: &Ground<K>) -> Result<Self, MetaError> {
        Ok(Self {
            core: Arc::clone(&ground.core),
            pools: Arc::clone(&ground.pools),
            nodes: Arc::clone(&ground.nodes),
            backlog: Arc::clone(&ground.backlog),
            leftovers: Arc::clone(&ground.leftovers),
            starts: Starts::new(&ground.core.meta.note_start(ground.core.ports.random())?),
            positions: Arc::new(Positions::new(&ground.core, &ground.nodes)?),
        })
    }

    /// How far nodes' journals have come, which has a timer of its own.
    pub(in crate::coordinator) fn positions(&self) -> Arc<Positions<K>> {
        Arc::clone(&self.positions)
    }
}
