//! A set of a stripe's chunks as a few words, so that what was planned for it can be looked up.

use gabion_layout::ChunkIndex;

/// A set of chunks of one stripe.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ChunkSet([u64; 4]);

impl ChunkSet {
    /// The set of one chunk.
    pub fn of(chunk: ChunkIndex) -> Self {
        let mut set = Self::default();
        set.insert(chunk);
        set
    }

    /// Adds a chunk; whether it was not in the set.
    pub fn insert(&mut self, chunk: ChunkIndex) -> bool {
        let word = &mut self.0[usize::from(chunk.0 >> 6)];
        let bit = 1 << (chunk.0 & 63);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// The chunks, in order.
    pub fn chunks(self) -> impl Iterator<Item = ChunkIndex> {
        let has = move |chunk: &u8| self.0[usize::from(chunk >> 6)] >> (chunk & 63) & 1 == 1;
        (0..=u8::MAX).filter(has).map(ChunkIndex)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_come_back_once_and_in_order() {
        let mut set = ChunkSet::default();
        let inserted = [200, 3, 64, 3, 254].map(|chunk| set.insert(ChunkIndex(chunk)));
        assert_eq!(inserted, [true, true, true, false, true]);
        let chunks: Vec<u8> = set.chunks().map(|chunk| chunk.0).collect();
        assert_eq!(chunks, [3, 64, 200, 254]);
        assert_eq!(ChunkSet::of(ChunkIndex(64)).chunks().count(), 1);
    }
}
