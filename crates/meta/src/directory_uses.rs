//! What is below directories with quotas: each change of a size, and each inode that is made or removed, is counted by
//! its transaction.
//!
//! A quota that ends, or whose directory is removed, leaves its row as long as it counts orphans: their rows name it.
//! Such a row has no limits, and goes with the last orphan.

use crate::directory_rows::{descend, find, path_of, record};
use crate::error::{MetaError, SnapshotError};
use crate::kv::{ReadTxn, WriteTxn};
use crate::paths::DirectoryId;
use crate::quota_error::QuotaError;
use crate::quota_records::{DirectoryQuota, DirectoryUse, Quota};
use crate::records::{DirectoryRecord, FileRecord, Inode, PutId};
use crate::schema::{DIRECTORIES, DIRECTORY_QUOTAS, FILES};

/// Most files and directories below a directory whose quota is set or removed: one transaction changes the row of each.
pub const QUOTA_ENTRIES_MAX: usize = 4096;

pub(crate) fn quota_row(txn: &dyn ReadTxn, id: DirectoryId) -> Result<DirectoryQuota, MetaError> {
    let row = DIRECTORY_QUOTAS.get(txn, &id)?;
    row.ok_or_else(|| DIRECTORY_QUOTAS.contradiction(&id, "an inode names it, and it is missing"))
}

/// The path of a directory for a sentence; the number of one that is gone.
pub(crate) fn path(txn: &dyn ReadTxn, id: DirectoryId) -> Result<String, MetaError> {
    if id == DirectoryId::ROOT {
        return Ok("/".to_owned());
    }
    match DIRECTORIES.get(txn, &id)? {
        Some(row) => path_of(txn, row.parent, &row.name),
        None => Ok(format!("removed directory {}", id.0)),
    }
}

/// Whether a directory has no quota any more, so that its row counts orphans alone.
pub(crate) fn is_ended(txn: &dyn ReadTxn, id: DirectoryId) -> Result<bool, MetaError> {
    let row = DIRECTORIES.get(txn, &id)?;
    Ok(row.is_none_or(|row| row.quota != Some(id)))
}

/// Refuses a new name in a directory of a snapshot.
pub(crate) fn check_writable(
    txn: &dyn ReadTxn,
    id: DirectoryId,
    row: &DirectoryRecord,
) -> Result<(), MetaError> {
    if row.is_read_only {
        return Err(SnapshotError::ReadOnlyDirectory(path(txn, id)?).into());
    }
    Ok(())
}

/// Refuses more bytes, or more files and directories, than the quota of a directory leaves.
pub(crate) fn check_room(
    txn: &dyn ReadTxn,
    (id, row): (DirectoryId, &DirectoryQuota),
    (more_bytes, more_entries): (u64, u64),
) -> Result<(), MetaError> {
    let DirectoryQuota { quota, used } = *row;
    let is_full = |limit: u64, used: u64, more: u64| {
        more > 0 && used.checked_add(more).is_none_or(|sum| sum > limit)
    };
    let limit = quota.bytes.number().unwrap_or(u64::MAX);
    if is_full(limit, used.bytes, more_bytes) {
        let (directory, used, more) = (path(txn, id)?, used.bytes, more_bytes);
        let error = QuotaError::DirectoryBytes {
            directory,
            limit,
            used,
            more,
        };
        return Err(error.into());
    }
    let limit = quota.files.number().unwrap_or(u64::MAX);
    if is_full(limit, used.entries, more_entries) {
        let directory = path(txn, id)?;
        return Err(QuotaError::DirectoryFiles { directory, limit }.into());
    }
    Ok(())
}

/// Counts a change below the directory of a quota, each of the new and the old number. Refuses growth beyond the quota.
fn count(
    txn: &mut dyn WriteTxn,
    of: Option<DirectoryId>,
    bytes: (u64, u64),
    entries: (u64, u64),
) -> Result<(), MetaError> {
    let Some(id) = of.filter(|_| bytes.0 != bytes.1 || entries.0 != entries.1) else {
        return Ok(());
    };
    let row = quota_row(txn, id)?;
    // The difference: the sum of all bytes and the new ones may not fit into 64 bits.
    let difference = |(new, old): (u64, u64)| (new.saturating_sub(old), old.saturating_sub(new));
    let (bytes, entries) = (difference(bytes), difference(entries));
    check_room(txn, (id, &row), (bytes.0, entries.0))?;
    set_use(txn, (id, row), bytes, entries)
}

/// Adds to what a quota counts, and takes away from it: of each, the more and the fewer.
fn set_use(
    txn: &mut dyn WriteTxn,
    (id, mut row): (DirectoryId, DirectoryQuota),
    bytes: (u64, u64),
    entries: (u64, u64),
) -> Result<(), MetaError> {
    let changed = |number, change| DIRECTORY_QUOTAS.recount(&id, number, change);
    row.used = DirectoryUse {
        bytes: changed(row.used.bytes, bytes)?,
        entries: changed(row.used.entries, entries)?,
    };
    if row.used.entries == 0 && is_ended(txn, id)? {
        return DIRECTORY_QUOTAS.delete(txn, &id);
    }
    DIRECTORY_QUOTAS.put(txn, &id, &row)
}

