//! Quotas of directories, and what is below them. A directory with a quota is inherited: each file and directory that
//! is made below it names it in its row. So one transaction of a few rows counts each change, however large the tree
//! is.
//!
//! Such directories do not lie in each other, and no name crosses the border of one: all names of a file are below the
//! same one, or below none.

use crate::directory_rows::record;
use crate::directory_uses::{QUOTA_ENTRIES_MAX, check_room, end_quota, is_ended, path, quota_row};
use crate::error::MetaError;
use crate::files::{file_of, file_row};
use crate::kv::{KeyValue, ReadTxn, WriteTxn};
use crate::meta::Meta;
use crate::paths::DirectoryId;
use crate::quota_error::QuotaError;
use crate::quota_records::{DirectoryQuota, DirectoryUse, Quota, QuotaChange, QuotaStatus};
use crate::records::{DirectoryRecord, FileRecord, Inode};
use crate::schema::{DIRECTORIES, DIRECTORY_QUOTAS, FILES, NAMES};
use crate::tree::{Tree, tree};
use std::collections::BTreeMap;

/// Most directories with quotas.
pub const QUOTA_DIRECTORIES_MAX: usize = 1024;

impl<K: KeyValue> Meta<K> {
    /// Changes the quota of a directory. The first limit counts what is below it, and a change that leaves no limit
    /// removes the quota. If there is too much below it for that, a quota without limits stays. A quota below what is
    /// used takes nothing away: the directory gets nothing more.
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
            let present = own_quota(txn, id)?;
            let limits = present.map_or_else(Quota::default, |row| row.quota);
            let quota = Quota {
                bytes: change.bytes.unwrap_or(limits.bytes),
                files: change.files.unwrap_or(limits.files),
            };
            let has_limits = quota != Quota::default();
            let row = match present {
                None if has_limits => begin(txn, id)?,
                None => return Ok(()),
                Some(row) => row,
            };
            if !has_limits && let Some(below) = tree(txn, id, QUOTA_ENTRIES_MAX)? {
                return end(txn, id, &below);
            }
            DIRECTORY_QUOTAS.put(txn, &id, &DirectoryQuota { quota, ..row })
        })
    }

    /// Removes the quota of a directory; does nothing if there is none.
    ///
    /// # Errors
    /// [`MetaError::DirectoryGone`]; [`QuotaError::Nested`]; [`QuotaError::TooManyEntries`].
    pub fn remove_directory_quota(&self, id: DirectoryId) -> Result<(), MetaError> {
        self.change(|txn| {
            if own_quota(txn, id)?.is_none() {
                return Ok(());
            }
            let below = below(txn, id)?;
            end(txn, id, &below)
        })
    }

    /// The quota that counts an inode, if there is one. One that has ended, and counts an orphan yet, is none.
    ///
    /// # Errors
    /// [`MetaError::FileGone`]; [`MetaError::DirectoryGone`].
    pub fn directory_quota(&self, inode: Inode) -> Result<Option<QuotaStatus>, MetaError> {
        self.store.read(|txn| {
            let of = match inode {
                Inode::File(put) => file_row(txn, put)?.quota,
                Inode::Directory(id) => quota_of(txn, id)?,
            };
            match of {
                Some(id) if !is_ended(txn, id)? => status(txn, id, quota_row(txn, id)?).map(Some),
                _ => Ok(None),
            }
        })
    }

    /// All directories with quotas.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn directory_quotas(&self) -> Result<Vec<QuotaStatus>, MetaError> {
        self.store.read(|txn| {
            let mut statuses = Vec::new();
            for (id, row) in DIRECTORY_QUOTAS.scan(txn, &DIRECTORY_QUOTAS.all(), usize::MAX)? {
                if !is_ended(txn, id)? {
                    statuses.push(status(txn, id, row)?);
                }
            }
            Ok(statuses)
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

/// The quota of a directory itself, if it has one.
///
/// # Errors
/// [`MetaError::DirectoryGone`]; [`QuotaError::Nested`] when it is below another one with a quota.
fn own_quota(txn: &dyn ReadTxn, id: DirectoryId) -> Result<Option<DirectoryQuota>, MetaError> {
    match quota_of(txn, id)? {
        None => Ok(None),
        Some(of) if of == id => quota_row(txn, id).map(Some),
        Some(of) => Err(nested(txn, id, of)?),
    }
}

/// Ends the quota of a directory with this below it.
fn end(txn: &mut dyn WriteTxn, id: DirectoryId, below: &Tree) -> Result<(), MetaError> {
    let used = DirectoryUse {
        bytes: mark(txn, (id, below), None)?,
        entries: below.count(),
    };
    end_quota(txn, id, used)
}

fn nested(txn: &dyn ReadTxn, id: DirectoryId, of: DirectoryId) -> Result<MetaError, MetaError> {
    let (directory, of) = (path(txn, id)?, path(txn, of)?);
    Ok(QuotaError::Nested { directory, of }.into())
}

/// Finds what is below a directory.
///
/// # Errors
/// [`QuotaError::TooManyEntries`].
fn below(txn: &dyn ReadTxn, id: DirectoryId) -> Result<Tree, MetaError> {
    if let Some(below) = tree(txn, id, QUOTA_ENTRIES_MAX)? {
        return Ok(below);
    }
    let (directory, limit) = (path(txn, id)?, QUOTA_ENTRIES_MAX);
    Err(QuotaError::TooManyEntries { directory, limit }.into())
}

/// Makes all that is below a directory, and the directory itself, name the directory of a quota, or none. Returns the
/// sum of the sizes of the files.
fn mark(
    txn: &mut dyn WriteTxn,
    (id, below): (DirectoryId, &Tree),
    quota: Option<DirectoryId>,
) -> Result<u64, MetaError> {
    let mut bytes: u64 = 0;
    for id in below.directories.iter().chain([&id]) {
        let row = record(txn, *id)?;
        DIRECTORIES.put(txn, id, &DirectoryRecord { quota, ..row })?;
    }
    for put in below.files.keys() {
        let row = file_row(txn, *put)?;
        bytes = bytes.saturating_add(row.size_bytes);
        FILES.put(txn, put, &FileRecord { quota, ..row })?;
    }
    Ok(bytes)
}

/// Refuses one more directory with a quota. Those that have ended, and count orphans yet, do not matter.
///
/// # Errors
/// [`QuotaError::TooManyDirectories`].
fn check_count(txn: &dyn ReadTxn) -> Result<(), MetaError> {
    let limit = QUOTA_DIRECTORIES_MAX;
    let (mut count, mut after) = (0, None);
    loop {
        let page = DIRECTORY_QUOTAS.scan(txn, &DIRECTORY_QUOTAS.after(after.as_ref()), limit)?;
        let Some((last, _)) = page.last() else {
            return Ok(());
        };
        after = Some(*last);
        for (id, _) in page {
            count += usize::from(!is_ended(txn, id)?);
        }
        if count >= limit {
            return Err(QuotaError::TooManyDirectories { limit }.into());
        }
    }
}

/// Counts what is below a directory that gets a quota, with the orphans that an earlier quota of it counts yet.
fn begin(txn: &mut dyn WriteTxn, id: DirectoryId) -> Result<DirectoryQuota, MetaError> {
    check_count(txn)?;
    let below = below(txn, id)?;
    for other in &below.directories {
        if let Some(other) = record(txn, *other)?.quota {
            return Err(nested(txn, other, id)?);
        }
    }
    let mut row = DIRECTORY_QUOTAS.get(txn, &id)?.unwrap_or_default();
    row.used.entries = DIRECTORY_QUOTAS.recount(&id, row.used.entries, (below.count(), 0))?;
    for (put, names) in &below.files {
        let file = file_row(txn, *put)?;
        if file.link_count != names.len() as u64 {
            let (file, directory) = (file_of(txn, *put)?.name, path(txn, id)?);
            return Err(QuotaError::LinkedOutside { file, directory }.into());
        }
        check_room(txn, (id, &row), (file.size_bytes, 0))?;
        row.used.bytes += file.size_bytes;
    }
    mark(txn, (id, &below), Some(id)).map(|_| row)
}

/// Finds out whether each quota counts what is below its directory, and nothing else. Returns a sentence for each
/// fault.
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
    for (id, row) in &rows {
        let is_live = directories
            .get(id)
            .is_some_and(|row| row.quota == Some(*id));
        if !is_live && row.quota != Quota::default() {
            faults.push(format!("the quota of {id:?} has ended, and has limits"));
        }
    }
    let counted: BTreeMap<_, _> = rows.into_iter().map(|(id, row)| (id, row.used)).collect();
    if counted != expected {
        faults.push(format!(
            "below directories with quotas are {expected:?}, but their counts say {counted:?}"
        ));
    }
    Ok(faults)
}
