//! Rows of directories and of their names: finding inodes by their paths, and paths of inodes.

use crate::error::MetaError;
use crate::kv::ReadTxn;
use crate::names::LEVELS_MAX;
use crate::paths::{DirectoryId, RelativePath};
use crate::records::{DirectoryRecord, Inode, PutId};
use crate::schema::{DIRECTORIES, NAMES};

/// The key of a directory's name.
pub(crate) fn key_of(name: &str) -> String {
    format!("{name}/")
}

/// The path without its last name, and that name.
pub(crate) fn split(path: &str) -> (Option<&str>, &str) {
    match path.rsplit_once('/') {
        Some((above, name)) => (Some(above), name),
        None => (None, path),
    }
}

/// The last name of a path.
pub(crate) fn last_name(path: &str) -> &str {
    split(path).1
}

/// Returns the inode of a name in a directory.
pub(crate) fn entry(
    txn: &dyn ReadTxn,
    parent: DirectoryId,
    name: &str,
) -> Result<Option<Inode>, MetaError> {
    match NAMES.get(txn, &(parent, name.to_owned()))? {
        Some(entry) => Ok(Some(entry)),
        None => NAMES.get(txn, &(parent, key_of(name))),
    }
}

/// Returns the inode of a path, and the directory in which it lies.
///
/// # Errors
/// [`MetaError::NotADirectory`] when a file has a path above it.
pub(crate) fn find(
    txn: &dyn ReadTxn,
    path: &str,
) -> Result<Option<(DirectoryId, Inode)>, MetaError> {
    let (above, name) = split(path);
    let parent = match above {
        Some(above) => descend(txn, above)?,
        None => Some(DirectoryId::ROOT),
    };
    let Some(parent) = parent else {
        return Ok(None);
    };
    Ok(entry(txn, parent, name)?.map(|entry| (parent, entry)))
}

/// The directory with this path, if there is one.
///
/// # Errors
/// [`MetaError::NotADirectory`] when it, or a path above it, is a file's.
pub(crate) fn descend(txn: &dyn ReadTxn, path: &str) -> Result<Option<DirectoryId>, MetaError> {
    let (mut at, mut end) = (DirectoryId::ROOT, 0);
    for name in path.split('/') {
        end += name.len();
        match entry(txn, at, name)? {
            Some(Inode::Directory(id)) => at = id,
            Some(Inode::File(_)) => return Err(MetaError::NotADirectory(path[..end].to_owned())),
            None => return Ok(None),
        }
        end += 1;
    }
    Ok(Some(at))
}

/// Refuses a path that is taken.
pub(crate) fn check_free(txn: &dyn ReadTxn, path: &str) -> Result<(), MetaError> {
    match find(txn, path)? {
        None => Ok(()),
        Some((_, Inode::File(_))) => Err(MetaError::FileExists(path.to_owned())),
        Some((_, Inode::Directory(_))) => Err(MetaError::DirectoryExists(path.to_owned())),
    }
}

/// The row of a directory that another row names.
pub(crate) fn record(txn: &dyn ReadTxn, id: DirectoryId) -> Result<DirectoryRecord, MetaError> {
    let row = DIRECTORIES.get(txn, &id)?;
    row.ok_or_else(|| DIRECTORIES.contradiction(&id, "a name lies in it, and it is missing"))
}

/// The path from the root on.
///
/// # Errors
/// [`MetaError::DirectoryGone`].
pub(crate) fn absolute(txn: &dyn ReadTxn, at: &RelativePath) -> Result<String, MetaError> {
    let RelativePath { directory, path } = at;
    if *directory == DirectoryId::ROOT {
        return Ok(path.clone());
    }
    if DIRECTORIES.get(txn, directory)?.is_none() {
        return Err(MetaError::DirectoryGone(*directory));
    }
    if path.is_empty() {
        let row = record(txn, *directory)?;
        return path_of(txn, row.parent, &row.name);
    }
    path_of(txn, *directory, path)
}

