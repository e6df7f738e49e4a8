//! CAU's selective parity updates as a scheme of its own, without append phases: parity follows at once, and between
//! two racks the fewer of data deltas and parity deltas cross (CAU section 3.2, as `RackCU` counts it in section V-A).

use super::plans::{Selection, selective};
use crate::update::delta::delta;
use crate::update::descriptor::{Descriptor, Traffic, UpdatePlanner};
use crate::update::plr::ReservedSpace;
use crate::{PlanError, Stripe};
use gabion_layout::{ChunkRange, Topology, UpdateScheme};
use gabion_plan::{Keepings, Plan};

/// The scheme. Records are kept as under PLR, and stripes with lost chunks are updated by [`delta()`].
#[derive(Clone, Copy, Debug)]
struct SelectiveAtOnce;

/// The scheme as all others know it.
pub(crate) const DESCRIPTOR: Descriptor = Descriptor {
    scheme: UpdateScheme::CauSelective,
    help: "like plr, with the cheaper of data deltas and parity deltas between two racks",
    paper: "CAU section 3.2, RackCU section V-A",
    planner: &SelectiveAtOnce,
    traffic: Traffic::EachStripe,
};

impl UpdatePlanner for SelectiveAtOnce {
    fn keepings(&self, reserve_bytes: u64) -> Keepings {
        ReservedSpace.keepings(reserve_bytes)
    }

    fn plan(
        &self,
        stripe: &Stripe<'_>,
        topology: &Topology,
        ranges: &[ChunkRange],
        slice_bytes: u64,
    ) -> Result<Plan, PlanError> {
        if stripe.lost.is_empty() {
            selective(stripe, topology, ranges, Selection::Selective, slice_bytes)
        } else {
            delta(stripe, topology, ranges, slice_bytes)
        }
    }
}
