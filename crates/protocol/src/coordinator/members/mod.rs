//! Members: the nodes, and how they join, stay, are suspected, fail and leave.
//!
//! `nodes` is the present state; other rooms read only that. The files that change it, in the order of a
//! node's life: `joins` (with `sessions`, `inventory` and `positions`), `membership`, `suspicion`,
//! `departures`. `starts` detects a coordinator with old metadata from nodes' reports.

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
use super::pool_facts::Pools;
use super::repair::backlog::Backlog;
use super::shared_state::SharedState;
use super::tickets::Tickets;
use gabion_layout::NodeId;
use gabion_meta::{KeyValue, MetaError};
use nodes::Nodes;
use positions::Positions;
use starts::Starts;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// Admits nodes, monitors them and releases them.
pub(in crate::coordinator) struct Members<K> {
    core: Arc<Core<K>>,
    pools: Arc<Pools>,
    nodes: Arc<Nodes<K>>,
    backlog: Arc<Backlog<K>>,
    leftovers: Arc<Leftovers>,
    tickets: Arc<Tickets<K>>,
    /// This start of the coordinator and earlier ones.
    starts: Starts,
    /// Nodes' journal positions.
    positions: Arc<Positions<K>>,
    /// Draining nodes that do not answer now.
    silent_drains: Mutex<BTreeSet<NodeId>>,
}

impl<K: KeyValue + Send + Sync + 'static> Members<K> {
    /// Notes this start of the coordinator. Waits for the disk.
    ///
    /// # Errors
    /// When the metadata cannot be read or written.
    pub(in crate::coordinator) fn new(shared: &SharedState<K>) -> Result<Self, MetaError> {
        Ok(Self {
            core: Arc::clone(&shared.core),
            pools: Arc::clone(&shared.pools),
            nodes: Arc::clone(&shared.nodes),
            backlog: Arc::clone(&shared.backlog),
            leftovers: Arc::clone(&shared.leftovers),
            tickets: Arc::clone(&shared.tickets),
            starts: Starts::new(&shared.core.meta.note_start(shared.core.ports.random())?),
            positions: Arc::new(Positions::new(&shared.core, &shared.nodes)?),
            silent_drains: Mutex::default(),
        })
    }

    /// Nodes' journal positions, which have a timer of their own.
    pub(in crate::coordinator) fn positions(&self) -> Arc<Positions<K>> {
        Arc::clone(&self.positions)
    }
}
