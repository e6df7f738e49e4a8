//! The least that an update can send across racks, remembered: what each scheme is measured against.

use super::chunk_set::ChunkSet;
use super::costs::{make_room, stripe_at};
use super::hashing::FastMap;
use super::layout::Stripes;
use super::moved::Least;
use super::patterns::Pattern;
use gabion_layout::ChunkIndex;
use gabion_planner::bound::{self, Proof};

/// Bounds by what decides them.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    known: FastMap<Pattern, Least>,
}

impl Bounds {
    /// Returns the least that must cross racks when the chunks of `set` change as a whole.
    pub(super) fn least(&mut self, stripes: &Stripes, racks: &[u8], set: ChunkSet) -> Least {
        let pattern = Pattern::of(stripes, set, racks);
        if let Some(least) = self.known.get(&pattern) {
            return *least;
        }
        let updated: Vec<ChunkIndex> = set.chunks().collect();
        let nodes = stripes.nodes_in(racks);
        let stripe = stripe_at(stripes, 0, &nodes);
        let bound = bound::least(&stripe, stripes.topology(), &updated);
        let least = Least {
            bytes: u128::from(bound.rows * stripes.geometry().sub_chunk_bytes()),
            is_loose: bound.proof == Proof::Cuts,
        };
        make_room(&mut self.known);
        self.known.insert(pattern, least);
        least
    }
}
