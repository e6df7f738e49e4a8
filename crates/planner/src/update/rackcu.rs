//! Rack-coordinated updates: `RackCU`, section III. One rack collects the data deltas of a stripe's
//! other racks, and updates every parity rack by data deltas or parity deltas, whichever are fewer.
//!
//! **The rule.** Algorithm 1 takes the rack with most updated data chunks or that with most parity chunks, whichever
//! has more, and assumes that no rack holds both. Ours is the same rule without the assumption. Rack `a` with `u` of
//! the `U` updated chunks and `t` of the `m` parity chunks has to send `out(a) = min(u, m - t)` rows, its deltas or
//! their contributions to the other racks' parity, and to receive `in(a) = min(t, U - u)`. A collector saves both, so
//! the only collector is the rack with the highest `out + in`; no node receives rows that it already has. Where data
//! and parity racks are apart, `out` is `u`, `in` is `t`, one of them is 0, and the choice is Algorithm 1's.
//!
//! For an MDS code with one row a chunk no other choice of collectors is better, and neither is CAU's
//! direct exchange: `tests/integration/collectors_are_the_best.rs` tries all of them on all small stripes. For
//! other codes the direct exchange can be better, where a rack's parity needs little of what the
//! collector gathers, so there the cheaper of both is taken. Local parity of an LRC that is in the
//! rack of its group costs nothing across racks and has no say in the choice (section III-D).

use super::cau::{Selection, send_directly};
use super::delta::delta;
use super::descriptor::{Descriptor, Traffic, UpdatePlanner};
use super::flow::{Flow, Holding, NewBytes, at_once, update};
use super::plr::ReservedSpace;
use super::spread::Spread;
use crate::{PlanError, Stripe, placement};
use gabion_layout::{ChunkRange, NodeId, Topology, UpdateScheme};
use gabion_plan::{Keepings, Plan};
use rand_chacha::ChaCha8Rng;

/// The scheme of pools: records are kept as under PLR, and stripes with lost chunks are updated by
/// [`delta()`], since sums on the way to lost nodes have no use.
#[derive(Clone, Copy, Debug)]
pub(super) struct RackCoordinated;

/// The scheme as all others know it.
pub(super) const DESCRIPTOR: Descriptor = Descriptor {
    scheme: UpdateScheme::Rackcu,
    help: "like plr, with deltas sent through a collector rack",
    paper: "RackCU section III",
    planner: &RackCoordinated,
    traffic: Traffic::EachStripe,
};

impl UpdatePlanner for RackCoordinated {
    fn keepings(&self, reserve_bytes: u64) -> Keepings {
        ReservedSpace.keepings(reserve_bytes)
    }

    fn place(
        &self,
        topology: &Topology,
        (k, m): (usize, usize),
        per_rack: usize,
        rng: &mut ChaCha8Rng,
    ) -> Result<Vec<NodeId>, PlanError> {
        // With room, a stripe survives the loss of a rack even if the pool does not promise it.
        placement::rack_by_rack(topology, k, m, per_rack.min(m), rng)
            .or_else(|_| placement::rack_by_rack(topology, k, m, per_rack, rng))
    }

    fn plan(
        &self,
        stripe: &Stripe<'_>,
        topology: &Topology,
        ranges: &[ChunkRange],
        slice_bytes: u64,
    ) -> Result<Plan, PlanError> {
        if stripe.lost.is_empty() {
            rackcu(stripe, topology, ranges, slice_bytes)
        } else {
            delta(stripe, topology, ranges, slice_bytes)
        }
    }
}

