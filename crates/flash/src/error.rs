//! Errors of the flash store.

use std::io;
use thiserror::Error;

/// Errors of the flash store's operations.
#[derive(Debug, Error)]
pub enum FlashError {
    /// A device or the non-volatile memory failed, beyond what redundancy covers.
    #[error("cannot {operation}: {source}")]
    Io {
        /// The operation and its object.
        operation: String,
        /// The system's error.
        source: io::Error,
    },
    /// The parameters contradict each other.
    #[error("invalid flash store parameters: {reason}")]
    Unsupported {
        /// The reason.
        reason: String,
    },
    /// A device or the non-volatile memory does not hold this store, or is unreadable.
    #[error("{place} does not hold this flash store: {reason}")]
    UnknownFormat {
        /// The device or memory.
        place: String,
        /// The reason.
        reason: String,
    },
    /// More devices are missing than the array has parities.
    #[error("{missing} devices are missing; the array tolerates {survivable}")]
    TooManyMissing {
        /// Devices that failed or are absent.
        missing: usize,
        /// Parities.
        survivable: usize,
    },
    /// Stored bytes fail their checksum, and the other devices cannot rebuild them.
    #[error("page {page} of file {file} is damaged on more devices than the array tolerates")]
    Damaged {
        /// The file's number.
        file: u32,
        /// The page's number in the file.
        page: u32,
    },
    /// There is no space for more pages. Overwriting stays possible.
    #[error("no space left: the store's capacity is {capacity_pages} pages")]
    NoSpace {
        /// Capacity for pages of files.
        capacity_pages: u64,
    },
    /// There is no space below a device: it is a file with holes, and its file system is full. The
    /// device is intact, and written data stays. Overwriting stays possible.
    #[error("no space left below device {device}: its file system is full")]
    FullBelow {
        /// The device's number.
        device: usize,
    },
    /// There is no such file.
    #[error("there is no file {name}")]
    NoSuchFile {
        /// The requested name or number.
        name: String,
    },
    /// The name exists already.
    #[error("{name} already exists")]
    Exists {
        /// The name.
        name: String,
    },
    /// An invalid name, or an offset beyond the file size limit.
    #[error("{what}; {limit}")]
    OutOfRange {
        /// The request.
        what: String,
        /// The limit.
        limit: String,
    },
    /// An earlier write or sync failed, so the store cannot guarantee new ones.
    #[error("the flash store refuses writes after a failed one: {cause}")]
    Failed {
        /// The first failure.
        cause: String,
    },
}

impl FlashError {
    pub(crate) fn io(operation: impl Into<String>, source: io::Error) -> Self {
        Self::Io {
            operation: operation.into(),
            source,
        }
    }
}
