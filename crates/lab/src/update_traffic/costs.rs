//! Costs of plans, remembered: stripes whose racks hold alike what a plan touches cost alike.

use super::chunk_set::ChunkSet;
use super::hashing::FastMap;
use super::layout::Stripes;
use super::patterns::Pattern;
use crate::error::LabError;
use gabion_layout::{ByteRange, ChunkRange, NodeId, StripeId, Topology};
use gabion_plan::{Cost, Plan};
use gabion_planner::{PlanError, Stripe};
use std::collections::HashMap;

/// Costs that are remembered of each kind; a full memory is emptied, so that it does not grow with
/// the trace.
const COSTS_MAX: usize = 1 << 18;

/// Plans an update or a commit of whole chunks.
pub(super) type Planner<'a> =
    dyn Fn(&Stripe<'_>, &Topology, &[ChunkRange]) -> Result<Plan, PlanError> + 'a;

/// Bytes that cross racks, by what decides them. One memory serves one planner.
#[derive(Debug, Default)]
pub(super) struct Costs {
    known: FastMap<Pattern, u64>,
}

impl Costs {
    /// Bytes that cross racks when `planner` plans for the chunks of `set` as a whole, in a stripe whose chunks are in
    /// `racks`. The plan may use the nodes of these chunks and of parity chunks, and no others.
    pub(super) fn crossing(
        &mut self,
        stripes: &Stripes,
        racks: &[u8],
        set: ChunkSet,
        planner: &Planner<'_>,
    ) -> Result<u64, LabError> {
        let pattern = Pattern::of(stripes, set, racks);
        if let Some(bytes) = self.known.get(&pattern) {
            return Ok(*bytes);
        }
        let nodes = stripes.nodes_in(racks);
        let stripe = stripe_at(stripes, 0, &nodes);
        let whole = ByteRange::new(0, stripes.geometry().chunk_bytes());
        let part = |chunk| ChunkRange {
            chunk,
            range: whole,
        };
        let ranges: Vec<ChunkRange> = set.chunks().map(part).collect();
        let plan = planner(&stripe, stripes.topology(), &ranges)?;
        let bytes = Cost::of(&plan, stripes.topology()).cross_rack_bytes;
        make_room(&mut self.known);
        self.known.insert(pattern, bytes);
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

/// Empties a memory that is full.
pub(super) fn make_room<K, V, S>(costs: &mut HashMap<K, V, S>) {
    if costs.len() == COSTS_MAX {
        costs.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_codec::Code;
    use gabion_layout::{ChunkIndex, Geometry};
    use gabion_planner::update::{self, cau, parix, rackcu};

    const CHUNK: u64 = 4096;

    /// Every stripe of a random layout planned by itself, on the nodes that it has, costs what is remembered of others
    /// of its pattern.
    fn check(code: &str, racks: u32, planner: &Planner<'_>) {
        let code: Code = code.parse().unwrap();
        let geometry = Geometry::new(code.k(), code.m(), code.sub_chunks(), CHUNK).unwrap();
        let layout = "random:5".parse().unwrap();
        let stripes = Stripes::new(code, geometry, layout, Some(racks)).unwrap();
        let mut costs = Costs::default();
        let mut racks_of = vec![0; geometry.n()];
        for stripe in 0..300 {
            // Sets of all sizes: some bits of a number that visits them without an order.
            let mut set = ChunkSet::of(ChunkIndex((stripe % geometry.k() as u64) as u8));
            let bits = stripe.wrapping_mul(0x9e37_79b9) >> 7;
            for chunk in geometry.data_chunks().filter(|c| bits >> c.0 & 1 == 1) {
                set.insert(chunk);
            }
            stripes.racks(stripe, &mut racks_of).unwrap();
            let remembered = costs.crossing(&stripes, &racks_of, set, planner).unwrap();
            let placement = stripes.placement(stripe).unwrap();
            let part = |chunk| ChunkRange {
                chunk,
                range: ByteRange::new(0, CHUNK),
            };
            let ranges: Vec<ChunkRange> = set.chunks().map(part).collect();
            let own = stripe_at(&stripes, stripe, &placement);
            let plan = planner(&own, stripes.topology(), &ranges).unwrap();
            let own_bytes = Cost::of(&plan, stripes.topology()).cross_rack_bytes;
            assert_eq!(remembered, own_bytes, "stripe {stripe}, {set:?}");
        }
        let known = costs.known.len();
        assert!(known < 300, "{known} patterns: nothing was remembered");
    }

    #[test]
    fn stripes_of_one_pattern_cost_alike() {
        let shapes = [
            ("rs(6,3)", 3),
            ("rs(12,4)", 4),
            ("rs(12,4)", 8),
            ("rdp(4)", 3),
            ("lrc(4,2,2)", 4),
        ];
        for (code, racks) in shapes {
            check(code, racks, &|stripe, topology, ranges| {
                update::delta(stripe, topology, ranges, CHUNK)
            });
            check(code, racks, &|stripe, topology, ranges| {
                cau::commit(stripe, topology, ranges, cau::Selection::Selective, CHUNK)
            });
            check(code, racks, &|stripe, topology, ranges| {
                cau::append(stripe, topology, ranges, 1, CHUNK)
            });
            check(code, racks, &|stripe, topology, ranges| {
                rackcu(stripe, topology, ranges, CHUNK)
            });
            check(code, racks, &|stripe, _, ranges| {
                parix::append(stripe, ranges, &[], CHUNK)
            });
        }
    }
}
