//! The foreground guard: while clients wait too long, repairs get slower.
//!
//! It halves the rate of all repairs together each time it finds that the 99th percentile of the
//! clients' latencies is above the target, and lets the rate grow by an eighth each time it is not.
//! When the rate is well above the repairs' rate before the guard started, the guard's limit ends.

/// The rate below which the guard never goes, all repairs together: data at risk is repaired even
/// where clients are slow for another reason.
pub const FLOOR_BYTES_PER_S: u64 = 4 << 20;

/// As few latencies say nothing about their 99th percentile.
const LATENCY_COUNT_MIN: u64 = 20;

/// The guard's memory.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    /// None while it does not hold repairs back.
    rate: Option<Rate>,
}

#[derive(Clone, Copy, Debug)]
struct Rate {
    bytes_per_s: u64,
    /// The guard is done when the rate is above this.
    release_bytes_per_s: u64,
}

impl Guard {
    /// Takes the clients' latencies and the bytes that repairs sent since the last call. Call it at
    /// regular intervals, about once a second. Without a target it throttles nothing.
    pub fn observe(
        &mut self,
        target_ms: Option<u64>,
        latencies: &super::latencies::Latencies,
        repair_bytes_per_s: u64,
    ) {
        let Some(target_ms) = target_ms else {
            self.rate = None;
            return;
        };
        let p99_ms = latencies.p99_ms();
        let p99_ms = p99_ms.filter(|_| latencies.count() >= LATENCY_COUNT_MIN);
        if p99_ms.is_some_and(|p99_ms| p99_ms > target_ms) {
            self.hold_back(repair_bytes_per_s);
        } else if let Some(rate) = &mut self.rate {
            rate.bytes_per_s += (rate.bytes_per_s / 8).max(1);
            if rate.bytes_per_s > rate.release_bytes_per_s {
                self.rate = None;
            }
        }
    }

    fn hold_back(&mut self, repair_bytes_per_s: u64) {
        let reached = repair_bytes_per_s.max(FLOOR_BYTES_PER_S);
        let (before, release_bytes_per_s) = match self.rate {
            Some(rate) => (rate.bytes_per_s, rate.release_bytes_per_s),
            None => (reached, reached.saturating_mul(2)),
        };
        self.rate = Some(Rate {
            bytes_per_s: (before / 2).max(FLOOR_BYTES_PER_S),
            release_bytes_per_s,
        });
    }

    /// The most that all repairs together may send now, if the guard holds them back.
    #[must_use]
    pub fn limit_bytes_per_s(&self) -> Option<u64> {
        self.rate.map(|rate| rate.bytes_per_s)
    }
}

#[cfg(test)]
mod tests {
    use super::super::latencies::Latencies;
    use super::*;

    const MIB: u64 = 1 << 20;

    fn of(latency_ms: u64, count: u64) -> Latencies {
        let mut latencies = Latencies::default();
        for _ in 0..count {
            latencies.note(latency_ms);
        }
        latencies
    }

    #[test]
    fn it_halves_under_pressure_down_to_the_floor_and_comes_back() {
        let mut guard = Guard::default();
        let (slow, fast) = (of(30, 100), of(10, 100));
        guard.observe(Some(20), &fast, 64 * MIB);
        assert_eq!(guard.limit_bytes_per_s(), None);
        guard.observe(Some(20), &slow, 64 * MIB);
        assert_eq!(guard.limit_bytes_per_s(), Some(32 * MIB));
        for _ in 0..10 {
            guard.observe(Some(20), &slow, 64 * MIB);
        }
        assert_eq!(guard.limit_bytes_per_s(), Some(FLOOR_BYTES_PER_S));
        let mut last = FLOOR_BYTES_PER_S;
        let mut step_count = 0;
        while let Some(limit) = {
            guard.observe(Some(20), &fast, last);
            guard.limit_bytes_per_s()
        } {
            assert!(limit > last && limit <= 128 * MIB);
            last = limit;
            step_count += 1;
        }
        assert!((20..60).contains(&step_count), "{step_count}");
    }

    #[test]
    fn few_latencies_say_nothing_and_no_target_ends_it() {
        let mut guard = Guard::default();
        guard.observe(Some(20), &of(500, LATENCY_COUNT_MIN - 1), MIB);
        assert_eq!(guard.limit_bytes_per_s(), None);
        guard.observe(Some(20), &of(500, LATENCY_COUNT_MIN), MIB);
        assert_eq!(guard.limit_bytes_per_s(), Some(FLOOR_BYTES_PER_S));
        guard.observe(None, &of(500, 100), MIB);
        assert_eq!(guard.limit_bytes_per_s(), None);
    }
}
