//! Cuts between processes that have network namespaces of their own, as `gabion lab testbed` makes them.
//!
//! A cut is a neighbour entry with an unused hardware address: frames to it are dropped silently,
//! as in a real partition, and only in this direction.

use crate::cluster::{NODES, NODES_PER_RACK, tool};
use crate::stop::Stop;

/// An address that no interface of a testbed has.
const NOWHERE: &str = "02:00:00:00:00:01";

/// A namespace of the testbed, as docs/testbed.md names them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seat {
    Coordinator,
    Client,
    Node(u32),
}

impl Seat {
    /// The namespace's name.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Coordinator => "coordinator".to_owned(),
            Self::Client => "client".to_owned(),
            Self::Node(node) => {
                format!("node-{}-{}", node / NODES_PER_RACK, node % NODES_PER_RACK)
            }
        }
    }

    /// Its address.
    pub(crate) fn address(self) -> String {
        match self {
            Self::Coordinator => "10.83.255.10".to_owned(),
            Self::Client => "10.83.255.11".to_owned(),
            Self::Node(node) => format!(
                "10.83.{}.{}",
                node / NODES_PER_RACK,
                node % NODES_PER_RACK + 10
            ),
        }
    }
}

/// One direction between two seats.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Direction {
    pub(crate) from: Seat,
    pub(crate) to: Seat,
}

impl Direction {
    /// Both directions between a node and each of the others.
    pub(crate) fn both(node: u32, others: impl IntoIterator<Item = Seat>) -> Vec<Self> {
        let own = Seat::Node(node);
        let both = |other| [(own, other), (other, own)].map(|(from, to)| Self { from, to });
        others.into_iter().flat_map(both).collect()
    }

    /// Drops everything in this direction.
    pub(crate) fn cut(&self) -> Result<(), Stop> {
        let arguments = [
            "-netns",
            &self.from.name(),
            "neighbour",
            "replace",
            &self.to.address(),
            "lladdr",
            NOWHERE,
            "nud",
            "permanent",
            "dev",
            "eth0",
        ];
        tool("ip", arguments)
    }

    /// Restores this direction.
    pub(crate) fn mend(&self) -> Result<(), Stop> {
        let arguments = [
            "-netns",
            &self.from.name(),
            "neighbour",
            "delete",
            &self.to.address(),
            "dev",
            "eth0",
        ];
        tool("ip", arguments)
    }
}

/// All nodes but one.
pub(crate) fn peers(node: u32) -> impl Iterator<Item = Seat> {
    (0..NODES)
        .filter(move |&other| other != node)
        .map(Seat::Node)
}
