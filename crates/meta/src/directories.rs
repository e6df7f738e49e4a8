//! Directories: a tree of names above the files. A name lies in a directory, so a directory is renamed by one
//! row, however many files are below it.
//!
//! In the table of names the key of a directory ends with `/`. So the rows of a directory, and those of the
//! directories in it one after another, are in the byte order of whole paths.

use crate::attributes::{Attributes, NewAttributes, WallTime};
use crate::directory_quotas::{check_border, count_directory, uncount_directory};
use crate::error::MetaError;
use crate::ids::{Change, Leased};
use crate::kv::{KeyValue, ReadTxn, WriteTxn};
use crate::meta::Meta;
use crate::names::{LEVELS_MAX, check_attributes, check_file_name};
use crate::paths::{DirectoryId, RelativePath};
use crate::records::{DirectoryRecord, Existing, Inode, PutId};
use crate::schema::{DIRECTORIES, NAMES, USER_ATTRIBUTES};

impl<K: KeyValue> Meta<K> {
    /// The path from the root on of a path that begins at a directory. There may be no file at its end.
    ///
    /// # Errors
    /// [`MetaError::DirectoryGone`], and when the store fails or a row is corrupt.
    pub fn absolute_path(&self, at: &RelativePath) -> Result<String, MetaError> {
        self.store.read(|txn| absolute(txn, at))
    }

    /// Makes a directory, and those above it that are missing, which get the same attributes. Does nothing if the change
    /// with this number was made: a lost answer leads to a second request.
    ///
    /// # Errors
    /// [`MetaError::FileName`]; [`MetaError::DirectoryExists`]; [`MetaError::FileExists`] when a file has the path;
    /// [`MetaError::NotADirectory`] when a file has a path above it; [`MetaError::TooDeep`];
    /// [`MetaError::Attributes`]; [`MetaError::DirectoryGone`]; [`MetaError::IdsExhausted`].
    pub fn make_directory(
        &self,
        at: impl Into<RelativePath>,
        attributes: NewAttributes,
        number: u64,
    ) -> Result<(), MetaError> {
        let at = at.into();
        check_attributes(&attributes.into())?;
        let new = (attributes, self.wall_time());
        self.change_once(number, |txn| {
            let path = absolute(txn, &at)?;
            check_file_name(&path)?;
            check_levels(&path, 0)?;
            check_free(txn, &path)?;
            let (parent, name) = make_parents(txn, &path, new)?;
            make(txn, (parent, name), new).map(drop)
        })
    }

    /// Removes an empty directory, if it was renamed no more often than the caller knows. Does nothing if the change with
    /// this number was made: a lost answer leads to a second request.
    ///
    /// # Errors
    /// [`MetaError::Root`]; [`MetaError::DirectoryGone`]; [`MetaError::DirectoryRenamed`]; [`MetaError::NotEmpty`].
    pub fn remove_directory(
        &self,
        id: DirectoryId,
        (generation, number): (u64, u64),
    ) -> Result<(), MetaError> {
        check_not_root(id)?;
        let now = self.wall_time();
        self.change_once(number, |txn| {
            let row = DIRECTORIES.get(txn, &id)?;
            let row = row.ok_or(MetaError::DirectoryGone(id))?;
            if row.generation != generation {
                let path = path_of(txn, row.parent, &row.name)?;
                return Err(MetaError::DirectoryRenamed(path));
            }
            remove(txn, id, &row, now)
        })
    }

