//! Exclusive opens: at most one session writes a file, and a later one fences the earlier one out.
//!
//! Each new session gets a higher fencing token. The coordinator tells it to the nodes before the session
//! begins, and they refuse updates with a lower one; here, changes of the file's size and extents with
//! another token are refused. A token without a session belongs to all clients.

use crate::error::{MetaError, SnapshotError};
use crate::extents::own_extents;
use crate::files::{check_no_symlink, file_of, file_row};
use crate::kv::KeyValue;
use crate::maps::is_updated_in_place;
use crate::meta::Meta;
use crate::records::{Exclusive, FencingToken, PutId, SessionId};
use crate::schema::{EXCLUSIVE, LEASES};
use crate::tokens::{check_token, exclusive};
use gabion_layout::{Epoch, StripeId};
use std::collections::BTreeMap;

/// The token after this one.
fn next_token(put: PutId, token: FencingToken) -> Result<FencingToken, MetaError> {
    let next = EXCLUSIVE.recount(&put, token.0, (1, 0))?;
    Ok(FencingToken(next))
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
    /// [`MetaError::FileGone`]; [`MetaError::Superseded`] when another session has come in between, or a snapshot is
    /// taken; [`SnapshotError::ReadOnly`].
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

    /// Raises a file's fencing token for its session too, and lets no client write until [`Meta::thaw`]. When the nodes
    /// know the token and earlier writes have ended, the file's bytes do not change.
    ///
    /// # Errors
    /// [`MetaError::FileGone`].
    pub fn freeze(&self, put: PutId) -> Result<FencingToken, MetaError> {
        self.change(|txn| {
            file_row(txn, put)?;
            let mut present = exclusive(txn, put)?;
            present.token = next_token(put, present.token)?;
            present.frozen_in = Some(self.incarnation());
            EXCLUSIVE.put(txn, &put, &present)?;
            Ok(present.token)
        })
    }

    /// Lets clients write a frozen file again, under its present token. May be repeated.
    ///
    /// # Errors
    /// When the store fails or the row is corrupt.
    pub fn thaw(&self, put: PutId) -> Result<(), MetaError> {
        self.change(|txn| {
            let mut present = exclusive(txn, put)?;
            if present.frozen_in.take().is_some() {
                EXCLUSIVE.put(txn, &put, &present)?;
            }
            Ok(())
        })
    }

    /// The token of writes to a file, if this stripe is one that the file's writers update in place now.
    ///
    /// # Errors
    /// [`MetaError::FileGone`]; [`SnapshotError::Shared`]; [`SnapshotError::Frozen`].
    pub fn token_to_update(&self, put: PutId, stripe: StripeId) -> Result<FencingToken, MetaError> {
        self.store.read(|txn| {
            let file = file_row(txn, put)?;
            let present = exclusive(txn, put)?;
            if present.frozen_in.is_some() {
                return Err(SnapshotError::Frozen(put).into());
            }
            if !is_updated_in_place(txn, &file, stripe)? {
                return Err(SnapshotError::Shared(stripe).into());
            }
            Ok(present.token)
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

    /// The stripes of the own map of the file which `put` made that ever had a primary, and of which parts of earlier
    /// updates may be on their way: all but those that were settled and released since, and those whose primary vouches
    /// for the present term.
    ///
    /// # Errors
    /// [`MetaError::FileGone`].
    pub fn unsettled(
        &self,
        put: PutId,
        vouched: &BTreeMap<StripeId, Epoch>,
    ) -> Result<Vec<StripeId>, MetaError> {
        self.store.read(|txn| {
            // Stripes of lower maps take no updates since the file shares them.
            let file = file_row(txn, put)?;
            let mut unsettled = Vec::new();
            for (_, extent) in own_extents(txn, file.map)? {
                let id = extent.stripe;
                let Some(last) = LEASES.get(txn, &id)? else {
                    continue;
                };
                let is_quiet = match last.holder {
                    None => last.is_settled,
                    Some(_) => vouched.get(&id) == Some(&last.epoch),
                };
                if !is_quiet {
                    unsettled.push(id);
                }
            }
            Ok(unsettled)
        })
    }
}
