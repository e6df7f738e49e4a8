//! The answers of the model and of the cluster.

use gabion_client::Cause;
use gabion_meta::NewAttributes;
use std::collections::BTreeMap;

/// A file of the model. No number is used twice.
pub(crate) type FileNumber = u64;

/// The outcome of an operation.
pub(crate) type Outcome = Result<Answer, Cause>;

/// The answer to an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Done,
    Offset(u64),
    Bytes(Vec<u8>),
    Target(String),
    Status(Status),
    Listing {
        files: Vec<String>,
        directories: Vec<String>,
        is_cut: bool,
    },
    /// Whether the lock was granted.
    Locked(bool),
    /// Whether a lock is in the way.
    Found(bool),
    /// Whether a client that was cut off still has its locks.
    Leased(bool),
    /// The model and the cluster contradict each other, in words. The model never gives it.
    Wrong(String),
}

/// The kind of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InodeKind {
    Directory,
    File,
    Symlink,
}

/// The status of a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Status {
    pub(crate) kind: InodeKind,
    pub(crate) size_bytes: u64,
    pub(crate) link_count: u64,
    pub(crate) mode: u32,
    pub(crate) is_read_only: bool,
}

/// Attributes that the model knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Known {
    pub(crate) mode: u32,
    pub(crate) user: BTreeMap<String, Vec<u8>>,
}

impl Known {
    pub(crate) const fn new(attributes: NewAttributes) -> Self {
        Self {
            mode: attributes.mode,
            user: BTreeMap::new(),
        }
    }
}
