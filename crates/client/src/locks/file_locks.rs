//! This client's knowledge of its owners' locks in one file. The coordinator has the locks; this says which owners may
//! have any, and whether locks were lost.

use super::held_ranges::HeldRanges;
use crate::sessions::session::ClientSession;
use futures::lock::Mutex as AsyncMutex;
use gabion_meta::{LockChange, LockOwner, LockRange, Locking, PutId};
use gabion_protocol::message::LockAttempt;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// This client's locks in a file, shared by the file's handles.
pub(super) struct FileLocks {
    pub(super) file: PutId,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The session of the locks, while there may be any.
    session: Option<Arc<ClientSession>>,
    owners: BTreeMap<LockOwner, Owner>,
    /// The number of times locks were lost with their session.
    loss_count: u64,
}

#[derive(Default)]
struct Owner {
    /// Where it may have locks.
    held: HeldRanges,
    /// Its changes on their way.
    change_count: u32,
    /// Two of its changes were on their way at the same time since it had none: their order is unknown.
    are_mixed: bool,
    /// The number of a change whose answer was lost.
    unknown: Option<u64>,
    /// It has closed the file, and the coordinator does not know that yet.
    is_closed: bool,
    /// Held while its close is told to the coordinator.
    closing: Arc<AsyncMutex<()>>,
}

/// Whether a handle may go on with the locks that the client had when it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Validity {
    /// It may.
    Valid,
    /// The client does not know for now whether it has its locks.
    Unknown,
    /// Locks were lost since.
    Lost,
}

/// The outcome of a change, from which the knowledge of its owner follows.
pub(super) enum Ended {
    /// With this answer.
    Answered(Locking),
    /// The answer to the request with this number was lost.
    Unknown(u64),
    /// It was refused.
    Refused,
}

impl FileLocks {
    pub(super) fn new(file: PutId) -> Self {
        Self {
            file,
            state: Mutex::default(),
        }
    }

    pub(super) fn loss_count(&self) -> u64 {
        self.settled().loss_count
    }

    /// Whether a handle that knows of this many losses may go on.
    pub(super) fn validity(&self, known_loss_count: u64, now_ms: u64) -> Validity {
        let state = self.settled();
        if state.loss_count != known_loss_count {
            return Validity::Lost;
        }
        let has_locks = state.owners.values().any(Owner::holds);
        let session = state.session.as_ref().filter(|_| has_locks);
        match session {
            Some(session) if !session.is_leased(now_ms) => Validity::Unknown,
            _ => Validity::Valid,
        }
    }

    /// Whether an owner has nothing to unlock.
    pub(super) fn has_none(&self, owner: LockOwner) -> bool {
        !self.settled().owners.contains_key(&owner)
    }

    /// The turn to tell the coordinator that an owner has closed the file, if it has and may still have locks.
    pub(super) fn closing(&self, owner: LockOwner) -> Option<Arc<AsyncMutex<()>>> {
        let state = self.settled();
        let owner = state.owners.get(&owner)?;
        owner.is_closed.then(|| Arc::clone(&owner.closing))
    }

    /// Notes that an owner has closed the file. Its locks are to be unlocked.
    pub(super) fn note_closed(&self, owner: LockOwner) {
        if let Some(owner) = self.settled().owners.get_mut(&owner) {
            owner.is_closed = true;
        }
    }

    /// A change is about to be asked for in a session. Returns the number of an earlier request of the owner whose
    /// answer was lost.
    pub(super) fn begin(&self, session: &Arc<ClientSession>, owner: LockOwner) -> Option<u64> {
        let mut state = self.settled();
        if !session.is_over() {
            // There is no newer session. One that is over would count as the loss of the newer session's locks.
            state.session = Some(Arc::clone(session));
        }
        let owner = state.owners.entry(owner).or_default();
        owner.change_count += 1;
        owner.are_mixed |= owner.change_count > 1;
        owner.unknown
    }

