//! Schemes that update parity at once, with all chunks of a stripe that one write touches together:
//! `RackCU` (section V-B), and CAU as it is counted there, its selective parity update alone.

use super::costs::{Costs, Place};
use super::{ChunkUpdate, Moved, Stripes, TrafficCounter, batches};
use crate::error::LabError;
use gabion_layout::{ChunkRange, Topology};
use gabion_plan::Plan;
use gabion_planner::update::UpdatePlanner;
use gabion_planner::update::cau::{self, Selection};
use gabion_planner::{PlanError, Stripe};

/// What plans an update of whole chunks of one stripe.
#[derive(Debug)]
enum BatchPlanner {
    /// A scheme of pools.
    Scheme(&'static dyn UpdatePlanner),
    /// CAU's selective parity update.
    Selective,
}

impl BatchPlanner {
    fn plan(
        &self,
        stripe: &Stripe<'_>,
        topology: &Topology,
        ranges: &[ChunkRange],
        slice_bytes: u64,
    ) -> Result<Plan, PlanError> {
        match self {
            Self::Scheme(scheme) => scheme.plan(stripe, topology, ranges, slice_bytes),
            Self::Selective => {
                cau::selective(stripe, topology, ranges, Selection::Selective, slice_bytes)
            }
        }
    }
}

/// One of these schemes, with the cost of every batch that it has planned.
#[derive(Debug)]
pub(super) struct Batches {
    planner: BatchPlanner,
    crossing_bytes: u128,
    costs: Costs,
}

impl Batches {
    pub(super) fn of(scheme: &'static dyn UpdatePlanner) -> Self {
        Self::new(BatchPlanner::Scheme(scheme))
    }

    pub(super) fn selective() -> Self {
        Self::new(BatchPlanner::Selective)
    }

    fn new(planner: BatchPlanner) -> Self {
        Self {
            planner,
            crossing_bytes: 0,
            costs: Costs::default(),
        }
    }
}

impl TrafficCounter for Batches {
    fn write(&mut self, stripes: &Stripes, touched: &[ChunkUpdate]) -> Result<(), LabError> {
        let (planner, slice_bytes) = (&self.planner, stripes.geometry().chunk_bytes());
        for (stripe, set) in batches(touched) {
            let place = Place {
                stripe,
                moved: None,
            };
            let bytes = self
                .costs
                .crossing(stripes, place, set, &|stripe, topology, ranges| {
                    planner.plan(stripe, topology, ranges, slice_bytes)
                })?;
            self.crossing_bytes += u128::from(bytes);
        }
        Ok(())
    }

    fn finish(self: Box<Self>, _: &Stripes) -> Result<Moved, LabError> {
        Ok(Moved::at_once(self.crossing_bytes))
    }
}
