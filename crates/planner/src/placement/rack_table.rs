//! Nodes numbered rack by rack, so that placements can be drawn and compared without a search.
//!
//! A topology gives the rack of a node. A planner that places millions of blocks needs the reverse: a random node of a
//! rack, or outside of it. The table is built once and never changes. It makes no decisions.

use gabion_layout::{NodeId, RackId, Topology};
use rand::{Rng, RngExt};
use std::ops::Range;

/// Position of a node in its [`RackTable`].
pub(super) type NodeNumber = u32;
/// Position of a rack in its [`RackTable`].
pub(super) type RackNumber = usize;

/// A topology's nodes, rack by rack.
///
/// ```
/// use gabion_layout::Topology;
/// use gabion_planner::placement::RackTable;
///
/// let racks = RackTable::new(&Topology::uniform(20, 20));
/// assert_eq!((racks.rack_count(), racks.node_count()), (20, 400));
/// ```
#[derive(Clone, Debug)]
pub struct RackTable {
    rack_ids: Vec<RackId>,
    /// By rack, the numbers of its nodes.
    nodes: Vec<Range<NodeNumber>>,
    /// By node number.
    node_ids: Vec<NodeId>,
    /// By node number.
    rack_of: Vec<RackNumber>,
    /// Node numbers in the order of their ids.
    by_id: Vec<NodeNumber>,
}

impl RackTable {
    /// The table of a topology.
    pub fn new(topology: &Topology) -> Self {
        let mut table = Self {
            rack_ids: Vec::new(),
            nodes: Vec::new(),
            node_ids: Vec::with_capacity(topology.nodes().len()),
            rack_of: Vec::with_capacity(topology.nodes().len()),
            by_id: Vec::new(),
        };
        for (rack, nodes) in topology.nodes_by_rack() {
            let first = table.node_ids.len() as NodeNumber;
            table
                .rack_of
                .extend(nodes.iter().map(|_| table.nodes.len()));
            table.node_ids.extend(nodes);
            table.rack_ids.push(rack);
            table.nodes.push(first..table.node_ids.len() as NodeNumber);
        }
        table.by_id = (0..table.node_ids.len() as NodeNumber).collect();
        let ids = &table.node_ids;
        table.by_id.sort_unstable_by_key(|&node| ids[node as usize]);
        table
    }

    /// Racks that have nodes.
    pub fn rack_count(&self) -> usize {
        self.nodes.len()
    }

    /// Nodes in all.
    pub fn node_count(&self) -> usize {
        self.node_ids.len()
    }

    /// The id of a rack.
    pub(super) fn rack_id(&self, rack: RackNumber) -> RackId {
        self.rack_ids[rack]
    }

    /// The rack of this id, if it has nodes.
    pub(super) fn rack_number(&self, rack: RackId) -> Option<RackNumber> {
        self.rack_ids.binary_search(&rack).ok()
    }

    /// The id of a node.
    pub(super) fn node_id(&self, node: NodeNumber) -> NodeId {
        self.node_ids[node as usize]
    }

    /// The number of the node with this id, if there is one.
    pub(super) fn node_number(&self, node: NodeId) -> Option<NodeNumber> {
        let id = |&number: &NodeNumber| self.node_ids[number as usize];
        let at = self.by_id.binary_search_by_key(&node, id).ok()?;
        Some(self.by_id[at])
    }

    /// The rack of a node.
    pub(super) fn rack_of(&self, node: NodeNumber) -> RackNumber {
        self.rack_of[node as usize]
    }

    /// The nodes of a rack.
    pub(super) fn nodes_of(&self, rack: RackNumber) -> Range<NodeNumber> {
        self.nodes[rack].clone()
    }

    /// The nodes that a stripe may use when a rack holds at most `per_rack` of its chunks.
    pub(super) fn room(&self, per_rack: usize) -> usize {
        self.nodes
            .iter()
            .map(|nodes| nodes.len().min(per_rack))
            .sum()
    }

    /// Any node.
    pub(super) fn any_node(&self, rng: &mut impl Rng) -> NodeNumber {
        rng.random_range(0..self.node_ids.len() as NodeNumber)
    }

    /// Any node of a rack.
    pub(super) fn node_in(&self, rack: RackNumber, rng: &mut impl Rng) -> NodeNumber {
        rng.random_range(self.nodes_of(rack))
    }

    /// Any node outside of a rack; none when there is no other rack.
    pub(super) fn node_outside(&self, rack: RackNumber, rng: &mut impl Rng) -> Option<NodeNumber> {
        let within = self.nodes_of(rack);
        let outside = self.node_ids.len() - within.len();
        if outside == 0 {
            return None;
        }
        let drawn = rng.random_range(0..outside as NodeNumber);
        let is_below = drawn < within.start;
        Some(if is_below {
            drawn
        } else {
            drawn + within.len() as NodeNumber
        })
    }
}
