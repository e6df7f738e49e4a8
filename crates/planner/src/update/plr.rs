//! Parity logging with reserved space, PLR (`CodFS` section 4.1): as parity logging, but deltas are appended to space
//! reserved right behind their parity chunk, so that chunk and deltas are read in one go. The space is itself the log:
//! a delta is written once before it is merged. The size of the reserve follows the workload ([`crate::reserve`]);
//! without a reserve, parity is changed in place at once.

use super::descriptor::{Descriptor, Traffic, UpdatePlanner};
use gabion_layout::{Keeping, UpdateScheme};
use gabion_plan::Keepings;

/// The scheme, which has no parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReservedSpace;

/// The scheme as all others know it.
pub(super) const DESCRIPTOR: Descriptor = Descriptor {
    scheme: UpdateScheme::Plr,
    help: "parity deltas in space reserved behind the parity chunk",
    paper: "CodFS section 4.1",
    planner: &ReservedSpace,
    traffic: Traffic::EachChunk,
};

impl UpdatePlanner for ReservedSpace {
    fn keepings(&self, reserve_bytes: u64) -> Keepings {
        Keepings {
            data: Keeping::InPlace,
            parity: Keeping::Reserve {
                bytes: reserve_bytes,
            },
        }
    }
}
