//! Orphans: files without a name that clients have open. A file becomes one when it loses its last name while a client
//! has it open. Its record, its extents and its attributes stay, and it counts as before; only names do not lead to
//! it. When no client has it open any more, it ends as any removed file does.

use crate::attributes::WallTime;
use crate::directory_uses::uncount_file_row;
use crate::dropped::forget_dropped;
use crate::error::MetaError;
use crate::ids::Change;
use crate::inline_rows;
use crate::kv::{KeyValue, ReadTxn, WriteTxn};
use crate::layers::release;
use crate::lock_rows::forget_locks;
use crate::meta::Meta;
use crate::paths::DirectoryId;
use crate::quotas::uncount_file;
use crate::records::{FileRecord, Inode, PutId};
use crate::schema::{
    Counter, EXCLUSIVE, FILES, GROWTHS, ORPHANS, REQUESTED_FORMS, USER_ATTRIBUTES,
};

/// Most orphans.
pub const ORPHANS_MAX: u64 = 1 << 20;

impl<K: KeyValue> Meta<K> {
    /// At most `limit` orphans behind `after`, in the order of their puts.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn orphans(&self, after: Option<PutId>, limit: usize) -> Result<Vec<PutId>, MetaError> {
        self.store.read(|txn| {
            let rows = ORPHANS.scan(txn, &ORPHANS.after(after.as_ref()), limit)?;
            Ok(rows.into_iter().map(|(file, ())| file).collect())
        })
    }

    /// Removes those of these files that are orphans and that no client has open. Returns how many: their stripes
    /// become garbage later, as those of all removed files.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn free_orphans(&self, files: &[PutId]) -> Result<u64, MetaError> {
        // A read would see durable rows alone, and these files may have become orphans in a transaction before.
        self.change(|txn| {
            let mut count = 0;
            for &put in files {
                if ORPHANS.get(txn, &put)?.is_none() || txn.keeps(put) {
                    continue;
                }
                let file = orphan(txn, put)?;
                ORPHANS.delete(txn, &put)?;
                Counter::OrphanCount.lower(txn, 1)?;
                end(txn, &file)?;
                count += 1;
            }
            Ok(count)
        })
    }
}

/// Whether a file has no name, and stays for the clients that have it open.
pub(crate) const fn is_orphan(file: &FileRecord) -> bool {
    file.link_count == 0
}

/// Refuses what needs a file with a name.
pub(crate) fn check_no_orphan(file: &FileRecord) -> Result<(), MetaError> {
    if is_orphan(file) {
        return Err(MetaError::FileGone(file.put));
    }
    Ok(())
}

/// Goes on with a file that has lost its last name: it becomes an orphan if a client has it open, and ends otherwise.
/// Returns whether it has ended.
///
/// # Errors
/// [`MetaError::TooManyOrphans`].
pub(crate) fn leave(
    txn: &mut Change<'_>,
    file: &FileRecord,
    now: WallTime,
) -> Result<bool, MetaError> {
    // No client has a symbolic link open.
    if file.symlink.is_some() || !txn.keeps(file.put) {
        end(txn, file)?;
        return Ok(true);
    }
    if Counter::OrphanCount.raise(txn, 1)? > ORPHANS_MAX {
        return Err(MetaError::TooManyOrphans { limit: ORPHANS_MAX });
    }
    let row = FILES.get(txn, &file.put)?;
    let mut row = row.ok_or(MetaError::FileGone(file.put))?;
    // The directory in which it lay may be removed.
    row.directory = DirectoryId::ROOT;
    row.link_count = 0;
    row.generation = row.generation.saturating_add(1);
    row.attributes.note_change(now);
    FILES.put(txn, &row.put, &row)?;
    ORPHANS.put(txn, &row.put, &())?;
    Ok(false)
}

/// Removes a file without names: its record, and all that belongs to it but its stripes.
fn end(txn: &mut dyn WriteTxn, file: &FileRecord) -> Result<(), MetaError> {
    release(txn, file.map)?;
    forget_dropped(txn, file.put)?;
    inline_rows::forget(txn, file)?;
    GROWTHS.delete(txn, &file.put)?;
    USER_ATTRIBUTES.delete(txn, &Inode::File(file.put))?;
    EXCLUSIVE.delete(txn, &file.put)?;
    forget_locks(txn, file.put)?;
    FILES.delete(txn, &file.put)?;
    uncount_file(txn, file)?;
    uncount_file_row(txn, file)?;
    REQUESTED_FORMS.delete(txn, &file.put)
}

/// The row of an orphan.
fn orphan(txn: &dyn ReadTxn, put: PutId) -> Result<FileRecord, MetaError> {
    let row = FILES.get(txn, &put)?.filter(is_orphan);
    row.ok_or_else(|| ORPHANS.contradiction(&put, "it made no file without a name"))
}

/// A sentence for each contradiction between orphans, files and their count.
pub(crate) fn contradictions(txn: &dyn ReadTxn) -> Result<Vec<String>, MetaError> {
    let mut faults = Vec::new();
    let rows = ORPHANS.scan(txn, &ORPHANS.all(), usize::MAX)?;
    let counted = Counter::OrphanCount.value(txn)?;
    if counted != rows.len() as u64 {
        let count = rows.len();
        faults.push(format!(
            "{count} removed files are open, but {counted} are counted"
        ));
    }
    for (put, row) in FILES.scan(txn, &FILES.all(), usize::MAX)? {
        if is_orphan(&row) && ORPHANS.get(txn, &put)?.is_none() {
            faults.push(format!("the file of {put} has no name"));
        }
    }
    for (put, ()) in rows {
        if !FILES.get(txn, &put)?.is_some_and(|row| is_orphan(&row)) {
            faults.push(format!("{put} made no file without a name"));
        }
    }
    Ok(faults)
}
