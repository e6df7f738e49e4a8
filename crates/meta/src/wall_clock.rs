//! The clock that stamps inodes. No rule depends on it: leases and orders have clocks of their own.

use crate::attributes::WallTime;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// A source of wall-clock times.
pub struct WallClock(Box<dyn Fn() -> WallTime + Send + Sync>);

impl WallClock {
    /// The clock of this machine.
    pub fn system() -> Self {
        Self::new(|| SystemTime::now().into())
    }

    /// Another one, for simulations and tests.
    pub fn new(now: impl Fn() -> WallTime + Send + Sync + 'static) -> Self {
        Self(Box::new(now))
    }

    /// The time now.
    pub fn now(&self) -> WallTime {
        (self.0)()
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WallClock({:?})", self.now())
    }
}

impl From<SystemTime> for WallTime {
    fn from(time: SystemTime) -> Self {
        let (seconds, nanoseconds) = match time.duration_since(UNIX_EPOCH) {
            Ok(since) => (since.as_secs() as i64, since.subsec_nanos()),
            // Before 1970: whole seconds are rounded down, so that nanoseconds count forwards.
            Err(before) => {
                let until = before.duration();
                match until.subsec_nanos() {
                    0 => (-(until.as_secs() as i64), 0),
                    part => (-(until.as_secs() as i64) - 1, 1_000_000_000 - part),
                }
            }
        };
        Self {
            seconds,
            nanoseconds,
        }
    }
}

impl From<WallTime> for SystemTime {
    /// The nearest time that this machine can express.
    fn from(time: WallTime) -> Self {
        let part = std::time::Duration::from_nanos(u64::from(time.nanoseconds));
        let whole = std::time::Duration::from_secs(time.seconds.unsigned_abs());
        let seconds = if time.seconds < 0 {
            UNIX_EPOCH.checked_sub(whole)
        } else {
            UNIX_EPOCH.checked_add(whole)
        };
        seconds
            .and_then(|seconds| seconds.checked_add(part))
            .unwrap_or(UNIX_EPOCH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_before_and_after_1970_stay_the_same() {
        for (seconds, nanoseconds) in [(0, 0), (5, 1), (-5, 0), (-5, 999_999_999), (1 << 33, 7)] {
            let time = WallTime {
                seconds,
                nanoseconds,
            };
            assert_eq!(WallTime::from(SystemTime::from(time)), time);
        }
        let before = UNIX_EPOCH - Duration::from_millis(1_500);
        let time = WallTime::from(before);
        assert_eq!((time.seconds, time.nanoseconds), (-2, 500_000_000));
    }
}
