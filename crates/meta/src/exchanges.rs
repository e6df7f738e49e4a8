//! Exchange of two names: each inode gets the other's place in one transaction, so both names have a file or a
//! directory at every instant.

use crate::attributes::WallTime;
use crate::directories::{check_levels, check_not_root, link, note_levels, unlink};
use crate::directory_rows::{absolute, find, key_of, last_name, record};
use crate::directory_uses::check_border;
use crate::error::MetaError;
use crate::files::{file_of, put_file};
use crate::hard_links::{self, NameKey};
use crate::kv::{KeyValue, ReadTxn, WriteTxn};
use crate::meta::Meta;
use crate::paths::{DirectoryId, RelativePath};
use crate::records::{DirectoryRecord, Inode};
use crate::schema::DIRECTORIES;
use serde::{Deserialize, Serialize};

/// A name, with the inode that had it when the client looked it up.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SeenName {
    /// The name.
    pub at: RelativePath,
    /// The inode.
    pub inode: Inode,
    /// The inode's generation.
    pub generation: u64,
}

/// The place of a name.
struct Place {
    path: String,
    directory: DirectoryId,
}

impl<K: KeyValue> Meta<K> {
    /// Gives two files or directories each other's name, if both are in these generations. Two names of one file stay.
    /// Does nothing if the change with this number was made: a lost answer leads to a second request.
    ///
    /// # Errors
    /// [`MetaError::Root`]; [`MetaError::FileRenamed`] and [`MetaError::DirectoryRenamed`] when a name has another
    /// inode, or the inode is in another generation; [`MetaError::IntoItself`] when one lies below the other;
    /// [`MetaError::TooDeep`] when a directory below would have too many above it; [`MetaError::NotADirectory`];
    /// [`MetaError::DirectoryGone`]; [`MetaError::Quota`] when different quotas count them.
    pub fn exchange_names(&self, names: &[SeenName; 2], number: u64) -> Result<(), MetaError> {
        for name in names {
            if let Inode::Directory(id) = name.inode {
                check_not_root(id)?;
            }
        }
        let now = self.wall_time();
        self.change_once(number, |txn| {
            let [first, second] = names;
            let places = [place(txn, first)?, place(txn, second)?];
            if first.inode == second.inode {
                return Ok(());
            }
            let [one, other] = &places;
            check_apart(one, other)?;
            unlink(txn, &one.key(first.inode), now)?;
            unlink(txn, &other.key(second.inode), now)?;
            put_at(txn, first.inode, (one, other), now)?;
            put_at(txn, second.inode, (other, one), now)
        })
    }
}

impl Place {
    fn name(&self) -> &str {
        last_name(&self.path)
    }

    /// The key of the name in the table of names.
    fn key(&self, inode: Inode) -> NameKey {
        let name = match inode {
            Inode::File(_) => self.name().to_owned(),
            Inode::Directory(_) => key_of(self.name()),
        };
        (self.directory, name)
    }
}

/// The place of a name, if it is as the client has seen it.
fn place(txn: &dyn ReadTxn, seen: &SeenName) -> Result<Place, MetaError> {
    let path = absolute(txn, &seen.at)?;
    let found = find(txn, &path)?.filter(|(_, inode)| *inode == seen.inode);
    let (generation, stale) = match seen.inode {
        Inode::File(put) => {
            let file = found.map(|_| file_of(txn, put)).transpose()?;
            let generation = file.map(|file| file.generation);
            (generation, MetaError::FileRenamed(path.clone()))
        }
        Inode::Directory(id) => {
            let row = found.map(|_| record(txn, id)).transpose()?;
            let generation = row.map(|row| row.generation);
            (generation, MetaError::DirectoryRenamed(path.clone()))
        }
    };
    match found {
        Some((directory, _)) if generation == Some(seen.generation) => {
            Ok(Place { path, directory })
        }
        _ => Err(stale),
    }
}

/// Refuses two names of which one lies below the other: a directory would lie in itself.
fn check_apart(one: &Place, other: &Place) -> Result<(), MetaError> {
    for (above, below) in [(one, other), (other, one)] {
        let rest = below.path.strip_prefix(&above.path);
        if rest.is_some_and(|rest| rest.starts_with('/')) {
            return Err(MetaError::IntoItself(below.path.clone()));
        }
    }
    Ok(())
}

/// Gives an inode the second place instead of the first, which it has left.
fn put_at(
    txn: &mut dyn WriteTxn,
    inode: Inode,
    (from, to): (&Place, &Place),
    now: WallTime,
) -> Result<(), MetaError> {
    link(txn, &to.key(inode), inode, now)?;
    match inode {
        Inode::File(put) => {
            let mut file = file_of(txn, put)?;
            check_border(txn, (inode, file.quota), (to.directory, &to.path))?;
            let (old, new) = (from.key(inode), to.key(inode));
            hard_links::exchange(txn, &mut file, (&old, new))?;
            file.attributes.note_change(now);
            file.generation = file.generation.saturating_add(1);
            put_file(txn, &file)
        }
        Inode::Directory(id) => {
            let mut row = record(txn, id)?;
            check_border(txn, (inode, row.quota), (to.directory, &to.path))?;
            check_levels(&to.path, row.level_count)?;
            row.attributes.note_change(now);
            note_levels(txn, to.directory, row.level_count + 1)?;
            let moved = DirectoryRecord {
                parent: to.directory,
                name: to.name().to_owned(),
                generation: row.generation.saturating_add(1),
                ..row
            };
            DIRECTORIES.put(txn, &id, &moved)
        }
    }
}
