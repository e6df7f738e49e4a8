//! A node's counts of the bytes that it sends, so that a cluster's traffic can be compared with its plans.

use super::purpose::Purpose;
use gabion_layout::{RackId, Topology};
use gabion_plan::{Cost, Plan};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Payload bytes that a node sent, by receiver's rack and purpose. The client has no rack.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Meter {
    /// `(sender's rack, receiver's rack, purpose) -> payload bytes`.
    pub bytes: BTreeMap<(Option<RackId>, Option<RackId>, Purpose), u64>,
}

impl Meter {
    /// Counts bytes.
    pub fn count(
        &mut self,
        from: Option<RackId>,
        to: Option<RackId>,
        purpose: Purpose,
        bytes: u64,
    ) {
        *self.bytes.entry((from, to, purpose)).or_default() += bytes;
    }

    /// Counts the planned bytes of nodes, in the same way as the bytes that they send.
    pub fn count_plan(&mut self, plan: &Plan, topology: &Topology, purpose: Purpose) {
        for ((from, to), bytes) in Cost::of(plan, topology).by_racks(topology) {
            self.count(from, to, purpose, bytes);
        }
    }

    /// Adds another meter's counts.
    pub fn add(&mut self, other: &Self) {
        for (&(from, to, purpose), &bytes) in &other.bytes {
            self.count(from, to, purpose, bytes);
        }
    }

    /// Bytes of a purpose between nodes of different racks.
    pub fn cross_rack(&self, purpose: Purpose) -> u64 {
        let crosses = |(from, to, p): &(Option<RackId>, Option<RackId>, Purpose)| {
            *p == purpose && from.is_some() && to.is_some() && from != to
        };
        self.bytes
            .iter()
            .filter(|(key, _)| crosses(key))
            .map(|(_, bytes)| bytes)
            .sum()
    }
}
