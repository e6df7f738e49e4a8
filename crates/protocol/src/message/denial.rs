//! Why the coordinator refuses a request: a cause for programs, and a sentence for people.

use super::refusal::Refusal;
use gabion_codec::CodeError;
use gabion_layout::GeometryError;
use gabion_meta::{MetaError, MetaError as E, QuotaError, SnapshotError};
use gabion_planner::PlanError;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The class of an error. Gateways derive their error numbers from it; POSIX's are named here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Cause {
    /// No file, pool, stripe or node has the name or the id (`ENOENT`).
    NotFound,
    /// The name is taken (`EEXIST`).
    Exists,
    /// A file has a name where a directory's is expected (`ENOTDIR`).
    NotADirectory,
    /// A directory has a name where a file's is expected (`EISDIR`).
    IsADirectory,
    /// The directory is not empty (`ENOTEMPTY`).
    NotEmpty,
    /// Disks are too full (`ENOSPC`).
    NoSpace,
    /// The quota of the pool or of a directory is used up (`EDQUOT`).
    Quota,
    /// A name of a file or directory would cross the border of a directory with a quota (`EXDEV`).
    CrossesQuota,
    /// Another client uses the file (`EBUSY`).
    InUse,
    /// The request goes by an earlier state of the file or the cluster (`ESTALE`).
    Stale,
    /// A name or a parameter is invalid (`EINVAL`).
    Invalid,
    /// A name or a path is too long (`ENAMETOOLONG`).
    NameTooLong,
    /// The file is a symbolic link (`ELOOP`).
    IsASymlink,
    /// The file has as many names as it can have (`EMLINK`).
    TooManyNames,
    /// The file, or the snapshot of a directory, would be too large (`EFBIG`).
    TooLarge,
    /// The limit of advisory locks is reached (`ENOLCK`).
    NoLocks,
    /// The limit of open files is reached (`ENFILE`).
    TooManyOpen,
    /// The file or the directory is a snapshot's (`EROFS`).
    ReadOnly,
    /// The sender may not do that (`EPERM`).
    NotPermitted,
    /// Files of this pool, or nodes in this state, do not support it (`EOPNOTSUPP`).
    Unsupported,
    /// Another coordinator leads or may lead, or this one's store has failed; it is unknown whether it has carried out
    /// the request (`EIO`).
    NotLeading,
    /// Anything else: nodes or disks fail, or do not answer in time (`EIO`).
    Failure,
    /// The coordinator recovers a restored backup and has changed nothing; an earlier coordinator may have carried out
    /// the request (`EIO`).
    Recovers,
}

impl Cause {
    /// Its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Exists => "exists",
            Self::NotADirectory => "not_a_directory",
            Self::IsADirectory => "is_a_directory",
            Self::NotEmpty => "not_empty",
            Self::NoSpace => "no_space",
            Self::Quota => "quota",
            Self::CrossesQuota => "crosses_quota",
            Self::InUse => "in_use",
            Self::Stale => "stale",
            Self::Invalid => "invalid",
            Self::NameTooLong => "name_too_long",
            Self::IsASymlink => "is_a_symlink",
            Self::TooManyNames => "too_many_names",
            Self::TooLarge => "too_large",
            Self::NoLocks => "no_locks",
            Self::TooManyOpen => "too_many_open",
            Self::ReadOnly => "read_only",
            Self::NotPermitted => "not_permitted",
            Self::Unsupported => "unsupported",
            Self::NotLeading => "not_leading",
            Self::Failure => "failure",
            Self::Recovers => "recovers",
        }
    }

    /// Whether the request may have been carried out, by this coordinator or by an earlier one.
    pub const fn leaves_doubt(self) -> bool {
        matches!(self, Self::NotLeading | Self::Recovers)
    }
}

/// The sentence of a coordinator that recovers a restored backup, about all that it does not serve.
pub const RECOVERING: &str = "this coordinator recovers a restored backup of the metadata and changes nothing; files can be \
    listed and read, and changed once they are copied to another cluster";

/// A refusal of the coordinator.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Denial {
    /// For programs.
    pub cause: Cause,
    /// One plain sentence for people.
    pub sentence: String,
}

