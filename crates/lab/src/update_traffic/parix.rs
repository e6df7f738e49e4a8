//! PARIX as CAU (section 5.1) and `RackCU` (section V-A) count it: every updated chunk goes to each
//! parity node that depends on it, and the first time its old bytes go with it. Its commits send
//! nothing. The newest bytes at a commit are the originals from then on, so old bytes are sent once
//! in the whole trace.

use super::chunk_set::ChunkSet;
use super::costs::{Costs, Planner};
use super::counter::TrafficCounter;
use super::hashing::FastMap;
use super::layout::Stripes;
use super::moved::Moved;
use super::touched::Batch;
use crate::error::LabError;
use gabion_planner::update::parix;

/// PARIX, with the chunks that it has seen.
#[derive(Debug, Default)]
pub(super) struct Parix {
    crossing_bytes: u128,
    first: Costs,
    later: Costs,
    /// By stripe: chunks of which parity nodes have originals.
    known: FastMap<u64, ChunkSet>,
}

impl TrafficCounter for Parix {
    fn write(&mut self, stripes: &Stripes, batch: &Batch<'_>) -> Result<(), LabError> {
        let slice_bytes = stripes.geometry().chunk_bytes();
        let known = self.known.entry(batch.stripe).or_default();
        for chunk in batch.set.chunks() {
            let is_first = known.insert(chunk);
            let costs = if is_first {
                &mut self.first
            } else {
                &mut self.later
            };
            let planner: &Planner<'_> = &|stripe, _, ranges| {
                let known = if is_first { &[] } else { ranges };
                parix::append(stripe, ranges, known, slice_bytes)
            };
            let bytes = costs.crossing(stripes, batch.racks, ChunkSet::of(chunk), planner)?;
            self.crossing_bytes += u128::from(bytes);
        }
        Ok(())
    }

    fn finish(self: Box<Self>, _: &Stripes) -> Result<Moved, LabError> {
        Ok(Moved::at_once(self.crossing_bytes))
    }
}
