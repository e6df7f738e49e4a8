//! Latencies of clients: counts, small enough to send with each heartbeat.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Counts of latencies in whole milliseconds. Above 16 ms they are rounded up to four binary digits,
/// so that a percentile is at most an eighth too high, and never too low.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Latencies {
    /// By the highest latency that is counted here.
    counts: BTreeMap<u64, u64>,
}

impl Latencies {
    /// Counts one.
    pub fn note(&mut self, latency_ms: u64) {
        *self.counts.entry(rounded_up(latency_ms)).or_default() += 1;
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Self) {
        for (&latency_ms, &count) in &other.counts {
            let sum = self.counts.entry(latency_ms).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    /// The number of latencies.
    #[must_use]
    pub fn count(&self) -> u64 {
        let counts = self.counts.values();
        counts.fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// The latency that at most one in a hundred exceeds; none without any.
    #[must_use]
    pub fn p99_ms(&self) -> Option<u64> {
        let beyond = self.count() / 100;
        let mut slower_count: u64 = 0;
        let mut from_slowest = self.counts.iter().rev();
        let found = from_slowest.find(|&(_, &count)| {
            slower_count = slower_count.saturating_add(count);
            slower_count > beyond
        });
        found.map(|(&latency_ms, _)| latency_ms)
    }
}

fn rounded_up(latency_ms: u64) -> u64 {
    let digit_count = u64::BITS - latency_ms.leading_zeros();
    let step = 1u64 << digit_count.saturating_sub(4);
    latency_ms
        .checked_next_multiple_of(step)
        .unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_keeps_four_digits_and_never_flatters() {
        for (latency_ms, expected) in [
            (0, 0),
            (15, 15),
            (16, 16),
            (17, 18),
            (100, 104),
            (1_000, 1_024),
            (u64::MAX, u64::MAX),
        ] {
            assert_eq!(rounded_up(latency_ms), expected, "{latency_ms}");
        }
        for latency_ms in 0..5_000 {
            let rounded = rounded_up(latency_ms);
            assert!((latency_ms..=latency_ms + latency_ms / 8).contains(&rounded));
        }
    }

    #[test]
    fn one_in_a_hundred_may_be_slower() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.p99_ms(), None);
        latencies.note(9);
        assert_eq!(latencies.p99_ms(), Some(9));
        let mut others = Latencies::default();
        for _ in 0..198 {
            others.note(2);
        }
        latencies.add(&others);
        assert_eq!((latencies.count(), latencies.p99_ms()), (199, Some(2)));
        latencies.note(7);
        latencies.note(7);
        assert_eq!(
            latencies.p99_ms(),
            Some(7),
            "two of 201 are still one in a hundred"
        );
    }
}
