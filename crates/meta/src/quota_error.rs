//! Refusals by quotas of pools and of directories.

use thiserror::Error;

/// A quota that a request would exceed, or a rule of quotas that it breaks.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum QuotaError {
    /// The pool would have too many bytes.
    #[error(
        "pool {pool} uses {used} bytes of its quota of {limit}, and this takes {more} more; remove files, or raise the \
        quota with 'gabion pool quota'"
    )]
    Bytes {
        /// The pool.
        pool: String,
        /// Its quota.
        limit: u64,
        /// The bytes that it uses.
        used: u64,
        /// The bytes that the request takes more.
        more: u64,
    },
    /// The pool would have too many files.
    #[error(
        "pool {pool} has as many files as its quota permits, {limit}; remove files, or raise the quota with 'gabion pool quota'"
    )]
    Files {
        /// The pool.
        pool: String,
        /// Its quota.
        limit: u64,
    },
    /// A quota for the stripes that another pool's blocks become.
    #[error(
        "pool {pool} has the encoded stripes of pool {of}; set the quota of pool {of}, which counts both"
    )]
    Encoded {
        /// The pool.
        pool: String,
        /// The pool of the files.
        of: String,
    },
    /// The files below a directory would have too many bytes.
    #[error(
        "the files below '{directory}' have {used} bytes of its quota of {limit}, and this takes {more} more; remove files, \
        or raise the quota with 'gabion quota'"
    )]
    DirectoryBytes {
        /// The directory.
        directory: String,
        /// Its quota.
        limit: u64,
        /// The bytes of the files below it.
        used: u64,
        /// The bytes that the request takes more.
        more: u64,
    },
    /// There would be too many files and directories below a directory.
    #[error(
        "there are as many files and directories below '{directory}' as its quota permits, {limit}; remove some, or raise the quota with \
        'gabion quota'"
    )]
    DirectoryFiles {
        /// The directory.
        directory: String,
        /// Its quota.
        limit: u64,
    },
    /// A name would be on the other side of the border of a directory with a quota.
    #[error(
        "the quota of a directory would count only one of the present name and '{0}'; copy it there, then remove it here, or \
        remove the quota with 'gabion quota DIRECTORY --remove'"
    )]
    Border(String),
    /// A directory with a quota would be below another one.
    #[error(
        "'{directory}' is below '{of}', and only one of them can have a quota; remove the present one with 'gabion quota DIRECTORY --remove' first"
    )]
    Nested {
        /// The lower directory.
        directory: String,
        /// The upper one.
        of: String,
    },
    /// Too much is below a directory to set or remove its quota.
    #[error(
        "'{directory}' has more than {limit} files and directories below it, too many to set or remove its quota at once; \
        remove or move some of them first"
    )]
    TooManyEntries {
        /// The directory.
        directory: String,
        /// The limit.
        limit: usize,
    },
    /// A file below a directory that is to get a quota has a name elsewhere, too.
    #[error(
        "'{file}' has names both inside and outside of '{directory}'; remove those outside first"
    )]
    LinkedOutside {
        /// The file, by one of its names.
        file: String,
        /// The directory.
        directory: String,
    },
    /// There are as many directories with quotas as there can be.
    #[error(
        "{limit} directories have a quota, which is the limit; remove one with 'gabion quota DIRECTORY --remove'"
    )]
    TooManyDirectories {
        /// The limit.
        limit: usize,
    },
}
