//! Names and inodes that a transaction changes and clients may have cached. An observer is told after each transaction,
//! so no operation can forget to tell.

use crate::paths::DirectoryId;
use crate::records::Inode;
use crate::schema::{DIRECTORIES, FILES, NAMES};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::Debug;

/// A name or an inode that clients must look up again.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Changed {
    /// The record of a file or directory has changed, or is gone: its attributes, its size, its bytes unless they were
    /// updated in place.
    Inode(Inode),
    /// A name was taken away. It may lead to another inode since. Clients keep no missing names, so a name that was
    /// made is none.
    Name {
        /// The directory in which it lay.
        directory: DirectoryId,
        /// The name.
        name: String,
    },
}

/// Is told what each transaction has changed.
pub trait Observer: Debug + Send + Sync {
    /// A transaction is durable that has changed this, under the number that its client has drawn, if it has one. It
    /// must not wait.
    fn changed(&self, number: Option<u64>, changed: BTreeSet<Changed>);
}

/// Notes the inode whose row has this key, if it is one's.
pub(crate) fn note_inode(changed: &mut BTreeSet<Changed>, key: &[u8]) {
    let file = FILES.key_of(key).map(Inode::File);
    let inode = file.or_else(|| DIRECTORIES.key_of(key).map(Inode::Directory));
    changed.extend(inode.map(Changed::Inode));
}

/// Notes the name whose row has this key, if it is one's. The row is removed.
pub(crate) fn note_name(changed: &mut BTreeSet<Changed>, key: &[u8]) {
    if let Some((directory, key)) = NAMES.key_of(key) {
        let name = key.strip_suffix('/').unwrap_or(&key).to_owned();
        changed.insert(Changed::Name { directory, name });
    }
}
