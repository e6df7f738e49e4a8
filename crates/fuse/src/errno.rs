//! The error numbers of replies, and the one place that derives them from the client's errors.

use gabion_client::{Cause, ClientError};

/// The error of a failed request, as POSIX names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Errno {
    NotPermitted,
    NotFound,
    Io,
    NoData,
    BadDescriptor,
    Busy,
    Exists,
    NotADirectory,
    IsADirectory,
    Invalid,
    TooLarge,
    NoSpace,
    ReadOnly,
    Quota,
    OtherDevice,
    OutOfRange,
    NameTooLong,
    IsASymlink,
    TooManyLinks,
    NotEmpty,
    NoSuchOffset,
    NotSupported,
    NoSuchOperation,
    Stale,
    Again,
    Interrupted,
    NoLocks,
    TooManyOpen,
}

/// POSIX's number and name.
type Named = (fuser::Errno, &'static str);

/// `ESTALE`, which `fuser` does not name.
const STALE: i32 = 116;
/// `ENODATA`, which is also that of a missing extended attribute.
const NO_DATA: i32 = 61;

/// `EDQUOT`.
const QUOTA: i32 = 122;

impl Errno {
    fn named(self) -> Named {
        use fuser::Errno as E;
        match self {
            Self::NotPermitted => (E::EPERM, "EPERM"),
            Self::NotFound => (E::ENOENT, "ENOENT"),
            Self::Io => (E::EIO, "EIO"),
            Self::NoData => (E::from_i32(NO_DATA), "ENODATA"),
            Self::BadDescriptor => (E::EBADF, "EBADF"),
            Self::Busy => (E::EBUSY, "EBUSY"),
            Self::Exists => (E::EEXIST, "EEXIST"),
            Self::NotADirectory => (E::ENOTDIR, "ENOTDIR"),
            Self::IsADirectory => (E::EISDIR, "EISDIR"),
            Self::Invalid => (E::EINVAL, "EINVAL"),
            Self::TooLarge => (E::EFBIG, "EFBIG"),
            Self::NoSpace => (E::ENOSPC, "ENOSPC"),
            Self::Quota => (E::from_i32(QUOTA), "EDQUOT"),
            Self::OtherDevice => (E::EXDEV, "EXDEV"),
            Self::ReadOnly => (E::EROFS, "EROFS"),
            Self::OutOfRange => (E::ERANGE, "ERANGE"),
            Self::NameTooLong => (E::ENAMETOOLONG, "ENAMETOOLONG"),
            Self::IsASymlink => (E::ELOOP, "ELOOP"),
            Self::TooManyLinks => (E::EMLINK, "EMLINK"),
            Self::NotEmpty => (E::ENOTEMPTY, "ENOTEMPTY"),
            Self::NoSuchOffset => (E::ENXIO, "ENXIO"),
            Self::NotSupported => (E::EOPNOTSUPP, "EOPNOTSUPP"),
            Self::NoSuchOperation => (E::ENOSYS, "ENOSYS"),
            Self::Stale => (E::from_i32(STALE), "ESTALE"),
            Self::Again => (E::EAGAIN, "EAGAIN"),
            Self::Interrupted => (E::EINTR, "EINTR"),
            Self::NoLocks => (E::ENOLCK, "ENOLCK"),
            Self::TooManyOpen => (E::ENFILE, "ENFILE"),
        }
    }

    /// The number for the kernel.
    pub(crate) fn number(self) -> fuser::Errno {
        self.named().0
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        self.named().1
    }
}

impl From<ClientError> for Errno {
    fn from(error: ClientError) -> Self {
        let errno = match error.cause() {
            Cause::NotFound => Self::NotFound,
            Cause::Exists => Self::Exists,
            Cause::NotADirectory => Self::NotADirectory,
            Cause::IsADirectory => Self::IsADirectory,
            Cause::NotEmpty => Self::NotEmpty,
            Cause::NoSpace => Self::NoSpace,
            Cause::Quota => Self::Quota,
            Cause::CrossesQuota => Self::OtherDevice,
            Cause::InUse => Self::Busy,
            Cause::Stale => Self::Stale,
            Cause::Invalid => Self::Invalid,
            Cause::NameTooLong => Self::NameTooLong,
            Cause::IsASymlink => Self::IsASymlink,
            Cause::TooManyNames => Self::TooManyLinks,
            Cause::TooLarge => Self::TooLarge,
            Cause::NoLocks => Self::NoLocks,
            Cause::TooManyOpen => Self::TooManyOpen,
            Cause::ReadOnly => Self::ReadOnly,
            Cause::NotPermitted => Self::NotPermitted,
            Cause::Unsupported => Self::NotSupported,
            Cause::NotLeading | Cause::Recovers | Cause::Failure => Self::Io,
        };
        if errno == Self::Io {
            tracing::warn!(%error, "a request fails");
        } else {
            tracing::debug!(%error, "a request is refused");
        }
        errno
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_client::Denial;

    #[test]
    fn numbers_are_those_of_linux_and_follow_from_the_cause() {
        let refused = |cause| Errno::from(ClientError::Refused(Denial::new(cause, "no")));
        for (errno, number) in [
            (refused(Cause::NotFound), 2),
            (refused(Cause::Exists), 17),
            (refused(Cause::NotEmpty), 39),
            (refused(Cause::Stale), 116),
            (refused(Cause::Failure), 5),
            (ClientError::FileGone("f".to_owned()).into(), 116),
            (ClientError::TooLarge { limit_bytes: 9 }.into(), 27),
            (ClientError::NoCoordinator("away".to_owned()).into(), 5),
            (Errno::NoData, 61),
        ] {
            assert_eq!(errno.number().code(), number, "{errno:?}");
        }
    }
}
