//! Error numbers of replies: those that the protocol allows, whatever the system's own are.

/// The reason why a request failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Errno {
    /// The export is read-only.
    NotPermitted,
    /// The cluster could not do it, or not in time.
    Io,
    /// The request is invalid, or reaches past the end of the export.
    Invalid,
    /// A write past the end of the export, or disks that are full.
    NoSpace,
    /// The range is too long for an answer in one piece.
    Overflow,
    /// Zeroes cannot be written faster than other bytes here.
    NotSupported,
}

impl Errno {
    /// The number on the wire.
    pub const fn number(self) -> u32 {
        match self {
            Self::NotPermitted => 1,
            Self::Io => 5,
            Self::Invalid => 22,
            Self::NoSpace => 28,
            Self::Overflow => 75,
            Self::NotSupported => 95,
        }
    }

    /// Its name in the protocol, without the prefix.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NotPermitted => "EPERM",
            Self::Io => "EIO",
            Self::Invalid => "EINVAL",
            Self::NoSpace => "ENOSPC",
            Self::Overflow => "EOVERFLOW",
            Self::NotSupported => "ENOTSUP",
        }
    }

    /// The sentence of a refusal that needs no other.
    pub(crate) const fn sentence(self) -> &'static str {
        match self {
            Self::NotPermitted => "the export is read-only",
            Self::Io => "the cluster could not carry out the request",
            Self::Invalid => "the request is invalid or reaches past the end of the export",
            Self::NoSpace => "the request reaches past the end of the export",
            Self::Overflow => "the range is too long for one piece",
            Self::NotSupported => "writing zeroes is not faster than writing other bytes here",
        }
    }
}
