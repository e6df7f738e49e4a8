//! The lifecycle of segments: when and how they change their form, and on which nodes data that is updated
//! together is placed.
//!
//! `forms` is the rule by which a segment is encoded or replicated again. `timetable` schedules its checks,
//! `due` runs them, and `conversion` executes the due conversions. `grouping` moves chunks of encoded
//! stripes.

mod conversion;
mod due;
mod forms;
pub(in crate::coordinator) mod grouping;
pub(in crate::coordinator) mod timetable;

use super::core::{Core, lock};
use super::files::Files;
use super::garbage::leftovers::Leftovers;
use super::leases::Leases;
use super::leases::occupied::Occupied;
use super::members::nodes::Nodes;
use super::pool_facts::Pools;
use super::repair::Repair;
use super::repair::backlog::Backlog;
use super::shared_state::SharedState;
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
    /// Counts of conversions since the start.
    converted: Mutex<LifecycleStatus>,
}

impl<K> Lifecycles<K> {
    /// Nothing is converted yet.
    pub(in crate::coordinator) fn new(
        shared: &SharedState<K>,
        leases: &Arc<Leases<K>>,
        repair: &Arc<Repair<K>>,
        files: &Arc<Files<K>>,
        timetable: &Arc<Timetable>,
    ) -> Self {
        Self {
            core: Arc::clone(&shared.core),
            pools: Arc::clone(&shared.pools),
            nodes: Arc::clone(&shared.nodes),
            backlog: Arc::clone(&shared.backlog),
            leftovers: Arc::clone(&shared.leftovers),
            occupied: shared.occupied.clone(),
            leases: Arc::clone(leases),
            repair: Arc::clone(repair),
            files: Arc::clone(files),
            timetable: Arc::clone(timetable),
            converted: Mutex::default(),
        }
    }

    /// Counts of conversions since the start, and of those that wait.
    pub(in crate::coordinator) fn status(&self) -> LifecycleStatus {
        LifecycleStatus {
            waiting_count: self.timetable.times().waiting_count(),
            ..lock(&self.converted).clone()
        }
    }
}
