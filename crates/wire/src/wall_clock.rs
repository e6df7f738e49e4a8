//! The wall clock of this machine.

use gabion_meta::{WallClock, WallTime};
use rustix::time::{ClockId, clock_gettime};

/// The time now by the wall clock, which may step.
pub fn wall_time() -> WallTime {
    let now = clock_gettime(ClockId::Realtime);
    WallTime {
        seconds: now.tv_sec,
        nanoseconds: now.tv_nsec as u32,
    }
}

/// This machine's wall clock, for the times of files and directories.
pub fn system_wall_clock() -> WallClock {
    WallClock::new(wall_time)
}
