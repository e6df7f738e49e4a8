//! All that lies below a directory, for transactions that change or copy the whole tree. Their size grows with it, so
//! each has a limit of entries.

use crate::directory_rows::{check_place, entries};
use crate::error::MetaError;
use crate::hard_links::NameKey;
use crate::kv::ReadTxn;
use crate::paths::DirectoryId;
use crate::records::{Inode, PutId};
use std::collections::BTreeMap;

/// Directories and files below a directory.
#[derive(Default)]
pub(crate) struct Tree {
    /// The directories, each behind the one in which it lies.
    pub(crate) directories: Vec<DirectoryId>,
    /// The files, each with its names there.
    pub(crate) files: BTreeMap<PutId, Vec<NameKey>>,
}

impl Tree {
    /// The number of files and directories.
    pub(crate) fn count(&self) -> u64 {
        (self.directories.len() + self.files.len()) as u64
    }
}

/// Directories and files below a directory; none if they have more than `limit` names.
pub(crate) fn tree(
    txn: &dyn ReadTxn,
    id: DirectoryId,
    limit: usize,
) -> Result<Option<Tree>, MetaError> {
    let (mut tree, mut open, mut left) = (Tree::default(), vec![id], limit);
    while let Some(at) = open.pop() {
        for (key, inode) in entries(txn, at, "", left + 1)? {
            let Some(rest) = left.checked_sub(1) else {
                return Ok(None);
            };
            left = rest;
            match inode {
                Inode::File(put) => tree.files.entry(put).or_default().push((at, key)),
                Inode::Directory(id) => {
                    check_place(txn, id, (at, &key))?;
                    tree.directories.push(id);
                    open.push(id);
                }
            }
        }
    }
    Ok(Some(tree))
}
