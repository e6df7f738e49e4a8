//! Changes that were made: a client draws a number for each change of names or attributes, and asks again under this number
//! when an answer is lost. A number that is known here means that the change was made, whatever has happened since. Without one, the request may be another client's.
//!
//! The numbers lie in rows of 16, each in the row that its value selects, so one row is read and one written for each
//! change. A number is forgotten when 16 later ones have come to its row: the last 200,000 changes are remembered,
//! except with a chance of less than one in a million.

use crate::error::MetaError;
use crate::kv::{KeyValue, ReadTxn, WriteTxn};
use crate::meta::Meta;
use crate::records::{ChangeDone, PutId};
use crate::schema::CHANGES_DONE;

/// Numbers of a row.
const PER_ROW: usize = 16;
/// Rows.
const ROW_COUNT: u64 = 1 << 16;

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
        let done = self.store.read(|txn| change_done(txn, number))?;
        Ok(done.and_then(|done| done.made))
    }

    /// Makes a change once: does nothing if the change with this number was made. A lost answer leads to a second request.
    ///
    /// # Errors
    /// Those of `body`.
    pub(crate) fn change_once(
        &self,
        number: u64,
        body: impl Fn(&mut dyn WriteTxn) -> Result<(), MetaError>,
    ) -> Result<(), MetaError> {
        self.change(|txn| {
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
    Ok(change_done(txn, number)?.is_some())
}

/// The change with this number, if it was made.
pub(crate) fn change_done(txn: &dyn ReadTxn, number: u64) -> Result<Option<ChangeDone>, MetaError> {
    let row = CHANGES_DONE.get(txn, &(number % ROW_COUNT))?;
    let mut done = row.into_iter().flatten();
    Ok(done.find(|done| done.number == number))
}

/// Notes that the change with this number is made.
pub(crate) fn note_done(txn: &mut dyn WriteTxn, number: u64) -> Result<(), MetaError> {
    note_made(txn, number, None)
}

/// The same with the file that it has made.
pub(crate) fn note_made(
    txn: &mut dyn WriteTxn,
    number: u64,
    made: Option<PutId>,
) -> Result<(), MetaError> {
    let key = number % ROW_COUNT;
    let mut done = CHANGES_DONE.get(txn, &key)?.unwrap_or_default();
    done.push(ChangeDone { number, made });
    let forgotten = done.len().saturating_sub(PER_ROW);
    done.drain(..forgotten);
    CHANGES_DONE.put(txn, &key, &done)
}
