//! Group commit: transactions that are made one after another in memory share the sync that makes them
//! durable. None is acknowledged before, and what a reader has seen is durable before it is told.
//!
//! A transaction gets a number before it is committed in memory. The last of the waiting writers syncs for all of them, or
//! any writer once the group is full. Transactions that are committed during the sync form the next group.

use crate::error::MetaError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Most transactions of a group: the first of them waits for the others.
const GROUP_COUNT_MAX: u64 = 64;

/// The state of a store's groups.
#[derive(Debug, Default)]
pub(crate) struct GroupCommit {
    /// Writers that wait for the engine or use it.
    waiting_count: AtomicU64,
    /// The number of the last transaction.
    numbered: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// All transactions up to this number are durable.
    durable: u64,
    is_syncing: bool,
    /// The first error of a commit. Since then the durable state is unknown.
    failed: Option<MetaError>,
}

/// A writer that waits for the engine or uses it.
#[derive(Debug)]
pub(crate) struct Waiting<'a>(&'a GroupCommit);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting_count.fetch_sub(1, Ordering::AcqRel);
        // One that waits for a larger group may sync now.
        drop(self.0.lock());
        self.0.changed.notify_all();
    }
}

impl GroupCommit {
    /// Announces a writer.
    pub(crate) fn enter(&self) -> Waiting<'_> {
        self.waiting_count.fetch_add(1, Ordering::AcqRel);
        Waiting(self)
    }

    /// Writers that wait for the engine or use it.
    pub(crate) fn waiting_count(&self) -> u64 {
        self.waiting_count.load(Ordering::Acquire)
    }

    /// The number of a transaction that is about to be committed in memory. The caller is the engine's only writer.
    pub(crate) fn number(&self) -> u64 {
        self.numbered.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The number of the last transaction: those that a view shows have no later one.
    pub(crate) fn numbered(&self) -> u64 {
        self.numbered.load(Ordering::Acquire)
    }

    /// Notes that all transactions up to this number are durable.
    pub(crate) fn is_durable(&self, number: u64) {
        let mut state = self.lock();
        state.durable = state.durable.max(number);
        drop(state);
        self.changed.notify_all();
    }

    /// Notes that a commit has failed.
    pub(crate) fn fail(&self, error: &MetaError) {
        self.lock().failed.get_or_insert_with(|| error.clone());
        self.changed.notify_all();
    }

    /// Waits until all transactions up to this number are durable; `sync` makes all earlier ones durable and returns
    /// how many were numbered by then.
    ///
    /// # Errors
    /// That of any commit that has failed.
    pub(crate) fn wait(
        &self,
        number: u64,
        sync: impl Fn() -> Result<u64, MetaError>,
    ) -> Result<(), MetaError> {
        let mut state = self.lock();
        loop {
            if state.durable >= number {
                return Ok(());
            }
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            let is_full = self.numbered() - state.durable >= GROUP_COUNT_MAX;
            let is_last = self.waiting_count() == 0;
            if state.is_syncing || !(is_full || is_last) {
                state = self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.is_syncing = true;
            drop(state);
            let synced = sync();
            state = self.lock();
            state.is_syncing = false;
            match synced {
                Ok(numbered) => state.durable = state.durable.max(numbered),
                Err(error) => {
                    state.failed.get_or_insert(error);
                }
            }
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent after every step, even if a caller panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
