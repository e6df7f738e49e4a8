//! Detects a hung disk under a node: work waits for the disk, and none has ended for some seconds. One
//! long piece of work beside others that end is no hang.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The disk hangs if work waits and none has ended for this time.
const HANGS_AFTER: Duration = Duration::from_secs(10);
/// Interval at which [`DiskWatch::hang`] checks again after that.
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
}

/// One piece of work; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting {
    of: DiskWatch,
    at: u64,
}

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

    /// Whether the disk hangs.
    pub(crate) fn hangs(&self, now: Instant) -> bool {
        let work = self.lock();
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
}
