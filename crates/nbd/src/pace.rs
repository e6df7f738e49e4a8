//! The time that a peer has for a message: no byte of it may be late, and the whole may not be either. A peer that
//! sends or takes a byte now and then would otherwise hold memory that all connections share.

use std::time::Duration;
use tokio::time::Instant;

/// The slowest rate at which a peer sends or takes a message, in bytes a second.
const BYTES_PER_S_MIN: u64 = 256 << 10;

/// The time limits of one message, which begins now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    stall_limit: Duration,
    until: Instant,
}

impl Pace {
    /// The limits of a message of these bytes, if no byte may take longer than `stall_limit`.
    pub(crate) fn begin(message_bytes: u64, stall_limit: Duration) -> Self {
        let needed = Duration::from_millis(message_bytes.saturating_mul(1_000) / BYTES_PER_S_MIN);
        Self {
            stall_limit,
            until: Instant::now() + stall_limit + needed,
        }
    }

    /// The deadline of the next bytes.
    pub(crate) fn deadline(&self) -> Instant {
        self.until.min(Instant::now() + self.stall_limit)
    }
}
