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
    cross_rack_bytes: u128,
    /// Cost by class of placement and data chunk.
    by_class: HashMap<(u64, ChunkIndex), u64>,
    /// Cost by data chunk and [`rack_pattern`] of the nodes that its update may use.
    by_pattern: HashMap<(ChunkIndex, Vec<u8>), u64>,
    /// The stripe that was placed last; neighbouring chunks of a random layout need it again.
    placed: Option<(u64, Vec<NodeId>)>,
}

impl Scheme for Baseline {
    fn write(&mut self, stripes: &Stripes, touched: &[ChunkUpdate]) -> Result<(), LabError> {
        for update in touched {
            let class = (stripes.class(update.stripe), update.data);
            let bytes = match self.by_class.get(&class) {
                Some(bytes) => *bytes,
                None => self.learn(stripes, *update, class)?,
            };
            self.cross_rack_bytes += u128::from(bytes);
        }
        Ok(())
    }

    fn finish(self: Box<Self>, _: &Stripes) -> Result<u128, LabError> {
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
        let placement = match self.placed.take() {
            Some((stripe, placement)) if stripe == update.stripe => placement,
            _ => stripes.placement(update.stripe)?,
        };
        let key = (update.data, rack_pattern(stripes, update.data, &placement));
        let bytes = if let Some(bytes) = self.by_pattern.get(&key) {
            *bytes
        } else {
            let bytes = planned(stripes, update, &placement)?;
            make_room(&mut self.by_pattern);
            self.by_pattern.insert(key, bytes);
            bytes
        };
        self.placed = Some((update.stripe, placement));
        make_room(&mut self.by_class);
        self.by_class.insert(class, bytes);
        Ok(bytes)
    }
}

/// Which of the nodes that an update of `data` may use share racks: for the data node and then each
/// parity node, the first of them that is in the same rack. The plan has no other nodes, and whether
/// bytes cross racks does not depend on which racks these are, so stripes of one pattern cost the
/// same.
fn rack_pattern(stripes: &Stripes, data: ChunkIndex, placement: &[NodeId]) -> Vec<u8> {
    let chunks = std::iter::once(data).chain(stripes.geometry().parity_chunks());
    let racks: Vec<Option<RackId>> = chunks
        .map(|chunk| stripes.topology().rack_of(placement[chunk.at()]))
        .collect();
    let first_alike = |rack| {
        let first = racks.iter().position(|other| other == rack);
        first.expect("a rack is the same as itself") as u8
    };
    racks.iter().map(first_alike).collect()
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
