//! Errors of a metadata log.

use std::path::PathBuf;
use thiserror::Error;

/// The reason why a metadata log cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum LogError {
    /// The system refuses an operation on one of its files.
    #[error("cannot {operation} {}: {reason}; check the disk of the metadata log", path.display())]
    System {
        /// The operation.
        operation: &'static str,
        /// The file or the directory.
        path: PathBuf,
        /// The system's message.
        reason: String,
    },
    /// Another process uses the directory.
    #[error("the metadata log in {} is in use by another process; stop it, or choose another directory", .0.display())]
    InUse(PathBuf),
    /// The directory has the metadata of a cluster, and the store has none.
    #[error(
        "{} has the metadata log of a cluster, and the metadata are new; move the new file away and run 'gabion metadata \
        restore', or choose an empty directory", .0.display()
    )]
    OfCluster(PathBuf),
    /// The store had a log, and the directory is not there.
    #[error(
        "the directory {} of the metadata log is not there; mount its disk, or make an empty directory for a new log",
        .0.display()
    )]
    Gone(PathBuf),
    /// The store is an old copy from before the log's base.
    #[error(
        "the metadata end at change {store} and are older than the base of the metadata log in {}, change {base}; move \
        them away and run 'gabion metadata restore'", path.display()
    )]
    Older {
        /// The directory.
        path: PathBuf,
        /// The change of the base.
        base: u64,
        /// The last change of the store.
        store: u64,
    },
    /// A transaction does not fit into the log.
    #[error(
        "a change of the metadata has {0} bytes, too many for the metadata log; make it in smaller steps"
    )]
    TooLarge(usize),
    /// The store and the log have different changes.
    #[error(
        "the metadata log in {} ends at change {log}, and the metadata at change {store}, of another past: one of them is \
        an old copy; put the newest metadata back, or empty the directory if the metadata are the newest", path.display()
    )]
    Differs {
        /// The directory.
        path: PathBuf,
        /// The last change of the log.
        log: u64,
        /// The last change of the store.
        store: u64,
    },
    /// The directory has no whole base.
    #[error("{} has no metadata log; name the directory of --metadata-log, or a copy of it", .0.display())]
    Missing(PathBuf),
    /// Bytes that were synced are damaged, or missing.
    #[error(
        "{} is damaged at byte {at}: changes behind number {good} are lost; use another copy of the metadata log",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The first bad byte.
        at: u64,
        /// The last change before it.
        good: u64,
    },
    /// A file of the log is missing.
    #[error(
        "the metadata log in {} lacks the changes from {} to {found}; use another copy of it", path.display(), good + 1
    )]
    Gap {
        /// The directory.
        path: PathBuf,
        /// The last change before the gap.
        good: u64,
        /// The first change behind it.
        found: u64,
    },
}

/// Converts the system's error of an operation on a file.
pub(crate) fn system(
    operation: &'static str,
    path: impl Into<PathBuf>,
) -> impl FnOnce(std::io::Error) -> LogError {
    let path = path.into();
    move |error| LogError::System {
        operation,
        path,
        reason: error.to_string(),
    }
}
