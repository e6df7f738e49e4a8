//! The first size of a reserve, learnt from the updates of its pool. The thesis gives each new parity chunk the same
//! reserve (section 4.1.2 and 5.3.2); this rule is ours.

use super::policy::Policy;
use gabion_layout::ReserveSpec;

/// Samples before anything counts as learnt, so that one busy chunk does not decide.
const SAMPLE_COUNT_MIN: u32 = 8;
/// The newest sample weighs at least one part in this many, so that a pool forgets.
const SAMPLE_COUNT_MAX: u32 = 64;
/// The first size is this much larger than the mean: about half of all chunks need more than the mean, and one that
/// outgrows its reserve waits for two merges.
const HEADROOM: f64 = 1.5;
/// A smaller first reserve would be full after a few records.
const FIRST_BYTES_MIN: u64 = 64 << 10;

/// The space that reserves of a pool have lately needed in a period: a decaying mean, as a share of their chunk.
///
/// The mean is that of logarithms, as reserves grow by doubling: a few chunks with a thousand times the updates of all
/// others do not enlarge the first reserves of all.
///
/// ```
/// use gabion_layout::ReserveSpec;
/// use gabion_planner::reserve::{Demand, Policy};
///
/// let policy = Policy::of(&ReserveSpec::default(), 4 << 20);
/// let mut demand = Demand::default();
/// assert_eq!(demand.first_bytes(&policy), None, "nothing is learnt yet");
/// for _ in 0..100 {
///     demand.note(&policy, 256 << 10);
/// }
/// // Half as much again as a period's records.
/// assert_eq!(demand.first_bytes(&policy), Some(384 << 10));
/// ```
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Demand {
    sample_count: u32,
    /// The mean logarithm, to base 2, of a period's bytes over the chunk's.
    mean: f64,
}

impl Demand {
    /// A reserve took records of `period_bytes` in a period that has ended. One without records tells nothing: a first
    /// reserve is taken with the first record.
    pub fn note(&mut self, policy: &Policy, period_bytes: u64) {
        if period_bytes == 0 {
            return;
        }
        self.sample_count = self.sample_count.saturating_add(1).min(SAMPLE_COUNT_MAX);
        let sample = (period_bytes as f64 / policy.chunk_bytes as f64).log2();
        self.mean += (sample - self.mean) / f64::from(self.sample_count);
    }

    /// The first size of a new reserve, in whole pages; none before enough is learnt. It is at least 64 KiB, or a chunk
    /// if that is less, and at most what a reserve may grow to.
    pub fn first_bytes(&self, policy: &Policy) -> Option<u64> {
        if self.sample_count < SAMPLE_COUNT_MIN {
            return None;
        }
        let bytes = self.mean.exp2() * HEADROOM * policy.chunk_bytes as f64;
        // Beyond all bounds, where it is not exact, the bounds count.
        let bytes = ReserveSpec::unit_bytes(bytes as u64);
        let most = policy.bytes_max();
        let least = FIRST_BYTES_MIN.min(policy.chunk_bytes).min(most);
        (most > 0).then(|| bytes.clamp(least, most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u64 = 1 << 20;

    fn policy() -> Policy {
        Policy::of(&ReserveSpec::default(), CHUNK)
    }

    fn learnt(samples: impl IntoIterator<Item = u64>) -> Option<u64> {
        let mut demand = Demand::default();
        for bytes in samples {
            demand.note(&policy(), bytes);
        }
        demand.first_bytes(&policy())
    }

    #[test]
    fn one_busy_chunk_does_not_decide() {
        assert_eq!(learnt([16 * CHUNK; 7]), None);
        assert_eq!(learnt([16 * CHUNK; 8]), Some(16 * CHUNK), "the bound");
        assert_eq!(learnt([0; 100]), None, "unused reserves tell nothing");
        // One in a hundred with a thousand times the updates.
        let mixed = (0..100).map(|at| if at == 50 { CHUNK << 7 } else { CHUNK >> 3 });
        let first_bytes = learnt(mixed).unwrap();
        assert!(first_bytes < CHUNK / 4, "{first_bytes}");
    }

    #[test]
    fn first_reserves_follow_the_pool_in_both_directions() {
        let light = [CHUNK >> 3; 100];
        let heavy = [4 * CHUNK; 500];
        let first = |samples: &[&[u64]]| learnt(samples.concat()).unwrap();
        assert_eq!(first(&[&light]), CHUNK * 3 / 16);
        let grown = first(&[&light, &heavy]);
        assert!(grown > 5 * CHUNK, "{grown}");
        assert!(first(&[&heavy, &light]) < CHUNK, "it forgets");
    }

    #[test]
    fn first_reserves_have_bounds() {
        assert_eq!(learnt([1; 10]), Some(64 << 10));
        assert_eq!(learnt([u64::MAX; 10]), Some(16 * CHUNK));
        let large = Policy::of(&ReserveSpec::default(), 200 << 20);
        let mut demand = Demand::default();
        (0..10).for_each(|_| demand.note(&large, u64::MAX));
        assert_eq!(demand.first_bytes(&large), Some(200 << 20));
        let small = Policy::of(&ReserveSpec::default(), 4096);
        assert_eq!(demand.first_bytes(&small), Some(16 * 4096));
        let mut demand = Demand::default();
        (0..10).for_each(|_| demand.note(&small, 1));
        assert_eq!(demand.first_bytes(&small), Some(4096), "a small chunk");
    }
}
