//! Times between the kernel, `fuser` and the cluster.

use fuser::TimeOrNow;
use gabion_meta::WallTime;
use std::time::{Duration, SystemTime};

/// The time now by this machine's clock.
pub(crate) fn now() -> WallTime {
    wall_time(SystemTime::now())
}

/// A time for the cluster.
fn wall_time(time: SystemTime) -> WallTime {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => WallTime {
            seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: since.subsec_nanos(),
        },
        Err(before) => {
            let before = before.duration();
            let seconds = i64::try_from(before.as_secs()).map_or(i64::MIN, |seconds| -seconds);
            match before.subsec_nanos() {
                0 => WallTime {
                    seconds,
                    nanoseconds: 0,
                },
                nanoseconds => WallTime {
                    seconds: seconds.saturating_sub(1),
                    nanoseconds: 1_000_000_000 - nanoseconds,
                },
            }
        }
    }
}

/// A time that a process has set. `fuser` subtracts the nanoseconds of a time before 1970 instead of adding them.
pub(crate) fn requested_time(requested: TimeOrNow) -> WallTime {
    match requested {
        TimeOrNow::Now => now(),
        TimeOrNow::SpecificTime(time) => match SystemTime::UNIX_EPOCH.duration_since(time) {
            Ok(before) if !before.is_zero() => WallTime {
                seconds: i64::try_from(before.as_secs()).map_or(i64::MIN, |seconds| -seconds),
                nanoseconds: before.subsec_nanos(),
            },
            _ => wall_time(time),
        },
    }
}

/// A time for the kernel.
pub(crate) fn system_time(time: WallTime) -> SystemTime {
    let nanoseconds = Duration::from_nanos(u64::from(time.nanoseconds));
    let whole = Duration::from_secs(time.seconds.unsigned_abs());
    let epoch = SystemTime::UNIX_EPOCH;
    let seconds = if time.seconds < 0 {
        epoch.checked_sub(whole)
    } else {
        epoch.checked_add(whole)
    };
    let time = seconds.and_then(|time| time.checked_add(nanoseconds));
    time.unwrap_or(epoch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_the_same_on_the_way_to_the_kernel_and_back() {
        for (seconds, nanoseconds) in [(0, 0), (1, 5), (-1, 0), (-2, 800_000_000), (-1, 1)] {
            let time = WallTime {
                seconds,
                nanoseconds,
            };
            assert_eq!(wall_time(system_time(time)), time);
        }
        let broken = WallTime {
            seconds: i64::MIN,
            nanoseconds: 0,
        };
        let _ = wall_time(system_time(broken));
    }

    #[test]
    fn a_time_before_1970_that_a_process_sets_is_kept() {
        // As `fuser` gives the 800,000,000th nanosecond behind 2 s before 1970.
        let given = SystemTime::UNIX_EPOCH - Duration::new(2, 800_000_000);
        let kept = requested_time(TimeOrNow::SpecificTime(given));
        assert_eq!((kept.seconds, kept.nanoseconds), (-2, 800_000_000));
    }
}
