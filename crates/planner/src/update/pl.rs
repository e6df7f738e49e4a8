//! Parity logging, PL (Stodolsky et al., as in `CodFS` section 2.1.2): data chunks are changed in
//! place, parity deltas are appended to the node's log, elsewhere on its disk than the parity chunk.

use super::descriptor::{Descriptor, Traffic, UpdatePlanner};
use gabion_layout::{Keeping, UpdateScheme};
use gabion_plan::Keepings;

/// The scheme, which has no parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct ParityLogging;

/// The scheme as all others know it.
pub(super) const DESCRIPTOR: Descriptor = Descriptor {
    scheme: UpdateScheme::Pl,
    help: "parity deltas in a log",
    paper: "Stodolsky et al.; CodFS section 2.1.2",
    planner: &ParityLogging,
    traffic: Traffic::EachChunk,
};

impl UpdatePlanner for ParityLogging {
    fn keepings(&self, _: u64) -> Keepings {
        Keepings {
            data: Keeping::InPlace,
            parity: Keeping::Log,
        }
    }
}
