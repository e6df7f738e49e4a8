//! Group commit: transactions that are made one after another in memory are committed together, with one sync. None is
//! acknowledged before, and neither is one that has seen their changes.
//!
//! A transaction gets a number and a group when it is made. The last of the waiting writers commits the group, or any
//! writer once the group is full. Transactions that are made during the commit form the next group.

use crate::error::MetaError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Most transactions of a group: the first of them waits for the others.
const GROUP_COUNT_MAX: u64 = 64;

/// The state of a store's groups.
#[derive(Debug, Default)]
pub(crate) struct GroupCommit {
    /// Writers that wait for their turn or have it.
    waiting_count: AtomicU64,
    state: Mutex<State>,
    /// Members of the groups with even and with odd numbers wait apart, so the end of a commit wakes its own members,
    /// and one of the next group.
    ended: [Condvar; 2],
}

#[derive(Debug, Default)]
struct State {
    /// All transactions up to this number are durable.
    durable: u64,
    /// The last transaction.
    last: Ticket,
    /// The group of the next one.
    group: u64,
    is_committing: bool,
    /// The first error of a commit. Since then the durable state is unknown.
    failed: Option<MetaError>,
}

/// The place of a transaction among others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ticket {
    /// Its number.
    pub(crate) number: u64,
    /// The number of its group.
    group: u64,
}

/// A writer that waits for its turn or has it.
#[derive(Debug)]
pub(crate) struct Waiting<'a>(&'a GroupCommit);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting_count.fetch_sub(1, Ordering::AcqRel);
        if std::thread::panicking() {
            // It does not wait for its group, which may wait for it.
            drop(self.0.lock());
            self.0.ended.iter().for_each(Condvar::notify_all);
        }
    }
}

/// A commit. A commit that panics has failed, and its waiters return with the error.
struct Committing<'a>(&'a GroupCommit);

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        let error = MetaError::Storage {
            operation: "commit",
            reason: "it has panicked".to_owned(),
        };
        drop(self.0.end_commit(Err(error)));
    }
}

impl GroupCommit {
    /// Announces a writer.
    pub(crate) fn enter(&self) -> Waiting<'_> {
        self.waiting_count.fetch_add(1, Ordering::AcqRel);
        Waiting(self)
    }

    /// Writers that wait for their turn or have it.
    pub(crate) fn waiting_count(&self) -> u64 {
        self.waiting_count.load(Ordering::Acquire)
    }

    /// Numbers a transaction that has changed rows in memory. The caller has the turn.
    pub(crate) fn number(&self) -> Ticket {
        let mut state = self.lock();
        state.last = Ticket {
            number: state.last.number + 1,
            group: state.group,
        };
        state.last
    }

    /// The last transaction: those whose changes a transaction in its turn has seen are not later.
    pub(crate) fn last(&self) -> Ticket {
        self.lock().last
    }

    /// Ends the present group, and returns its last transaction. The caller has the turn, and is the only one that
    /// commits.
    pub(crate) fn end_group(&self) -> Ticket {
        let mut state = self.lock();
        state.group += 1;
        state.last
    }

    /// Refuses everything after a commit that has failed.
    ///
    /// # Errors
    /// Its error.
    pub(crate) fn check(&self) -> Result<(), MetaError> {
        self.lock().failed.clone().map_or(Ok(()), Err)
    }

    /// Waits until this transaction and all earlier ones are durable. `commit` makes those durable that were made
    /// before, and returns the last of them.
    ///
    /// # Errors
    /// That of any commit that has failed.
    pub(crate) fn wait(
        &self,
        ticket: Ticket,
        commit: impl Fn() -> Result<Ticket, MetaError>,
    ) -> Result<(), MetaError> {
        let mut state = self.lock();
        // Those that were woken together need not wake another one each.
        let mut was_woken = false;
        loop {
            let is_durable = state.durable >= ticket.number;
            if is_durable || state.failed.is_some() {
                if !was_woken {
                    self.wake_one(&state);
                }
                return match &state.failed {
                    Some(error) if !is_durable => Err(error.clone()),
                    _ => Ok(()),
                };
            }
            if state.is_committing || !self.is_due(&state) {
                let ended = &self.ended[ticket.group as usize % 2];
                state = ended.wait(state).unwrap_or_else(PoisonError::into_inner);
                was_woken = true;
                continue;
            }
            was_woken = false;
            state.is_committing = true;
            drop(state);
            let committing = Committing(self);
            let committed = commit();
            std::mem::forget(committing);
            state = self.end_commit(committed);
        }
    }

    fn end_commit(&self, committed: Result<Ticket, MetaError>) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.is_committing = false;
        match committed {
            Ok(last) => {
                state.durable = last.number;
                self.ended[last.group as usize % 2].notify_all();
            }
            Err(error) => {
                state.failed.get_or_insert(error);
                self.ended.iter().for_each(Condvar::notify_all);
            }
        }
        state
    }

    /// Whether a group is to be committed now.
    fn is_due(&self, state: &State) -> bool {
        let count = state.last.number - state.durable;
        count >= GROUP_COUNT_MAX || count > 0 && self.waiting_count() == 0
    }

    /// Lets a member of the present group commit it, if that is due.
    fn wake_one(&self, state: &State) {
        if !state.is_committing && self.is_due(state) {
            self.ended[state.last.group as usize % 2].notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent after every step, even if a caller panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_commit_that_panics_fails_all_that_wait_and_all_that_follow() {
        let groups = GroupCommit::default();
        let ticket = groups.number();
        let panics = || groups.wait(ticket, || panic!("a fault of the engine"));
        let panicked = catch_unwind(AssertUnwindSafe(panics));
        assert!(panicked.is_err());
        let later = groups.number();
        for ticket in [ticket, later] {
            let waited = groups.wait(ticket, || unreachable!("nothing is committed any more"));
            assert!(
                matches!(waited, Err(MetaError::Storage { .. })),
                "{waited:?}"
            );
        }
        assert!(groups.check().is_err());
    }
}