/// Plans an update of `ranges` of data chunks, whose new bytes are at the chunks' nodes: data nodes
/// journal them, and every parity node logs one delta.
///
/// # Errors
/// [`PlanError::BadRanges`] for ranges that make no update, [`PlanError::NeedsChunk`] when a chunk is
/// lost.
///
/// ```
/// use gabion_codec::Code;
/// use gabion_layout::{ByteRange, ChunkIndex, ChunkRange, Geometry, StripeId};
/// use gabion_plan::{Cost, check};
/// use gabion_planner::{Stripe, placement, update};
///
/// // The paper's figure 4: two updated chunks in each of three racks, four parity chunks in two.
/// let code: Code = "rs(6,4)".parse().unwrap();
/// let layout = "3x2+2x2".parse().unwrap();
/// let (topology, placement) = placement::grouped(layout, 6, 4).unwrap();
/// let geometry = Geometry::new(6, 4, 1, 4096).unwrap();
/// let stripe = Stripe { id: StripeId(1), code: &code, geometry, placement: &placement, lost: &[] };
/// let range = ByteRange::new(0, 4096);
/// let ranges: Vec<_> = (0..6).map(|j| ChunkRange { chunk: ChunkIndex(j), range }).collect();
/// let plan = update::rackcu(&stripe, &topology, &ranges, 4096).unwrap();
/// check(&plan, &code).unwrap();
/// assert_eq!(Cost::of(&plan, &topology).cross_rack_bytes, 8 * 4096);
/// ```
pub fn rackcu(
    stripe: &Stripe<'_>,
    topology: &Topology,
    ranges: &[ChunkRange],
    slice_bytes: u64,
) -> Result<Plan, PlanError> {
    let send = |flow: &mut Flow<'_>| match route(&flow.spread) {
        Route::Direct => send_directly(flow, Selection::Selective),
        Route::Collector(rack) => send_through(flow, rack),
    };
    let steps = (NewBytes::Given, slice_bytes);
    update(stripe, topology, ranges, steps, send, at_once)
}

/// The racks that send, and those that receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Route {
    /// Each rack updates each other rack.
    Direct,
    /// This rack collects, and updates all others.
    Collector(usize),
}

/// The cheapest route; the first of several racks, and a collector before the direct exchange.
fn route(spread: &Spread) -> Route {
    let racks = 0..spread.rack_count;
    let saved = |rack: &usize| spread.out(*rack) + spread.needs(*rack);
    // The last of several maxima is taken, so the first rack must be looked at last.
    match racks.rev().max_by_key(saved) {
        Some(rack) if collector_rows(spread, rack) <= spread.direct_rows() => {
            Route::Collector(rack)
        }
        _ => Route::Direct,
    }
}

/// Rows that cross racks with this sole collector.
fn collector_rows(spread: &Spread, collector: usize) -> u32 {
    let others = (0..spread.rack_count).filter(|&rack| rack != collector);
    others
        .map(|rack| spread.out(rack) + spread.needs(rack))
        .sum()
}

/// Rows that cross racks by the cheapest route.
pub(crate) fn best_rows(spread: &Spread) -> u32 {
    match route(spread) {
        Route::Direct => spread.direct_rows(),
        Route::Collector(rack) => collector_rows(spread, rack),
    }
}

/// Both phases: what others have comes to one node of the collector rack, and from there every rack
/// gets what it lacks.
fn send_through(flow: &mut Flow<'_>, collector: usize) {
    let Some(meeting) = flow.meeting_node(collector) else {
        return;
    };
    let others = (0..flow.spread.rack_count).filter(|&rack| rack != collector);
    let mut collected = Holding::default();
    for rack in others.clone() {
        flow.collect(rack, meeting, &mut collected);
    }
    for rack in 0..flow.spread.rack_count {
        if flow.spread.needs(rack) == 0 {
            continue;
        }
        let mut lacks = Holding::default();
        let is_elsewhere = |&(cell, _): &(usize, _)| flow.spread.cell_racks[cell] != rack;
        lacks
            .deltas
            .extend(collected.deltas.iter().filter(|delta| is_elsewhere(delta)));
        if rack != collector {
            lacks.deltas.extend(flow.own(collector).deltas);
        }
        lacks.partials.extend_from_slice(&collected.partials);
        if flow.spread.takes_data(rack) {
            flow.give_data(&lacks, collector, rack);
        } else {
            flow.give_parity(&lacks, meeting, rack);
        }
    }
}