    /// Gives a directory another path, if it is in this generation: one transaction whatever is below it.
    /// Directories above the new path that are missing are made. An empty directory that has the path already stays, or
    /// is removed. Does nothing if the change with this number was made: a lost answer leads to a second request.
    ///
    /// # Errors
    /// [`MetaError::Root`]; [`MetaError::DirectoryGone`]; [`MetaError::DirectoryRenamed`] when it is in another
    /// generation; [`MetaError::FileName`]; [`MetaError::DirectoryExists`]; [`MetaError::NotEmpty`];
    /// [`MetaError::FileExists`]; [`MetaError::NotADirectory`]; [`MetaError::IntoItself`] for a path below the
    /// directory; [`MetaError::TooDeep`] when a directory below would have too many above it; [`MetaError::Quota`] when
    /// another quota counts what is there.
    pub fn rename_directory(
        &self,
        id: DirectoryId,
        (generation, number): (u64, u64),
        to: impl Into<RelativePath>,
        existing: Existing,
    ) -> Result<(), MetaError> {
        check_not_root(id)?;
        let (to, now) = (to.into(), self.wall_time());
        self.change_once(number, |txn| {
            let row = DIRECTORIES.get(txn, &id)?;
            let mut row = row.ok_or(MetaError::DirectoryGone(id))?;
            let to = &*absolute(txn, &to)?;
            check_file_name(to)?;
            let path = path_of(txn, row.parent, &row.name)?;
            if row.generation != generation {
                return Err(MetaError::DirectoryRenamed(path));
            }
            if path == to {
                return Ok(());
            }
            let is_below = |rest: &str| rest.starts_with('/');
            if to.strip_prefix(&path).is_some_and(is_below) {
                return Err(MetaError::IntoItself(to.to_owned()));
            }
            make_way_for_directory(txn, to, existing, now)?;
            check_levels(to, row.level_count)?;
            let (parent, name) = make_parents(txn, to, (row.attributes.for_parent(), now))?;
            check_border(txn, (Inode::Directory(id), row.quota), (parent, to))?;
            unlink(txn, &(row.parent, key_of(&row.name)), now)?;
            link(txn, &(parent, key_of(name)), Inode::Directory(id), now)?;
            row.attributes.note_change(now);
            note_levels(txn, parent, row.level_count + 1)?;
            let moved = DirectoryRecord {
                parent,
                name: name.to_owned(),
                generation: generation.saturating_add(1),
                ..row
            };
            DIRECTORIES.put(txn, &id, &moved)
        })
    }
}

/// Removes an empty directory.
fn remove(
    txn: &mut dyn WriteTxn,
    id: DirectoryId,
    row: &DirectoryRecord,
    now: WallTime,
) -> Result<(), MetaError> {
    if !entries(txn, id, "", 1)?.is_empty() {
        return Err(MetaError::NotEmpty(path_of(txn, row.parent, &row.name)?));
    }
    unlink(txn, &(row.parent, key_of(&row.name)), now)?;
    USER_ATTRIBUTES.delete(txn, &Inode::Directory(id))?;
    uncount_directory(txn, id, row)?;
    DIRECTORIES.delete(txn, &id)
}

/// Frees a path for another directory, if it is that of an empty one which does not stay.
fn make_way_for_directory(
    txn: &mut dyn WriteTxn,
    path: &str,
    existing: Existing,
    now: WallTime,
) -> Result<(), MetaError> {
    match find(txn, path)? {
        Some((_, Inode::Directory(id))) if existing == Existing::IsReplaced => {
            let row = record(txn, id)?;
            remove(txn, id, &row, now)
        }
        _ => check_free(txn, path),
    }
}

/// Refuses a path for a directory that has `below` levels of directories below it, if the path of a file in the
/// deepest one would have more than [`LEVELS_MAX`] names.
pub(crate) fn check_levels(path: &str, below: u32) -> Result<(), MetaError> {
    if path.split('/').count() + below as usize >= LEVELS_MAX {
        return Err(MetaError::TooDeep(path.to_owned()));
    }
    Ok(())
}

/// The key of a directory's name.
pub(crate) fn key_of(name: &str) -> String {
    format!("{name}/")
}

