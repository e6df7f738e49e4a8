//! Latencies of many requests in little memory: a histogram whose ranges are within 1 % of their
//! values, from a microsecond to centuries.

use std::time::Duration;

/// Number of ranges in each power of two of microseconds.
const CUTS: u64 = 128;

/// Counts of latencies by range.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// By range, up to the highest one reached.
    counts: Vec<u64>,
    count: u64,
}

impl Latencies {
    /// One more request took this long.
    pub fn add(&mut self, latency: Duration) {
        let range = range_of(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
        if range >= self.counts.len() {
            self.counts.resize(range + 1, 0);
        }
        self.counts[range] += 1;
        self.count += 1;
    }

    /// Adds the requests of another histogram.
    pub fn merge(&mut self, other: &Self) {
        let length = self.counts.len().max(other.counts.len());
        self.counts.resize(length, 0);
        for (own, others) in self.counts.iter_mut().zip(&other.counts) {
            *own += others;
        }
        self.count += other.count;
    }

    /// The ranges that have requests: the least latency of each in microseconds, and its requests. The next
    /// range begins within 1 % of it.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        let counts = self.counts.iter().enumerate();
        counts
            .filter(|&(_, &count)| count > 0)
            .map(|(range, &count)| (first_of(range), count))
    }

    /// Number of requests.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The latency in milliseconds that this share of requests did not exceed; 0 without requests.
    #[must_use]
    pub fn rank_ms(&self, share: f64) -> f64 {
        let wanted = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let range = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        range.map_or(0.0, |range| first_of(range) as f64 / 1e3)
    }
}

/// Below `CUTS` every microsecond is a range. From there on, each power of two has `CUTS` ranges of
/// equal width.
const fn range_of(us: u64) -> usize {
    if us < CUTS {
        return us as usize;
    }
    let shift = us.ilog2() - CUTS.ilog2();
    (shift as u64 * CUTS + (us >> shift)) as usize
}

/// The least latency of a range, in microseconds.
const fn first_of(range: usize) -> u64 {
    let range = range as u64;
    if range < CUTS {
        return range;
    }
    let shift = range / CUTS - 1;
    (range - shift * CUTS) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_follow_each_other_and_are_narrow() {
        for us in (0..100_000).chain([1 << 40, u64::MAX / 3, u64::MAX]) {
            let first = first_of(range_of(us));
            assert!(
                first <= us && us - first <= us / CUTS,
                "{us} is in the range from {first}"
            );
        }
        let last = range_of(u64::MAX);
        assert!((1..=last).all(|range| range_of(first_of(range) - 1) == range - 1));
    }

    #[test]
    fn ranks_are_those_of_the_sorted_latencies() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.rank_ms(0.5).to_bits(), 0);
        for us in (1..=100).rev() {
            latencies.add(Duration::from_micros(us));
        }
        assert_eq!(latencies.count(), 100);
        for (share, ms) in [(0.5, 0.05), (0.99, 0.099), (1.0, 0.1), (0.0, 0.001)] {
            assert!((latencies.rank_ms(share) - ms).abs() < 1e-9, "{share}");
        }
    }

    #[test]
    fn a_merged_histogram_has_the_requests_of_both() {
        let (mut few, mut many) = (Latencies::default(), Latencies::default());
        few.add(Duration::from_micros(7));
        for us in [7, 90_000] {
            many.add(Duration::from_micros(us));
        }
        few.merge(&many);
        assert_eq!(few.count(), 3);
        let ranges: Vec<_> = few.ranges().collect();
        assert_eq!(ranges[0], (7, 2));
        assert!(ranges[1].0 > 89_000 && ranges[1].1 == 1, "{ranges:?}");
        assert_eq!(ranges.len(), 2);
    }
}
