//! The only source of chance in a simulation, so that a seed determines the whole run.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::ops::Range;

/// A seeded generator with the few distributions that a simulation needs.
#[derive(Debug)]
pub(crate) struct Dice(ChaCha8Rng);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Any number.
    pub(crate) fn any(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `end`, which is at least 1. The slight bias towards small numbers does not
    /// matter to a search for failures.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0.next_u64() % end
    }

    /// A number from `first` to `last`, both included.
    pub(crate) fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// True once in `many` times.
    pub(crate) fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    /// A range of `total` cells, at least one. Most are short, and begin at few places so that many overlap.
    pub(crate) fn cells(&mut self, total: u64) -> Range<u64> {
        let place = (total / 16).max(1);
        let first = match self.below(4) {
            0 => self.below(total),
            1 => self.below(16) * place,
            _ => self.below(2) * place + self.below(8),
        };
        let first = first.min(total - 1);
        let length = match self.below(10) {
            0 => self.between(1, total),
            1..4 => self.between(1, place * 2),
            _ => self.between(1, 24),
        };
        first..(first + length).min(total)
    }

    /// One of the choices, which must not be empty.
    pub(crate) fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }
}
