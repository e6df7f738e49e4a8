//! Placement planners: which node gets which chunk of a new stripe. All of them keep at most so
//! many chunks of a stripe in a rack as the pool's promise allows.

mod grouped;
mod random;
mod rotate;

pub use grouped::{Grouped, grouped};
pub use random::{random, replacement};
pub use rotate::rotate;

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