impl Denial {
    /// A refusal with this cause.
    pub fn new(cause: Cause, sentence: impl Into<String>) -> Self {
        Self {
            cause,
            sentence: sentence.into(),
        }
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

/// A failure.
impl From<String> for Denial {
    fn from(sentence: String) -> Self {
        Self::new(Cause::Failure, sentence)
    }
}

/// A failure.
impl From<&str> for Denial {
    fn from(sentence: &str) -> Self {
        Self::new(Cause::Failure, sentence)
    }
}

impl From<&MetaError> for Cause {
    fn from(error: &MetaError) -> Self {
        match error {
            #[rustfmt::skip]
            E::UnknownPool(_) | E::UnknownFile(_) | E::UnknownPath(_) | E::UnknownNode(_) | E::DirectoryGone(_) => Self::NotFound,
            E::PoolExists(_)
            | E::FileExists(_)
            | E::DirectoryExists(_)
            | E::FileReplaced(_)
            | E::ClusterExists(_) => Self::Exists,
            E::NotADirectory(_) => Self::NotADirectory,
            E::IsADirectory(_) => Self::IsADirectory,
            E::NotEmpty(_) => Self::NotEmpty,
            E::InUse(_) | E::AddressInUse { .. } => Self::InUse,
            E::FileRenamed(_)
            | E::FileGone(_)
            | E::DirectoryRenamed(_)
            | E::AttributesChanged
            | E::UnknownStripe(_)
            | E::UnknownChunk(_)
            | E::FileChanged(_)
            | E::Superseded { .. }
            | E::PutStep { .. }
            | E::LeaseLost { .. }
            | E::TermOver { .. }
            | E::UnknownPut(_)
            | E::PutForgotten(_)
            | E::CommittedBefore(_)
            | E::WasRefused
            | E::GenerationChanged { .. } => Self::Stale,
            E::NameTooLong { .. } | E::TooDeep(_) => Self::NameTooLong,
            E::IsASymlink { .. } => Self::IsASymlink,
            E::TooManyNames(_) => Self::TooManyNames,
            E::TooManyLocks { .. } => Self::NoLocks,
            E::TooManyOrphans { .. } => Self::TooManyOpen,
            E::FileName { .. }
            | E::Target { .. }
            | E::UserAttribute { .. }
            | E::Attributes { .. }
            | E::Root
            | E::IntoItself(_)
            | E::PoolName(_)
            | E::Pool(_)
            | E::Address(_)
            | E::RackChanged { .. } => Self::Invalid,
            E::FileTooLarge | E::UserAttributesTooLarge { .. } => Self::TooLarge,
            E::FixedSize | E::NotInline | E::NotReplicated { .. } => Self::Unsupported,
            E::Snapshot(error) => error.into(),
            E::Quota(error) => error.into(),
            // This process decides nothing more, and does not know whether the request was carried out.
            #[rustfmt::skip]
            E::Deposed { .. } | E::Away { .. } | E::Closed | E::Storage { .. } | E::Log(_) | E::WentBack { .. } => Self::NotLeading,
            #[rustfmt::skip]
            E::Locked { .. } | E::NoStore { .. } | E::NoDirectory { .. } | E::Exists { .. } | E::Damaged { .. }
            | E::Corrupt { .. }
            | E::NoCluster
            | E::NotBlank
            | E::CopyDiffers { .. }
            | E::NewerFormat { .. }
            | E::OlderFormat { .. }
            | E::NodeFailed(_)
            | E::PutLost { .. }
            | E::NodeLeaving(_)
            | E::NodeNotLive(_)
            | E::IdsExhausted(_)
            | E::Placement { .. }
            | E::StillServed(_)
            | E::Held { .. }
            | E::NodeInStripe { .. } => Self::Failure,
        }
    }
}

impl From<&QuotaError> for Cause {
    fn from(error: &QuotaError) -> Self {
        match error {
            QuotaError::Bytes { .. }
            | QuotaError::Files { .. }
            | QuotaError::DirectoryBytes { .. }
            | QuotaError::DirectoryFiles { .. } => Self::Quota,
            QuotaError::Border(_) => Self::CrossesQuota,
            QuotaError::Encoded { .. }
            | QuotaError::Nested { .. }
            | QuotaError::TooManyEntries { .. }
            | QuotaError::LinkedOutside { .. }
            | QuotaError::TooManyDirectories { .. } => Self::Invalid,
        }
    }
}

impl From<&SnapshotError> for Cause {
    fn from(error: &SnapshotError) -> Self {
        match error {
            SnapshotError::ReadOnly(_) | SnapshotError::ReadOnlyDirectory(_) => Self::ReadOnly,
            SnapshotError::NotShareable(_) | SnapshotError::TooMany { .. } => Self::Unsupported,
            SnapshotError::TooManyEntries { .. } | SnapshotError::TooManyBytes { .. } => {
                Self::TooLarge
            }
            SnapshotError::Shared(_) | SnapshotError::Frozen(_) | SnapshotError::NotFrozen(_) => {
                Self::Stale
            }
        }
    }
}

impl From<MetaError> for Denial {
    fn from(error: MetaError) -> Self {
        Self::new(Cause::from(&error), error.to_string())
    }
}

/// An invalid code.
impl From<CodeError> for Denial {
    fn from(error: CodeError) -> Self {
        Self::new(Cause::Invalid, error.to_string())
    }
}

/// Parameters that do not go together, or not with the cluster's racks.
impl From<PlanError> for Denial {
    fn from(error: PlanError) -> Self {
        Self::new(Cause::Invalid, error.to_string())
    }
}

/// A shape that no stripe has.
impl From<GeometryError> for Denial {
    fn from(error: GeometryError) -> Self {
        Self::new(Cause::Invalid, error.to_string())
    }
}

impl From<&Refusal> for Cause {
    fn from(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::NoSpace => Self::NoSpace,
            Refusal::Superseded { .. } => Self::Stale,
            Refusal::Invalid(_) => Self::Invalid,
            Refusal::Unsupported(_) => Self::Unsupported,
            _ => Self::Failure,
        }
    }
}

/// A node's refusal, as the reason of an operation that needs the node.
impl From<Refusal> for Denial {
    fn from(refusal: Refusal) -> Self {
        Self::new(Cause::from(&refusal), refusal.to_string())
    }
}
