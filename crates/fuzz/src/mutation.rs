//! Mutations of inputs from a seed, for runs without coverage.

use crate::script::{Script, edit};

/// A small generator with a period of 2^64 (`SplitMix64`).
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.any() % end.max(1) as u64) as usize
    }
}

/// An input near those of a corpus: one of them with a few changes, or the halves of two.
pub(crate) fn mutated(corpus: &[Vec<u8>], bytes_max: usize, dice: &mut Dice) -> Vec<u8> {
    let mut input = corpus
        .get(dice.below(corpus.len()))
        .cloned()
        .unwrap_or_default();
    if dice.below(8) == 0
        && let Some(other) = corpus.get(dice.below(corpus.len()))
    {
        input.truncate(dice.below(input.len() + 1));
        input.extend_from_slice(&other[dice.below(other.len() + 1)..]);
    }
    for _ in 0..=dice.below(4) {
        let mut numbers = Vec::with_capacity(32);
        for _ in 0..4 {
            numbers.extend_from_slice(&dice.any().to_le_bytes());
        }
        // A piece of the script is at most a few bytes, so that most of the input stays.
        numbers[3] %= 12;
        edit(&mut input, &mut Script::new(&numbers));
    }
    input.truncate(bytes_max);
    input
}
