//! Ports: where a node or a rack meets the rest of the network, in one direction. Traffic of plans is counted by port
//! to find bottlenecks and to keep limits (`ECPipe` section 2.2 counts the time of a repair by the busiest of them).

use gabion_layout::{NodeId, RackId, Topology};
use gabion_plan::LinkBytes;
use std::collections::BTreeMap;

/// One direction of a node's or rack's connection to the rest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Port {
    /// From others into a node.
    IntoNode(NodeId),
    /// From a node to others.
    OutOfNode(NodeId),
    /// From other racks into a rack.
    IntoRack(RackId),
    /// From a rack to other racks.
    OutOfRack(RackId),
}

/// Bytes that each port carries for these links, by `ECPipe` section 2.2.
#[must_use]
pub fn by_port(links: &[LinkBytes], topology: &Topology) -> BTreeMap<Port, u64> {
    let mut ports = BTreeMap::new();
    let mut count = |port, bytes| *ports.entry(port).or_default() += bytes;
    for link in links {
        count(Port::OutOfNode(link.from), link.bytes);
        count(Port::IntoNode(link.to), link.bytes);
        if let (Some(from), Some(to)) = (topology.rack_of(link.from), topology.rack_of(link.to))
            && from != to
        {
            count(Port::OutOfRack(from), link.bytes);
            count(Port::IntoRack(to), link.bytes);
        }
    }
    ports
}
