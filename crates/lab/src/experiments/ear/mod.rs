//! Experiments of EAR (section V-B and V-C): throughput while replicas are encoded, on the model of
//! links, which is first validated on a testbed; balance of replicas and reads over racks; and,
//! beyond the paper's figures, its claims about draws, relocation and reliability.

mod balance;
mod bench;
mod choices;
mod gains;
mod layouts;
mod lives;
mod model;
mod sides;
mod validation;

pub(super) use balance::{C1, C2};
pub(super) use gains::{F13A, F13B, F13C, F13D, F13E, F13F};
pub(super) use layouts::EXPERIMENT as LAYOUTS;
pub(super) use lives::EXPERIMENT as LIVES;
pub(super) use validation::EXPERIMENT as B1;

pub use bench::{EncodeBench, EncodeTime, EncodeTrial, Encodings, PutTime, SegmentPlaces};

use gabion_layout::Topology;
use gabion_planner::placement::{ParityPlaces, RackTable, ReplicaSpread, StripeRules};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Racks, and nodes of each, of all settings.
const RACKS: u32 = 20;
const NODES_PER_RACK: u32 = 20;

fn racks() -> RackTable {
    RackTable::new(&Topology::uniform(RACKS, NODES_PER_RACK))
}

/// (14,10), 3 replicas, with a limit of chunks of a stripe in a rack.
const fn rules(per_rack: usize) -> StripeRules {
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

/// Runs `count` tasks on all processors; results are in the order of the tasks.
fn on_all_processors<T: Send>(count: usize, task: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, T)>> = Mutex::new(Vec::with_capacity(count));
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers.min(count) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count {
                        return;
                    }
                    let result = task(at);
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    results.push((at, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_unstable_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}
