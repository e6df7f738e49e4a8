//! The nodes with room for new chunks, by their own reports. A full node gets no chunks while others have room, so it
//! stops no put.

use crate::PlanError;
use gabion_layout::{NodeId, NodePlace, Topology};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A disk that is fuller than this many parts in a hundred is full: it gets new chunks only where no other
/// node can have them.
const FULL_PERCENT: u64 = 95;

/// The size of a node's disk, and its room for new chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Space {
    /// Bytes of the disk.
    pub capacity_bytes: u64,
    /// Bytes that new chunks may take.
    pub free_bytes: u64,
}

impl Space {
    /// Returns the used share of the disk, in whole percent.
    #[must_use]
    pub fn used_percent(&self) -> u64 {
        let used = self.capacity_bytes.saturating_sub(self.free_bytes);
        let percent = u128::from(used) * 100 / u128::from(self.capacity_bytes.max(1));
        u64::try_from(percent).unwrap_or(100)
    }

    /// Whether the disk is full: more than 95 % of it is used.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let used = self.capacity_bytes.saturating_sub(self.free_bytes);
        u128::from(used) * 100 > u128::from(self.capacity_bytes) * u128::from(FULL_PERCENT)
    }
}

/// The nodes that may get chunks of new stripes, and what they still have room for.
#[derive(Clone, Debug)]
pub struct Room {
    nodes: Topology,
    /// A node that is not named has said nothing, and counts as empty.
    spaces: BTreeMap<NodeId, Space>,
    /// For chunks of how many bytes which nodes were found roomy last, while that holds.
    found: Option<(u64, Topology)>,
}

impl Room {
    /// The room on these nodes.
    #[must_use]
    pub fn new(nodes: Topology, spaces: BTreeMap<NodeId, Space>) -> Self {
        Self {
            nodes,
            spaces,
            found: None,
        }
    }

    /// Places chunks of `bytes` by `place` on nodes that are not full, or else on any that have room for
    /// them, and takes that room.
    ///
    /// # Errors
    /// That of `place` for the nodes that have room.
    pub fn place(
        &mut self,
        bytes: u64,
        mut place: impl FnMut(&Topology) -> Result<Vec<NodeId>, PlanError>,
    ) -> Result<Vec<NodeId>, PlanError> {
        let roomy = match self.found.take() {
            Some((found_bytes, roomy)) if found_bytes == bytes => roomy,
            _ => self.with(|space| !space.is_full() && space.free_bytes >= bytes),
        };
        let placed = match place(&roomy) {
            Ok(nodes) => nodes,
            Err(_) => place(&self.with(|space| space.free_bytes >= bytes))?,
        };
        let mut is_same = true;
        for node in &placed {
            if let Some(space) = self.spaces.get_mut(node) {
                space.free_bytes = space.free_bytes.saturating_sub(bytes);
                is_same &= !space.is_full() && space.free_bytes >= bytes;
            }
        }
        self.found = is_same.then_some((bytes, roomy));
        Ok(placed)
    }

    /// The nodes whose space is as wanted.
    fn with(&self, wanted: impl Fn(&Space) -> bool) -> Topology {
        let has = |place: &NodePlace| self.spaces.get(&place.node).is_none_or(&wanted);
        Topology::new(self.nodes.nodes().filter(has)).expect("they are nodes of a topology")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_layout::RackId;

    const MIB: u64 = 1 << 20;

    fn room(free_mib: [u64; 4]) -> Room {
        let place = |node| NodePlace {
            node: NodeId(node),
            rack: RackId(node),
        };
        let nodes = Topology::new((0..5).map(place)).unwrap();
        let space = |free| Space {
            capacity_bytes: 100 * MIB,
            free_bytes: free * MIB,
        };
        let spaces = (0..).map(NodeId).zip(free_mib.map(space)).collect();
        Room::new(nodes, spaces)
    }

    fn place(room: &mut Room, count: usize) -> Option<Vec<u32>> {
        let first = |topology: &Topology| {
            let nodes: Vec<NodeId> = topology.nodes().map(|p| p.node).take(count).collect();
            if nodes.len() == count {
                return Ok(nodes);
            }
            let room = nodes.len();
            Err(PlanError::NoRoom {
                chunks: count,
                per_rack: 1,
                room,
            })
        };
        let placed = room.place(MIB, first).ok()?;
        Some(placed.iter().map(|node| node.0).collect())
    }

    #[test]
    fn full_nodes_are_passed_over_while_others_have_room() {
        let mut room = room([4, 50, 0, 50]);
        assert_eq!(place(&mut room, 3), Some(vec![1, 3, 4]));
        assert_eq!(
            place(&mut room, 4),
            Some(vec![0, 1, 3, 4]),
            "or else it is used"
        );
        assert_eq!(place(&mut room, 5), None, "but not beyond its end");
    }

    #[test]
    fn the_room_of_a_put_is_counted_as_it_is_taken() {
        let mut room = room([6, 50, 50, 50]);
        assert_eq!(place(&mut room, 2), Some(vec![0, 1]));
        assert_eq!(place(&mut room, 2), Some(vec![0, 1]));
        assert_eq!(place(&mut room, 2), Some(vec![1, 2]), "it is full now");
    }

    #[test]
    fn a_disk_is_full_above_ninety_five_percent() {
        let space = |free_bytes| Space {
            capacity_bytes: 1000,
            free_bytes,
        };
        assert!(!space(50).is_full() && space(49).is_full());
        assert_eq!(space(50).used_percent(), 95);
        assert_eq!(space(2000).used_percent(), 0);
    }
}
