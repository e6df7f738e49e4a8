//! Changes that were made: a client draws a number for each change of names, attributes or inline bytes, and asks again
//! under this number when an answer is lost. A number that is known here means that the change was made, whatever has
//! happened since. Without one, the request may be another client's.
//!
//! The numbers lie in rows of 16, each in the row that its value selects, so one row is read and one written for each
//! change. A number is forgotten when 16 later ones have come to its row: the last 800,000 changes are remembered,
//! except with a chance of less than one in a million.
//!
//! The refusal of a put or a write of inline bytes is noted too, if a later copy of the request might be granted: its
//! client has been told that it has no effect.

use crate::error::MetaError;
use crate::ids::Change;
use crate::kv::{KeyValue, ReadTxn, WriteTxn};
use crate::meta::Meta;
use crate::records::{ChangeDone, ChangeOutcome, PutId};
use crate::schema::CHANGES_DONE;

/// Numbers of a row.
const PER_ROW: usize = 16;
/// Rows.
const ROW_COUNT: u64 = 1 << 18;

impl<K: KeyValue> Meta<K> {
    /// Whether the change with this number was made.
    ///
    /// # Errors
    /// [`MetaError::Storage`] and other errors of the metadata store.
    pub fn is_change_done(&self, number: u64) -> Result<bool, MetaError> {
        self.store.read(|txn| is_done(txn, number))
    }

    /// The file that the put with this number has stored, if it was inline and is done.
    ///
    /// # Errors
    /// [`MetaError::Storage`] and other errors of the metadata store.
    pub fn file_made_by(&self, number: u64) -> Result<Option<PutId>, MetaError> {
        let known = self.store.read(|txn| outcome(txn, number))?;
        Ok(match known {
            Some(ChangeOutcome::MadeFile(put)) => Some(put),
            _ => None,
        })
    }

    /// Notes that the put or the write of inline bytes with this number is refused, so a late copy of its request has
    /// no effect. Returns whether it was made before, and then notes nothing.
    ///
    /// # Errors
    /// [`MetaError::Storage`] and other errors of the metadata store.
    pub fn refuse(&self, number: u64) -> Result<bool, MetaError> {
        self.change(|txn| {
            let known = outcome(txn, number)?;
            if known.is_none() {
                note(txn, number, ChangeOutcome::Refused)?;
            }
            Ok(known.is_some_and(|known| known != ChangeOutcome::Refused))
        })
    }

    /// Makes a change once: does nothing if the change with this number was made. A lost answer leads to a second
    /// request.
    ///
    /// # Errors
    /// Those of `body`.
    pub(crate) fn change_once(
        &self,
        number: u64,
        body: impl Fn(&mut Change<'_>) -> Result<(), MetaError>,
    ) -> Result<(), MetaError> {
        self.change_as(Some(number), |txn| {
            if is_done(txn, number)? {
                return Ok(());
            }
            body(txn)?;
            note_done(txn, number)
        })
    }
}

/// Whether the change with this number was made.
pub(crate) fn is_done(txn: &dyn ReadTxn, number: u64) -> Result<bool, MetaError> {
    let known = outcome(txn, number)?;
    Ok(known.is_some_and(|known| known != ChangeOutcome::Refused))
}

/// The outcome of the change with this number, if it is remembered.
pub(crate) fn outcome(txn: &dyn ReadTxn, number: u64) -> Result<Option<ChangeOutcome>, MetaError> {
    let row = CHANGES_DONE.get(txn, &(number % ROW_COUNT))?;
    let mut done = row.into_iter().flatten();
    let known = done.find(|done| done.number == number);
    Ok(known.map(|done| done.outcome))
}

/// Notes that the change with this number is made.
pub(crate) fn note_done(txn: &mut dyn WriteTxn, number: u64) -> Result<(), MetaError> {
    note(txn, number, ChangeOutcome::Made)
}

/// Notes the outcome of the change with this number.
pub(crate) fn note(
    txn: &mut dyn WriteTxn,
    number: u64,
    outcome: ChangeOutcome,
) -> Result<(), MetaError> {
    let key = number % ROW_COUNT;
    let mut done = CHANGES_DONE.get(txn, &key)?.unwrap_or_default();
    done.push(ChangeDone { number, outcome });
    let forgotten = done.len().saturating_sub(PER_ROW);
    done.drain(..forgotten);
    CHANGES_DONE.put(txn, &key, &done)
}
