//! Nodes and racks, and the failures that a pool survives.

use crate::ids::{NodeId, RackId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// The rack of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodePlace {
    /// The node.
    pub node: NodeId,
    /// Its rack.
    pub rack: RackId,
}

/// An invalid topology.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum TopologyError {
    /// A node is listed twice.
    #[error("{0} is listed twice; list each node in one rack only")]
    DuplicateNode(NodeId),
    /// The id is reserved for the initiator of a plan.
    #[error("node id {} is reserved for clients; use a smaller one", NodeId::CLIENT.0)]
    ReservedNode,
}

/// The cluster for planners: the rack of each node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Topology {
    racks: BTreeMap<NodeId, RackId>,
}

impl Topology {
    /// The topology of the given nodes.
    ///
    /// # Errors
    /// If a node is listed twice or has the client's reserved id.
    pub fn new(nodes: impl IntoIterator<Item = NodePlace>) -> Result<Self, TopologyError> {
        let mut topology = Self::default();
        for place in nodes {
            topology.add(place)?;
        }
        Ok(topology)
    }

    /// `racks` racks of `nodes_per_rack` nodes: node `v` is in rack `v / nodes_per_rack`.
    ///
    /// # Panics
    /// If there are more nodes than ids.
    pub fn uniform(racks: u32, nodes_per_rack: u32) -> Self {
        let count = racks
            .checked_mul(nodes_per_rack)
            .expect("more nodes than node ids");
        let places = (0..count).map(|v| NodePlace {
            node: NodeId(v),
            rack: RackId(v / nodes_per_rack),
        });
        Self::new(places).expect("ids 0..count are distinct")
    }

    /// Adds a node.
    ///
    /// # Errors
    /// If the node exists already or has the client's reserved id.
    pub fn add(&mut self, place: NodePlace) -> Result<(), TopologyError> {
        if place.node == NodeId::CLIENT {
            return Err(TopologyError::ReservedNode);
        }
        if self.racks.contains_key(&place.node) {
            return Err(TopologyError::DuplicateNode(place.node));
        }
        self.racks.insert(place.node, place.rack);
        Ok(())
    }

    /// The rack of a node; none for the client and for unknown nodes.
    pub fn rack_of(&self, node: NodeId) -> Option<RackId> {
        self.racks.get(&node).copied()
    }

    /// Whether bytes from `a` to `b` cross racks. Traffic of the client never does.
    pub fn crosses_racks(&self, a: NodeId, b: NodeId) -> bool {
        matches!((self.rack_of(a), self.rack_of(b)), (Some(a), Some(b)) if a != b)
    }

    /// All nodes, by id.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = NodePlace> {
        self.racks
            .iter()
            .map(|(&node, &rack)| NodePlace { node, rack })
    }

    /// The nodes of each rack, by rack and node id.
    pub fn nodes_by_rack(&self) -> BTreeMap<RackId, Vec<NodeId>> {
        let mut racks: BTreeMap<RackId, Vec<NodeId>> = BTreeMap::new();
        for (&node, &rack) in &self.racks {
            racks.entry(rack).or_default().push(node);
        }
        racks
    }
}

/// The failure that a pool survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Survive {
    /// Any of this number of nodes at once.
    Nodes(u32),
    /// Any of this number of whole racks at once.
    Racks(u32),
}

/// An invalid failure to survive.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("'{0}' is not a failure to survive; write a count and a unit, such as 1-rack or 2-nodes")]
pub struct SurviveParseError(String);

impl FromStr for Survive {
    type Err = SurviveParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || SurviveParseError(text.to_owned());
        let (count, unit) = text.split_once('-').ok_or_else(error)?;
        let count: u32 = count.parse().map_err(|_| error())?;
        if count == 0 || count > 254 {
            return Err(error());
        }
        match unit {
            "node" | "nodes" => Ok(Self::Nodes(count)),
            "rack" | "racks" => Ok(Self::Racks(count)),
            _ => Err(error()),
        }
    }
}

impl fmt::Display for Survive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, unit) = match self {
            Self::Nodes(count) => (count, "node"),
            Self::Racks(count) => (count, "rack"),
        };
        write!(f, "{count}-{unit}{}", if *count == 1 { "" } else { "s" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_never_cross_racks() {
        let topology = Topology::uniform(3, 4);
        assert!(topology.crosses_racks(NodeId(0), NodeId(4)));
        assert!(!topology.crosses_racks(NodeId(0), NodeId(3)));
        assert!(!topology.crosses_racks(NodeId::CLIENT, NodeId(3)));
    }

    #[test]
    fn guarantees_parse_and_print() {
        for text in ["1-rack", "2-racks", "1-node", "3-nodes"] {
            assert_eq!(text.parse::<Survive>().unwrap().to_string(), text);
        }
        for text in [
            "", "rack", "0-racks", "1-shelf", "-1-rack", "x-rack", "1rack",
        ] {
            let message = text.parse::<Survive>().unwrap_err().to_string();
            assert!(message.contains("1-rack or 2-nodes"), "{message}");
        }
    }

    #[test]
    fn a_node_is_listed_once() {
        let place = NodePlace {
            node: NodeId(1),
            rack: RackId(0),
        };
        assert_eq!(
            Topology::new([place, place]),
            Err(TopologyError::DuplicateNode(NodeId(1)))
        );
        let client = NodePlace {
            node: NodeId::CLIENT,
            rack: RackId(0),
        };
        assert_eq!(Topology::new([client]), Err(TopologyError::ReservedNode));
    }
}
