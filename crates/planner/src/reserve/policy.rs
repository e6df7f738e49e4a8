//! The size of one reserve: utility, shrinking and merging as in Algorithm 1, and the rule for growth.

use gabion_layout::{ReserveSpec, Smoothing};

/// A utility below this counts as zero. A moving average that was once above zero never returns to
/// zero, so by the thesis's rule alone a reserve of one chunk would never be freed after its first use.
/// With its weight of 0.3, twice a day, an unused last chunk is given back after a week.
const NEGLIGIBLE_UTILITY: f64 = 0.01;

/// When a reserve grows again.
///
/// A write stalls when it must wait for a merge: because the reserve is full, or because there is none
/// left and the parity chunk is updated in place. The second stall within one period shows that the
/// period's updates do not fit, while the review that could notice is yet to come and the thesis's
/// rule only ever takes space away. So the reserve doubles then, at once, and again after as many
/// more stalls: a burst of `B` bytes costs about `log2(B / r)` merges instead of `B / r`, and never
/// reserves more than about twice what it uses. The superfluous part is returned by the
/// same reviews as ever. One stall alone is no reason: it may be the last of its period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Growth {
    /// Stalls of one period after which the reserve doubles; at least 1.
    pub after_stalls: u32,
    /// Maximum size of the reserve, in chunks. A pool's first reserve may be larger than the default.
    pub chunks_max: u32,
}

impl Default for Growth {
    fn default() -> Self {
        Self {
            after_stalls: 2,
            chunks_max: 16,
        }
    }
}

/// The management of a pool's reserves.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Policy {
    /// The unit in which reserves shrink: bytes of the parity chunk, in whole pages.
    pub chunk_bytes: u64,
    /// The size with which a reserve begins again that was given back: a chunk, or what the pool needs
    /// ([`Demand::first_bytes`](super::Demand::first_bytes)).
    pub first_bytes: u64,
    /// The weight of the newest period in the utility.
    pub smoothing: Smoothing,
    /// A utility below this counts as none; 0 is the thesis's rule to the letter.
    pub negligible_utility: f64,
    /// Whether deltas are merged at the end of each period ("shrink+merge") or only when the reserve
    /// is full ("shrink only").
    pub merges: bool,
    /// When reserves grow; never in the thesis.
    pub growth: Option<Growth>,
}

impl Policy {
    /// The policy of a pool's parity chunks of `chunk_bytes`.
    ///
    /// # Panics
    /// When `chunk_bytes` is 0.
    pub fn of(spec: &ReserveSpec, chunk_bytes: u64) -> Self {
        assert!(chunk_bytes > 0, "chunks have bytes");
        let chunk_bytes = ReserveSpec::unit_bytes(chunk_bytes);
        Self {
            chunk_bytes,
            first_bytes: chunk_bytes,
            smoothing: spec.smoothing,
            negligible_utility: NEGLIGIBLE_UTILITY,
            merges: true,
            growth: Some(Growth {
                chunks_max: Growth::default().chunks_max.max(spec.initial_chunks),
                ..Growth::default()
            }),
        }
    }

    /// The most that a reserve may grow to: 0 if one chunk is too large.
    pub(super) fn bytes_max(&self) -> u64 {
        let allowed = ReserveSpec::BYTES_MAX / self.chunk_bytes;
        let chunks_max = self.growth.map_or(0, |growth| growth.chunks_max);
        self.chunk_bytes * allowed.min(u64::from(chunks_max))
    }

    /// Algorithm 1 to the letter: no growth, and a last chunk that was ever used stays.
    ///
    /// # Panics
    /// When `chunk_bytes` is 0.
    pub fn thesis(spec: &ReserveSpec, chunk_bytes: u64) -> Self {
        Self {
            negligible_utility: 0.0,
            growth: None,
            ..Self::of(spec, chunk_bytes)
        }
    }
}

/// The present state of a reserve, and its stalls since its last review.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Its size.
    pub reserved_bytes: u64,
    /// Bytes of it that hold records.
    pub used_bytes: u64,
    /// Writes since the last review that had to wait for a merge, because it was full or because
    /// there was none.
    pub stall_count: u64,
}

