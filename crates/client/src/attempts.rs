//! The attempts of one operation: its deadline, and the pauses between attempts.

use crate::error::ClientError;
use gabion_protocol::client_ports::ClientPorts;
use gabion_protocol::message::Denial;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Lowest assumed transfer rate in bytes per millisecond, for operations that can switch to another
/// node: deadlines grow with an operation's bytes.
pub(crate) const READ_BYTES_PER_MS: u64 = 4096;
/// The same for operations that cannot switch. Slow links between racks must not look like hanging
/// nodes; all operations in flight may share one link.
pub(crate) const WRITE_BYTES_PER_MS: u64 = 64;

/// The deadline of an operation, and its number of attempts.
pub(crate) struct Attempts {
    ports: Arc<dyn ClientPorts>,
    what: String,
    limit_ms: u64,
    attempt_limit_ms: u64,
    deadline_ms: u64,
    count: u32,
    /// The problem of the latest attempt that a pause followed.
    problem: Option<Denial>,
}

impl Attempts {
    /// Starts the clock of an operation that moves `bytes` at an assumed `bytes_per_ms`.
    pub(crate) fn start(
        ports: &Arc<dyn ClientPorts>,
        what: String,
        base: Duration,
        (bytes, bytes_per_ms): (u64, u64),
    ) -> Self {
        let (limit_ms, attempt_limit_ms) = limits_ms(base, bytes / bytes_per_ms);
        Self {
            ports: Arc::clone(ports),
            what,
            limit_ms,
            attempt_limit_ms,
            deadline_ms: ports.now_ms().saturating_add(limit_ms),
            count: 0,
            problem: None,
        }
    }

    /// The operation.
    pub(crate) fn what(&self) -> &str {
        &self.what
    }

    /// Milliseconds left.
    pub(crate) fn left_ms(&self) -> u64 {
        self.until_deadline_ms().max(1)
    }

    /// Milliseconds for one attempt: a part of the whole, so that a hanging node leaves time for an
    /// attempt without it.
    pub(crate) fn attempt_ms(&self) -> u64 {
        // A deadline of 0 would not even leave time for a refusal.
        self.until_deadline_ms().min(self.attempt_limit_ms).max(1)
    }

    fn until_deadline_ms(&self) -> u64 {
        self.deadline_ms.saturating_sub(self.ports.now_ms())
    }

    /// Waits before the next attempt.
    ///
    /// # Errors
    /// [`ClientError::Late`] with `missing`, when the next attempt would begin too late.
    pub(crate) async fn pause(&mut self, missing: impl Into<Denial>) -> Result<(), ClientError> {
        let (missing, left_ms) = (missing.into(), self.until_deadline_ms());
        let back_off_ms = back_off_ms(self.count);
        if back_off_ms >= left_ms {
            return Err(ClientError::Late {
                what: self.what.clone(),
                limit_s: self.limit_ms.div_ceil(1000),
                missing: last_problem(left_ms, self.problem.take(), missing),
            });
        }
        self.count += 1;
        self.problem = Some(missing);
        self.ports.sleep_ms(back_off_ms).await;
        Ok(())
    }
}

/// The problem to report when an operation is late. An attempt that the operation's deadline ended was too short: it
/// blames a node that may only have needed more time. Then the previous attempt's problem is reported.
fn last_problem(left_ms: u64, earlier: Option<Denial>, last: Denial) -> Denial {
    match earlier {
        Some(earlier) if left_ms == 0 => earlier,
        _ => last,
    }
}

/// Pause before the next attempt: doubling from 10 to 160 ms, so that no operation waits much longer
/// than its trouble lasts.
const fn back_off_ms(attempt_count: u32) -> u64 {
    const FIRST_MS: u64 = 10;
    const DOUBLINGS_MAX: u32 = 4;
    let doublings = if attempt_count < DOUBLINGS_MAX {
        attempt_count
    } else {
        DOUBLINGS_MAX
    };
    FIRST_MS << doublings
}

/// The time limits of an operation whose bytes take `moving_ms`, and of one attempt of it.
const fn limits_ms(base: Duration, moving_ms: u64) -> (u64, u64) {
    let base_ms = base.as_millis() as u64;
    (base_ms + moving_ms, base_ms / 3 + moving_ms)
}

/// Bytes of all operations in flight.
#[derive(Debug, Default)]
pub(crate) struct UnderWay(AtomicU64);

/// The bytes of one of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Moving<'a> {
    all: &'a UnderWay,
    bytes: u64,
}

impl UnderWay {
    /// Begins an operation.
    pub(crate) fn begin(&self, bytes: u64) -> Moving<'_> {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Moving { all: self, bytes }
    }
}

impl Moving<'_> {
    /// Bytes of all operations in flight.
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
        assert_eq!(
            limits_ms(base, 6_400 / WRITE_BYTES_PER_MS),
            (30_100, 10_100)
        );
        assert_eq!(
            limits_ms(base, 409_600 / READ_BYTES_PER_MS),
            (30_100, 10_100)
        );
    }

    #[test]
    fn a_late_operation_does_not_blame_the_node_that_its_deadline_cut_off() {
        let earlier = || Denial::from("the last updates are on no node");
        let last = || Denial::from("node 1 does not answer");
        assert_eq!(last_problem(0, Some(earlier()), last()), earlier());
        assert_eq!(last_problem(160, Some(earlier()), last()), last());
        assert_eq!(last_problem(0, None, last()), last());
    }

    #[test]
    fn pauses_double_up_to_a_sixth_of_a_second() {
        let waits: Vec<u64> = (0..6).map(back_off_ms).collect();
        assert_eq!(waits, [10, 20, 40, 80, 160, 160]);
        assert_eq!(back_off_ms(u32::MAX), 160);
    }
}
