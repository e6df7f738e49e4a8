//! A set of numbers of erase blocks, as bits: it gives its least number, and takes constant time to change.

/// Numbers in a word.
const WORD: u32 = u64::BITS;

#[derive(Clone, Debug)]
pub(super) struct BlockSet {
    /// A bit for each number.
    words: Vec<u64>,
    /// A bit for each word that has one.
    used: Vec<u64>,
}

impl BlockSet {
    /// The empty set of numbers below `block_count`.
    pub(super) fn new(block_count: u32) -> Self {
        let words = block_count.div_ceil(WORD);
        Self {
            words: vec![0; words as usize],
            used: vec![0; words.div_ceil(WORD) as usize],
        }
    }

    pub(super) fn insert(&mut self, block: u32) {
        let word = block / WORD;
        self.words[word as usize] |= 1 << (block % WORD);
        self.used[(word / WORD) as usize] |= 1 << (word % WORD);
    }

    pub(super) fn remove(&mut self, block: u32) {
        let at = block / WORD;
        let word = &mut self.words[at as usize];
        *word &= !(1 << (block % WORD));
        if *word == 0 {
            self.used[(at / WORD) as usize] &= !(1 << (at % WORD));
        }
    }

    /// The least number.
    pub(super) fn first(&self) -> Option<u32> {
        let (at, used) = (0..).zip(&self.used).find(|(_, used)| **used != 0)?;
        let word: u32 = at * WORD + used.trailing_zeros();
        Some(word * WORD + self.words[word as usize].trailing_zeros())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_the_least_of_what_is_in_it() {
        let mut set = BlockSet::new(9000);
        assert_eq!(set.first(), None);
        for block in [8999, 4096, 64, 63] {
            set.insert(block);
            assert_eq!(set.first(), Some(block));
        }
        for (block, next) in [(63, 64), (64, 4096), (4096, 8999)] {
            set.remove(block);
            assert_eq!(set.first(), Some(next));
        }
        set.remove(8999);
        assert_eq!(set.first(), None);
    }
}
