//! The baseline of CAU (section 3.1) and `RackCU` (section II-C): every updated chunk is planned alone
//! by [`update::delta`], which sends its data delta to each parity node that it changes.

use super::chunk_set::ChunkSet;
use super::costs::{Costs, Place};
use super::counter::TrafficCounter;
use super::layout::Stripes;
use super::moved::Moved;
use super::touched::ChunkUpdate;
use crate::error::LabError;
use gabion_planner::update;

/// The baseline, with the cost of every update that it has planned.
#[derive(Debug, Default)]
pub(super) struct Baseline {
    crossing_bytes: u128,
    costs: Costs,
}

impl TrafficCounter for Baseline {
    fn write(&mut self, stripes: &Stripes, touched: &[ChunkUpdate]) -> Result<(), LabError> {
        let slice_bytes = stripes.geometry().chunk_bytes();
        for update in touched {
            let place = Place {
                stripe: update.stripe,
                moved: None,
            };
            let set = ChunkSet::of(update.data);
            let bytes = self
                .costs
                .crossing(stripes, place, set, &|stripe, topology, ranges| {
                    update::delta(stripe, topology, ranges, slice_bytes)
                })?;
            self.crossing_bytes += u128::from(bytes);
        }
        Ok(())
    }

    fn finish(self: Box<Self>, _: &Stripes) -> Result<Moved, LabError> {
        Ok(Moved::at_once(self.crossing_bytes))
    }
}
