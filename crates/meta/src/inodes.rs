//! Inodes, which are files and directories: finding them by their paths, and changing their attributes.

use crate::attributes::{AttributeChange, Attributes};
use crate::changes_done::{is_done, note_done};
use crate::directory_rows::{absolute, behind, entries, find, key_of, record};
use crate::error::MetaError;
use crate::files::file_row;
use crate::kv::{KeyValue, ReadTxn, WriteTxn};
use crate::meta::Meta;
use crate::names::{check_attributes, check_user_attributes};
use crate::paths::{DirectoryId, RelativePath};
use crate::records::{DirectoryRecord, FileRecord, Inode, PutId};
use crate::schema::{DIRECTORIES, FILES, USER_ATTRIBUTES};
use gabion_layout::PoolId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The kind of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, which is a file without bytes.
    Symlink,
}

/// An inode at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InodeStatus {
    /// The file or directory.
    pub inode: Inode,
    /// Its kind.
    pub kind: Kind,
    /// Its permissions and times.
    pub attributes: Attributes,
    /// Bytes of a file, or of a symbolic link's target; 0 for a directory.
    pub size_bytes: u64,
    /// Names of a file; 1 for a directory.
    pub link_count: u64,
    /// The number of changes of its names.
    pub generation: u64,
    /// The stripes of a file.
    pub stripe_count: u64,
    /// The number of its inline bytes.
    pub inline_bytes: u64,
    /// The pool of a file.
    pub pool: Option<PoolId>,
    /// Whether it is of a snapshot.
    pub is_read_only: bool,
}

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DirectoryEntry {
    /// The name.
    pub name: String,
    /// The status of its inode.
    pub status: InodeStatus,
}

impl DirectoryEntry {
    /// Its place in a list of the directory, whether or not it is there yet: the next page begins behind it.
    pub fn place(&self) -> String {
        match self.status.kind {
            Kind::Directory => key_of(&self.name),
            Kind::File | Kind::Symlink => self.name.clone(),
        }
    }
}

impl<K: KeyValue> Meta<K> {
    /// The inode with this path. An empty path is the directory itself.
    ///
    /// # Errors
    /// [`MetaError::UnknownPath`]; [`MetaError::NotADirectory`] when a file has a path above it;
    /// [`MetaError::DirectoryGone`].
    pub fn inode(&self, at: impl Into<RelativePath>) -> Result<InodeStatus, MetaError> {
        let at = at.into();
        self.store.read(|txn| {
            let inode = if at.path.is_empty() {
                Inode::Directory(at.directory)
            } else {
                let path = absolute(txn, &at)?;
                find(txn, &path)?.ok_or(MetaError::UnknownPath(path))?.1
            };
            status_of(txn, inode)
        })
    }

    /// An inode, whatever its path.
    ///
    /// # Errors
    /// [`MetaError::FileGone`]; [`MetaError::DirectoryGone`].
    pub fn inode_status(&self, inode: Inode) -> Result<InodeStatus, MetaError> {
        self.store.read(|txn| status_of(txn, inode))
    }

    /// At most `limit` names of a directory, behind this place, in the order of their places. Says whether more
    /// follow.
    ///
    /// # Errors
    /// [`MetaError::DirectoryGone`].
    pub fn read_directory(
        &self,
        id: DirectoryId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<DirectoryEntry>, bool), MetaError> {
        self.store.read(|txn| {
            status_of(txn, Inode::Directory(id))?;
            let first = after.map(behind).unwrap_or_default();
            let mut rows = entries(txn, id, &first, limit.saturating_add(1))?;
            let is_cut = rows.len() > limit;
            rows.truncate(limit);
            let entry = |(key, inode): (String, Inode)| {
                let name = key.strip_suffix('/').unwrap_or(&key).to_owned();
                let status = status_of(txn, inode)?;
                Ok(DirectoryEntry { name, status })
            };
            let entries = rows
                .into_iter()
                .map(entry)
                .collect::<Result<_, MetaError>>();
            Ok((entries?, is_cut))
        })
    }

    /// The path to which a symbolic link leads; none for another file.
    ///
    /// # Errors
    /// [`MetaError::FileGone`].
    pub fn target(&self, put: PutId) -> Result<Option<String>, MetaError> {
        let row = self.store.read(|txn| file_row(txn, put))?;
        Ok(row.symlink.map(|link| link.target))
    }

