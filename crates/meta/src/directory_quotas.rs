//! Quotas of directories, and what is below them. A directory with a quota is inherited: each file and directory that is
//! made below it names it in its row. So one transaction of a few rows counts each change, however large the tree is.
//!
//! Such directories do not lie in each other, and no name crosses the border of one: all names of a file are below the same
//! one, or below none.

use crate::directory_rows::{entries, record};
use crate::directory_uses::{check_room, path, quota_row};
use crate::error::MetaError;
use crate::files::{file_of, file_row};
use crate::kv::{KeyValue, ReadTxn, WriteTxn};
use crate::meta::Meta;
use crate::paths::DirectoryId;
use crate::quota_error::QuotaError;
use crate::quota_records::{DirectoryQuota, DirectoryUse, Quota, QuotaChange, QuotaStatus};
use crate::records::{DirectoryRecord, FileRecord, Inode, PutId};
use crate::schema::{DIRECTORIES, DIRECTORY_QUOTAS, FILES, NAMES};
use std::collections::BTreeMap;

/// Most files and directories below a directory whose quota is set or removed: one transaction changes the row of each.
pub const QUOTA_ENTRIES_MAX: usize = 4096;

/// Most directories with quotas.
pub const QUOTA_DIRECTORIES_MAX: usize = 1024;

impl<K: KeyValue> Meta<K> {
    /// Changes the quota of a directory. The first one counts what is below it. A quota below what is used takes nothing
    /// away: the directory gets nothing more.
    ///
    /// # Errors
    /// [`MetaError::DirectoryGone`]; [`QuotaError::Nested`]; [`QuotaError::TooManyEntries`];
    /// [`QuotaError::LinkedOutside`]; [`QuotaError::TooManyDirectories`].
    pub fn set_directory_quota(
        &self,
        id: DirectoryId,
        change: QuotaChange,
    ) -> Result<(), MetaError> {
        self.change(|txn| {
            let mut row = match quota_of(txn, id)? {
                None => begin(txn, id)?,
                Some(of) if of == id => quota_row(txn, id)?,
                Some(of) => return Err(nested(txn, id, of)?),
            };
            row.quota = Quota {
                bytes: change.bytes.unwrap_or(row.quota.bytes),
                files: change.files.unwrap_or(row.quota.files),
            };
            DIRECTORY_QUOTAS.put(txn, &id, &row)
        })
    }

    /// Removes the quota of a directory; does nothing if there is none.
    ///
    /// # Errors
    /// [`MetaError::DirectoryGone`]; [`QuotaError::Nested`]; [`QuotaError::TooManyEntries`].
    pub fn remove_directory_quota(&self, id: DirectoryId) -> Result<(), MetaError> {
        self.change(|txn| match quota_of(txn, id)? {
            None => Ok(()),
            Some(of) if of == id => {
                let below = below(txn, id)?;
                mark(txn, (id, &below), None)?;
                DIRECTORY_QUOTAS.delete(txn, &id)
            }
            Some(of) => Err(nested(txn, id, of)?),
        })
    }

    /// The quota that counts an inode, if there is one.
    ///
    /// # Errors
    /// [`MetaError::FileGone`]; [`MetaError::DirectoryGone`].
    pub fn directory_quota(&self, inode: Inode) -> Result<Option<QuotaStatus>, MetaError> {
        self.store.read(|txn| {
            let of = match inode {
                Inode::File(put) => file_row(txn, put)?.quota,
                Inode::Directory(id) => quota_of(txn, id)?,
            };
            of.map(|id| status(txn, id, quota_row(txn, id)?))
                .transpose()
        })
    }

    /// All directories with quotas.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn directory_quotas(&self) -> Result<Vec<QuotaStatus>, MetaError> {
        self.store.read(|txn| {
            let rows = DIRECTORY_QUOTAS.scan(txn, &DIRECTORY_QUOTAS.all(), usize::MAX)?;
            let statuses = rows.into_iter().map(|(id, row)| status(txn, id, row));
            statuses.collect()
        })
    }
}

fn status(
    txn: &dyn ReadTxn,
    id: DirectoryId,
    row: DirectoryQuota,
) -> Result<QuotaStatus, MetaError> {
    Ok(QuotaStatus {
        directory: id,
        path: path(txn, id)?,
        quota: row.quota,
        used: row.used,
    })
}

/// The directory whose quota counts what is made in a directory.
fn quota_of(txn: &dyn ReadTxn, id: DirectoryId) -> Result<Option<DirectoryId>, MetaError> {
    let row = DIRECTORIES.get(txn, &id)?;
    Ok(row.ok_or(MetaError::DirectoryGone(id))?.quota)
}

fn nested(txn: &dyn ReadTxn, id: DirectoryId, of: DirectoryId) -> Result<MetaError, MetaError> {
    let (directory, of) = (path(txn, id)?, path(txn, of)?);
    Ok(QuotaError::Nested { directory, of }.into())
}

