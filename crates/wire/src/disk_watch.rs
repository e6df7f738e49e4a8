//! Detects a hung disk under a process. It hangs if work waits for it and none has ended for some seconds: one long
//! piece of work beside others that end is no hang. A disk that no longer writes may still read, though, and the page
//! cache too. So if work is delayed, the process tries a short write. If that takes seconds, the disk hangs until a
//! try ends soon.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The disk hangs if work waits and none has ended for this time.
const HANGS_AFTER: Duration = Duration::from_secs(10);
/// The disk is worth a try if some work has waited for this time. A try that is shorter ends a hang.
const DELAYED_AFTER: Duration = Duration::from_secs(1);
/// The disk hangs if a try of it has not ended after this time. A file system that writes much back may hold up a sync
/// for seconds, and many nodes of a machine at once.
const TRY_HANGS_AFTER: Duration = Duration::from_secs(7);
/// Interval at which waits check again.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Counts a process's work on its disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct DiskWatch(Arc<Mutex<Work>>);

#[derive(Debug, Default)]
struct Work {
    next: u64,
    /// The start of each unfinished piece of work.
    waiting: BTreeMap<u64, Instant>,
    last_end: Option<Instant>,
    /// The start of the try that runs.
    trying_since: Option<Instant>,
    /// Whether a try has taken too long, and none has ended soon since.
    is_ill: bool,
}

/// One piece of work; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting {
    of: DiskWatch,
    at: u64,
}

/// A try of the disk; it ends when this is dropped. One runs at a time.
#[derive(Debug)]
pub(crate) struct Trying(DiskWatch);

impl DiskWatch {
    /// Work begins.
    pub(crate) fn begin(&self) -> Waiting {
        let mut work = self.lock();
        work.next += 1;
        let at = work.next;
        work.waiting.insert(at, Instant::now());
        Waiting {
            of: self.clone(),
            at,
        }
    }

    /// A try of the disk begins: work that ends soon if the disk works.
    pub(crate) fn begin_try(&self) -> Trying {
        self.lock().trying_since = Some(Instant::now());
        Trying(self.clone())
    }

    /// Whether the disk hangs.
    pub(crate) fn hangs(&self, now: Instant) -> bool {
        let mut work = self.lock();
        let began = work.trying_since;
        work.is_ill |= began.is_some_and(|began| now >= began + TRY_HANGS_AFTER);
        if work.is_ill {
            return true;
        }
        let Some((_, &oldest)) = work.waiting.first_key_value() else {
            return false;
        };
        let since = work.last_end.map_or(oldest, |ended| ended.max(oldest));
        now >= since + HANGS_AFTER
    }

    /// Waits until work that starts now waits for a hung disk.
    pub(crate) async fn hang(self) {
        sleep(HANGS_AFTER).await;
        while !self.hangs(Instant::now()) {
            sleep(ASK_EVERY).await;
        }
    }

    /// Whether the disk is worth a try.
    fn is_delayed(&self, now: Instant) -> bool {
        let work = self.lock();
        let oldest = work.waiting.first_key_value().map(|(_, &began)| began);
        work.is_ill || oldest.is_some_and(|began| now >= began + DELAYED_AFTER)
    }

    /// Waits until the disk is worth a try.
    pub(crate) async fn delay(self) {
        while !self.is_delayed(Instant::now()) {
            sleep(ASK_EVERY).await;
        }
    }

    /// A try has ended now.
    fn end_try(&self, now: Instant) {
        let mut work = self.lock();
        let began = work.trying_since.take();
        work.is_ill &= began.is_none_or(|began| now >= began + DELAYED_AFTER);
    }

    fn lock(&self) -> MutexGuard<'_, Work> {
        // Every call leaves the list consistent, so a poisoned lock is safe to use.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut work = self.of.lock();
        work.waiting.remove(&self.at);
        work.last_end = Some(Instant::now());
    }
}

impl Drop for Trying {
    fn drop(&mut self) {
        self.0.end_try(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_hangs_when_work_waits_and_none_ends() {
        let watch = DiskWatch::default();
        let later = || Instant::now() + HANGS_AFTER;
        assert!(!watch.hangs(later()), "nothing waits");
        let (stuck, other) = (watch.begin(), watch.begin());
        assert!(!watch.hangs(Instant::now()));
        assert!(watch.hangs(later()));
        let before = later();
        std::thread::sleep(Duration::from_millis(1));
        drop(other);
        assert!(!watch.hangs(before), "something has ended since");
        assert!(watch.hangs(later()));
        drop(stuck);
        assert!(!watch.hangs(later()));
    }

    #[test]
    fn a_disk_that_still_reads_hangs_when_a_try_to_write_does_not_end() {
        let watch = DiskWatch::default();
        let began = Instant::now();
        let long = watch.begin();
        assert!(!watch.is_delayed(began));
        assert!(watch.is_delayed(Instant::now() + DELAYED_AFTER));
        let trying = watch.begin_try();
        std::thread::sleep(Duration::from_millis(1));
        drop((watch.begin(), long));
        let later = Instant::now() + TRY_HANGS_AFTER;
        assert!(!watch.hangs(began + TRY_HANGS_AFTER));
        assert!(watch.hangs(later), "that others end does not count");
        // It was long, so another try has to show that the disk writes again.
        watch.end_try(later);
        assert!(watch.hangs(later) && watch.is_delayed(later));
        drop(trying);
        drop(watch.begin_try());
        assert!(!watch.hangs(later) && !watch.is_delayed(later));
    }
}
