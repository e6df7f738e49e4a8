//! Moments of a clock that never steps and goes on while the machine is suspended: a lease must not seem valid because
//! this process has slept through its end.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// A moment of Linux's `CLOCK_BOOTTIME`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Moment(Duration);

impl Moment {
    pub(crate) fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        // The clock begins at 0 with the machine.
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanoseconds = u32::try_from(now.tv_nsec).unwrap_or(0);
        Self(Duration::new(seconds, nanoseconds))
    }

    pub(crate) fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }

    /// Time since this moment; none if it is in the future.
    pub(crate) fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }

    /// Whether this moment has not come yet.
    pub(crate) fn is_ahead(self) -> bool {
        self > Self::now()
    }
}
