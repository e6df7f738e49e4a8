//! Advisory locks of clients, by file and session. A lock is a durable row before its owner learns of it, so it
//! survives a restart of the coordinator and a takeover.
//!
//! Sessions are numbered, and no number is used again: a late request of a session that has ended changes nothing.
//! The age of a session is the coordinator's to judge, in memory.

use crate::error::MetaError;
use crate::files::file_of;
use crate::kv::{KeyValue, ReadTxn};
use crate::lock_ranges::{HeldLock, LockChange, LockKind};
use crate::lock_rows::{locks_of, put_locks};
use crate::meta::Meta;
use crate::records::{ClientSessionId, PutId};
use crate::schema::{CLIENT_SESSIONS, Counter, LOCKED_FILES, LOCKS};
use serde::{Deserialize, Serialize};

/// Most locks of one file.
pub const FILE_LOCKS_MAX: usize = 4_096;
/// Most locks of one session.
pub const SESSION_LOCKS_MAX: u64 = 16_384;
/// Most locks of all sessions.
pub const LOCKS_MAX: u64 = 1 << 20;

/// A lock that another owner holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LockHolder {
    /// The session of its owner.
    pub session: ClientSessionId,
    /// The lock.
    pub lock: HeldLock,
}

/// The outcome of a change of locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Locking {
    /// It is done, or there is nothing to do.
    Done,
    /// Another owner's lock conflicts.
    Held(LockHolder),
    /// The session has ended, and its locks with it.
    Over,
}

/// The effect of a change of locks on the rows.
struct Step {
    outcome: Locking,
    /// The session's locks in the file, before and afterwards.
    before: Vec<HeldLock>,
    after: Vec<HeldLock>,
}

impl Step {
    fn changes(&self) -> bool {
        self.before != self.after
    }
}

impl<K: KeyValue> Meta<K> {
    /// Begins a session of a client, which has no locks.
    ///
    /// # Errors
    /// When the store fails.
    pub fn open_session(&self) -> Result<ClientSessionId, MetaError> {
        self.change(|txn| {
            let number = Counter::NextClientSession.take(txn, 1, u64::MAX, "session")?;
            let session = ClientSessionId(number);
            CLIENT_SESSIONS.put(txn, &session, &0)?;
            Ok(session)
        })
    }

    /// All sessions of clients.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn client_sessions(&self) -> Result<Vec<ClientSessionId>, MetaError> {
        self.store.read(|txn| {
            let rows = CLIENT_SESSIONS.scan(txn, &CLIENT_SESSIONS.all(), usize::MAX)?;
            Ok(rows.into_iter().map(|(session, _)| session).collect())
        })
    }

    /// The files in which a session has locks.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn locked_files(&self, session: ClientSessionId) -> Result<Vec<PutId>, MetaError> {
        self.store.read(|txn| locked_files(txn, session))
    }

    /// Changes what an owner of a session holds in a file, or does nothing if another owner's lock conflicts. As on
    /// Linux, the owner of a whole-file lock that asks for the other mode and does not get it has lost the lock that
    /// it had. The range must be valid ([`LockRange::is_valid`](crate::LockRange::is_valid)).
    ///
    /// # Errors
    /// [`MetaError::FileGone`]; [`MetaError::TooManyLocks`].
    pub fn set_lock(
        &self,
        session: ClientSessionId,
        file: PutId,
        change: &LockChange,
    ) -> Result<Locking, MetaError> {
        // Most requests of waiting owners change nothing, and need no sync.
        let seen = self.store.read(|txn| step(txn, session, file, change))?;
        if !seen.changes() {
            return Ok(seen.outcome);
        }
        self.change(|txn| {
            let step = step(txn, session, file, change)?;
            if step.changes() {
                put_locks(txn, (session, file), (&step.before, &step.after))?;
            }
            Ok(step.outcome)
        })
    }

    /// A lock that conflicts with a change, if there is one.
    ///
    /// # Errors
    /// [`MetaError::FileGone`].
    pub fn find_lock(
        &self,
        session: ClientSessionId,
        file: PutId,
        change: &LockChange,
    ) -> Result<Option<LockHolder>, MetaError> {
        self.store.read(|txn| {
            file_of(txn, file)?;
            let locks = locks_of(txn, file)?;
            Ok(obstacle(&locks, session, change))
        })
    }

    /// Ends a session, and frees its locks. May be repeated. Returns the files in which it had any.
    ///
    /// # Errors
    /// When the store fails.
    pub fn close_session(&self, session: ClientSessionId) -> Result<Vec<PutId>, MetaError> {
        let is_over = self
            .store
            .read(|txn| Ok(CLIENT_SESSIONS.get(txn, &session)?.is_none()))?;
        if is_over {
            return Ok(Vec::new());
        }
        self.change(|txn| {
            let files = locked_files(txn, session)?;
            let Some(count) = CLIENT_SESSIONS.get(txn, &session)? else {
                return Ok(Vec::new());
            };
            for &file in &files {
                LOCKS.delete(txn, &(file, session))?;
                LOCKED_FILES.delete(txn, &(session, file))?;
            }
            Counter::LockCount.lower(txn, count)?;
            CLIENT_SESSIONS.delete(txn, &session)?;
            Ok(files)
        })
    }
}

