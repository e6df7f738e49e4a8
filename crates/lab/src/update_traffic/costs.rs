//! What plans cost, remembered: stripes whose racks hold alike what a plan touches cost alike.

use super::chunk_set::ChunkSet;
use super::layout::Stripes;
use crate::error::LabError;
use gabion_layout::{ByteRange, ChunkIndex, ChunkRange, NodeId, RackId, StripeId, Topology};
use gabion_plan::{Cost, Plan};
use gabion_planner::{PlanError, Stripe};
use std::collections::HashMap;

/// Costs that are remembered of each kind; a full memory is emptied, so that it does not grow with
/// the trace. Only random layouts, where each stripe is a class of its own, ever get there.
const COSTS_MAX: usize = 1 << 20;

/// Plans an update or a commit of whole chunks.
pub(super) type Planner<'a> =
    dyn Fn(&Stripe<'_>, &Topology, &[ChunkRange]) -> Result<Plan, PlanError> + 'a;

/// A stripe of the experiment, and where its chunks are if they have been moved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) stripe: u64,
    pub(super) moved: Option<&'a [NodeId]>,
}

/// Bytes that cross racks, by what decides them. One memory serves one planner.
#[derive(Debug, Default)]
pub(super) struct Costs {
    /// By class of placement and updated chunks.
    by_class: HashMap<(u64, ChunkSet), u64>,
    /// By updated chunks and [`rack_pattern`] of the nodes that their plan may use.
    by_pattern: HashMap<(ChunkSet, Vec<u8>), u64>,
    /// The stripe that was placed last; neighbouring chunks of a random layout need it again.
    placed: Option<(u64, Vec<NodeId>)>,
}

impl Costs {
    /// Bytes that cross racks when `planner` plans for the chunks of `set` as a whole. The plan may
    /// use the nodes of these chunks and of parity chunks, and no others.
    pub(super) fn crossing(
        &mut self,
        stripes: &Stripes,
        place: Place<'_>,
        set: ChunkSet,
        planner: &Planner<'_>,
    ) -> Result<u64, LabError> {
        if let Some(placement) = place.moved {
            return self.by_pattern(stripes, place.stripe, placement, set, planner);
        }
        let class = (stripes.class(place.stripe), set);
        if let Some(bytes) = self.by_class.get(&class) {
            return Ok(*bytes);
        }
        let placement = match self.placed.take() {
            Some((stripe, placement)) if stripe == place.stripe => placement,
            _ => stripes.placement(place.stripe)?,
        };
        let bytes = self.by_pattern(stripes, place.stripe, &placement, set, planner)?;
        self.placed = Some((place.stripe, placement));
        make_room(&mut self.by_class);
        self.by_class.insert(class, bytes);
        Ok(bytes)
    }

    fn by_pattern(
        &mut self,
        stripes: &Stripes,
        stripe: u64,
        placement: &[NodeId],
        set: ChunkSet,
        planner: &Planner<'_>,
    ) -> Result<u64, LabError> {
        let key = (set, rack_pattern(stripes, set, placement));
        if let Some(bytes) = self.by_pattern.get(&key) {
            return Ok(*bytes);
        }
        let stripe = stripe_at(stripes, stripe, placement);
        let whole = ByteRange::new(0, stripes.geometry().chunk_bytes());
        let part = |chunk| ChunkRange {
            chunk,
            range: whole,
        };
        let ranges: Vec<ChunkRange> = set.chunks().map(part).collect();
        let plan = planner(&stripe, stripes.topology(), &ranges)?;
        let bytes = Cost::of(&plan, stripes.topology()).cross_rack_bytes;
        make_room(&mut self.by_pattern);
        self.by_pattern.insert(key, bytes);
        Ok(bytes)
    }
}

/// A whole stripe of the experiment as planners see it.
pub(super) fn stripe_at<'a>(
    stripes: &'a Stripes,
    stripe: u64,
    placement: &'a [NodeId],
) -> Stripe<'a> {
    Stripe {
        id: StripeId(stripe),
        code: stripes.code(),
        geometry: stripes.geometry(),
        placement,
        lost: &[],
    }
}

/// Which of the nodes that a plan for `set` may use share racks: for each of these chunks and then
/// each parity chunk, the first of them that is in the same rack. Whether bytes cross racks does not
/// depend on which racks these are, so stripes of one pattern cost the same.
pub(super) fn rack_pattern(stripes: &Stripes, set: ChunkSet, placement: &[NodeId]) -> Vec<u8> {
    let chunks = set.chunks().chain(stripes.geometry().parity_chunks());
    let racks: Vec<Option<RackId>> = chunks
        .map(|chunk: ChunkIndex| stripes.topology().rack_of(placement[chunk.at()]))
        .collect();
    let first_alike = |rack| {
        let first = racks.iter().position(|other| other == rack);
        first.expect("a rack is the same as itself") as u8
    };
    racks.iter().map(first_alike).collect()
}

/// Empties a memory that is full.
pub(super) fn make_room<K, V>(costs: &mut HashMap<K, V>) {
    if costs.len() == COSTS_MAX {
        costs.clear();
    }
}