/// The path without its last name, and that name.
fn split(path: &str) -> (Option<&str>, &str) {
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
fn entry(txn: &dyn ReadTxn, parent: DirectoryId, name: &str) -> Result<Option<Inode>, MetaError> {
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

/// Refuses to remove or rename the root.
pub(crate) fn check_not_root(id: DirectoryId) -> Result<(), MetaError> {
    if id == DirectoryId::ROOT {
        return Err(MetaError::Root);
    }
    Ok(())
}

/// Gives a name in a directory to an inode. In the table of names a directory's ends with `/`.
pub(crate) fn link(
    txn: &mut dyn WriteTxn,
    key: &(DirectoryId, String),
    inode: Inode,
    now: WallTime,
) -> Result<(), MetaError> {
    NAMES.put(txn, key, &inode)?;
    note_names(txn, key.0, now)
}

/// Takes a name in a directory away.
pub(crate) fn unlink(
    txn: &mut dyn WriteTxn,
    key: &(DirectoryId, String),
    now: WallTime,
) -> Result<(), MetaError> {
    NAMES.delete(txn, key)?;
    note_names(txn, key.0, now)
}

/// Notes that the names in a directory change now. Its times are exact to 10 ms.
fn note_names(txn: &mut dyn WriteTxn, id: DirectoryId, now: WallTime) -> Result<(), MetaError> {
    let mut row = record(txn, id)?;
    if row.attributes.are_of(now) {
        return Ok(());
    }
    row.attributes.note_content(now);
    DIRECTORIES.put(txn, &id, &row)
}

/// The directory in which a path lies, and its last name. Makes directories that are missing, with these
/// attributes at this time.
///
/// # Errors
/// [`MetaError::NotADirectory`]; [`MetaError::IdsExhausted`].
pub(crate) fn make_parents<'a>(
    txn: &mut Change<'_>,
    path: &'a str,
    new: (NewAttributes, WallTime),
) -> Result<(DirectoryId, &'a str), MetaError> {
    let (above, last) = split(path);
    let (mut at, mut end) = (DirectoryId::ROOT, 0);
    for name in above.into_iter().flat_map(|above| above.split('/')) {
        end += name.len();
        at = match entry(txn, at, name)? {
            Some(Inode::Directory(id)) => id,
            Some(Inode::File(_)) => return Err(MetaError::NotADirectory(path[..end].to_owned())),
            None => make(txn, (at, name), new)?,
        };
        end += 1;
    }
    Ok((at, last))
}

fn make(
    txn: &mut Change<'_>,
    (parent, name): (DirectoryId, &str),
    (attributes, now): (NewAttributes, WallTime),
) -> Result<DirectoryId, MetaError> {
    let id = DirectoryId(txn.take(Leased::Directory, 1)?);
    link(txn, &(parent, key_of(name)), Inode::Directory(id), now)?;
    let made = DirectoryRecord {
        parent,
        name: name.to_owned(),
        level_count: 0,
        generation: 0,
        attributes: Attributes::new(attributes, now),
        quota: count_directory(txn, parent)?,
    };
    DIRECTORIES.put(txn, &id, &made)?;
    note_levels(txn, parent, 1)?;
    Ok(id)
}

/// Raises a directory's count of the levels below it to `level_count`, and the counts of the directories above
/// accordingly. No removal lowers a count: it would have to find the deepest of the other levels.
pub(crate) fn note_levels(
    txn: &mut dyn WriteTxn,
    mut id: DirectoryId,
    mut level_count: u32,
) -> Result<(), MetaError> {
    while id != DirectoryId::ROOT {
        let mut row = record(txn, id)?;
        if row.level_count >= level_count {
            break;
        }
        if level_count as usize > LEVELS_MAX {
            return Err(lies_in_itself(id));
        }
        row.level_count = level_count;
        DIRECTORIES.put(txn, &id, &row)?;
        (id, level_count) = (row.parent, level_count + 1);
    }
    Ok(())
}

/// The row of a directory that another row names.
pub(crate) fn record(txn: &dyn ReadTxn, id: DirectoryId) -> Result<DirectoryRecord, MetaError> {
    let row = DIRECTORIES.get(txn, &id)?;
    row.ok_or_else(|| DIRECTORIES.contradiction(&id, "a name lies in it, and it is missing"))
}

/// Refuses a directory whose row does not name the place where it was found: then one directory may lie in several, or in
/// itself, and a walk would not end.
fn check_place(
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
fn lies_in_itself(id: DirectoryId) -> MetaError {
    DIRECTORIES.contradiction(&id, "it lies in itself")
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