/// What is below a directory: directories, and files each with the number of their names there.
#[derive(Default)]
struct Below {
    directories: Vec<DirectoryId>,
    files: BTreeMap<PutId, u64>,
}

/// Finds what is below a directory.
///
/// # Errors
/// [`QuotaError::TooManyEntries`].
fn below(txn: &dyn ReadTxn, id: DirectoryId) -> Result<Below, MetaError> {
    let (mut below, mut open, mut left) = (Below::default(), vec![id], QUOTA_ENTRIES_MAX);
    while let Some(at) = open.pop() {
        for (_, inode) in entries(txn, at, "", left + 1)? {
            let Some(rest) = left.checked_sub(1) else {
                let (directory, limit) = (path(txn, id)?, QUOTA_ENTRIES_MAX);
                return Err(QuotaError::TooManyEntries { directory, limit }.into());
            };
            left = rest;
            match inode {
                Inode::File(put) => *below.files.entry(put).or_default() += 1,
                Inode::Directory(id) => {
                    below.directories.push(id);
                    open.push(id);
                }
            }
        }
    }
    Ok(below)
}

/// Makes all that is below a directory, and the directory itself, name the directory of a quota, or none.
fn mark(
    txn: &mut dyn WriteTxn,
    (id, below): (DirectoryId, &Below),
    quota: Option<DirectoryId>,
) -> Result<(), MetaError> {
    for id in below.directories.iter().chain([&id]) {
        let row = record(txn, *id)?;
        DIRECTORIES.put(txn, id, &DirectoryRecord { quota, ..row })?;
    }
    for put in below.files.keys() {
        let row = file_row(txn, *put)?;
        FILES.put(txn, put, &FileRecord { quota, ..row })?;
    }
    Ok(())
}

/// Counts what is below a directory that gets a quota.
fn begin(txn: &mut dyn WriteTxn, id: DirectoryId) -> Result<DirectoryQuota, MetaError> {
    let limit = QUOTA_DIRECTORIES_MAX;
    let present = DIRECTORY_QUOTAS.scan(txn, &DIRECTORY_QUOTAS.all(), limit)?;
    if present.len() >= limit {
        return Err(QuotaError::TooManyDirectories { limit }.into());
    }
    let below = below(txn, id)?;
    for other in &below.directories {
        if let Some(other) = record(txn, *other)?.quota {
            return Err(nested(txn, other, id)?);
        }
    }
    let mut row = DirectoryQuota::default();
    row.used.entries = (below.directories.len() + below.files.len()) as u64;
    for (put, name_count) in &below.files {
        let file = file_row(txn, *put)?;
        if file.link_count != *name_count {
            let (file, directory) = (file_of(txn, *put)?.name, path(txn, id)?);
            return Err(QuotaError::LinkedOutside { file, directory }.into());
        }
        check_room(txn, (id, &row), (file.size_bytes, 0))?;
        row.used.bytes += file.size_bytes;
    }
    mark(txn, (id, &below), Some(id))?;
    Ok(row)
}

/// Finds out whether each quota counts what is below its directory, and nothing else. Returns a sentence for each fault.
pub(crate) fn contradictions(txn: &dyn ReadTxn) -> Result<Vec<String>, MetaError> {
    let mut faults = Vec::new();
    let mut expected: BTreeMap<DirectoryId, DirectoryUse> = BTreeMap::new();
    let directories = DIRECTORIES.scan(txn, &DIRECTORIES.all(), usize::MAX)?;
    let directories: BTreeMap<_, _> = directories.into_iter().collect();
    for (&id, row) in &directories {
        match row.quota {
            Some(of) if of == id => drop(expected.entry(id).or_default()),
            Some(of) => expected.entry(of).or_default().entries += 1,
            None => {}
        }
    }
    for (_, row) in FILES.scan(txn, &FILES.all(), usize::MAX)? {
        if let Some(of) = row.quota {
            let used = expected.entry(of).or_default();
            used.entries += 1;
            used.bytes = used.bytes.saturating_add(row.size_bytes);
        }
    }
    for ((parent, name), inode) in NAMES.scan(txn, &NAMES.all(), usize::MAX)? {
        let quota = match inode {
            Inode::File(put) => FILES.get(txn, &put)?.and_then(|row| row.quota),
            Inode::Directory(id) => directories.get(&id).and_then(|row| row.quota),
        };
        let is_own = matches!(inode, Inode::Directory(id) if quota == Some(id));
        let above = directories.get(&parent).and_then(|row| row.quota);
        if above != quota.filter(|_| !is_own) {
            faults.push(format!(
                "'{name}' in {parent:?} has another quota than the directory"
            ));
        }
    }
    let rows = DIRECTORY_QUOTAS.scan(txn, &DIRECTORY_QUOTAS.all(), usize::MAX)?;
    let counted: BTreeMap<_, _> = rows.into_iter().map(|(id, row)| (id, row.used)).collect();
    if counted != expected {
        faults.push(format!(
            "below directories with quotas are {expected:?}, but their counts say {counted:?}"
        ));
    }
    Ok(faults)
}
