//! What is below directories with quotas: each change of a size, and each inode that is made or removed, is counted by
//! its transaction.

use crate::directory_rows::{descend, find, path_of, record};
use crate::error::MetaError;
use crate::kv::{ReadTxn, WriteTxn};
use crate::paths::DirectoryId;
use crate::quota_error::QuotaError;
use crate::quota_records::{DirectoryQuota, DirectoryUse};
use crate::records::{DirectoryRecord, FileRecord, Inode};
use crate::schema::{DIRECTORY_QUOTAS, FILES};

pub(crate) fn quota_row(txn: &dyn ReadTxn, id: DirectoryId) -> Result<DirectoryQuota, MetaError> {
    let row = DIRECTORY_QUOTAS.get(txn, &id)?;
    row.ok_or_else(|| DIRECTORY_QUOTAS.contradiction(&id, "an inode names it, and it is missing"))
}

/// The path of a directory for a sentence.
pub(crate) fn path(txn: &dyn ReadTxn, id: DirectoryId) -> Result<String, MetaError> {
    if id == DirectoryId::ROOT {
        return Ok("/".to_owned());
    }
    let row = record(txn, id)?;
    path_of(txn, row.parent, &row.name)
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
    let mut row = quota_row(txn, id)?;
    let more = |(new, old): (u64, u64)| new.saturating_sub(old);
    check_room(txn, (id, &row), (more(bytes), more(entries)))?;
    let changed = |number, change| DIRECTORY_QUOTAS.recount(&id, number, change);
    row.used = DirectoryUse {
        bytes: changed(row.used.bytes, bytes)?,
        entries: changed(row.used.entries, entries)?,
    };
    DIRECTORY_QUOTAS.put(txn, &id, &row)
}

/// Counts a file's row, which takes the place of the present one. The row of a new file gets its quota.
pub(crate) fn count_file_row(
    txn: &mut dyn WriteTxn,
    row: &mut FileRecord,
) -> Result<(), MetaError> {
    let Some(present) = FILES.get(txn, &row.put)? else {
        row.quota = record(txn, row.directory)?.quota;
        return count(txn, row.quota, (row.size_bytes, 0), (1, 0));
    };
    count(txn, row.quota, (row.size_bytes, present.size_bytes), (0, 0))
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

/// Counts a directory that is gone, and its quota with it.
pub(crate) fn uncount_directory(
    txn: &mut dyn WriteTxn,
    id: DirectoryId,
    row: &DirectoryRecord,
) -> Result<(), MetaError> {
    if row.quota == Some(id) {
        return DIRECTORY_QUOTAS.delete(txn, &id);
    }
    count(txn, row.quota, (0, 0), (0, 1))
}

/// Refuses a name in a directory for an inode that another quota counts. A directory with a quota of its own is below no
/// other.
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

/// Refuses a put of this size early. Its commit checks again, since nothing counts before it.
pub(crate) fn check_put(txn: &dyn ReadTxn, path: &str, size_bytes: u64) -> Result<(), MetaError> {
    let mut of = record(txn, DirectoryId::ROOT)?.quota;
    for (end, _) in path.match_indices('/') {
        let Some(id) = descend(txn, &path[..end])? else {
            break;
        };
        of = record(txn, id)?.quota;
    }
    let Some(id) = of else {
        return Ok(());
    };
    let replaced = match find(txn, path)? {
        Some((_, Inode::File(put))) => FILES.get(txn, &put)?.map(|row| row.size_bytes),
        _ => None,
    };
    let more = size_bytes.saturating_sub(replaced.unwrap_or(0));
    let more_entries = u64::from(replaced.is_none());
    check_room(txn, (id, &quota_row(txn, id)?), (more, more_entries))
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