impl Usage {
    /// The thesis's `use(p)`: the most that was used at one time since the last review.
    fn most_used_bytes(&self) -> u64 {
        if self.stall_count > 0 {
            self.reserved_bytes
        } else {
            self.used_bytes.min(self.reserved_bytes)
        }
    }
}

/// The decision of a review about one reserve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Review {
    /// The size that it should have from now on.
    pub reserved_bytes: u64,
    /// Bytes that this gives back.
    pub freed_bytes: u64,
    /// Whether its records are to be merged into the chunk.
    pub merges: bool,
    /// Bytes of records that such a merge brings in.
    pub merge_bytes: u64,
    /// Periods since it was last used; 0 when it was in this one.
    pub idle_periods: u32,
}

impl Review {
    /// Whether there is anything to do.
    pub const fn is_idle(&self) -> bool {
        self.freed_bytes == 0 && !self.merges
    }
}

/// The memory of one reserve from period to period.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Reserve {
    /// The moving average; none before the first review, which therefore measures alone.
    utility: Option<f64>,
    idle_periods: u32,
    /// Stalls of this period that have led to growth.
    answered_stalls: u64,
}

impl Reserve {
    /// The utility, once it was measured.
    pub const fn utility(&self) -> Option<f64> {
        self.utility
    }

    /// The end of a period: `getUtility`, `computeShrinkSize`, and what `doShrink` and `doMerge` are
    /// to do.
    ///
    /// ```
    /// use gabion_layout::{ReserveSpec, Smoothing};
    /// use gabion_planner::reserve::{Policy, Reserve, Usage};
    ///
    /// let policy = Policy::thesis(&ReserveSpec::default(), 2 << 20);
    /// let usage = Usage { reserved_bytes: 16 << 20, used_bytes: 3 << 20, stall_count: 0 };
    /// let review = Reserve::default().review(&policy, usage);
    /// // 13 of 16 MiB are not needed, which is six whole chunks of 2 MiB.
    /// assert_eq!((review.reserved_bytes, review.freed_bytes), (4 << 20, 12 << 20));
    /// assert_eq!((review.merges, review.merge_bytes), (true, 3 << 20));
    /// ```
    pub fn review(&mut self, policy: &Policy, usage: Usage) -> Review {
        let used = usage.most_used_bytes();
        let is_used = used > 0 || usage.stall_count > 0;
        self.idle_periods = if is_used {
            0
        } else {
            self.idle_periods.saturating_add(1)
        };
        self.answered_stalls = 0;
        let freed_bytes = if usage.reserved_bytes == 0 {
            // There is nothing to measure, and growth is to start with a measurement of its own.
            self.utility = None;
            0
        } else {
            let measured = used as f64 / usage.reserved_bytes as f64;
            let weight = policy.smoothing.factor();
            let utility = self.utility.map_or(measured, |before| {
                weight * measured + (1.0 - weight) * before
            });
            self.utility = Some(utility);
            unneeded_bytes(policy, usage.reserved_bytes, utility)
        };
        let reserved_bytes = usage.reserved_bytes - freed_bytes;
        // Records that no longer fit must be merged whether or not the policy asks for it.
        let merges = usage.used_bytes > 0 && (policy.merges || usage.used_bytes > reserved_bytes);
        Review {
            reserved_bytes,
            freed_bytes,
            merges,
            merge_bytes: if merges { usage.used_bytes } else { 0 },
            idle_periods: self.idle_periods,
        }
    }

    /// After a stall: the size that the reserve should grow to at once, if it should. See [`Growth`].
    ///
    /// ```
    /// use gabion_layout::ReserveSpec;
    /// use gabion_planner::reserve::{Policy, Reserve, Usage};
    ///
    /// let policy = Policy::of(&ReserveSpec::default(), 2 << 20);
    /// let mut reserve = Reserve::default();
    /// let stalls = |reserved_bytes, stall_count| Usage { reserved_bytes, used_bytes: 0, stall_count };
    /// assert_eq!(reserve.grow(&policy, stalls(2 << 20, 1)), None, "one may be the last");
    /// assert_eq!(reserve.grow(&policy, stalls(2 << 20, 2)), Some(4 << 20));
    /// assert_eq!(reserve.grow(&policy, stalls(4 << 20, 3)), None);
    /// assert_eq!(reserve.grow(&policy, stalls(4 << 20, 4)), Some(8 << 20));
    /// ```
    pub fn grow(&mut self, policy: &Policy, usage: Usage) -> Option<u64> {
        let growth = policy.growth?;
        let new_stalls = usage.stall_count.saturating_sub(self.answered_stalls);
        if new_stalls < u64::from(growth.after_stalls.max(1)) {
            return None;
        }
        let doubled = usage.reserved_bytes.saturating_mul(2);
        let grown = doubled.max(policy.first_bytes).min(policy.bytes_max());
        if grown <= usage.reserved_bytes {
            return None;
        }
        self.answered_stalls = usage.stall_count;
        // The utility is a share of the old size; the same bytes are a smaller share of the new one.
        self.utility = self
            .utility
            .map(|share| share * usage.reserved_bytes as f64 / grown as f64);
        Some(grown)
    }
}

