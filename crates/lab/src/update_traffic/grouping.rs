//! The effect of data grouping on a stripe, remembered. Its rules look at the number of chunks of each kind in each
//! rack and at the order of racks, never at which chunks of one kind they are; so a stripe is brought into an order of
//! chunks that it shares with others, and the exchange that the planner finds there is brought back.

use super::chunk_set::ChunkSet;
use super::costs::{make_room, stripe_at};
use super::hashing::FastMap;
use super::layout::Stripes;
use crate::error::LabError;
use gabion_layout::{ChunkIndex, GroupingRule};
use gabion_plan::Cost;
use gabion_planner::update::cau::{self, Swap};

/// The effects of grouping by one rule on stripes, by the racks of their chunks.
#[derive(Debug)]
pub(super) struct Groupings {
    rule: GroupingRule,
    known: FastMap<(Box<[u8]>, ChunkSet), Option<Regrouping>>,
    /// The place of each chunk of the stripe at hand in the common order.
    order: Vec<ChunkIndex>,
}

/// An exchange in the common order, and the bytes that it sends across racks.
#[derive(Debug)]
struct Regrouping {
    swaps: Vec<Swap>,
    crossing_bytes: u64,
}

impl Groupings {
    pub(super) const fn new(rule: GroupingRule) -> Self {
        Self {
            rule,
            known: FastMap::with_hasher(std::hash::BuildHasherDefault::new()),
            order: Vec::new(),
        }
    }

    /// Exchanges chunks of a stripe whose chunks `set` were committed together, if the rule says so: `racks` are then
    /// those after the exchange. The bytes that cross racks for it; none where nothing moves.
    pub(super) fn group(
        &mut self,
        stripes: &Stripes,
        racks: &mut [u8],
        set: ChunkSet,
    ) -> Result<Option<u64>, LabError> {
        self.find_order(stripes, racks, set);
        let place = |chunk: &ChunkIndex| racks[chunk.at()];
        let key: Box<[u8]> = self.order.iter().map(place).collect();
        let mut ordered_set = ChunkSet::default();
        for (at, &chunk) in self.order.iter().enumerate() {
            if set.contains(chunk) {
                ordered_set.insert(ChunkIndex::new(at));
            }
        }
        let key = (key, ordered_set);
        let known = if let Some(known) = self.known.get(&key) {
            known
        } else {
            let found = Regrouping::of(stripes, &key.0, ordered_set, self.rule)?;
            make_room(&mut self.known);
            self.known.entry(key).or_insert(found)
        };
        let Some(regrouping) = known else {
            return Ok(None);
        };
        for swap in &regrouping.swaps {
            let [updated, other] = [swap.updated, swap.other].map(|at| self.order[at.at()].at());
            racks.swap(updated, other);
        }
        Ok(Some(regrouping.crossing_bytes))
    }

    /// Sorts data chunks by rack, updated ones first, and parity chunks by rack; chunks of one kind keep their order,
    /// since the planner takes the first of them. Racks go by number. Where the rule prefers the rack whose first
    /// updated chunk comes first, that rack's chunks come first.
    fn find_order(&mut self, stripes: &Stripes, racks: &[u8], set: ChunkSet) {
        let geometry = stripes.geometry();
        let mut places = [u8::MAX; 256];
        if self.rule == GroupingRule::Algorithm1 {
            let mut next = 0;
            for chunk in set.chunks() {
                let place = &mut places[usize::from(racks[chunk.at()])];
                if *place == u8::MAX {
                    *place = next;
                    next += 1;
                }
            }
        }
        self.order.clear();
        self.order.extend(geometry.chunks());
        let (data, parity) = self.order.split_at_mut(geometry.k());
        let kind = |chunk: &ChunkIndex| {
            let rack = racks[chunk.at()];
            let place = places[usize::from(rack)];
            (place, rack, !set.contains(*chunk), *chunk)
        };
        data.sort_unstable_by_key(kind);
        parity.sort_unstable_by_key(kind);
    }
}

impl Regrouping {
    /// Returns the rule's exchange for a stripe; none if nothing moves.
    fn of(
        stripes: &Stripes,
        racks: &[u8],
        set: ChunkSet,
        rule: GroupingRule,
    ) -> Result<Option<Self>, LabError> {
        let nodes = stripes.nodes_in(racks);
        let stripe = stripe_at(stripes, 0, &nodes);
        let updated: Vec<ChunkIndex> = set.chunks().collect();
        let Some(grouping) = cau::group(&stripe, stripes.topology(), &updated, rule) else {
            return Ok(None);
        };
        let plan = cau::relocate(&stripe, &grouping, stripes.geometry().chunk_bytes())?;
        Ok(Some(Self {
            swaps: grouping.swaps,
            crossing_bytes: Cost::of(&plan, stripes.topology()).cross_rack_bytes,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_codec::Code;
    use gabion_layout::Geometry;

    /// Each of many stripes ends as the planner leaves it when it is asked about the stripe itself.
    fn check(rule: GroupingRule) {
        let code: Code = "rs(12,4)".parse().unwrap();
        let geometry = Geometry::new(12, 4, 1, 4096).unwrap();
        let layout = "random:9".parse().unwrap();
        let stripes = Stripes::new(code, geometry, layout, Some(4)).unwrap();
        let mut groupings = Groupings::new(rule);
        let (mut racks, mut moved) = (vec![0; 16], 0);
        for stripe in 0..2000_u64 {
            let mut set = ChunkSet::of(ChunkIndex((stripe % 12) as u8));
            let bits = stripe.wrapping_mul(0x9e37_79b9) >> 9;
            // Few chunks more often than many.
            for chunk in geometry
                .data_chunks()
                .filter(|c| bits >> (2 * c.0) & 3 == 3)
            {
                set.insert(chunk);
            }
            stripes.racks(stripe, &mut racks).unwrap();
            let placement = stripes.placement(stripe).unwrap();
            let updated: Vec<ChunkIndex> = set.chunks().collect();
            let own = stripe_at(&stripes, stripe, &placement);
            let expected = cau::group(&own, stripes.topology(), &updated, rule);
            let bytes = groupings.group(&stripes, &mut racks, set).unwrap();
            assert_eq!(bytes.is_some(), expected.is_some(), "stripe {stripe}");
            let Some(expected) = expected else { continue };
            moved += 1;
            let rack = |&node| stripes.topology().rack_of(node).unwrap().0 as u8;
            let expected: Vec<u8> = expected.placement.iter().map(rack).collect();
            assert_eq!(racks, expected, "stripe {stripe}");
        }
        let known = groupings.known.len();
        assert!(moved > 50, "{moved} stripes moved");
        assert!(known < 1800, "{known} of 2000 stripes were planned");
    }

    #[test]
    fn remembered_exchanges_are_those_of_the_planner() {
        check(GroupingRule::Authors);
        check(GroupingRule::Algorithm1);
    }
}
