//! Inodes, which are files and directories: finding them by their paths, and changing their attributes.

use crate::attributes::{AttributeChange, Attributes};
use crate::directories::{find, record};
use crate::error::MetaError;
use crate::files::file_row;
use crate::kv::{KeyValue, ReadTxn};
use crate::meta::Meta;
use crate::names::check_attributes;
use crate::records::{DirectoryId, DirectoryRecord, FileRecord, Inode};
use crate::schema::{ATTRIBUTE_CHANGES, DIRECTORIES, FILES};

/// How many changes of an inode's attributes are remembered, for requests that are repeated after a lost answer.
const REMEMBERED_COUNT: usize = 16;

impl<K: KeyValue> Meta<K> {
    /// The inode with this path, and its attributes. The empty path is the root's.
    ///
    /// # Errors
    /// [`MetaError::UnknownPath`]; [`MetaError::NotADirectory`] when a file has a path above it.
    pub fn inode(&self, path: &str) -> Result<(Inode, Attributes), MetaError> {
        self.store.read(|txn| {
            let inode = if path.is_empty() {
                Inode::Directory(DirectoryId::ROOT)
            } else {
                let unknown = || MetaError::UnknownPath(path.to_owned());
                find(txn, path)?.ok_or_else(unknown)?.1
            };
            Ok((inode, attributes_of(txn, inode)?))
        })
    }

    /// Changes attributes of an inode, if their version is the one that the caller has `seen`: a late message changes
    /// nothing. Does nothing if one of the last 16 changes had this `number`, whatever others have changed since: a lost
    /// answer leads to a second request. Returns the attributes then.
    ///
    /// # Errors
    /// [`MetaError::Attributes`] for invalid values; [`MetaError::FileGone`]; [`MetaError::DirectoryGone`];
    /// [`MetaError::AttributesChanged`] when others have changed them since.
    pub fn set_attributes(
        &self,
        inode: Inode,
        (seen, number): (u64, u64),
        change: &AttributeChange,
    ) -> Result<Attributes, MetaError> {
        check_attributes(change)?;
        let now = self.wall_time();
        self.change(|txn| {
            let mut attributes = attributes_of(txn, inode)?;
            let mut numbers = ATTRIBUTE_CHANGES.get(txn, &inode)?.unwrap_or_default();
            if numbers.contains(&number) {
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
            numbers.push(number);
            let forgotten = numbers.len().saturating_sub(REMEMBERED_COUNT);
            numbers.drain(..forgotten);
            ATTRIBUTE_CHANGES.put(txn, &inode, &numbers)?;
            Ok(attributes)
        })
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
