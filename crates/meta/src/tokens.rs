//! Checks of fencing tokens and sessions within a transaction.

use crate::error::{MetaError, SnapshotError};
use crate::kv::ReadTxn;
use crate::records::{Exclusive, FencingToken, FileRecord, PutId};
use crate::schema::{Counter, EXCLUSIVE};

/// The clients that may write the file which `put` made.
pub(crate) fn exclusive(txn: &dyn ReadTxn, put: PutId) -> Result<Exclusive, MetaError> {
    let mut present = EXCLUSIVE.get(txn, &put)?.unwrap_or_default();
    if present.frozen_in.is_some() {
        // An earlier run of the coordinator makes no snapshot any more.
        let run = Counter::Incarnation.value(txn)?;
        present.frozen_in = present.frozen_in.filter(|&frozen_in| frozen_in == run);
    }
    Ok(present)
}

/// Refuses to remove a file that a session has.
pub(crate) fn check_no_session(txn: &dyn ReadTxn, file: &FileRecord) -> Result<(), MetaError> {
    match exclusive(txn, file.put)?.session {
        None => Ok(()),
        Some(_) => Err(MetaError::InUse(file.name.clone())),
    }
}

/// Refuses a snapshot, which never changes.
pub(crate) fn check_not_read_only(file: &FileRecord) -> Result<(), MetaError> {
    if file.is_read_only {
        return Err(SnapshotError::ReadOnly(file.name.clone()).into());
    }
    Ok(())
}

/// Refuses a change of a file that was made under another token than the present one, or while a snapshot of it is
/// taken.
pub(crate) fn check_token(
    txn: &dyn ReadTxn,
    file: &FileRecord,
    token: FencingToken,
) -> Result<(), MetaError> {
    check_not_read_only(file)?;
    let present = exclusive(txn, file.put)?;
    let current = present.token;
    if current == token && present.frozen_in.is_none() {
        return Ok(());
    }
    Err(MetaError::Superseded { current })
}

/// Refuses a change while a snapshot of the file is taken.
pub(crate) fn check_not_frozen(txn: &dyn ReadTxn, put: PutId) -> Result<(), MetaError> {
    let present = exclusive(txn, put)?;
    match present.frozen_in {
        None => Ok(()),
        Some(_) => Err(MetaError::Superseded {
            current: present.token,
        }),
    }
}
