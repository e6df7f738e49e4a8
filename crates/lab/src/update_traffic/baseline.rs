//! The baseline of CAU (section 3.1) and `RackCU` (section II-C): every updated chunk is planned alone
//! by [`update::delta`], which sends its data delta to each parity node that it changes.

use super::{ChunkUpdate, Scheme, Stripes};
use crate::error::LabError;
use gabion_layout::{ByteRange, ChunkIndex, ChunkRange, NodeId, RackId, StripeId};
use gabion_plan::Cost;
use gabion_planner::{Stripe, update};
use std::collections::HashMap;

/// Costs that are remembered of each kind; a full memory is emptied, so that it does not grow with
/// the trace. Only random layouts, where each stripe is a class of its own, ever get there.
const COSTS_MAX: usize = 1 << 20;

/// The baseline, with the cost of every update that it has planned.
#[derive(Debug, Default)]
pub(super) struct Baseline {
    cross_rack_bytes: u64,
    /// Cost by class of placement and data chunk.
    by_class: HashMap<(u64, ChunkIndex), u64>,
    /// Cost by data chunk and the racks of the nodes that its update may use. The plan of an update
    /// has no other nodes, so stripes that agree in this cost the same wherever else they lie.
    by_racks: HashMap<(ChunkIndex, Vec<Option<RackId>>), u64>,
}

impl Scheme for Baseline {
    fn write(&mut self, stripes: &Stripes, touched: &[ChunkUpdate]) -> Result<(), LabError> {
        for update in touched {
            let class = (stripes.class(update.stripe), update.data);
            let bytes = match self.by_class.get(&class) {
                Some(bytes) => *bytes,
                None => self.learn(stripes, *update, class)?,
            };
            self.cross_rack_bytes += bytes;
        }
        Ok(())
    }

    fn finish(self: Box<Self>, _: &Stripes) -> Result<u64, LabError> {
        Ok(self.cross_rack_bytes)
    }
}

impl Baseline {
    /// Finds out what an update costs and remembers it.
    fn learn(
        &mut self,
        stripes: &Stripes,
        update: ChunkUpdate,
        class: (u64, ChunkIndex),
    ) -> Result<u64, LabError> {
        let placement = stripes.placement(update.stripe)?;
        let parities = stripes.geometry().parity_chunks();
        let racks = std::iter::once(update.data)
            .chain(parities)
            .map(|chunk| stripes.topology().rack_of(placement[chunk.at()]))
            .collect();
        let key = (update.data, racks);
        let bytes = if let Some(bytes) = self.by_racks.get(&key) {
            *bytes
        } else {
            let bytes = planned(stripes, update, &placement)?;
            make_room(&mut self.by_racks);
            self.by_racks.insert(key, bytes);
            bytes
        };
        make_room(&mut self.by_class);
        self.by_class.insert(class, bytes);
        Ok(bytes)
    }
}

fn make_room<K>(costs: &mut HashMap<K, u64>) {
    if costs.len() == COSTS_MAX {
        costs.clear();
    }
}

/// Plans the update of one whole chunk, in one slice, and gives the bytes that cross racks.
fn planned(stripes: &Stripes, update: ChunkUpdate, placement: &[NodeId]) -> Result<u64, LabError> {
    let geometry = stripes.geometry();
    let stripe = Stripe {
        id: StripeId(update.stripe),
        code: stripes.code(),
        geometry,
        placement,
        lost: &[],
    };
    let whole = ChunkRange {
        chunk: update.data,
        range: ByteRange::new(0, geometry.chunk_bytes()),
    };
    let plan = update::delta(&stripe, &[whole], geometry.chunk_bytes())?;
    Ok(Cost::of(&plan, stripes.topology()).cross_rack_bytes)
}
