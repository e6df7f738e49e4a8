//! The shared parts of EAR's experiments: racks and rules of stripes.

use gabion_layout::Topology;
use gabion_planner::placement::{ParityPlaces, RackTable, ReplicaSpread, StripeRules};

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
