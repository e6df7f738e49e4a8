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

    /// Adds all chunks of another set.
    pub fn extend(&mut self, other: Self) {
        for (word, more) in self.0.iter_mut().zip(other.0) {
            *word |= more;
        }
    }

    /// Whether a chunk is in the set.
    pub fn contains(self, chunk: ChunkIndex) -> bool {
        self.0[usize::from(chunk.0 >> 6)] >> (chunk.0 & 63) & 1 == 1
    }

    /// Returns the number of chunks in the set.
    pub fn count(self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The chunks, in order.
    pub fn chunks(self) -> impl Iterator<Item = ChunkIndex> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let at = left.iter().position(|word| *word != 0)?;
            let bit = left[at].trailing_zeros();
            left[at] &= left[at] - 1;
            Some(ChunkIndex(at as u8 * 64 + bit as u8))
        })
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
        assert_eq!(set.count(), 4);
        assert!(set.contains(ChunkIndex(64)) && !set.contains(ChunkIndex(65)));
        assert_eq!(ChunkSet::of(ChunkIndex(64)).chunks().count(), 1);
        let mut both = ChunkSet::of(ChunkIndex(5));
        both.extend(set);
        assert_eq!((both.count(), both.contains(ChunkIndex(254))), (5, true));
    }
}
