//! Records of quotas and of what pools use.

use crate::paths::DirectoryId;
use serde::{Deserialize, Serialize};

/// A limit of a quota.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Limit {
    /// There is none.
    #[default]
    Unlimited,
    /// At most this number.
    AtMost(u64),
}

impl Limit {
    /// The number, if there is a limit.
    pub const fn number(self) -> Option<u64> {
        match self {
            Self::Unlimited => None,
            Self::AtMost(number) => Some(number),
        }
    }
}

/// The most that a pool or a directory may use. The default has no limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Quota {
    /// Of a pool: data bytes of stripes, without parity. Of a directory: bytes of files.
    pub bytes: Limit,
    /// Files, symbolic links included; of a directory, directories too. A file with several names is one.
    pub files: Limit,
}

/// A change of a quota; what is absent stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct QuotaChange {
    /// The new limit of bytes.
    pub bytes: Option<Limit>,
    /// The new limit of files.
    pub files: Option<Limit>,
}

/// The bytes and files that a pool uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PoolUse {
    /// Data bytes of stripes of files and of open puts, without parity.
    pub bytes: u64,
    /// Files.
    pub files: u64,
}

/// Bytes and files below a directory with a quota.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DirectoryUse {
    /// The sum of the sizes of files, holes included.
    pub bytes: u64,
    /// Files and directories. A file with several names is one.
    pub entries: u64,
}

/// The quota of a directory, and what it counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct DirectoryQuota {
    pub(crate) quota: Quota,
    pub(crate) used: DirectoryUse,
}

/// A directory with a quota, as it is shown.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QuotaStatus {
    /// The directory.
    pub directory: DirectoryId,
    /// Its path; `/` is the root.
    pub path: String,
    /// The most that may be below it. Its limit of files counts directories too.
    pub quota: Quota,
    /// Bytes and files below it.
    pub used: DirectoryUse,
}
