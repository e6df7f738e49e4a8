//! Schemes that update parity at once, with all chunks of a stripe that one write touches together:
//! `RackCU` (section V-B), and CAU as it is counted there, its selective parity update alone.

use super::costs::{Costs, Planner};
use super::counter::TrafficCounter;
use super::layout::Stripes;
use super::moved::Moved;
use super::touched::Batch;
use crate::error::LabError;
use gabion_planner::update::UpdatePlanner;

/// One of these schemes, with the cost of every batch that it has planned.
#[derive(Debug)]
pub(super) struct Batches {
    planner: &'static dyn UpdatePlanner,
    crossing_bytes: u128,
    costs: Costs,
}

impl Batches {
    pub(super) fn of(planner: &'static dyn UpdatePlanner) -> Self {
        Self {
            planner,
            crossing_bytes: 0,
            costs: Costs::default(),
        }
    }
}

impl TrafficCounter for Batches {
    fn write(&mut self, stripes: &Stripes, batch: &Batch<'_>) -> Result<(), LabError> {
        let (planner, slice_bytes) = (self.planner, stripes.geometry().chunk_bytes());
        let planner: &Planner<'_> =
            &|stripe, topology, ranges| planner.plan(stripe, topology, ranges, slice_bytes);
        let bytes = self
            .costs
            .crossing(stripes, batch.racks, batch.set, planner)?;
        self.crossing_bytes += u128::from(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>, _: &Stripes) -> Result<Moved, LabError> {
        Ok(Moved::at_once(self.crossing_bytes))
    }
}
