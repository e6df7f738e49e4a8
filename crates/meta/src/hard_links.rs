//! The names of a file. Its first one is in its row; the others, which are rare, are in a row of their own.

use crate::attributes::WallTime;
use crate::directories::unlink;
use crate::directory_rows::path_of;
use crate::error::MetaError;
use crate::kv::{ReadTxn, WriteTxn};
use crate::paths::DirectoryId;
use crate::records::{FileRecord, PutId};
use crate::schema::HARD_LINKS;

/// Most names of a file: one row holds them.
pub(crate) const NAMES_MAX: usize = 1024;

/// A name in a directory.
pub(crate) type NameKey = (DirectoryId, String);

/// The names of a file beside its first.
pub(crate) fn others(txn: &dyn ReadTxn, put: PutId) -> Result<Vec<NameKey>, MetaError> {
    Ok(HARD_LINKS.get(txn, &put)?.unwrap_or_default())
}

/// Sets the names of a file beside its first.
pub(crate) fn set_others(
    txn: &mut dyn WriteTxn,
    put: PutId,
    names: &Vec<NameKey>,
) -> Result<(), MetaError> {
    if names.is_empty() {
        HARD_LINKS.delete(txn, &put)
    } else {
        HARD_LINKS.put(txn, &put, names)
    }
}

/// Puts a name in the place of another one of the file. The caller sets the file's row.
pub(crate) fn exchange(
    txn: &mut dyn WriteTxn,
    file: &mut FileRecord,
    (old, new): (&NameKey, NameKey),
) -> Result<(), MetaError> {
    let mut names = others(txn, file.put)?;
    match names.iter_mut().find(|name| *name == old) {
        Some(name) => {
            *name = new;
            set_others(txn, file.put, &names)
        }
        None => set_first(txn, file, new),
    }
}

/// Takes one of several names of a file away. The caller sets the file's row.
pub(crate) fn take(
    txn: &mut dyn WriteTxn,
    file: &mut FileRecord,
    (old, mut names): (&NameKey, Vec<NameKey>),
    now: WallTime,
) -> Result<(), MetaError> {
    if let Some(at) = names.iter().position(|name| name == old) {
        names.remove(at);
    } else {
        let next = names.pop();
        let next = next.ok_or_else(|| HARD_LINKS.contradiction(&file.put, "it is empty"))?;
        set_first(txn, file, next)?;
    }
    set_others(txn, file.put, &names)?;
    file.link_count = names.len() as u64 + 1;
    file.generation = file.generation.saturating_add(1);
    file.attributes.note_change(now);
    unlink(txn, old, now)
}

fn set_first(
    txn: &dyn ReadTxn,
    file: &mut FileRecord,
    (directory, name): NameKey,
) -> Result<(), MetaError> {
    file.name = path_of(txn, directory, &name)?;
    file.directory = directory;
    Ok(())
}
