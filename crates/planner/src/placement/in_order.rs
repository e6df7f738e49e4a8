//! Places a stripe on nodes in a given order, within the limit of chunks a rack.

use crate::PlanError;
use gabion_layout::{NodeId, RackId, Topology};
use std::collections::BTreeMap;

/// Takes nodes in the order given until the stripe is full, passing over racks that are.
pub(super) fn take_in_order(
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
