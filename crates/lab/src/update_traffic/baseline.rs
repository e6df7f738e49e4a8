//! The baseline of CAU (section 3.1) and `RackCU` (section II-C): every updated chunk is planned alone
//! by [`update::delta`], which sends its data delta to each parity node that it changes.

use super::chunk_set::ChunkSet;
use super::costs::{Costs, Planner};
use super::counter::TrafficCounter;
use super::layout::Stripes;
use super::moved::Moved;
use super::touched::Batch;
use crate::error::LabError;
use gabion_planner::update;

/// The baseline, with the cost of every update that it has planned.
#[derive(Debug, Default)]
pub(super) struct Baseline {
    crossing_bytes: u128,
    costs: Costs,
}

impl TrafficCounter for Baseline {
    fn write(&mut self, stripes: &Stripes, batch: &Batch<'_>) -> Result<(), LabError> {
        let slice_bytes = stripes.geometry().chunk_bytes();
        for set in batch.set.chunks().map(ChunkSet::of) {
            let planner: &Planner<'_> =
                &|stripe, topology, ranges| update::delta(stripe, topology, ranges, slice_bytes);
            let bytes = self.costs.crossing(stripes, batch.racks, set, planner)?;
            self.crossing_bytes += u128::from(bytes);
        }
        Ok(())
    }

    fn finish(self: Box<Self>, _: &Stripes) -> Result<Moved, LabError> {
        Ok(Moved::at_once(self.crossing_bytes))
    }
}
