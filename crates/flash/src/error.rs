//! Everything that the flash store can answer instead of doing what it was asked.

use std::io;
use thiserror::Error;

/// Why the flash store did not do what it was asked.
#[derive(Debug, Error)]
pub enum FlashError {
    /// A device or the non-volatile memory failed, and redundancy does not make up for it.
    #[error("cannot {operation}: {source}")]
    Io {
        /// What was tried, and on what.
        operation: String,
        /// What the system said.
        source: io::Error,
    },
    /// The parameters contradict each other.
    #[error("a flash store cannot be made so: {reason}")]
    Unsupported {
        /// What is wrong with them.
        reason: String,
    },
    /// What is on a device or in the non-volatile memory is not this store, or not readable.
    #[error("{place} does not hold this flash store: {reason}")]
    UnknownFormat {
        /// Which device or memory.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// More devices are missing than there are parities.
    #[error("{missing} devices are missing, and the array survives {survivable}")]
    TooManyMissing {
        /// Devices that failed or are absent.
        missing: usize,
        /// Parities.
        survivable: usize,
    },
    /// Stored bytes fail their checksum, and cannot be rebuilt from the other devices.
    #[error("page {page} of file {file} is damaged on more devices than the array survives")]
    Damaged {
        /// The file's number.
        file: u32,
        /// The page of it.
        page: u32,
    },
    /// There is no room for more pages. Overwriting stays possible.
    #[error("no space left: {capacity_pages} pages hold all that the store may hold")]
    NoSpace {
        /// Pages that files may have in all.
        capacity_pages: u64,
    },
    /// A device's own bytes have no room where they lie: its file has holes, and the file system below is
    /// full. Nothing is wrong with the device, and what was written stays. Overwriting stays possible.
    #[error("no space left below device {device}: its file system is full")]
    FullBelow {
        /// The device's number.
        device: usize,
    },
    /// There is no such file.
    #[error("there is no file {name}")]
    NoSuchFile {
        /// The name or number asked for.
        name: String,
    },
    /// The name is taken.
    #[error("{name} exists already")]
    Exists {
        /// The name.
        name: String,
    },
    /// A name that cannot be stored, or an offset beyond what a file can hold.
    #[error("{what}; {limit}")]
    OutOfRange {
        /// What was asked for.
        what: String,
        /// What is allowed.
        limit: String,
    },
    /// An earlier write or sync failed, so nothing can be promised about new ones.
    #[error("the flash store takes no writes since an earlier one failed: {cause}")]
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
