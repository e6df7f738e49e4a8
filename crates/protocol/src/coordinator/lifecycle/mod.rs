//! The lifecycle of segments: when and how they change their form, and where data that is updated together
//! lies.
//!
//! `forms` is the rule by which a segment is encoded or replicated again, `timetable` when it has to be
//! asked, `due` asks it, and `conversion` carries out what is due. `grouping` moves chunks of encoded stripes.

mod conversion;
mod due;
mod forms;
pub(in crate::coordinator) mod grouping;
pub(in crate::coordinator) mod timetable;

use super::core::{Core, lock};
use super::files::Files;
use super::garbage::leftovers::Leftovers;
use super::ground::Ground;
use super::leases::Leases;
use super::leases::occupied::Occupied;
use super::members::nodes::Nodes;
use super::pool_facts::Pools;
use super::repair::Repair;
use super::repair::backlog::Backlog;
use crate::message::LifecycleStatus;
use std::sync::{Arc, Mutex};
use timetable::Timetable;

/// Encodes segments, and replicates them again.
pub(in crate::coordinator) struct Lifecycles<K> {
    core: Arc<Core<K>>,
    pools: Arc<Pools>,
    nodes: Arc<Nodes<K>>,
    backlog: Arc<Backlog<K>>,
    leftovers: Arc<Leftovers>,
    occupied: Occupied,
    leases: Arc<Leases<K>>,
    repair: Arc<Repair<K>>,
    files: Arc<Files<K>>,
    timetable: Arc<Timetable>,
    /// What has become of segments since the start.
    converted: Mutex<LifecycleStatus>,
}

impl<K> Lifecycles<K> {
    /// Nothing is converted yet.
    pub(in crate::coordinator) fn new(
        ground: &Ground<K>,
        leases: &Arc<Leases<K>>,
        repair: &Arc<Repair<K>>,
        files: &Arc<Files<K>>,
        timetable: &Arc<Timetable>,
    ) -> Self {
        Self {
            core: Arc::clone(&ground.core),
            pools: Arc::clone(&ground.pools),
            nodes: Arc::clone(&ground.nodes),
            backlog: Arc::clone(&ground.backlog),
            leftovers: Arc::clone(&ground.leftovers),
            occupied: ground.occupied.clone(),
            leases: Arc::clone(leases),
            repair: Arc::clone(repair),
            files: Arc::clone(files),
            timetable: Arc::clone(timetable),
            converted: Mutex::default(),
        }
    }

    /// What has become of segments since the start, and how many wait.
    pub(in crate::coordinator) fn status(&self) -> LifecycleStatus {
        LifecycleStatus {
            waiting_count: self.timetable.times().waiting_count(),
            ..lock(&self.converted).clone()
        }
    }
}
