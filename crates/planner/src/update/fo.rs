//! Full overwrite, FO (`CodFS` section 2.1.2; TWEEN thesis, same section): data and parity chunks are changed in place
//! at once. A crash may interrupt the addition of a delta to stored bytes, so both go through the journal: each byte of
//! parity is logged, read and written for each update.

use super::descriptor::{Descriptor, Traffic, UpdatePlanner};
use gabion_layout::{Keeping, UpdateScheme};
use gabion_plan::Keepings;

/// The scheme, which has no parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct FullOverwrite;

/// The scheme as all others know it.
pub(super) const DESCRIPTOR: Descriptor = Descriptor {
    scheme: UpdateScheme::Fo,
    help: "data and parity in place at once",
    paper: "CodFS section 2.1.2",
    planner: &FullOverwrite,
    traffic: Traffic::EachChunk,
};

impl UpdatePlanner for FullOverwrite {
    fn keepings(&self, _: u64) -> Keepings {
        Keepings {
            data: Keeping::AtOnce,
            parity: Keeping::AtOnce,
        }
    }
}
