//! One operation's attempts: how long it may go on, and how long to pause between them.

use crate::ClientError;
use crate::remedy::back_off_ms;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The slowest that bytes are reckoned to move, in bytes per millisecond, where somebody else can be asked
/// for them: longer operations have longer deadlines.
pub(crate) const READ_BYTES_PER_MS: u64 = 4096;
/// The same where nobody else can do it. Slow links between racks must not look like nodes that hang; all
/// that is under way may have to pass the same one.
pub(crate) const WRITE_BYTES_PER_MS: u64 = 64;

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
    /// Starts the clock of an operation that moves so many bytes, at so many of them a millisecond.
    pub(crate) fn start(what: String, base: Duration, bytes: u64, bytes_per_ms: u64) -> Self {
        let moving = Duration::from_millis(bytes / bytes_per_ms);
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

    /// Milliseconds that are left.
    pub(crate) fn left_ms(&self) -> u64 {
        let left = self.deadline.saturating_duration_since(Instant::now());
        left.as_millis().max(1) as u64
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

/// Bytes that operations under way will move, all together.
#[derive(Debug, Default)]
pub(crate) struct UnderWay(AtomicU64);

/// The bytes of one of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Moving<'a> {
    all: &'a UnderWay,
    bytes: u64,
}

impl UnderWay {
    /// One more operation begins.
    pub(crate) fn begin(&self, bytes: u64) -> Moving<'_> {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Moving { all: self, bytes }
    }
}

impl Moving<'_> {
    /// Bytes of all operations, this one included.
    pub(crate) fn all_bytes(&self) -> u64 {
        self.all.0.load(Ordering::Relaxed)
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.all.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_lasts_as_long_as_all_that_is_under_way() {
        let under_way = UnderWay::default();
        let (first, second) = (under_way.begin(640_000), under_way.begin(6_400));
        assert_eq!(second.all_bytes(), 646_400);
        drop(first);
        assert_eq!(second.all_bytes(), 6_400);
        let base = Duration::from_secs(30);
        let ms = |bytes, per_ms| Attempts::start(String::new(), base, bytes, per_ms).attempt_ms();
        assert_eq!(ms(6_400, WRITE_BYTES_PER_MS), 10_100);
        assert_eq!(ms(409_600, READ_BYTES_PER_MS), 10_100);
    }
}
