//! What transfers use: links of nodes and racks, and disks, numbered so that they can be looked up
//! without a search.

use gabion_layout::{NodeId, RackId, Topology};
use std::collections::BTreeMap;

/// A link or a disk of a [`Fabric`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LinkNumber(pub u32);

impl LinkNumber {
    /// As an index.
    pub(super) const fn at(self) -> usize {
        self.0 as usize
    }
}

/// What each link and disk carries, in bytes per second; one without a rate is never waited for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rates {
    /// A node's link, each way.
    pub node_bytes_per_s: f64,
    /// A rack's link to the other racks, each way.
    pub rack_bytes_per_s: f64,
    /// A node's disk, reads and writes together.
    pub disk_bytes_per_s: Option<f64>,
}

/// The links of a topology. A transfer within a rack uses the sender's link out and the receiver's link
/// in; one between racks also the sending rack's link up and the receiving rack's link down. The core
/// between racks is never waited for.
#[derive(Clone, Debug)]
pub struct Fabric {
    /// By link.
    bytes_per_s: Vec<f64>,
    /// By node, its number and its rack's number.
    places: BTreeMap<NodeId, (u32, u32)>,
    node_count: u32,
    rack_count: u32,
    has_disks: bool,
}

impl Fabric {
    /// The links of these nodes.
    ///
    /// # Panics
    /// When a rate is not above 0.
    pub fn new(topology: &Topology, rates: Rates) -> Self {
        let mut racks: BTreeMap<RackId, u32> = BTreeMap::new();
        let mut places = BTreeMap::new();
        for place in topology.nodes() {
            let next = racks.len() as u32;
            let rack = *racks.entry(place.rack).or_insert(next);
            places.insert(place.node, (places.len() as u32, rack));
        }
        let (nodes, racks) = (places.len(), racks.len());
        let disk = rates.disk_bytes_per_s.unwrap_or(f64::INFINITY);
        let mut bytes_per_s = vec![rates.node_bytes_per_s; nodes];
        bytes_per_s.extend(vec![rates.rack_bytes_per_s; 2 * racks]);
        bytes_per_s.extend(vec![rates.node_bytes_per_s; nodes]);
        bytes_per_s.extend(vec![disk; nodes]);
        assert!(
            bytes_per_s.iter().all(|&rate| rate > 0.0),
            "a link carries something"
        );
        Self {
            bytes_per_s,
            places,
            node_count: nodes as u32,
            rack_count: racks as u32,
            has_disks: rates.disk_bytes_per_s.is_some(),
        }
    }

    /// Links and disks in all.
    pub fn link_count(&self) -> usize {
        self.bytes_per_s.len()
    }

    /// What a link carries, in bytes per second.
    ///
    /// # Panics
    /// When there is no such link.
    pub fn bytes_per_s(&self, link: LinkNumber) -> f64 {
        self.bytes_per_s[link.at()]
    }

    /// The links from one node to another, in the order of their numbers: out, up, down, in. Whoever takes
    /// links one after another in this order never waits in a circle. The client has no links.
    pub fn path(&self, from: NodeId, to: NodeId) -> Vec<LinkNumber> {
        let (sender, receiver) = (self.places.get(&from), self.places.get(&to));
        let racks = match (sender, receiver) {
            (Some(&(_, a)), Some(&(_, b))) if a != b => Some((a, b)),
            _ => None,
        };
        let first_up = self.node_count;
        let first_down = first_up + self.rack_count;
        let first_in = first_down + self.rack_count;
        let links = [
            sender.map(|&(node, _)| node),
            racks.map(|(rack, _)| first_up + rack),
            racks.map(|(_, rack)| first_down + rack),
            receiver.map(|&(node, _)| first_in + node),
        ];
        links.into_iter().flatten().map(LinkNumber).collect()
    }

    /// A node's disk, if disks are waited for.
    pub fn disk(&self, node: NodeId) -> Option<LinkNumber> {
        let first = 2 * (self.node_count + self.rack_count);
        let &(number, _) = self.places.get(&node)?;
        self.has_disks.then_some(LinkNumber(first + number))
    }

    /// Whether a link goes up from a rack.
    pub fn is_uplink(&self, link: LinkNumber) -> bool {
        (self.node_count..self.node_count + self.rack_count).contains(&link.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_use_racks_links_only_between_racks() {
        let rates = Rates {
            node_bytes_per_s: 1.0,
            rack_bytes_per_s: 2.0,
            disk_bytes_per_s: None,
        };
        let fabric = Fabric::new(&Topology::uniform(3, 4), rates);
        let rates_of = |from, to| -> Vec<f64> {
            let path = fabric.path(NodeId(from), NodeId(to));
            assert!(path.is_sorted(), "{path:?}");
            path.into_iter()
                .map(|link| fabric.bytes_per_s(link))
                .collect()
        };
        assert_eq!(rates_of(0, 3), [1.0, 1.0]);
        assert_eq!(rates_of(0, 4), [1.0, 2.0, 2.0, 1.0]);
        assert_eq!(rates_of(NodeId::CLIENT.0, 4), [1.0]);
        assert_eq!(fabric.disk(NodeId(1)), None);
        let [there, back] = [(0, 4), (4, 0)].map(|(a, b)| fabric.path(NodeId(a), NodeId(b)));
        assert!(there.iter().all(|link| !back.contains(link)), "full duplex");
        assert_eq!(
            there.iter().filter(|&&link| fabric.is_uplink(link)).count(),
            1
        );
    }
}
