//! The requests that wait for a lock, by file: the longest wait comes first.

use crate::coordinator::core::lock;
use futures::channel::oneshot::{Receiver, Sender, channel};
use gabion_meta::{ClientSessionId, HeldLock, LockHolder, PutId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// A request that has waited this long, but less than `PRIORITY_UNTIL_MS`, goes before later ones: shared locks that
/// follow each other would keep an exclusive one out for ever. The window is short, since the lock may be held for
/// long.
const PRIORITY_FROM_MS: u64 = 1_000;
const PRIORITY_UNTIL_MS: u64 = 3_000;
/// The window comes again after this time.
const PRIORITY_EVERY_MS: u64 = 30_000;

/// All that wait.
#[derive(Default)]
pub(super) struct Waiting {
    line: Arc<Mutex<Line>>,
}

#[derive(Default)]
struct Line {
    next: u64,
    files: BTreeMap<PutId, BTreeMap<Place, Waiter>>,
}

/// When it began to wait, and a number.
type Place = (u64, u64);

struct Waiter {
    session: ClientSessionId,
    wanted: HeldLock,
    wake: Option<Sender<()>>,
}

/// A request that waits, until it is dropped.
pub(super) struct Waits {
    line: Arc<Mutex<Line>>,
    file: PutId,
    place: Place,
}

impl Waiting {
    /// A request begins to wait, which its client has made since `begun_ms`.
    pub(super) fn enter(
        &self,
        file: PutId,
        (session, wanted): (ClientSessionId, HeldLock),
        begun_ms: u64,
    ) -> Waits {
        let mut line = lock(&self.line);
        let place = (begun_ms, line.next);
        line.next += 1;
        let waiter = Waiter {
            session,
            wanted,
            wake: None,
        };
        line.files.entry(file).or_default().insert(place, waiter);
        Waits {
            line: Arc::clone(&self.line),
            file,
            place,
        }
    }

    /// Locks of a file have become free: those that wait look again, the longest wait first.
    pub(super) fn wake(&self, file: PutId) {
        let mut line = lock(&self.line);
        for waiter in line
            .files
            .get_mut(&file)
            .into_iter()
            .flat_map(BTreeMap::values_mut)
        {
            if let Some(wake) = waiter.wake.take() {
                // It may have its answer already.
                let _ = wake.send(());
            }
        }
    }
}

impl Waits {
    /// Woken by the next lock of the file that becomes free from now on.
    pub(super) fn listen(&self) -> Receiver<()> {
        let (sender, receiver) = channel();
        let mut line = lock(&self.line);
        let waiters = line.files.get_mut(&self.file);
        if let Some(waiter) = waiters.and_then(|waiters| waiters.get_mut(&self.place)) {
            waiter.wake = Some(sender);
        }
        receiver
    }

    /// The lock for which another one has waited longer, and which is to have it first.
    pub(super) fn lets_pass(&self, now_ms: u64) -> Option<LockHolder> {
        let line = lock(&self.line);
        let waiters = line.files.get(&self.file)?;
        let own = waiters.get(&self.place)?;
        let mut earlier = waiters.range(..self.place);
        let found = earlier.find(|((begun_ms, _), waiter)| {
            let age_ms = now_ms.saturating_sub(*begun_ms) % PRIORITY_EVERY_MS;
            let is_first = (PRIORITY_FROM_MS..PRIORITY_UNTIL_MS).contains(&age_ms);
            let is_other = (waiter.session, waiter.wanted.owner) != (own.session, own.wanted.owner);
            is_first && is_other && waiter.wanted.conflicts_with(&own.wanted)
        });
        found.map(|(_, waiter)| LockHolder {
            session: waiter.session,
            lock: waiter.wanted,
        })
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        let mut line = lock(&self.line);
        if let Some(waiters) = line.files.get_mut(&self.file) {
            waiters.remove(&self.place);
            if waiters.is_empty() {
                line.files.remove(&self.file);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use gabion_meta::{LockKind, LockMode, LockOwner, LockRange};

    fn wanted(number: u64, mode: LockMode) -> (ClientSessionId, HeldLock) {
        let kind = LockKind::Range;
        let lock = HeldLock {
            owner: LockOwner { kind, number },
            mode,
            range: LockRange::ALL,
            process: 1,
        };
        (ClientSessionId(1), lock)
    }

    #[test]
    fn the_longest_wait_passes_later_ones_for_a_time() {
        let waiting = Waiting::default();
        let writer = waiting.enter(PutId(1), wanted(1, LockMode::Exclusive), 5_000);
        let reader = waiting.enter(PutId(1), wanted(2, LockMode::Shared), 5_500);
        let elsewhere = waiting.enter(PutId(2), wanted(3, LockMode::Shared), 5_500);
        for (now_ms, passes) in [
            (5_900, false),
            (6_000, true),
            (7_999, true),
            (8_000, false),
            (36_000, true),
        ] {
            assert_eq!(reader.lets_pass(now_ms).is_some(), passes, "{now_ms}");
            assert_eq!(elsewhere.lets_pass(now_ms), None);
            assert_eq!(writer.lets_pass(now_ms), None, "it waits longer");
        }
        drop(writer);
        assert_eq!(reader.lets_pass(6_000), None);
    }

    #[test]
    fn a_free_lock_wakes_those_of_its_file() {
        let waiting = Waiting::default();
        let one = waiting.enter(PutId(1), wanted(1, LockMode::Exclusive), 5);
        let other = waiting.enter(PutId(2), wanted(1, LockMode::Exclusive), 5);
        let (mut woken, mut asleep) = (one.listen(), other.listen());
        waiting.wake(PutId(1));
        assert_eq!((&mut woken).now_or_never(), Some(Ok(())));
        assert_eq!((&mut asleep).now_or_never(), None);
        drop((one, other));
        assert!(lock(&waiting.line).files.is_empty());
    }
}