/// The path of a name in a directory.
pub(crate) fn path_of(
    txn: &dyn ReadTxn,
    mut parent: DirectoryId,
    name: &str,
) -> Result<String, MetaError> {
    let mut names = vec![name.to_owned()];
    while parent != DirectoryId::ROOT {
        if names.len() > LEVELS_MAX {
            return Err(lies_in_itself(parent));
        }
        let row = record(txn, parent)?;
        names.push(row.name);
        parent = row.parent;
    }
    names.reverse();
    Ok(names.join("/"))
}

/// At most `limit` rows of a directory whose keys are `first` or behind it.
pub(crate) fn entries(
    txn: &dyn ReadTxn,
    id: DirectoryId,
    first: &str,
    limit: usize,
) -> Result<Vec<(String, Inode)>, MetaError> {
    let next = DirectoryId(id.0.saturating_add(1));
    let span = NAMES.between(&(id, first.to_owned()), &(next, String::new()));
    let rows = NAMES.scan(txn, &span, limit)?;
    Ok(rows
        .into_iter()
        .map(|((_, key), entry)| (key, entry))
        .collect())
}

/// The least key behind this one: no name has a control character.
pub(crate) fn behind(key: &str) -> String {
    format!("{key}\0")
}

/// Rows that a list reads at a time: a directory may have any number.
pub(crate) const PAGE: usize = 1024;

/// At most `limit` files whose paths begin with `prefix`, behind `after`, in the byte order of their paths. Each with
/// the directory in which it lies.
pub(crate) fn walk(
    txn: &dyn ReadTxn,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<(String, DirectoryId, PutId)>, MetaError> {
    let mut walk = Walk {
        txn,
        prefix,
        limit,
        found: Vec::new(),
    };
    walk.walk(DirectoryId::ROOT, "", after)?;
    Ok(walk.found)
}

/// A walk under way.
struct Walk<'a> {
    txn: &'a dyn ReadTxn,
    prefix: &'a str,
    limit: usize,
    found: Vec<(String, DirectoryId, PutId)>,
}

impl Walk<'_> {
    /// Finds files below a directory, whose path with its `/` is `base`, behind a path that is relative to it.
    fn walk(&mut self, id: DirectoryId, base: &str, after: Option<&str>) -> Result<(), MetaError> {
        if base.split('/').count() > LEVELS_MAX + 1 {
            return Err(lies_in_itself(id));
        }
        let wanted = self.prefix.get(base.len()..).unwrap_or("");
        let begins_with = wanted.split_inclusive('/').next().unwrap_or("");
        let (first, rest) = match after.map(|after| (after, after.split_once('/'))) {
            None => (String::new(), None),
            Some((after, None)) => (behind(after), None),
            Some((_, Some((name, rest)))) => (key_of(name), Some(rest)),
        };
        let mut next = first.clone().max(begins_with.to_owned());
        loop {
            let page = entries(self.txn, id, &next, PAGE.min(self.limit.max(1)))?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            next = behind(last);
            for (key, entry) in page {
                if self.found.len() >= self.limit || !key.starts_with(begins_with) {
                    return Ok(());
                }
                let path = format!("{base}{key}");
                match entry {
                    Inode::File(put) => self.found.push((path, id, put)),
                    Inode::Directory(below) => {
                        check_place(self.txn, below, (id, &key))?;
                        let after = rest.filter(|_| key == first);
                        self.walk(below, &path, after)?;
                    }
                }
            }
        }
    }
}

/// Refuses a directory whose row does not name the place where it was found: then one directory may lie in several, or
/// in itself, and a walk would not end.
pub(crate) fn check_place(
    txn: &dyn ReadTxn,
    id: DirectoryId,
    (parent, key): (DirectoryId, &str),
) -> Result<(), MetaError> {
    let row = record(txn, id)?;
    if id == DirectoryId::ROOT || row.parent != parent || key_of(&row.name) != key {
        return Err(DIRECTORIES.contradiction(&id, "it lies in another place too"));
    }
    Ok(())
}

/// The error for a directory with more levels above or below it than there can be.
pub(crate) fn lies_in_itself(id: DirectoryId) -> MetaError {
    DIRECTORIES.contradiction(&id, "it lies in itself")
}
