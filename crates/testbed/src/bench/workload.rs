//! Synthetic requests.

use crate::replay::Access;
use gabion_layout::ByteRange;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::num::NonZeroU64;

/// The order of the places of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Any block of the file, each as likely.
    Random,
    /// One block after another, from the start again at the end.
    Sequential,
}

/// Requests of one kind and size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Workload {
    /// Reads or writes.
    pub access: Access,
    /// Their order.
    pub order: Order,
    /// Bytes of each, at multiples of them.
    pub block_bytes: NonZeroU64,
    /// Requests at once.
    pub depth: usize,
}

impl Workload {
    /// The name that `fio` has for such a workload.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match (self.order, self.access) {
            (Order::Random, Access::Read) => "randread",
            (Order::Random, Access::Write) => "randwrite",
            (Order::Sequential, Access::Read) => "read",
            (Order::Sequential, Access::Write) => "write",
        }
    }

    /// The places of its requests in a file that has at least one block; equal seeds give equal places.
    pub(super) fn places(&self, file_bytes: NonZeroU64, seed: u64) -> impl FnMut() -> ByteRange {
        let (order, length) = (self.order, self.block_bytes.get());
        let block_count = file_bytes.get() / length;
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut next = 0;
        move || {
            let block = match order {
                Order::Random => random.random_range(0..block_count),
                Order::Sequential => next % block_count,
            };
            next += 1;
            ByteRange::new(block * length, length)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(order: Order, count: usize, seed: u64) -> Vec<ByteRange> {
        let bytes = |bytes| NonZeroU64::new(bytes).unwrap();
        let workload = Workload {
            access: Access::Read,
            order,
            block_bytes: bytes(10),
            depth: 1,
        };
        let mut next = workload.places(bytes(39), seed);
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn sequential_requests_begin_again_at_the_end() {
        let offsets: Vec<u64> = places(Order::Sequential, 5, 1)
            .iter()
            .map(|r| r.offset)
            .collect();
        assert_eq!(
            offsets,
            [0, 10, 20, 0, 10],
            "an incomplete block is left out"
        );
    }

    #[test]
    fn random_requests_reach_every_block_and_follow_the_seed() {
        let some = places(Order::Random, 100, 1);
        assert_eq!(some, places(Order::Random, 100, 1));
        assert_ne!(some, places(Order::Random, 100, 2));
        for offset in [0, 10, 20] {
            assert!(some.contains(&ByteRange::new(offset, 10)), "{offset}");
        }
        assert!(some.iter().all(|range| range.end() <= 30));
    }
}
