//! Files: pools, puts, replacements, and where new stripes are placed.
//!
//! `pools` makes pools and has them commit. `puts` brings files in, looks them up and deletes them; `replace`
//! is the coordinator's half of a write that spans stripes. Both place new stripes by `places`, and by
//! `blocks` where they are replicated first.

mod blocks;
mod live_puts;
mod places;
mod pools;
mod puts;
pub(in crate::coordinator) mod rejection;
mod replace;

use super::core::Core;
use super::garbage::Garbage;
use super::garbage::leftovers::Leftovers;
use super::ground::Ground;
use super::leases::Leases;
use super::leases::occupied::Occupied;
use super::lifecycle::timetable::Timetable;
use super::members::nodes::Nodes;
use super::pool_facts::Pools;
use super::repair::Repair;
use super::repair::backlog::Backlog;
use gabion_meta::{KeyValue, MetaError, PutId};
use live_puts::LivePut;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Brings files in and gives their stripes places.
pub(in crate::coordinator) struct Files<K> {
    core: Arc<Core<K>>,
    pools: Arc<Pools>,
    nodes: Arc<Nodes<K>>,
    backlog: Arc<Backlog<K>>,
    leftovers: Arc<Leftovers>,
    occupied: Occupied,
    leases: Arc<Leases<K>>,
    garbage: Arc<Garbage<K>>,
    repair: Arc<Repair<K>>,
    timetable: Arc<Timetable>,
    /// When the client of each put was last heard of, and what it is to replace.
    puts: Mutex<BTreeMap<PutId, LivePut>>,
}

impl<K: KeyValue + Send + Sync + 'static> Files<K> {
    /// Puts of an earlier run go on. Waits for the disk.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(in crate::coordinator) fn new(
        ground: &Ground<K>,
        leases: &Arc<Leases<K>>,
        garbage: &Arc<Garbage<K>>,
        repair: &Arc<Repair<K>>,
        timetable: &Arc<Timetable>,
    ) -> Result<Self, MetaError> {
        // An earlier run's clock says nothing about this one's: all clients get a full time-out.
        let heard_ms = ground.core.ports.now_ms();
        let live = || LivePut {
            heard_ms,
            occupation: None,
        };
        let puts = ground.core.meta.puts()?.into_iter();
        Ok(Self {
            core: Arc::clone(&ground.core),
            pools: Arc::clone(&ground.pools),
            nodes: Arc::clone(&ground.nodes),
            backlog: Arc::clone(&ground.backlog),
            leftovers: Arc::clone(&ground.leftovers),
            occupied: ground.occupied.clone(),
            leases: Arc::clone(leases),
            garbage: Arc::clone(garbage),
            repair: Arc::clone(repair),
            timetable: Arc::clone(timetable),
            puts: Mutex::new(puts.map(|put| (put.id, live())).collect()),
        })
    }
}
