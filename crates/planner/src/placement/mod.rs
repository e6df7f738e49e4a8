//! Placement planners: which node gets which chunk of a new stripe, or which nodes get the replicas of a
//! block that is encoded later. A stripe keeps at most as many chunks in a rack as the pool's promise
//! allows, and encoding-aware replication ensures this before the blocks are encoded.

mod changeover;
mod ear;
mod grouped;
mod matching;
mod rack_by_rack;
mod rack_table;
mod random;
mod replicated;
mod room;
mod rotate;
mod rr;

pub use changeover::{encoding, promotion};
pub use ear::{EncodingAware, ParityPlaces, PlacedBlock, StripeRules};
pub use grouped::{Grouped, grouped};
pub use rack_by_rack::rack_by_rack;
pub use rack_table::RackTable;
pub use random::{random, replacement, replacements};
pub use replicated::ReplicatedStripe;
pub use room::{Room, Space};
pub use rotate::rotate;
pub use rr::{RackLimit, ReplicaSpread, random_replication, random_replication_end};

use crate::PlanError;
use gabion_layout::{NodeId, RackId, Topology};
use std::collections::BTreeMap;

/// Takes nodes in the order given until the stripe is full, passing over racks that are.
fn take_in_order(
    topology: &Topology,
    order: impl Iterator<Item = NodeId>,
    chunks: usize,
    per_rack: usize,
) -> Result<Vec<NodeId>, PlanError> {
    let mut used: BTreeMap<Option<RackId>, usize> = BTreeMap::new();
    let mut placement = Vec::with_capacity(chunks);
    for node in order {
        if placement.len() == chunks {
            break;
        }
        let used = used.entry(topology.rack_of(node)).or_default();
        if *used < per_rack {
            *used += 1;
            placement.push(node);
        }
    }
    if placement.len() == chunks {
        Ok(placement)
    } else {
        Err(PlanError::NoRoom {
            chunks,
            per_rack,
            room: placement.len(),
        })
    }
}
