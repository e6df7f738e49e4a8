//! What transactions change that clients may have cached: names and inodes. An observer is told after each transaction,
//! so no operation can forget to tell.

use crate::error::MetaError;
use crate::kv::{ReadTxn, Row, WriteTxn};
use crate::paths::DirectoryId;
use crate::records::Inode;
use crate::schema::{DIRECTORIES, FILES, NAMES};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::Debug;

/// What clients must look up again.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Changed {
    /// The record of a file or directory has changed, or is gone: its attributes, its size, its bytes unless they were
    /// updated in place.
    Inode(Inode),
    /// A name was taken away. It may lead to another inode since. Clients keep no missing names, so a name that was made
    /// is none.
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

/// A transaction whose changes are noted.
pub(crate) struct Noting<'t> {
    txn: &'t mut dyn WriteTxn,
    changed: BTreeSet<Changed>,
}

impl<'t> Noting<'t> {
    pub(crate) fn new(txn: &'t mut dyn WriteTxn) -> Self {
        Self {
            txn,
            changed: BTreeSet::new(),
        }
    }

    /// The changes until now.
    pub(crate) fn into_changed(self) -> BTreeSet<Changed> {
        self.changed
    }

    fn note_inode(&mut self, key: &[u8]) {
        let file = FILES.key_of(key).map(Inode::File);
        let inode = file.or_else(|| DIRECTORIES.key_of(key).map(Inode::Directory));
        self.changed.extend(inode.map(Changed::Inode));
    }
}

impl ReadTxn for Noting<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MetaError> {
        self.txn.get(key)
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<Row>, MetaError> {
        self.txn.scan(start, end, limit)
    }

    fn last(&self, start: &[u8], end: &[u8]) -> Result<Option<Row>, MetaError> {
        self.txn.last(start, end)
    }
}

impl WriteTxn for Noting<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), MetaError> {
        self.note_inode(key);
        self.txn.put(key, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), MetaError> {
        self.note_inode(key);
        if let Some((directory, key)) = NAMES.key_of(key) {
            let name = key.strip_suffix('/').unwrap_or(&key).to_owned();
            self.changed.insert(Changed::Name { directory, name });
        }
        self.txn.delete(key)
    }
}
