//! The clock of leases. It counts the time in which the machine was suspended: a node that was suspended
//! for a minute must not assume that its lease still runs.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Counts from when it was started, and never steps back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseClock {
    started: Duration,
}

impl LeaseClock {
    /// A clock that is 0 now.
    pub(crate) fn start() -> Self {
        Self {
            started: since_boot(),
        }
    }

    /// Milliseconds since the start, suspended time included.
    pub(crate) fn now_ms(&self) -> u64 {
        self.now_us() / 1000
    }

    /// Microseconds since the start, suspended time included.
    pub(crate) fn now_us(&self) -> u64 {
        since_boot().saturating_sub(self.started).as_micros() as u64
    }
}

/// Tokio's `Instant` and the monotonic clock behind it stand still while the machine is suspended.
fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The system's time since boot, suspended time included.
    fn uptime() -> Duration {
        let text = std::fs::read_to_string("/proc/uptime").expect("Linux has it");
        let seconds = text.split(' ').next().expect("two numbers");
        Duration::from_secs_f64(seconds.parse().expect("seconds"))
    }

    #[test]
    fn the_clock_counts_the_time_since_boot() {
        // The file has hundredths of a second.
        let step = Duration::from_millis(20);
        let (before, now, after) = (uptime(), since_boot(), uptime());
        assert!(now + step >= before, "{now:?} is before {before:?}");
        assert!(now <= after + step, "{now:?} is after {after:?}");
        let clock = LeaseClock {
            started: now.saturating_sub(Duration::from_hours(1)),
        };
        assert!(clock.now_ms() >= 3_600_000);
    }
}
