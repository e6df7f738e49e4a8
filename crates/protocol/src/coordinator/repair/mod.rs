//! Repair: how the chunks of a failed node are rebuilt, and those of a leaving one are moved. The steps:
//!
//! 1. `backlog`: a room that finds a lost chunk queues its stripe, the most endangered first.
//! 2. `schedule`: the next stripes get helpers and requestors that keep the network evenly busy.
//! 3. `throttle`: a repair begins when the limits and the foreground allow it.
//! 4. `survey`: what the stripe is now, and whether its repair can succeed.
//! 5. `rounds`: the stripe's lease is taken, chunks are counted or chosen, and the lease is given back.
//! 6. `settle` decides the updates under way; `pins` keep the settled mark readable.
//! 7. `rebuild`: which node gets a lost chunk, from which others, by which plan.
//! 8. `resume`: the plan runs, and goes on with other helpers after one has failed.
//! 9. `catch_up`: the chunk gets what has changed since, and so does one that only missed updates.
//! 10. `count`: the chunk counts on its new node.
//!
//! `attempt` has the state of one stripe's repair between these steps. `damage` marks chunks that nodes
//! have found corrupt. `hasten` repairs a stripe at once that an update waits for.

pub(in crate::coordinator) mod attempt;
pub(in crate::coordinator) mod backlog;
mod catch_up;
mod count;
mod damage;
mod hasten;
mod moves;
pub(in crate::coordinator) mod pins;
mod rebuild;
mod resume;
mod rounds;
mod schedule;
mod settle;
pub(in crate::coordinator) mod survey;
pub(in crate::coordinator) mod throttle;

use super::core::{Core, lock};
use super::garbage::Garbage;
use super::garbage::leftovers::Leftovers;
use super::leases::Leases;
use super::leases::occupied::Occupied;
use super::members::nodes::Nodes;
use super::pool_facts::Pools;
use super::shared_state::SharedState;
use crate::message::{Damage, Denial, Meter, Purpose, RepairStatus};
use backlog::Backlog;
use gabion_layout::{ChunkId, NodeId, Topology};
use gabion_meta::{KeyValue, Meta, MetaError};
use gabion_plan::Plan;
use gabion_planner::repair::Scheme;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use throttle::Throttle;

/// Rebuilds and moves chunks.
pub(in crate::coordinator) struct Repair<K> {
    core: Arc<Core<K>>,
    pools: Arc<Pools>,
    nodes: Arc<Nodes<K>>,
    backlog: Arc<Backlog<K>>,
    leftovers: Arc<Leftovers>,
    occupied: Occupied,
    leases: Arc<Leases<K>>,
    garbage: Arc<Garbage<K>>,
    throttle: Arc<Throttle<K>>,
    /// The repair scheme.
    scheme: Mutex<Scheme>,
    /// Counts since the start; the remaining fields are computed for each request.
    counts: Mutex<RepairStatus>,
    /// Chunks that nodes have found damaged since the start.
    damaged: Mutex<BTreeMap<NodeId, u64>>,
    /// Damage that nodes have reported and could not confirm. A node that is listed is asked again.
    doubtful: Mutex<BTreeMap<NodeId, BTreeMap<ChunkId, Damage>>>,
    /// Bytes of commits and exchanges that the coordinator has run to their end.
    planned: Mutex<Meter>,
}

impl<K: KeyValue + Send + Sync + 'static> Repair<K> {
    /// Users' settings for repairs apply from the start. Waits for the disk.
    ///
    /// # Errors
    /// When that cannot be read.
    pub(in crate::coordinator) fn new(
        shared: &SharedState<K>,
        leases: &Arc<Leases<K>>,
        garbage: &Arc<Garbage<K>>,
    ) -> Result<Self, MetaError> {
        let settings = shared.core.meta.repair_settings()?;
        // A scheme of another release is unknown here; the user chooses again.
        let scheme = settings
            .scheme
            .as_deref()
            .and_then(|name| name.parse().ok());
        let scheme = scheme.unwrap_or(shared.core.options.repair_scheme);
        Ok(Self {
            core: Arc::clone(&shared.core),
            pools: Arc::clone(&shared.pools),
            nodes: Arc::clone(&shared.nodes),
            backlog: Arc::clone(&shared.backlog),
            leftovers: Arc::clone(&shared.leftovers),
            occupied: shared.occupied.clone(),
            leases: Arc::clone(leases),
            garbage: Arc::clone(garbage),
            throttle: Arc::new(Throttle::new(&shared.core, &shared.backlog, settings)),
            scheme: Mutex::new(scheme),
            counts: Mutex::default(),
            damaged: Mutex::default(),
            doubtful: Mutex::default(),
            planned: Mutex::default(),
        })
    }

    /// The limits, which have a timer of their own.
    pub(in crate::coordinator) fn throttle(&self) -> &Arc<Throttle<K>> {
        &self.throttle
    }

    /// Changes the repair scheme, durably.
    pub(in crate::coordinator) async fn change_scheme(&self, name: String) -> Result<(), Denial> {
        let scheme: Scheme = name.parse()?;
        let change = move |meta: &Meta<K>| {
            meta.change_repair_settings(|settings| settings.scheme = Some(name.clone()))
        };
        self.core.with_meta(change).await?;
        *lock(&self.scheme) = scheme;
        Ok(())
    }

    /// Counts of repairs since the start.
    pub(in crate::coordinator) fn counts(&self) -> RepairStatus {
        RepairStatus {
            scheme: lock(&self.scheme).name().to_owned(),
            ..lock(&self.counts).clone()
        }
    }

    /// Chunks that nodes have found damaged since the start.
    pub(in crate::coordinator) fn damaged_chunk_counts(&self) -> BTreeMap<NodeId, u64> {
        lock(&self.damaged).clone()
    }

    /// Bytes of commits and exchanges.
    pub(in crate::coordinator) fn planned(&self) -> Meter {
        lock(&self.planned).clone()
    }

    /// Counts the bytes of a plan that has run to its end.
    pub(in crate::coordinator) fn count_plan(
        &self,
        plan: &Plan,
        topology: &Topology,
        purpose: Purpose,
    ) {
        lock(&self.planned).count_plan(plan, topology, purpose);
    }
}