/// Ends the quota of a directory, which has counted this below it. What is left are orphans. The rows of what is
/// below, and that of the directory, name it no more, or will not.
pub(crate) fn end_quota(
    txn: &mut dyn WriteTxn,
    id: DirectoryId,
    below: DirectoryUse,
) -> Result<(), MetaError> {
    let used = quota_row(txn, id)?.used;
    let left = |number, below| DIRECTORY_QUOTAS.recount(&id, number, (0, below));
    let used = DirectoryUse {
        bytes: left(used.bytes, below.bytes)?,
        entries: left(used.entries, below.entries)?,
    };
    if used.entries == 0 {
        return DIRECTORY_QUOTAS.delete(txn, &id);
    }
    let quota = Quota::default();
    DIRECTORY_QUOTAS.put(txn, &id, &DirectoryQuota { quota, used })
}

/// Counts a file's row, which takes the place of the present one. The row of a new file gets its quota. `freed` is the
/// file that has ended to make way for a new one.
pub(crate) fn count_file_row(
    txn: &mut dyn WriteTxn,
    row: &mut FileRecord,
    freed: Option<&FileRecord>,
) -> Result<(), MetaError> {
    if let Some(present) = FILES.get(txn, &row.put)? {
        return count(txn, row.quota, (row.size_bytes, present.size_bytes), (0, 0));
    }
    row.quota = record(txn, row.directory)?.quota;
    let Some(id) = row.quota else {
        return Ok(());
    };
    let of = quota_row(txn, id)?;
    let freed = freed.filter(|freed| freed.quota == row.quota);
    let more = growth(row.size_bytes, freed.map(|freed| freed.size_bytes));
    let more_entries = u64::from(freed.is_none());
    check_room(txn, (id, &of), (more, more_entries))?;
    set_use(txn, (id, of), (row.size_bytes, 0), (1, 0))
}

/// The bytes of a new file for which a quota needs room after it has uncounted the file in the way. What takes the
/// place of as much is not refused, even by a quota that was lowered.
fn growth(size_bytes: u64, freed_bytes: Option<u64>) -> u64 {
    match freed_bytes {
        Some(freed_bytes) if size_bytes <= freed_bytes => 0,
        _ => size_bytes,
    }
}

/// Counts a file that is gone.
pub(crate) fn uncount_file_row(txn: &mut dyn WriteTxn, row: &FileRecord) -> Result<(), MetaError> {
    count(txn, row.quota, (0, row.size_bytes), (0, 1))
}

/// Counts a new directory. Returns the quota that it inherits.
pub(crate) fn count_directory(
    txn: &mut dyn WriteTxn,
    parent: DirectoryId,
) -> Result<Option<DirectoryId>, MetaError> {
    let quota = record(txn, parent)?.quota;
    count(txn, quota, (0, 0), (1, 0))?;
    Ok(quota)
}

/// Counts a directory that is gone, and ends its quota. It was empty.
pub(crate) fn uncount_directory(
    txn: &mut dyn WriteTxn,
    id: DirectoryId,
    row: &DirectoryRecord,
) -> Result<(), MetaError> {
    if row.quota == Some(id) {
        return end_quota(txn, id, DirectoryUse::default());
    }
    count(txn, row.quota, (0, 0), (0, 1))
}

/// Refuses a name in a directory for an inode that another quota counts. A directory with a quota of its own is below
/// no other.
pub(crate) fn check_border(
    txn: &dyn ReadTxn,
    (inode, quota): (Inode, Option<DirectoryId>),
    (parent, path): (DirectoryId, &str),
) -> Result<(), MetaError> {
    let has_own = matches!(inode, Inode::Directory(id) if quota == Some(id));
    let expected = quota.filter(|_| !has_own);
    if record(txn, parent)?.quota == expected {
        return Ok(());
    }
    Err(QuotaError::Border(path.to_owned()).into())
}

/// Refuses a put of this size early, for want of room or because its directory is a snapshot's. Its commit checks
/// again, since nothing counts before it. `is_kept` tells which file stays for clients that have it open, if it loses
/// its name.
pub(crate) fn check_put(
    txn: &dyn ReadTxn,
    path: &str,
    size_bytes: u64,
    is_kept: impl Fn(PutId) -> bool,
) -> Result<(), MetaError> {
    let (mut lowest, mut row) = (DirectoryId::ROOT, record(txn, DirectoryId::ROOT)?);
    // The directories above the name that the put makes.
    let mut missing_count = path.matches('/').count() as u64;
    for (end, _) in path.match_indices('/') {
        let Some(id) = descend(txn, &path[..end])? else {
            break;
        };
        (lowest, row) = (id, record(txn, id)?);
        missing_count -= 1;
    }
    check_writable(txn, lowest, &row)?;
    let Some(id) = row.quota else {
        return Ok(());
    };
    let present = match find(txn, path)? {
        Some((_, Inode::File(put))) => FILES.get(txn, &put)?,
        _ => None,
    };
    let of = quota_row(txn, id)?;
    let checked = check_room(txn, (id, &of), (size_bytes, missing_count + 1));
    let is_freed = |file: &FileRecord| file.link_count == 1 && !is_kept(file.put);
    // A file that stays counts as before. The question is asked only if the answer matters, because no client can open
    // the file until the transaction ends.
    match present.filter(|file| checked.is_err() && is_freed(file)) {
        Some(freed) => {
            let more = size_bytes.saturating_sub(freed.size_bytes);
            check_room(txn, (id, &of), (more, missing_count))
        }
        None => checked,
    }
}

/// Refuses growth of a file early.
pub(crate) fn check_growth(
    txn: &dyn ReadTxn,
    file: &FileRecord,
    size_bytes: u64,
) -> Result<(), MetaError> {
    let Some(id) = file.quota else {
        return Ok(());
    };
    let more = size_bytes.saturating_sub(file.size_bytes);
    check_room(txn, (id, &quota_row(txn, id)?), (more, 0))
}
