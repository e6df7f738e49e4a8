//! Why the coordinator refuses a request: a cause for programs, and a sentence for people.

use super::refusal::Refusal;
use gabion_codec::CodeError;
use gabion_layout::GeometryError;
use gabion_meta::MetaError;
use gabion_planner::PlanError;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What stands against a request. Gateways derive their error numbers from it; POSIX's are named here.
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
    /// The file would be too large (`EFBIG`).
    TooLarge,
    /// The sender may not do that (`EPERM`).
    NotPermitted,
    /// Files of this pool, or nodes in this state, do not support it (`EOPNOTSUPP`).
    Unsupported,
    /// Another coordinator leads or may lead; this one did not carry out the request (`EIO`).
    NotLeading,
    /// Anything else: nodes or disks fail, or do not answer in time (`EIO`).
    Failure,
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
            Self::InUse => "in_use",
            Self::Stale => "stale",
            Self::Invalid => "invalid",
            Self::NameTooLong => "name_too_long",
            Self::IsASymlink => "is_a_symlink",
            Self::TooManyNames => "too_many_names",
            Self::TooLarge => "too_large",
            Self::NotPermitted => "not_permitted",
            Self::Unsupported => "unsupported",
            Self::NotLeading => "not_leading",
            Self::Failure => "failure",
        }
    }
}

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
            MetaError::UnknownPool(_)
            | MetaError::UnknownFile(_)
            | MetaError::UnknownPath(_)
            | MetaError::UnknownNode(_)
            | MetaError::DirectoryGone(_) => Self::NotFound,
            MetaError::PoolExists(_)
            | MetaError::FileExists(_)
            | MetaError::DirectoryExists(_)
            | MetaError::FileReplaced(_)
            | MetaError::ClusterExists(_) => Self::Exists,
            MetaError::NotADirectory(_) => Self::NotADirectory,
            MetaError::IsADirectory(_) => Self::IsADirectory,
            MetaError::NotEmpty(_) => Self::NotEmpty,
            MetaError::InUse(_) | MetaError::AddressInUse { .. } => Self::InUse,
            MetaError::FileRenamed(_)
            | MetaError::FileGone(_)
            | MetaError::DirectoryRenamed(_)
            | MetaError::AttributesChanged
            | MetaError::UnknownStripe(_)
            | MetaError::UnknownChunk(_)
            | MetaError::FileChanged(_)
            | MetaError::Superseded { .. }
            | MetaError::PutStep { .. }
            | MetaError::LeaseLost { .. }
            | MetaError::TermOver { .. }
            | MetaError::UnknownPut(_)
            | MetaError::CommittedBefore(_)
            | MetaError::GenerationChanged { .. } => Self::Stale,
            MetaError::NameTooLong { .. } | MetaError::TooDeep(_) => Self::NameTooLong,
            MetaError::IsASymlink { .. } => Self::IsASymlink,
            MetaError::TooManyNames(_) => Self::TooManyNames,
            MetaError::FileName { .. }
            | MetaError::Target { .. }
            | MetaError::UserAttribute { .. }
            | MetaError::Attributes { .. }
            | MetaError::Root
            | MetaError::IntoItself(_)
            | MetaError::PoolName(_)
            | MetaError::Pool(_)
            | MetaError::Address(_)
            | MetaError::RackChanged { .. } => Self::Invalid,
            MetaError::FileTooLarge | MetaError::UserAttributesTooLarge { .. } => Self::TooLarge,
            MetaError::FixedSize | MetaError::NotReplicated { .. } => Self::Unsupported,
            MetaError::Deposed { .. } | MetaError::Away { .. } | MetaError::Closed => {
                Self::NotLeading
            }
            MetaError::Storage { .. }
            | MetaError::Locked { .. }
            | MetaError::NoStore { .. }
            | MetaError::Damaged { .. }
            | MetaError::Corrupt { .. }
            | MetaError::NoCluster
            | MetaError::NotBlank
            | MetaError::CopyDiffers { .. }
            | MetaError::WentBack { .. }
            | MetaError::NewerFormat { .. }
            | MetaError::OlderFormat { .. }
            | MetaError::NodeFailed(_)
            | MetaError::PutLost { .. }
            | MetaError::NodeLeaving(_)
            | MetaError::NodeNotLive(_)
            | MetaError::IdsExhausted(_)
            | MetaError::Placement { .. }
            | MetaError::StillServed(_)
            | MetaError::Held { .. }
            | MetaError::NodeInStripe { .. } => Self::Failure,
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
