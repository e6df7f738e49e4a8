//! Order of the writes in flight of one image: a write waits for the earlier ones whose ranges it touches.
//!
//! So overlapping writes take effect in the order of their arrival, whole segment after whole segment where segments
//! are locked. A request waits for earlier ones alone, so there is no deadlock and no starvation. A list of a few
//! hundred requests is searched from its front, which is fast enough for requests of a network.

use gabion_layout::ByteRange;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// The ranges that are locked or waited for.
#[derive(Debug, Default)]
pub(crate) struct RangeLock {
    tickets: Mutex<Tickets>,
    /// Wakes all waiters when a ticket has been given back, or its range has become smaller.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Tickets {
    next: u64,
    /// In the order of arrival.
    ranges: BTreeMap<u64, ByteRange>,
}

/// A locked range, until it is dropped.
#[derive(Debug)]
pub(crate) struct Locked<'a> {
    lock: &'a RangeLock,
    ticket: u64,
}

impl RangeLock {
    /// Waits until no earlier ticket touches the range. A caller in whose way nothing has changed for this time gets
    /// nothing, and later ones do not wait for it.
    pub(crate) async fn lock_within(
        &self,
        range: ByteRange,
        limit: Duration,
    ) -> Option<Locked<'_>> {
        let ticket = {
            let mut tickets = self.tickets();
            let ticket = tickets.next;
            tickets.next += 1;
            tickets.ranges.insert(ticket, range);
            ticket
        };
        // From here on, a caller that stops waiting gives its ticket back.
        let locked = Locked { lock: self, ticket };
        let mut known = Vec::new();
        let mut until = Instant::now() + limit;
        loop {
            let changed = self.changed.notified();
            let ahead = self.tickets().ahead(ticket, range);
            if ahead.is_empty() {
                return Some(locked);
            }
            if ahead != known {
                until = Instant::now() + limit;
                known = ahead;
            }
            timeout_at(until, changed).await.ok()?;
        }
    }

    fn tickets(&self) -> MutexGuard<'_, Tickets> {
        // The map is consistent after every step.
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tickets {
    /// The earlier tickets that touch a range, with their ranges.
    fn ahead(&self, ticket: u64, range: ByteRange) -> Vec<(u64, ByteRange)> {
        let earlier = self.ranges.range(..ticket);
        let ahead = earlier.filter(|(_, other)| other.intersect(range).is_some());
        ahead.map(|(&ticket, &range)| (ticket, range)).collect()
    }
}

impl Locked<'_> {
    /// Unlocks all but a part of the range.
    pub(crate) fn narrow(&self, part: ByteRange) {
        self.lock.tickets().ranges.insert(self.ticket, part);
        self.lock.changed.notify_waiters();
    }
}

impl Locked<'_> {
    /// Unlocks the range up to a byte.
    pub(crate) fn advance(&self, to: u64) {
        let range = self.lock.tickets().ranges.get(&self.ticket).copied();
        if let Some(range) = range.filter(|range| range.offset < to && to < range.end()) {
            self.narrow(ByteRange::new(to, range.end() - to));
        }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.lock.tickets().ranges.remove(&self.ticket);
        self.lock.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::pin::pin;
    use tokio::time::timeout;

    fn range(offset: u64, end: u64) -> ByteRange {
        ByteRange::new(offset, end - offset)
    }

    impl RangeLock {
        async fn lock(&self, range: ByteRange) -> Locked<'_> {
            let locked = self.lock_within(range, Duration::from_mins(1)).await;
            locked.expect("its turn comes")
        }
    }

    #[tokio::test]
    async fn writes_wait_for_earlier_ones_that_they_touch_and_for_no_others() {
        let lock = RangeLock::default();
        let first = lock.lock(range(0, 10)).now_or_never().expect("free");
        let apart = lock.lock(range(10, 20)).now_or_never().expect("apart");
        let mut second = pin!(lock.lock(range(5, 15)));
        assert!(second.as_mut().now_or_never().is_none());
        // It is behind the second, although nothing holds its range.
        let mut third = pin!(lock.lock(range(12, 13)));
        drop(first);
        assert!(second.as_mut().now_or_never().is_none());
        assert!(third.as_mut().now_or_never().is_none());
        drop(apart);
        let second = second.now_or_never().expect("free");
        assert!(third.as_mut().now_or_never().is_none());
        second.narrow(range(5, 12));
        let third = third.now_or_never().expect("free");
        drop((second, third));
        assert!(lock.tickets().ranges.is_empty());
    }

    #[tokio::test]
    async fn a_cancelled_wait_blocks_no_other_request() {
        let lock = RangeLock::default();
        let first = lock.lock(range(0, 10)).now_or_never().expect("free");
        {
            let mut waiter = pin!(lock.lock(range(0, 20)));
            assert!(waiter.as_mut().now_or_never().is_none());
        }
        assert!(lock.lock(range(10, 20)).now_or_never().is_some());
        drop(first);
    }

    #[tokio::test]
    async fn a_request_that_has_timed_out_gets_no_range_and_blocks_no_other() {
        let lock = RangeLock::default();
        let limit = Duration::from_millis(1);
        let first = lock.lock_within(range(0, 10), limit).await;
        assert!(first.is_some());
        let late = lock.lock_within(range(0, 20), limit);
        let late = timeout(Duration::from_secs(30), late).await;
        assert!(late.expect("it ends").is_none());
        assert!(lock.lock_within(range(10, 20), limit).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_request_that_goes_on_does_not_use_up_the_time_of_those_behind_it() {
        let lock = RangeLock::default();
        let second = Duration::from_secs(1);
        let first = lock.lock(range(0, 100)).await;
        let mut waiter = pin!(lock.lock_within(range(99, 100), 3 * second));
        for done in 1..=20 {
            assert!(timeout(2 * second, &mut waiter).await.is_err(), "{done}");
            first.advance(done);
        }
        drop(first);
        assert!(waiter.await.is_some());
    }
}
