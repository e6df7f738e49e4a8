//! Directories: a tree of names above the files. A name lies in a directory, so a directory is renamed by one
//! row, however many files are below it.
//!
//! In the table of names the key of a directory ends with `/`. So the rows of a directory, and those of the
//! directories in it one after another, are in the byte order of whole paths.

use crate::attributes::{Attributes, NewAttributes, WallTime};
use crate::directory_rows::{
    absolute, check_free, entries, entry, find, key_of, lies_in_itself, path_of, record, split,
};
use crate::directory_uses::{check_border, check_writable, count_directory, uncount_directory};
use crate::error::MetaError;
use crate::ids::{Change, Leased};
use crate::kv::{KeyValue, WriteTxn};
use crate::meta::Meta;
use crate::names::{LEVELS_MAX, check_attributes, check_file_name};
use crate::paths::{DirectoryId, RelativePath};
use crate::records::{DirectoryRecord, Existing, Inode};
use crate::schema::{DIRECTORIES, NAMES, USER_ATTRIBUTES};

impl<K: KeyValue> Meta<K> {
    /// The path from the root on of a path that begins at a directory. There may be no file at its end.
    ///
    /// # Errors
    /// [`MetaError::DirectoryGone`], and when the store fails or a row is corrupt.
    pub fn absolute_path(&self, at: &RelativePath) -> Result<String, MetaError> {
        self.store.read(|txn| absolute(txn, at))
    }

    /// Makes a directory, and those above it that are missing, which get the same attributes. Does nothing if the
    /// change with this number was made: a lost answer leads to a second request.
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

    /// Removes an empty directory, if it was renamed no more often than the caller knows. Does nothing if the change
    /// with this number was made: a lost answer leads to a second request.
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

/// Refuses to remove or rename the root.
pub(crate) fn check_not_root(id: DirectoryId) -> Result<(), MetaError> {
    if id == DirectoryId::ROOT {
        return Err(MetaError::Root);
    }
    Ok(())
}

/// Gives a name in a directory to an inode. In the table of names a directory's ends with `/`.
///
/// # Errors
/// [`SnapshotError::ReadOnlyDirectory`](crate::SnapshotError).
pub(crate) fn link(
    txn: &mut dyn WriteTxn,
    key: &(DirectoryId, String),
    inode: Inode,
    now: WallTime,
) -> Result<(), MetaError> {
    check_writable(txn, key.0, &record(txn, key.0)?)?;
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
        is_read_only: false,
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
