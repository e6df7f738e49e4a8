//! Full logging, FL (`CodFS` section 2.1.2): new bytes and parity deltas are appended to the node's
//! log and stay there; reads and repairs gather them, and merges wait until the log is long.

use super::descriptor::{Descriptor, Traffic, UpdatePlanner};
use gabion_layout::{Keeping, UpdateScheme};
use gabion_plan::Keepings;

/// The scheme, which has no parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct FullLogging;

/// The scheme as all others know it.
pub(super) const DESCRIPTOR: Descriptor = Descriptor {
    scheme: UpdateScheme::Fl,
    help: "new bytes and parity deltas in logs",
    paper: "CodFS section 2.1.2",
    planner: &FullLogging,
    traffic: Traffic::EachChunk,
};

impl UpdatePlanner for FullLogging {
    fn keepings(&self, _: u64) -> Keepings {
        Keepings {
            data: Keeping::Log,
            parity: Keeping::Log,
        }
    }
}
