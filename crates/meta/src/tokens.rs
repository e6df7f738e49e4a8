//! Checks of fencing tokens and sessions within a transaction.

use crate::error::MetaError;
use crate::kv::ReadTxn;
use crate::records::{Exclusive, FencingToken, FileRecord, PutId};
use crate::schema::EXCLUSIVE;

/// Which clients may write the file that `put` made.
pub(crate) fn exclusive(txn: &dyn ReadTxn, put: PutId) -> Result<Exclusive, MetaError> {
    Ok(EXCLUSIVE.get(txn, &put)?.unwrap_or_default())
}

/// Refuses to remove a file that a session has.
pub(crate) fn check_no_session(txn: &dyn ReadTxn, file: &FileRecord) -> Result<(), MetaError> {
    match exclusive(txn, file.put)?.session {
        None => Ok(()),
        Some(_) => Err(MetaError::InUse(file.name.clone())),
    }
}

/// Refuses a change that was made under another token than the present one.
pub(crate) fn check_token(
    txn: &dyn ReadTxn,
    put: PutId,
    token: FencingToken,
) -> Result<(), MetaError> {
    let current = exclusive(txn, put)?.token;
    if current == token {
        return Ok(());
    }
    Err(MetaError::Superseded { current })
}
