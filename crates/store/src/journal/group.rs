//! Group commit: one sync of the journal for all callers that wait for it.

use crate::error::StoreError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

const POISONED: &str = "no thread panics while it holds this lock";

/// Lets one caller sync the journal for all that wait.
pub(crate) struct GroupCommit {
    synced_lsn: Arc<AtomicU64>,
    /// Whether a caller is syncing.
    is_led: Mutex<bool>,
    done: Condvar,
}

impl GroupCommit {
    /// A group commit for a journal that is durable up to `synced_lsn`, which the journal also
    /// raises.
    pub(crate) fn new(synced_lsn: Arc<AtomicU64>) -> Self {
        Self {
            synced_lsn,
            is_led: Mutex::new(false),
            done: Condvar::new(),
        }
    }

    /// The position up to which the journal is durable.
    pub(crate) fn synced_lsn(&self) -> u64 {
        self.synced_lsn.load(Ordering::Acquire)
    }

    /// Notes that the journal is durable up to here.
    pub(crate) fn reached(&self, synced_lsn: u64) {
        self.synced_lsn.fetch_max(synced_lsn, Ordering::AcqRel);
    }

    /// Returns once everything before `lsn` is durable. One of the waiting callers syncs for all,
    /// with `lead`; `check` ends the wait with an error.
    pub(crate) fn wait(
        &self,
        lsn: u64,
        check: impl Fn() -> Result<(), StoreError>,
        lead: impl FnOnce() -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut is_led = self.is_led.lock().expect(POISONED);
        loop {
            if self.synced_lsn() >= lsn {
                return Ok(());
            }
            check()?;
            if !*is_led {
                break;
            }
            is_led = self.done.wait(is_led).expect(POISONED);
        }
        *is_led = true;
        drop(is_led);
        let outcome = lead();
        *self.is_led.lock().expect(POISONED) = false;
        self.done.notify_all();
        outcome
    }
}