    /// The attributes that users have given to an inode.
    ///
    /// # Errors
    /// [`MetaError::FileGone`]; [`MetaError::DirectoryGone`].
    pub fn user_attributes(
        &self,
        inode: Inode,
    ) -> Result<(Attributes, BTreeMap<String, Vec<u8>>), MetaError> {
        self.store.read(|txn| {
            let attributes = attributes_of(txn, inode)?;
            Ok((
                attributes,
                USER_ATTRIBUTES.get(txn, &inode)?.unwrap_or_default(),
            ))
        })
    }

    /// Changes attributes of an inode, if their version is the one that the caller has `seen`: a late message changes
    /// nothing. Does nothing if the change with this number was made, whatever others have changed since: a lost answer
    /// leads to a second request. Returns the attributes then.
    ///
    /// # Errors
    /// [`MetaError::Attributes`], [`MetaError::UserAttribute`] and [`MetaError::UserAttributesTooLarge`] for invalid
    /// values; [`MetaError::FileGone`]; [`MetaError::DirectoryGone`]; [`MetaError::AttributesChanged`] when others have
    /// changed them since.
    pub fn set_attributes(
        &self,
        inode: Inode,
        (seen, number): (u64, u64),
        change: &AttributeChange,
    ) -> Result<Attributes, MetaError> {
        check_attributes(change)?;
        let now = self.wall_time();
        self.change_as(Some(number), |txn| {
            let mut attributes = attributes_of(txn, inode)?;
            if is_done(txn, number)? {
                return Ok(attributes);
            }
            if attributes.version != seen {
                return Err(MetaError::AttributesChanged);
            }
            attributes.set(change, now);
            match inode {
                Inode::File(put) => {
                    let row = file_row(txn, put)?;
                    FILES.put(txn, &put, &FileRecord { attributes, ..row })?;
                }
                Inode::Directory(id) => {
                    let row = record(txn, id)?;
                    DIRECTORIES.put(txn, &id, &DirectoryRecord { attributes, ..row })?;
                }
            }
            set_user_attributes(txn, inode, change)?;
            note_done(txn, number)?;
            Ok(attributes)
        })
    }
}

fn set_user_attributes(
    txn: &mut dyn WriteTxn,
    inode: Inode,
    change: &AttributeChange,
) -> Result<(), MetaError> {
    if change.user.is_empty() {
        return Ok(());
    }
    let mut all = USER_ATTRIBUTES.get(txn, &inode)?.unwrap_or_default();
    for (name, value) in &change.user {
        match value {
            Some(value) => drop(all.insert(name.clone(), value.clone())),
            None => drop(all.remove(name)),
        }
    }
    check_user_attributes(&all)?;
    if all.is_empty() {
        USER_ATTRIBUTES.delete(txn, &inode)
    } else {
        USER_ATTRIBUTES.put(txn, &inode, &all)
    }
}

fn attributes_of(txn: &dyn ReadTxn, inode: Inode) -> Result<Attributes, MetaError> {
    match inode {
        Inode::File(put) => Ok(file_row(txn, put)?.attributes),
        Inode::Directory(id) => {
            let row = DIRECTORIES.get(txn, &id)?;
            Ok(row.ok_or(MetaError::DirectoryGone(id))?.attributes)
        }
    }
}

impl InodeStatus {
    /// That of a file.
    pub fn of_file(file: &FileRecord) -> Self {
        let target_bytes = file.symlink.as_ref().map(|link| link.target.len() as u64);
        Self {
            inode: Inode::File(file.put),
            kind: if file.symlink.is_some() {
                Kind::Symlink
            } else {
                Kind::File
            },
            attributes: file.attributes,
            size_bytes: target_bytes.unwrap_or(file.size_bytes),
            link_count: file.link_count,
            generation: file.generation,
            stripe_count: file.stripe_count,
            inline_bytes: file.inline.map_or(0, |inline| inline.length_bytes),
            pool: Some(file.pool),
            is_read_only: file.is_read_only,
        }
    }
}

fn status_of(txn: &dyn ReadTxn, inode: Inode) -> Result<InodeStatus, MetaError> {
    match inode {
        Inode::File(put) => Ok(InodeStatus::of_file(&file_row(txn, put)?)),
        Inode::Directory(id) => {
            let row = DIRECTORIES.get(txn, &id)?;
            let row = row.ok_or(MetaError::DirectoryGone(id))?;
            Ok(InodeStatus {
                inode,
                kind: Kind::Directory,
                attributes: row.attributes,
                size_bytes: 0,
                link_count: 1,
                generation: row.generation,
                stripe_count: 0,
                inline_bytes: 0,
                pool: None,
                is_read_only: row.is_read_only,
            })
        }
    }
}
