//! The clock that stamps inodes. No rule depends on it: leases and orders have clocks of their own.

use crate::attributes::WallTime;
use std::fmt;

/// A source of wall-clock times. This crate has none of its own.
pub struct WallClock(Box<dyn Fn() -> WallTime + Send + Sync>);

impl WallClock {
    /// A clock that is read by calling `now`.
    pub fn new(now: impl Fn() -> WallTime + Send + Sync + 'static) -> Self {
        Self(Box::new(now))
    }

    /// A clock that always shows this time, for tests.
    pub fn stopped(time: WallTime) -> Self {
        Self::new(move || time)
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
