//! The state that all rooms share: the metadata and ports, the pools and nodes, and the queues of repair
//! and garbage.

use super::core::Core;
use super::garbage::leftovers::Leftovers;
use super::leases::occupied::Occupied;
use super::members::nodes::Nodes;
use super::pool_facts::Pools;
use super::repair::backlog::Backlog;
use super::tickets::Tickets;
use gabion_meta::{KeyValue, MetaError};
use std::sync::Arc;

/// The state that all rooms share. Each room takes the parts that it needs.
pub(super) struct SharedState<K> {
    pub(super) core: Arc<Core<K>>,
    pub(super) pools: Arc<Pools>,
    pub(super) nodes: Arc<Nodes<K>>,
    /// Stripes that are to be repaired.
    pub(super) backlog: Arc<Backlog<K>>,
    /// Chunks that are to be removed.
    pub(super) leftovers: Arc<Leftovers>,
    /// Stripes that are being repaired, replaced, converted or grouped.
    pub(super) occupied: Occupied,
    pub(super) tickets: Arc<Tickets<K>>,
}

impl<K: KeyValue + Send + Sync + 'static> SharedState<K> {
    /// The state from the metadata at the start. Waits for the disk.
    ///
    /// # Errors
    /// When they cannot be read, or a first key of tickets cannot be written.
    pub(super) fn new(core: Core<K>) -> Result<Self, MetaError> {
        let core = Arc::new(core);
        let pools = Arc::new(Pools::default());
        let nodes = Arc::new(Nodes::new(&core)?);
        Ok(Self {
            backlog: Arc::new(Backlog::new(&core, &pools, &nodes)),
            leftovers: Arc::new(Leftovers::new(core.meta.all_former_holders()?)),
            occupied: Occupied::default(),
            tickets: Arc::new(Tickets::new(&core)?),
            core,
            pools,
            nodes,
        })
    }
}