    /// A change that was begun in this session has ended. Whether it counts: the session goes on.
    pub(super) fn end(
        &self,
        session: &Arc<ClientSession>,
        (change, attempt): (&LockChange, LockAttempt),
        ended: &Ended,
    ) -> bool {
        let mut state = self.settled();
        let goes_on = !session.is_over();
        if let Some(owner) = state.owners.get_mut(&change.owner) {
            owner.change_count = owner.change_count.saturating_sub(1);
            if goes_on && attempt != LockAttempt::Find {
                owner.note(change, ended);
            }
            owner.are_mixed &= owner.change_count > 0;
            if !owner.holds() && owner.change_count == 0 && owner.unknown.is_none() {
                state.owners.remove(&change.owner);
            }
        }
        goes_on
    }

    /// The state, in which the loss of the session is noted.
    fn settled(&self) -> MutexGuard<'_, State> {
        // It is whole after every step.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state
            .session
            .as_ref()
            .is_some_and(|session| session.is_over())
        {
            state.session = None;
            let has_lost = state.owners.values().any(Owner::holds);
            state.loss_count += u64::from(has_lost);
            state.owners.retain(|_, owner| {
                *owner = Owner {
                    change_count: owner.change_count,
                    closing: Arc::clone(&owner.closing),
                    ..Owner::default()
                };
                owner.change_count > 0
            });
        }
        state
    }
}

impl Owner {
    /// Whether it may have locks.
    const fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Notes what it may have after a change. In doubt it has locks: a close then unlocks them.
    fn note(&mut self, change: &LockChange, ended: &Ended) {
        match ended {
            Ended::Answered(Locking::Done) => {
                self.unknown = None;
                let frees_all = change.range == LockRange::ALL;
                match change.mode {
                    Some(_) => self.held.add(change.range),
                    // The coordinator may have made the changes in another order.
                    None if self.are_mixed => self.is_closed &= !frees_all,
                    None => {
                        self.held.remove(change.range);
                        self.is_closed &= !frees_all;
                    }
                }
            }
            Ended::Unknown(number) => {
                self.unknown = Some(*number);
                if change.mode.is_some() {
                    self.held.add(change.range);
                }
            }
            Ended::Answered(_) | Ended::Refused => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_meta::{LockKind, LockMode};

    const OWNER: LockOwner = LockOwner {
        kind: LockKind::Range,
        number: 7,
    };
    const FIRST: LockRange = LockRange { first: 0, last: 9 };
    const SECOND: LockRange = LockRange {
        first: 20,
        last: 29,
    };

    fn change(mode: Option<LockMode>, range: LockRange) -> LockChange {
        LockChange {
            mode,
            range,
            ..LockChange::unlock(OWNER)
        }
    }

    const DONE: Ended = Ended::Answered(Locking::Done);

    #[test]
    fn an_owner_that_has_unlocked_all_its_ranges_has_no_lock() {
        let mut owner = Owner::default();
        for range in [FIRST, SECOND] {
            owner.note(&change(Some(LockMode::Exclusive), range), &DONE);
        }
        owner.note(&change(None, FIRST), &DONE);
        assert!(owner.holds(), "the second range is locked");
        owner.note(&change(None, SECOND), &Ended::Unknown(3));
        assert!(owner.holds(), "it may be locked");
        owner.note(&change(None, SECOND), &DONE);
        assert!(!owner.holds());
    }

    #[test]
    fn an_unlock_beside_another_change_of_its_owner_proves_nothing() {
        let mut owner = Owner {
            are_mixed: true,
            ..Owner::default()
        };
        owner.note(&change(Some(LockMode::Exclusive), FIRST), &DONE);
        owner.note(&change(None, FIRST), &DONE);
        assert!(owner.holds(), "the coordinator may have locked it last");
        owner.note(&LockChange::unlock(OWNER), &DONE);
        assert!(owner.holds());
        owner.are_mixed = false;
        owner.note(&LockChange::unlock(OWNER), &DONE);
        assert!(!owner.holds());
    }
}
