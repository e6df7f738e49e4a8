//! The pattern that decides the cost of a plan for chunks of a stripe: not which racks they are in, only which of them
//! share racks.

use super::chunk_set::ChunkSet;
use super::layout::Stripes;
use gabion_layout::ChunkIndex;

/// Racks, and chunks of one kind in a rack, that fit a packed pattern.
const RACKS_MAX: usize = 16;
const CHUNKS_MAX: usize = 15;

/// A pattern of racks. Plans for two sets of chunks of equal patterns send the same bytes across racks.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Pattern {
    /// For codes whose data chunks are all alike, and so are the parity chunks: by rack how many updated chunks it has
    /// (the upper half of a byte) and how many parity chunks, the largest byte first.
    Counts(u128),
    /// For others: the updated chunks, and for each of them and then each parity chunk the first of these that is in
    /// the same rack.
    Alike(ChunkSet, Box<[u8]>),
}

impl Pattern {
    /// The pattern of the chunks of `set` and of the parity chunks, by the rack of each chunk of the stripe.
    pub(super) fn of(stripes: &Stripes, set: ChunkSet, racks: &[u8]) -> Self {
        let counted = stripes.is_symmetric().then(|| counts(stripes, set, racks));
        if let Some(Some(packed)) = counted {
            return Self::Counts(packed);
        }
        let chunks = set.chunks().chain(stripes.geometry().parity_chunks());
        let racks: Vec<u8> = chunks.map(|chunk: ChunkIndex| racks[chunk.at()]).collect();
        let first_alike = |rack| {
            let first = racks.iter().position(|other| other == rack);
            first.expect("a rack is the same as itself") as u8
        };
        Self::Alike(set, racks.iter().map(first_alike).collect())
    }
}

/// The packed counts by rack; none if they are too many.
fn counts(stripes: &Stripes, set: ChunkSet, racks: &[u8]) -> Option<u128> {
    let geometry = stripes.geometry();
    if set.count() > CHUNKS_MAX || geometry.m() > CHUNKS_MAX {
        return None;
    }
    let mut held = [0u8; 256];
    let mut used = [0u8; RACKS_MAX];
    let mut used_count = 0;
    let updated = set.chunks().map(|chunk| (chunk, 0x10));
    let parity = geometry.parity_chunks().map(|chunk| (chunk, 1));
    for (chunk, one) in updated.chain(parity) {
        let rack = racks[chunk.at()];
        let held = &mut held[usize::from(rack)];
        if *held == 0 {
            *used.get_mut(used_count)? = rack;
            used_count += 1;
        }
        *held += one;
    }
    let used = &mut used[..used_count];
    for rack in used.iter_mut() {
        *rack = held[usize::from(*rack)];
    }
    used.sort_unstable_by(|a, b| b.cmp(a));
    Some(
        used.iter()
            .fold(0, |packed, &held| packed << 8 | u128::from(held)),
    )
}