/// The thesis's `c(p)`: unused space, rounded down to whole chunks.
fn unneeded_bytes(policy: &Policy, reserved_bytes: u64, utility: f64) -> u64 {
    if utility < policy.negligible_utility {
        return reserved_bytes;
    }
    let unused = (1.0 - utility).max(0.0) * reserved_bytes as f64;
    // Far below 2^53, where floating point is exact to the byte.
    let chunks = unused as u64 / policy.chunk_bytes;
    chunks * policy.chunk_bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CHUNK: u64 = 1 << 20;

    fn policy() -> Policy {
        Policy::of(&ReserveSpec::default(), CHUNK)
    }

    fn usage(reserved_bytes: u64, used_bytes: u64, stall_count: u64) -> Usage {
        Usage {
            reserved_bytes,
            used_bytes,
            stall_count,
        }
    }

    #[test]
    fn utility_is_the_moving_average_of_the_thesis() {
        let policy = Policy {
            growth: None,
            ..policy()
        };
        let mut reserve = Reserve::default();
        reserve.review(&policy, usage(8 * CHUNK, 8 * CHUNK, 0));
        assert_eq!(reserve.utility(), Some(1.0));
        let review = reserve.review(&policy, usage(8 * CHUNK, 4 * CHUNK, 0));
        assert_eq!(reserve.utility(), Some(0.3 * 0.5 + 0.7));
        assert_eq!(
            review.freed_bytes, CHUNK,
            "15% of eight chunks, rounded down"
        );
    }

    #[test]
    fn a_reserve_that_is_never_used_goes_at_once_and_one_that_was_goes_later() {
        let untouched = Reserve::default().review(&policy(), usage(4 * CHUNK, 0, 0));
        assert_eq!((untouched.reserved_bytes, untouched.merges), (0, false));
        let mut reserve = Reserve::default();
        let mut size = reserve
            .review(&policy(), usage(4 * CHUNK, 2 * CHUNK, 0))
            .reserved_bytes;
        let mut periods = 0;
        while size > 0 {
            size = reserve.review(&policy(), usage(size, 0, 0)).reserved_bytes;
            periods += 1;
            assert!(periods < 20, "stuck at {size}");
        }
        // 0.5 * 0.7^10 is still above a hundredth, 0.5 * 0.7^11 is not.
        assert_eq!(periods, 11);
    }

    #[test]
    fn by_the_letter_of_the_thesis_a_last_chunk_stays() {
        let policy = Policy::thesis(&ReserveSpec::default(), CHUNK);
        let mut reserve = Reserve::default();
        let mut size = reserve
            .review(&policy, usage(CHUNK, CHUNK / 2, 0))
            .reserved_bytes;
        // The 41 days of the thesis's trace, reviewed twice a day.
        for _ in 0..82 {
            size = reserve.review(&policy, usage(size, 0, 0)).reserved_bytes;
        }
        assert_eq!(size, CHUNK);
    }

    #[test]
    fn records_that_no_longer_fit_are_merged_even_by_shrinking_alone() {
        let policy = Policy {
            merges: false,
            ..policy()
        };
        let kept = Reserve::default().review(&policy, usage(4 * CHUNK, CHUNK, 0));
        assert_eq!((kept.reserved_bytes, kept.merges), (CHUNK, false));
        let mut reserve = Reserve::default();
        reserve.review(&policy, usage(4 * CHUNK, 0, 0));
        let tight = reserve.review(&policy, usage(4 * CHUNK, 3 * CHUNK, 0));
        assert_eq!((tight.reserved_bytes, tight.merges), (CHUNK, true));
    }

    /// Sends writes of 4 KiB to one reserve, as many in each period as given; returns writes, stalls, and the sum of
    /// the reserve's sizes at the ends of periods.
    fn run(policy: &Policy, first_bytes: u64, writes_by_period: &[u64]) -> (u64, u64, u64) {
        const RECORD: u64 = 4096 + 64;
        let (mut reserve, mut now) = (Reserve::default(), usage(first_bytes, 0, 0));
        let (mut stall_total, mut reserved_total) = (0, 0);
        for &writes in writes_by_period {
            for _ in 0..writes {
                if now.used_bytes + RECORD > now.reserved_bytes {
                    now.stall_count += 1;
                    now.used_bytes = 0;
                    stall_total += 1;
                    if let Some(grown) = reserve.grow(policy, now) {
                        now.reserved_bytes = grown;
                    }
                }
                if now.reserved_bytes > 0 {
                    now.used_bytes += RECORD;
                }
            }
            reserved_total += now.reserved_bytes;
            let review = reserve.review(policy, now);
            now = usage(review.reserved_bytes, 0, 0);
            assert!(review.merges || review.merge_bytes == 0);
        }
        (writes_by_period.iter().sum(), stall_total, reserved_total)
    }

    /// A chunk that is quiet for two weeks, then busy for a week: what growth is for.
    #[test]
    fn growth_ends_the_stalls_of_a_burst_and_its_space_is_given_back() {
        let mut periods = vec![0; 28];
        periods.extend([2000; 14]);
        periods.extend([0; 28]);
        let without = Policy {
            growth: None,
            ..policy()
        };
        let (writes, stalls_without, _) = run(&without, CHUNK, &periods);
        let (_, stalls_with, reserved_with) = run(&policy(), CHUNK, &periods);
        assert_eq!(stalls_without, writes, "every write is in place");
        assert!(
            stalls_with * 100 < writes,
            "{stalls_with} of {writes} stalled"
        );
        // Its bytes are 2,000 records a period for 14 periods; twice that, and the decay.
        let used = 14 * 2000 * (4096 + 64);
        assert!(reserved_with < 3 * used, "{reserved_with} for {used}");
        let (_, _, quiet_only) = run(&policy(), CHUNK, &[0; 28]);
        assert_eq!(
            quiet_only, CHUNK,
            "a chunk that is never written costs one period"
        );
    }

    /// A small reserve under steady updates: growth finds the size once.
    #[test]
    fn growth_beats_a_reserve_that_is_too_small() {
        let periods = [5000; 20];
        let without = Policy {
            growth: None,
            ..policy()
        };
        let (writes, stalls_without, _) = run(&without, 2 * CHUNK, &periods);
        let (_, stalls_with, _) = run(&policy(), 2 * CHUNK, &periods);
        assert!(
            stalls_with * 4 < stalls_without,
            "{stalls_with}, {stalls_without}"
        );
        assert!(stalls_with * 200 < writes, "under half a percent");
    }

    proptest! {
        #[test]
        fn sizes_stay_whole_chunks_and_within_bounds(
            steps in prop::collection::vec((any::<bool>(), 0u64..20 * CHUNK, 0u64..5), 1..60),
            first in 0u64..20,
        ) {
            let policy = policy();
            let (mut reserve, mut size) = (Reserve::default(), first * CHUNK);
            for (ends, used, stalls) in steps {
                let now = usage(size, used.min(size), stalls);
                if ends {
                    let review = reserve.review(&policy, now);
                    prop_assert_eq!(review.reserved_bytes + review.freed_bytes, size);
                    prop_assert!(review.merges || now.used_bytes <= review.reserved_bytes);
                    size = review.reserved_bytes;
                } else if let Some(grown) = reserve.grow(&policy, now) {
                    prop_assert!(grown > size && grown <= 16 * CHUNK);
                    size = grown;
                }
                prop_assert!(size.is_multiple_of(CHUNK));
                prop_assert!(reserve.utility().is_none_or(|u| (0.0..=1.0).contains(&u)));
            }
        }
    }
}
