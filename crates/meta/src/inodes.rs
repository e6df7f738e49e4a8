//! Inodes, which are files and directories: finding them by their paths, and changing their attributes.

use crate::attributes::{AttributeChange, Attributes};
use crate::directories::{find, record};
use crate::error::MetaError;
use crate::files::{file_of, put_file};
use crate::kv::{KeyValue, ReadTxn};
use crate::meta::Meta;
use crate::names::check_attributes;
use crate::records::{DirectoryId, Inode};
use crate::schema::DIRECTORIES;

impl<K: KeyValue> Meta<K> {
    /// The inode with this path, and its attributes. The empty path is the root's.
    ///
    /// # Errors
    /// [`MetaError::UnknownFile`]; [`MetaError::NotADirectory`] when a file has a path above it.
    pub fn inode(&self, path: &str) -> Result<(Inode, Attributes), MetaError> {
        self.store.read(|txn| {
            let inode = match path {
                "" => Inode::Directory(DirectoryId::ROOT),
                _ => {
                    let found = find(txn, path)?;
                    found
                        .ok_or_else(|| MetaError::UnknownFile(path.to_owned()))?
                        .1
                }
            };
            Ok((inode, attributes_of(txn, inode)?))
        })
    }

    /// Changes attributes of an inode, if its version is the one that the caller has `seen`. Does nothing if this
    /// was the last change of them: a lost answer leads to a second request. A late copy of a request changes nothing.
    ///
    /// # Errors
    /// [`MetaError::Attributes`] for invalid values; [`MetaError::FileGone`]; [`MetaError::DirectoryGone`];
    /// [`MetaError::AttributesChanged`] when others have changed them since.
    pub fn set_attributes(
        &self,
        inode: Inode,
        seen: u64,
        change: &AttributeChange,
    ) -> Result<(), MetaError> {
        check_attributes(change)?;
        let now = self.wall_time();
        self.change(|txn| {
            let old = attributes_of(txn, inode)?;
            if Some(old.version) == seen.checked_add(1) && change.is_made(&old) {
                return Ok(());
            }
            if old.version != seen {
                return Err(MetaError::AttributesChanged);
            }
            let new = change.applied(&old, now);
            match inode {
                Inode::File(put) => {
                    let mut file = file_of(txn, put)?;
                    file.attributes = new;
                    put_file(txn, &file)
                }
                Inode::Directory(id) => {
                    let mut row = record(txn, id)?;
                    row.attributes = new;
                    DIRECTORIES.put(txn, &id, &row)
                }
            }
        })
    }
}

fn attributes_of(txn: &dyn ReadTxn, inode: Inode) -> Result<Attributes, MetaError> {
    match inode {
        Inode::File(put) => Ok(file_of(txn, put)?.attributes),
        Inode::Directory(id) => {
            let row = DIRECTORIES.get(txn, &id)?;
            Ok(row.ok_or(MetaError::DirectoryGone(id))?.attributes)
        }
    }
}
