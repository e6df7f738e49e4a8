//! The seats of a testbed and their addresses, for the builder and for the clusters that are started
//! inside.

use crate::error::TestbedError;
use std::ffi::{OsStr, OsString};
use std::net::Ipv4Addr;

/// Gives the processes inside a testbed its shape, as `RACKSxNODES`.
pub(super) const SHAPE_VARIABLE: &str = "GABION_TESTBED";
/// The seat of the coordinator.
pub(crate) const COORDINATOR: &str = "coordinator";
/// The seat where the testbed's command runs.
pub(super) const CLIENT: &str = "client";
/// The seat of all bridges: the racks' and the core's.
pub(super) const CORE: &str = "core";
/// Port of a coordinator. Seats do not share ports, so one number suffices.
const COORDINATOR_PORT: u16 = 7070;
/// Port of a node.
const NODE_PORT: u16 = 7071;

/// Numbers of racks and nodes of a testbed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seats {
    /// Racks.
    pub rack_count: u32,
    /// Nodes of each.
    pub nodes_per_rack: u32,
}

impl Seats {
    /// The testbed that this process is in, if any.
    pub(crate) fn of_this_process() -> Result<Option<Self>, TestbedError> {
        let Some(text) = std::env::var_os(SHAPE_VARIABLE) else {
            return Ok(None);
        };
        let shape = text.to_str().and_then(Self::parse);
        shape
            .map(Some)
            .ok_or(TestbedError::Variable(SHAPE_VARIABLE))
    }

    fn parse(text: &str) -> Option<Self> {
        let (racks, nodes) = text.split_once('x')?;
        let count = |text: &str| text.parse().ok().filter(|count| (1..=64).contains(count));
        Some(Self {
            rack_count: count(racks)?,
            nodes_per_rack: count(nodes)?,
        })
    }

    /// The text in [`SHAPE_VARIABLE`].
    pub(super) fn text(self) -> String {
        format!("{}x{}", self.rack_count, self.nodes_per_rack)
    }

    /// Fails unless a cluster of this shape has a seat for each node.
    pub(crate) fn require(self, racks: u32, nodes_per_rack: u32) -> Result<(), TestbedError> {
        if racks <= self.rack_count && nodes_per_rack <= self.nodes_per_rack {
            return Ok(());
        }
        Err(TestbedError::TooSmall {
            has: (self.rack_count, self.nodes_per_rack),
            wants: (racks, nodes_per_rack),
        })
    }

    /// All nodes as (rack, index in the rack).
    pub(super) fn nodes(self) -> impl Iterator<Item = (u32, u32)> {
        let racks = 0..self.rack_count;
        racks.flat_map(move |rack| (0..self.nodes_per_rack).map(move |index| (rack, index)))
    }
}

/// The seat of a node.
pub(crate) fn node_seat(rack: u32, index: u32) -> String {
    format!("node-{rack}-{index}")
}

/// The address of a node. A rack is one subnet of 256 addresses, which the limits rely on.
pub(super) fn node_address(rack: u32, index: u32) -> Ipv4Addr {
    assert!(
        rack < 64 && index < 64,
        "a testbed has at most 64 racks of 64 nodes"
    );
    Ipv4Addr::new(10, 83, rack as u8, index as u8 + 10)
}

/// The address of a seat outside the racks.
pub(super) fn core_address(seat: &str) -> Ipv4Addr {
    let last = match seat {
        COORDINATOR => 10,
        CLIENT => 11,
        _ => unreachable!("only the coordinator and the client are outside the racks"),
    };
    Ipv4Addr::new(10, 83, 255, last)
}

/// The address of a testbed's coordinator.
pub(crate) fn coordinator_listen() -> String {
    format!("{}:{COORDINATOR_PORT}", core_address(COORDINATOR))
}

/// The address at which a testbed's node listens. It is the same at each start.
pub(crate) fn node_listen(rack: u32, index: u32) -> String {
    format!("{}:{NODE_PORT}", node_address(rack, index))
}

/// A program in a seat of the testbed of this process. The child becomes the program itself, so its
/// process id is the program's.
pub(crate) fn command_in(seat: &str, program: impl AsRef<OsStr>) -> std::process::Command {
    let mut command = std::process::Command::new("nsenter");
    let mut namespace = OsString::from("--net=/run/netns/");
    namespace.push(seat);
    command.arg(namespace).arg("--").arg(program);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_carried_and_anything_else_is_refused() {
        let shape = Seats {
            rack_count: 4,
            nodes_per_rack: 5,
        };
        assert_eq!(Seats::parse(&shape.text()), Some(shape));
        for text in ["", "4", "0x4", "4x65", "4x", "axb"] {
            assert_eq!(Seats::parse(text), None, "{text}");
        }
        assert!(shape.require(4, 5).is_ok() && shape.require(3, 1).is_ok());
        let error = shape.require(5, 5).unwrap_err().to_string();
        assert!(error.contains("4 racks of 5"), "{error}");
    }

    #[test]
    fn addresses_are_distinct() {
        let shape = Seats {
            rack_count: 64,
            nodes_per_rack: 64,
        };
        let mut all: Vec<_> = shape.nodes().map(|(r, i)| node_address(r, i)).collect();
        all.extend([core_address(COORDINATOR), core_address(CLIENT)]);
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!((all.len(), count), (64 * 64 + 2, 64 * 64 + 2));
    }
}
