//! Growth of a file without a stripe: its new bytes are a hole, or padding of its last stripe, and so zero.

use crate::changes_done::{note, outcome};
use crate::dropped::check_none_served;
use crate::error::MetaError;
use crate::files::{check_no_symlink, file_of, put_file};
use crate::inline_rows::{fill_with_zeros, note_resize};
use crate::kv::{KeyValue, ReadTxn};
use crate::meta::Meta;
use crate::pools::pool;
use crate::records::{ChangeOutcome, FILE_BYTES_MAX, FencingToken, FileRecord, Growth, PutId};
use crate::schema::GROWTHS;
use crate::tokens::{check_not_frozen, check_not_read_only, check_token};

/// Growths of a file that are remembered, for requests that are repeated after a lost answer.
const REMEMBERED_COUNT: usize = 64;

impl<K: KeyValue> Meta<K> {
    /// Gives the file that `put` made at least `to` bytes, which are zero, if it has not been truncated more often
    /// than the caller knows: a late message must not undo a truncation. Any client may do that, also beside an
    /// exclusive open: no byte that the file has changes. Returns the file, and whether it has that size.
    ///
    /// It also waits for changes that others have not ended yet: the caller may have seen what they made, and after its
    /// own change no reader may see what was there before. A growth to 0 bytes is this wait alone.
    ///
    /// # Errors
    /// [`MetaError::FileGone`]; [`MetaError::StillServed`] while nodes may serve stripes that the file has lost;
    /// [`MetaError::FixedSize`]; [`MetaError::FileTooLarge`];
    /// [`MetaError::IsASymlink`]; [`SnapshotError::ReadOnly`](crate::SnapshotError); [`MetaError::Superseded`] while a
    /// snapshot is taken.
    pub fn grow(
        &self,
        put: PutId,
        to: u64,
        truncation_count: u64,
    ) -> Result<(FileRecord, bool), MetaError> {
        let now = self.wall_time();
        self.change(|txn| {
            let mut file = file_of(txn, put)?;
            check_none_served(txn, put)?;
            if to == 0 {
                return Ok((file, true));
            }
            check_growth(txn, &file, to)?;
            if file.size_bytes >= to {
                return Ok((file, true));
            }
            if file.truncation_count != truncation_count {
                return Ok((file, false));
            }
            check_not_frozen(txn, put)?;
            file.size_bytes = to;
            note_resize(txn, &mut file)?;
            file.attributes.note_content(now);
            put_file(txn, &file)?;
            Ok((file, true))
        })
    }

    /// Gives the file that `put` made `by` more bytes, which are zero, if it has `from` and has not been truncated
    /// more often than the caller knows: they belong to the
    /// caller's append alone. Returns the file, and whether it has grown by this call or an earlier one with
    /// this `number`, of the last 64.
    ///
    /// # Errors
    /// Those of [`Meta::grow`]; [`MetaError::Superseded`]; [`MetaError::WasRefused`].
    pub fn grow_from(
        &self,
        put: PutId,
        (from, by): (u64, u64),
        (number, truncation_count): (u64, u64),
        token: FencingToken,
    ) -> Result<(FileRecord, bool), MetaError> {
        let now = self.wall_time();
        self.change_as(Some(number), |txn| {
            let mut file = file_of(txn, put)?;
            // Before the checks: a growth that was made is not refused because there is no room for another one.
            let mut growths = GROWTHS.get(txn, &put)?.unwrap_or_default();
            if was_made(&growths, number) {
                return Ok((file, true));
            }
            let to = from.checked_add(by).ok_or(MetaError::FileTooLarge)?;
            check_growth(txn, &file, to)?;
            check_none_served(txn, put)?;
            check_token(txn, &file, token)?;
            if (file.size_bytes, file.truncation_count) != (from, truncation_count) {
                return Ok((file, false));
            }
            file.size_bytes = to;
            note_resize(txn, &mut file)?;
            // The append's bytes have room from here on.
            fill_with_zeros(txn, &mut file)?;
            growths.push(Growth { number });
            let forgotten = growths.len().saturating_sub(REMEMBERED_COUNT);
            growths.drain(..forgotten);
            GROWTHS.put(txn, &put, &growths)?;
            file.attributes.note_content(now);
            put_file(txn, &file)?;
            // The last check: as long as the reason holds, a repetition hears the reason.
            if outcome(txn, number)? == Some(ChangeOutcome::Refused) {
                return Err(MetaError::WasRefused);
            }
            Ok((file, true))
        })
    }

    /// Notes that the growth with this `number` is refused, so that a late copy of its request has no effect. Returns
    /// the file if the growth was made before, and then notes nothing.
    ///
    /// # Errors
    /// [`MetaError::FileGone`], and errors of the metadata store.
    pub fn refuse_growth(&self, put: PutId, number: u64) -> Result<Option<FileRecord>, MetaError> {
        self.change(|txn| {
            let file = file_of(txn, put)?;
            let growths = GROWTHS.get(txn, &put)?.unwrap_or_default();
            if was_made(&growths, number) {
                return Ok(Some(file));
            }
            if outcome(txn, number)?.is_none() {
                note(txn, number, ChangeOutcome::Refused)?;
            }
            Ok(None)
        })
    }
}

fn was_made(growths: &[Growth], number: u64) -> bool {
    growths.iter().any(|growth| growth.number == number)
}

fn check_growth(txn: &dyn ReadTxn, file: &FileRecord, to: u64) -> Result<(), MetaError> {
    check_no_symlink(file)?;
    check_not_read_only(file)?;
    if pool(txn, file.pool)?.lifecycle.is_some() {
        return Err(MetaError::FixedSize);
    }
    if to > FILE_BYTES_MAX {
        return Err(MetaError::FileTooLarge);
    }
    Ok(())
}
