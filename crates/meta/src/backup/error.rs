//! Errors of backups of a metadata log, with one plain sentence for each.

use crate::metadata_log::LogError;
use gabion_layout::ClusterId;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The reason why a backup cannot be made. What an earlier backup in the directory can restore stays there.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum BackupError {
    /// The metadata log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The backup would be in the directory of the log.
    #[error(
        "{} is in the directory of the metadata log, {}; choose a directory on another disk for the backup",
        backup.display(), log.display()
    )]
    Inside {
        /// The directory of the backup.
        backup: PathBuf,
        /// That of the log.
        log: PathBuf,
    },
    /// The backup would be in the directory of another backup, which then has a file that does not belong to it.
    #[error(
        "{} is in {}, which has another backup; choose a directory outside of it", backup.display(), other.display()
    )]
    Below {
        /// The directory of the backup.
        backup: PathBuf,
        /// That of the other one.
        other: PathBuf,
    },
    /// The directory has other files.
    #[error(
        "{} is no backup of a metadata log: it contains {name}; choose an empty or new directory", path.display()
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// The name of a file in it.
        name: String,
    },
    /// Another process uses the directory.
    #[error(
        "the backup in {} is in use by another process; wait until it has ended, or choose another directory",
        .0.display()
    )]
    InUse(PathBuf),
    /// The system refuses an operation on a file of the backup.
    #[error("cannot {operation} {}: {reason}; check the disk of the backup", path.display())]
    Disk {
        /// The operation.
        operation: &'static str,
        /// The file or the directory.
        path: PathBuf,
        /// The system's message.
        reason: String,
    },
    /// A file of an earlier backup is damaged.
    #[error(
        "{} of the backup is damaged at byte {at}; keep the backup, and choose an empty directory for a new one",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The first bad byte.
        at: u64,
    },
    /// The base of an earlier backup is damaged.
    #[error(
        "{} of the backup is damaged at byte {at}; make the backup with --new-base, which copies the base again", path.display()
    )]
    DamagedBase {
        /// The file.
        path: PathBuf,
        /// The first bad byte.
        at: u64,
    },
    /// A file of an earlier backup is missing.
    #[error(
        "the backup in {} lacks the changes from {first} on, and has later ones; keep it, and choose an empty directory \
        for a new one", path.display()
    )]
    Gap {
        /// The directory.
        path: PathBuf,
        /// The first change that is missing.
        first: u64,
    },
    /// Rows that identify the store cannot be decoded.
    #[error(
        "the rows in {} cannot be read ({reason}); choose an empty directory for the backup", path.display()
    )]
    Rows {
        /// The directory of the log or of the backup.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// The directory has the backup of another cluster.
    #[error(
        "{} has the backup of cluster {cluster}, which is not the one of this metadata log; choose another directory",
        path.display()
    )]
    OtherCluster {
        /// The directory of the backup.
        path: PathBuf,
        /// The cluster in it.
        cluster: ClusterId,
    },
    /// The backup has changes that the store of the log never made.
    #[error(
        "the backup in {} has changes that the metadata log in {} has never had: one of the two comes from an old copy; \
        keep the backup, and choose an empty directory for a new one", path.display(), log.display()
    )]
    OtherPast {
        /// The directory of the backup.
        path: PathBuf,
        /// That of the log.
        log: PathBuf,
    },
    /// The log ends before the backup.
    #[error(
        "the backup in {} reaches change {backup}, and the metadata log only change {end}: the log is an old copy, or its \
        disk has lost changes; keep the backup, and choose an empty directory for a new one", path.display()
    )]
    Ahead {
        /// The directory of the backup.
        path: PathBuf,
        /// The last change of the backup.
        backup: u64,
        /// The last change of the log.
        end: u64,
    },
    /// The copied files do not give back what was copied.
    #[error(
        "the files in {} do not give back the change {wanted} that was copied; check the disk of the backup",
        path.display()
    )]
    Unlike {
        /// The directory of the backup.
        path: PathBuf,
        /// The change up to which files were copied.
        wanted: u64,
    },
}

/// Converts the system's error of an operation on a file of the backup.
pub(super) fn disk(
    operation: &'static str,
    path: impl Into<PathBuf>,
) -> impl FnOnce(std::io::Error) -> BackupError {
    let path = path.into();
    move |error| BackupError::Disk {
        operation,
        path,
        reason: error.to_string(),
    }
}

/// Converts the error of a base that is that of the backup in this directory.
pub(super) fn of_base(directory: &Path, error: LogError) -> BackupError {
    match of_backup(directory, error) {
        BackupError::Damaged { path, at } => BackupError::DamagedBase { path, at },
        other => other,
    }
}

/// Converts the error of a log that is the backup in this directory.
pub(super) fn of_backup(directory: &Path, error: LogError) -> BackupError {
    match error {
        LogError::System {
            operation,
            path,
            reason,
        } => BackupError::Disk {
            operation,
            path,
            reason,
        },
        LogError::InUse(path) => BackupError::InUse(path),
        LogError::Damaged { path, at, .. } => BackupError::Damaged { path, at },
        LogError::Gap { good, .. } => BackupError::Gap {
            path: directory.to_owned(),
            first: good + 1,
        },
        other => BackupError::Log(other),
    }
}
