//! The shared parts of EAR's experiments: racks, rules of stripes, and the use of all processors.

use crate::experiment::Session;
use gabion_layout::Topology;
use gabion_planner::PlanError;
use gabion_planner::placement::{ParityPlaces, RackTable, ReplicaSpread, StripeRules};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Racks, and nodes of each, of all settings.
pub(super) const RACKS: u32 = 20;
pub(super) const NODES_PER_RACK: u32 = 20;

pub(super) fn racks() -> RackTable {
    RackTable::new(&Topology::uniform(RACKS, NODES_PER_RACK))
}

/// (14,10), 3 replicas, with a limit of chunks of a stripe in a rack.
pub(super) const fn rules(per_rack: usize) -> StripeRules {
    StripeRules {
        data_count: 10,
        parity_count: 4,
        replica_count: 3,
        replica_spread: ReplicaSpread::FreshRacks,
        per_rack,
        target_rack_count: None,
        parity_places: ParityPlaces::CoreFirst,
    }
}

/// Measures points `0..count` on all processors, and shows how far it is; results are in the order of the points.
pub(super) fn sweep_on_all_processors<T: Send>(
    session: &Session<'_>,
    what: &str,
    count: usize,
    measure: impl Fn(usize) -> Result<T, PlanError> + Sync,
) -> Result<Vec<T>, PlanError> {
    session.progress.begin(what, count as u64);
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(count));
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers.min(count) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count {
                        return;
                    }
                    let result = measure(at);
                    session.progress.step();
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    results.push((at, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_unstable_by_key(|&(at, _)| at);
    results.into_iter().map(|(_, result)| result).collect()
}
