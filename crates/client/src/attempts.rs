//! One operation's attempts: how long it may go on, and how long to pause between them.

use crate::ClientError;
use crate::remedy::back_off_ms;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The slowest that bytes are reckoned to move, in bytes per millisecond: longer operations have
/// longer deadlines.
const PATIENCE_BYTES_PER_MS: u64 = 4096;

/// The time that an operation has, and how often it was tried.
#[derive(Debug)]
pub(crate) struct Attempts {
    what: String,
    limit: Duration,
    attempt_limit: Duration,
    deadline: Instant,
    count: u32,
}

impl Attempts {
    /// Starts the clock of an operation on so many bytes.
    pub(crate) fn start(what: String, base: Duration, bytes: u64) -> Self {
        let moving = Duration::from_millis(bytes / PATIENCE_BYTES_PER_MS);
        let limit = base + moving;
        Self {
            what,
            limit,
            attempt_limit: base / 3 + moving,
            deadline: Instant::now() + limit,
            count: 0,
        }
    }

    /// What is being tried.
    pub(crate) fn what(&self) -> &str {
        &self.what
    }

    /// Milliseconds that one attempt may take: a part of the whole, so that a node that hangs
    /// leaves time to do without it.
    pub(crate) fn attempt_ms(&self) -> u64 {
        let left = self.deadline.saturating_duration_since(Instant::now());
        // A deadline of 0 could not even be refused in words.
        left.min(self.attempt_limit).as_millis().max(1) as u64
    }

    /// Waits before the next attempt.
    ///
    /// # Errors
    /// [`ClientError::Late`] with what was `missing`, when the next attempt would begin too late.
    pub(crate) async fn pause(&mut self, missing: &str) -> Result<(), ClientError> {
        let next = Instant::now() + Duration::from_millis(back_off_ms(self.count));
        if next >= self.deadline {
            return Err(ClientError::Late {
                what: self.what.clone(),
                limit_s: self.limit.as_secs_f64().ceil() as u64,
                missing: missing.to_owned(),
            });
        }
        self.count += 1;
        sleep_until(next).await;
        Ok(())
    }
}