fn locked_files(txn: &dyn ReadTxn, session: ClientSessionId) -> Result<Vec<PutId>, MetaError> {
    let span = LOCKED_FILES.between(&(session, PutId(0)), &(session, PutId(u64::MAX)));
    let rows = LOCKED_FILES.scan(txn, &span, usize::MAX)?;
    Ok(rows.into_iter().map(|((_, file), ())| file).collect())
}

/// The first conflicting lock of another owner.
fn obstacle(
    locks: &[(ClientSessionId, Vec<HeldLock>)],
    session: ClientSessionId,
    change: &LockChange,
) -> Option<LockHolder> {
    let wanted = change.wanted()?;
    let all = locks
        .iter()
        .flat_map(|(session, locks)| locks.iter().map(|&lock| (*session, lock)));
    let mut others = all.filter(|&(other, lock)| (other, lock.owner) != (session, change.owner));
    let found = others.find(|(_, lock)| lock.conflicts_with(&wanted));
    found.map(|(session, lock)| LockHolder { session, lock })
}

fn step(
    txn: &dyn ReadTxn,
    session: ClientSessionId,
    file: PutId,
    change: &LockChange,
) -> Result<Step, MetaError> {
    let unchanged = |outcome, locks: Vec<HeldLock>| Step {
        outcome,
        before: locks.clone(),
        after: locks,
    };
    let Some(session_count) = CLIENT_SESSIONS.get(txn, &session)? else {
        return Ok(unchanged(Locking::Over, Vec::new()));
    };
    let before = LOCKS.get(txn, &(file, session))?.unwrap_or_default();
    if change.mode.is_none() {
        return Ok(Step {
            outcome: Locking::Done,
            after: change.applied_to(&before),
            before,
        });
    }
    file_of(txn, file)?;
    let locks = locks_of(txn, file)?;
    if let Some(holder) = obstacle(&locks, session, change) {
        let outcome = Locking::Held(holder);
        // Linux removes the lock before it looks whether the owner can have the other mode.
        let is_other =
            |lock: &HeldLock| lock.owner == change.owner && Some(lock.mode) != change.mode;
        if change.owner.kind == LockKind::Whole && before.iter().any(is_other) {
            let after = LockChange::unlock(change.owner).applied_to(&before);
            return Ok(Step {
                outcome,
                before,
                after,
            });
        }
        return Ok(unchanged(outcome, before));
    }
    let after = change.applied_to(&before);
    let more = (after.len() as u64).saturating_sub(before.len() as u64);
    let file_count: usize = locks.iter().map(|(_, locks)| locks.len()).sum();
    for (what, count, limit) in [
        ("this file", file_count as u64, FILE_LOCKS_MAX as u64),
        ("this client", session_count, SESSION_LOCKS_MAX),
        ("the cluster", Counter::LockCount.value(txn)?, LOCKS_MAX),
    ] {
        if more > 0 && count.saturating_add(more) > limit {
            return Err(MetaError::TooManyLocks { what, limit });
        }
    }
    Ok(Step {
        outcome: Locking::Done,
        before,
        after,
    })
}
