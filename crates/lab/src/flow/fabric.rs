//! The resources of transfers and encoders: links of nodes and racks, disks, and the coders of nodes, numbered so that
//! a look-up needs no search.

use gabion_layout::{NodeId, RackId, Topology};
use std::collections::BTreeMap;

/// A link, a disk or a coder of a [`Fabric`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LinkNumber(pub u32);

impl LinkNumber {
    /// As an index.
    pub(super) const fn at(self) -> usize {
        self.0 as usize
    }
}

/// The rate of each link and disk, in bytes per second; one without a rate is never waited for.
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
    /// The nodes, by id, and their racks' numbers. A node's number is its place here.
    nodes: Vec<(NodeId, u32)>,
    rack_count: u32,
    has_disks: bool,
    has_coders: bool,
}

impl Fabric {
    /// The links of these nodes.
    ///
    /// # Panics
    /// When a rate is not above 0.
    pub fn new(topology: &Topology, rates: Rates) -> Self {
        let mut racks: BTreeMap<RackId, u32> = BTreeMap::new();
        let nodes = topology.nodes().map(|place| {
            let next = racks.len() as u32;
            (place.node, *racks.entry(place.rack).or_insert(next))
        });
        let nodes: Vec<(NodeId, u32)> = nodes.collect();
        let (node_count, rack_count) = (nodes.len(), racks.len());
        let disk = rates.disk_bytes_per_s.unwrap_or(f64::INFINITY);
        let mut bytes_per_s = vec![rates.node_bytes_per_s; node_count];
        bytes_per_s.extend(vec![rates.rack_bytes_per_s; 2 * rack_count]);
        bytes_per_s.extend(vec![rates.node_bytes_per_s; node_count]);
        bytes_per_s.extend(vec![disk; node_count]);
        assert!(
            bytes_per_s.iter().all(|&rate| rate > 0.0),
            "a link carries something"
        );
        Self {
            bytes_per_s,
            nodes,
            rack_count: rack_count as u32,
            has_disks: rates.disk_bytes_per_s.is_some(),
            has_coders: false,
        }
    }

    /// The same, where making parity takes time: each node multiplies and adds this number of bytes a second,
    /// `k` of them for each byte of a parity chunk.
    ///
    /// # Panics
    /// When the rate is not above 0, or was given before.
    #[must_use]
    pub fn with_coders(mut self, bytes_per_s: f64) -> Self {
        assert!(bytes_per_s > 0.0, "coders make something");
        assert!(!self.has_coders, "a node has one coder");
        let coders = vec![bytes_per_s; self.nodes.len()];
        self.bytes_per_s.extend(coders);
        self.has_coders = true;
        self
    }

    /// Links, disks and coders in all.
    pub fn link_count(&self) -> usize {
        self.bytes_per_s.len()
    }

    /// Returns the rate of a link, in bytes per second.
    ///
    /// # Panics
    /// When there is no such link.
    pub fn bytes_per_s(&self, link: LinkNumber) -> f64 {
        self.bytes_per_s[link.at()]
    }

    /// A node's number and its rack's, unless it is the client. Where nodes are numbered from 0 without gaps, as in
    /// most topologies, nothing is searched for.
    fn place(&self, node: NodeId) -> Option<(u32, u32)> {
        let at = node.0 as usize;
        let at = match self.nodes.get(at) {
            Some(&(there, _)) if there == node => at,
            _ => self.nodes.binary_search_by_key(&node, |&(id, _)| id).ok()?,
        };
        Some((at as u32, self.nodes[at].1))
    }

    /// The links from one node to another, in the order of their numbers: out, up, down, in. Flows that take
    /// links one after another in this order never wait for each other in a circle. The client has no links.
    pub fn path(&self, from: NodeId, to: NodeId) -> Vec<LinkNumber> {
        self.links_between(from, to).collect()
    }

    /// The links of [`Fabric::path`].
    pub(super) fn links_between(
        &self,
        from: NodeId,
        to: NodeId,
    ) -> impl Iterator<Item = LinkNumber> + use<> {
        let (sender, receiver) = (self.place(from), self.place(to));
        let racks = match (sender, receiver) {
            (Some((_, a)), Some((_, b))) if a != b => Some((a, b)),
            _ => None,
        };
        let first_up = self.node_count();
        let first_down = first_up + self.rack_count;
        let first_in = first_down + self.rack_count;
        let links = [
            sender.map(|(node, _)| node),
            racks.map(|(rack, _)| first_up + rack),
            racks.map(|(_, rack)| first_down + rack),
            receiver.map(|(node, _)| first_in + node),
        ];
        links.into_iter().flatten().map(LinkNumber)
    }

    const fn node_count(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// A node's disk, if disks are waited for.
    pub fn disk(&self, node: NodeId) -> Option<LinkNumber> {
        let first = 2 * (self.node_count() + self.rack_count);
        let (number, _) = self.place(node)?;
        self.has_disks.then_some(LinkNumber(first + number))
    }

    /// Returns a node's coder, if it takes time to make parity.
    pub fn coder(&self, node: NodeId) -> Option<LinkNumber> {
        let first = 3 * self.node_count() + 2 * self.rack_count;
        let (number, _) = self.place(node)?;
        self.has_coders.then_some(LinkNumber(first + number))
    }

    /// Whether a link goes up from a rack.
    pub fn is_uplink(&self, link: LinkNumber) -> bool {
        (self.node_count()..self.node_count() + self.rack_count).contains(&link.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_layout::NodePlace;
    use std::collections::BTreeSet;

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
        assert_eq!(
            (fabric.disk(NodeId(1)), fabric.coder(NodeId(1))),
            (None, None)
        );
        let coding = fabric.clone().with_coders(3.0);
        let coder = coding.coder(NodeId(11)).unwrap();
        assert_eq!(
            (coding.bytes_per_s(coder), coder.at() + 1),
            (3.0, coding.link_count())
        );
        assert_eq!(
            coding.path(NodeId(0), NodeId(4)),
            fabric.path(NodeId(0), NodeId(4))
        );
        let [there, back] = [(0, 4), (4, 0)].map(|(a, b)| fabric.path(NodeId(a), NodeId(b)));
        assert!(there.iter().all(|link| !back.contains(link)), "full duplex");
        assert_eq!(
            there.iter().filter(|&&link| fabric.is_uplink(link)).count(),
            1
        );
    }

    #[test]
    fn nodes_need_not_be_numbered_from_0() {
        let places = [(7, 1), (3, 0), (1 << 30, 1)].map(|(node, rack)| NodePlace {
            node: NodeId(node),
            rack: RackId(rack),
        });
        let rates = Rates {
            node_bytes_per_s: 1.0,
            rack_bytes_per_s: 2.0,
            disk_bytes_per_s: Some(3.0),
        };
        let fabric = Fabric::new(&Topology::new(places).expect("distinct nodes"), rates);
        let count_of = |from, to| fabric.path(NodeId(from), NodeId(to)).len();
        assert_eq!(
            [count_of(3, 7), count_of(7, 1 << 30), count_of(7, 8)],
            [4, 2, 1]
        );
        assert_eq!(fabric.disk(NodeId(0)), None);
        let disks: BTreeSet<_> = [3, 7, 1 << 30].map(|node| fabric.disk(NodeId(node))).into();
        assert_eq!(disks.len(), 3);
        assert!(!disks.contains(&None));
    }
}
