//! Records of quotas and of what pools use.

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

/// The most that a pool may use. The default has no limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Quota {
    /// Data bytes of stripes, without parity.
    pub bytes: Limit,
    /// Files, symbolic links included. A file with several names is one.
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
