//! The least that an update can send across racks, remembered: what each scheme is measured against.

use super::chunk_set::ChunkSet;
use super::costs::{Place, make_room, rack_pattern, stripe_at};
use super::layout::Stripes;
use super::moved::Least;
use crate::error::LabError;
use gabion_codec::Family;
use gabion_layout::{ChunkIndex, NodeId};
use gabion_planner::bound::{self, Proof};
use std::collections::HashMap;

/// Bounds by what decides them.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    by_class: HashMap<(u64, ChunkSet), Least>,
    by_racks: HashMap<Vec<u8>, Least>,
}

impl Bounds {
    /// What must cross racks when the chunks of `set` change as a whole.
    pub(super) fn least(
        &mut self,
        stripes: &Stripes,
        place: Place<'_>,
        set: ChunkSet,
    ) -> Result<Least, LabError> {
        if let Some(placement) = place.moved {
            return Ok(self.by_racks(stripes, place.stripe, placement, set));
        }
        let class = (stripes.class(place.stripe), set);
        if let Some(least) = self.by_class.get(&class) {
            return Ok(*least);
        }
        let placement = stripes.placement(place.stripe)?;
        let least = self.by_racks(stripes, place.stripe, &placement, set);
        make_room(&mut self.by_class);
        self.by_class.insert(class, least);
        Ok(least)
    }

    fn by_racks(
        &mut self,
        stripes: &Stripes,
        stripe: u64,
        placement: &[NodeId],
        set: ChunkSet,
    ) -> Least {
        let key = rack_key(stripes, set, placement);
        if let Some(least) = self.by_racks.get(&key) {
            return *least;
        }
        let updated: Vec<ChunkIndex> = set.chunks().collect();
        let stripe = stripe_at(stripes, stripe, placement);
        let bound = bound::least(&stripe, stripes.topology(), &updated);
        let least = Least {
            bytes: u128::from(bound.rows * stripes.geometry().sub_chunk_bytes()),
            is_loose: bound.proof == Proof::Cuts,
        };
        make_room(&mut self.by_racks);
        self.by_racks.insert(key, least);
        least
    }
}

/// What decides a bound: for Reed-Solomon codes how many updated and parity chunks each rack has, in
/// no order, and for others which chunks share racks.
fn rack_key(stripes: &Stripes, set: ChunkSet, placement: &[NodeId]) -> Vec<u8> {
    let pattern = rack_pattern(stripes, set, placement);
    match stripes.code().family() {
        Family::ReedSolomon { .. } | Family::Cauchy { .. } => {
            let updated = pattern.len() - stripes.geometry().m();
            let mut held = vec![[0u8; 2]; pattern.len()];
            for (at, &rack) in pattern.iter().enumerate() {
                held[usize::from(rack)][usize::from(at >= updated)] += 1;
            }
            held.retain(|held| *held != [0, 0]);
            held.sort_unstable();
            held.into_flattened()
        }
        _ => {
            let mut key: Vec<u8> = set.chunks().map(|chunk| chunk.0).collect();
            key.extend(pattern);
            key
        }
    }
}
