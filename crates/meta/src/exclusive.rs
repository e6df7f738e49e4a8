//! Exclusive opens: at most one session writes a file, and a later one fences the earlier one out.
//!
//! Each new session gets a higher fencing token. The coordinator tells it to the nodes before the session
//! begins, and they refuse updates with a lower one; here, changes of the file's size and extents with
//! another token are refused. A token without a session belongs to all clients.

use crate::error::{MetaError, SnapshotError};
use crate::files::{check_no_symlink, file_of, file_row};
use crate::kv::{KeyValue, ReadTxn};
use crate::meta::Meta;
use crate::orphans::check_no_orphan;
use crate::records::{Exclusive, FencingToken, FileRecord, PutId, SessionId};
use crate::schema::{EXCLUSIVE, FILES};
use crate::tokens::{check_token, exclusive};
use crate::written::{is_updated_in_place, is_written, note_written};
use gabion_layout::StripeId;
use std::collections::BTreeMap;

/// The token after this one.
fn next_token(put: PutId, token: FencingToken) -> Result<FencingToken, MetaError> {
    let next = EXCLUSIVE.recount(&put, token.0, (1, 0))?;
    Ok(FencingToken(next))
}

/// The file whose writers update this stripe in place now, and their token.
fn to_update(
    txn: &dyn ReadTxn,
    put: PutId,
    stripe: StripeId,
) -> Result<(FileRecord, FencingToken), MetaError> {
    let file = file_row(txn, put)?;
    let present = exclusive(txn, put)?;
    if present.frozen_in.is_some() {
        return Err(SnapshotError::Frozen(put).into());
    }
    if !is_updated_in_place(txn, &file, stripe)? {
        return Err(SnapshotError::Shared(stripe).into());
    }
    Ok((file, present.token))
}

impl<K: KeyValue> Meta<K> {
    /// The session and the fencing token of the file that `put` made. A file that is gone has neither.
    ///
    /// # Errors
    /// When the store fails or the row is corrupt.
    pub fn exclusive(&self, put: PutId) -> Result<Exclusive, MetaError> {
        self.store.read(|txn| exclusive(txn, put))
    }

    /// Opens the file that `put` made exclusively, if `seen` is still its token: the caller has
    /// found that the session which has it, if any, may be displaced. May be repeated.
    ///
    /// # Errors
    /// [`MetaError::FileGone`], also if the file has no name any more; [`MetaError::Superseded`] when another session
    /// has come in between, or a snapshot is taken; [`SnapshotError::ReadOnly`].
    pub fn open_exclusive(
        &self,
        put: PutId,
        session: SessionId,
        seen: FencingToken,
    ) -> Result<FencingToken, MetaError> {
        self.change(|txn| {
            let file = file_of(txn, put)?;
            check_no_symlink(&file)?;
            let present = exclusive(txn, put)?;
            if present.session == Some(session) {
                return Ok(present.token);
            }
            check_no_orphan(&file)?;
            check_token(txn, &file, seen)?;
            let token = next_token(put, present.token)?;
            let opened = Exclusive {
                token,
                session: Some(session),
                frozen_in: None,
            };
            EXCLUSIVE.put(txn, &put, &opened)?;
            Ok(token)
        })
    }

    /// Raises a file's fencing token, and leaves its session as it is. Nodes that know the new token refuse writes that
    /// began before. A file that a session alone may write keeps its token: other clients' writes are refused anyway.
    ///
    /// # Errors
    /// [`MetaError::FileGone`].
    pub fn raise_token(&self, put: PutId) -> Result<FencingToken, MetaError> {
        self.change(|txn| {
            file_of(txn, put)?;
            let mut present = exclusive(txn, put)?;
            if present.session.is_none() {
                present.token = next_token(put, present.token)?;
                EXCLUSIVE.put(txn, &put, &present)?;
            }
            Ok(present.token)
        })
    }

    /// Raises the fencing tokens of files for their sessions too, and lets no client write the files until
    /// [`Meta::thaw`]. When the nodes know the tokens and earlier writes have ended, the bytes of the files do not
    /// change. Returns the tokens; files that are gone have none.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn freeze(&self, files: &[PutId]) -> Result<BTreeMap<PutId, FencingToken>, MetaError> {
        self.change(|txn| {
            let mut tokens = BTreeMap::new();
            for &put in files {
                if FILES.get(txn, &put)?.is_none() {
                    continue;
                }
                let mut present = exclusive(txn, put)?;
                present.token = next_token(put, present.token)?;
                present.frozen_in = Some(self.incarnation());
                EXCLUSIVE.put(txn, &put, &present)?;
                tokens.insert(put, present.token);
            }
            Ok(tokens)
        })
    }

    /// Lets clients write frozen files again, under their present tokens. May be repeated.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn thaw(&self, files: &[PutId]) -> Result<(), MetaError> {
        self.change(|txn| {
            for &put in files {
                let mut present = exclusive(txn, put)?;
                if present.frozen_in.take().is_some() {
                    EXCLUSIVE.put(txn, &put, &present)?;
                }
            }
            Ok(())
        })
    }

    /// The token of writes to a file, if this stripe is one that the file's writers update in place now. Notes that
    /// nodes may update it from now on.
    ///
    /// # Errors
    /// [`MetaError::FileGone`]; [`SnapshotError::Shared`]; [`SnapshotError::Frozen`].
    pub fn token_to_update(&self, put: PutId, stripe: StripeId) -> Result<FencingToken, MetaError> {
        let (token, is_noted) = self.store.read(|txn| {
            let (file, token) = to_update(txn, put, stripe)?;
            Ok((token, is_written(txn, &file, stripe)?))
        })?;
        if is_noted {
            return Ok(token);
        }
        self.change(|txn| {
            let (file, token) = to_update(txn, put, stripe)?;
            note_written(txn, &file, stripe)?;
            Ok(token)
        })
    }

    /// Ends a session. All clients may write the file again, under the same token. May be repeated, and does
    /// nothing when the session has ended or the file is gone.
    ///
    /// # Errors
    /// When the store fails.
    pub fn close_exclusive(&self, put: PutId, session: SessionId) -> Result<(), MetaError> {
        self.change(|txn| {
            let present = exclusive(txn, put)?;
            if present.session != Some(session) {
                return Ok(());
            }
            let ended = Exclusive {
                session: None,
                ..present
            };
            EXCLUSIVE.put(txn, &put, &ended)
        })
    }

    /// All files with a session, and the sessions.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn sessions(&self) -> Result<Vec<(PutId, SessionId)>, MetaError> {
        self.store.read(|txn| {
            let rows = EXCLUSIVE.scan(txn, &EXCLUSIVE.all(), usize::MAX)?;
            let open = rows
                .into_iter()
                .filter_map(|(put, row)| Some((put, row.session?)));
            Ok(open.collect())
        })
    }
}
