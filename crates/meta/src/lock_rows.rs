//! The rows of advisory locks, which agree with their counts and with the index by session.

use crate::error::MetaError;
use crate::kv::{ReadTxn, WriteTxn};
use crate::lock_ranges::HeldLock;
use crate::records::{ClientSessionId, PutId};
use crate::schema::{CLIENT_SESSIONS, Counter, LOCKED_FILES, LOCKS};

/// The locks of a file, by session.
pub(crate) fn locks_of(
    txn: &dyn ReadTxn,
    file: PutId,
) -> Result<Vec<(ClientSessionId, Vec<HeldLock>)>, MetaError> {
    let (first, end) = (ClientSessionId(0), ClientSessionId(u64::MAX));
    let rows = LOCKS.scan(
        txn,
        &LOCKS.between(&(file, first), &(file, end)),
        usize::MAX,
    )?;
    let locks = rows.into_iter();
    Ok(locks
        .map(|((_, session), locks)| (session, locks))
        .collect())
}

/// Sets the row of a session's locks in a file, and the counts and the index that agree with it.
pub(crate) fn put_locks(
    txn: &mut dyn WriteTxn,
    (session, file): (ClientSessionId, PutId),
    (before, after): (&[HeldLock], &[HeldLock]),
) -> Result<(), MetaError> {
    if after.is_empty() {
        LOCKS.delete(txn, &(file, session))?;
        LOCKED_FILES.delete(txn, &(session, file))?;
    } else {
        LOCKS.put(txn, &(file, session), &after.to_vec())?;
        LOCKED_FILES.put(txn, &(session, file), &())?;
    }
    let (before, after) = (before.len() as u64, after.len() as u64);
    let present = CLIENT_SESSIONS.get(txn, &session)?.unwrap_or_default();
    let count = CLIENT_SESSIONS.recount(&session, present, (after, before))?;
    CLIENT_SESSIONS.put(txn, &session, &count)?;
    if after >= before {
        Counter::LockCount.raise(txn, after - before)?;
    } else {
        Counter::LockCount.lower(txn, before - after)?;
    }
    Ok(())
}

/// Frees all locks of a file that is removed.
pub(crate) fn forget_locks(txn: &mut dyn WriteTxn, file: PutId) -> Result<(), MetaError> {
    for (session, before) in locks_of(txn, file)? {
        put_locks(txn, (session, file), (&before, &[]))?;
    }
    Ok(())
}
