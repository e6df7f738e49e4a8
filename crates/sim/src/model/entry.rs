//! What has a path in the model: a directory, or a name of a file.

use super::answer::{FileNumber, Known};
use gabion_meta::{NewAttributes, Quota};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    Directory(DirectoryModel),
    File(FileNumber),
}

/// A directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DirectoryModel {
    pub(crate) known: Known,
    /// Its own quota.
    pub(crate) quota: Option<QuotaModel>,
    /// Whether it belongs to a snapshot, so that it accepts no new names.
    pub(crate) is_read_only: bool,
}

/// A quota of a directory, which moves with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QuotaModel {
    /// No number is used twice.
    pub(crate) number: u64,
    pub(crate) limits: Quota,
}

impl Entry {
    /// A directory that was just made.
    pub(crate) const fn new_directory() -> Self {
        Self::Directory(DirectoryModel {
            known: Known::new(NewAttributes::DIRECTORY),
            quota: None,
            is_read_only: false,
        })
    }
}
