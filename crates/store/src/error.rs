//! Everything that the store can answer instead of doing what it was asked.

use crate::records::record::{Damage, UpdateStamp};
use gabion_layout::{ByteRange, ChunkId, Epoch, Generation, Sequence, StripeId};
use rustix::io::Errno;
use std::io;
use thiserror::Error;

/// Why the store did not do what it was asked.
#[derive(Debug, Error)]
pub enum StoreError {
    /// A file operation failed. When a required write or sync did, the store is latched and
    /// answers [`StoreError::Failed`] to writes from then on.
    #[error("cannot {operation} {path}: {source}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On which file or directory, relative to the store's root.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// Another process has the store's directory.
    #[error(
        "{path} is in use by another process; stop that process or choose another data directory"
    )]
    Locked {
        /// The directory.
        path: String,
    },
    /// The process has no descriptor or memory left to open or read a file. Nothing was done; the
    /// same call may succeed later.
    #[error("cannot {operation} {path} now: {source}; try again later")]
    Busy {
        /// What was tried.
        operation: &'static str,
        /// On which file, relative to the store's root.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The directory holds something that this version cannot read.
    #[error("{path} is not a store that this version can read: {reason}")]
    UnknownFormat {
        /// The file that says so, relative to the store's root.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The disk has no room. Nothing was half done.
    #[error("no space left for {operation}: {needed_bytes} bytes needed beyond the reserve")]
    NoSpace {
        /// What was refused.
        operation: &'static str,
        /// Bytes that it would have taken.
        needed_bytes: u64,
    },
    /// An earlier required write or sync failed, so nothing can be promised about new ones.
    #[error("the store takes no writes since an earlier one failed: {cause}")]
    Failed {
        /// The first failure.
        cause: String,
    },
    /// The store does not hold the chunk.
    #[error("{chunk} is not here")]
    NoSuchChunk {
        /// The chunk asked for.
        chunk: ChunkId,
    },
    /// The store knows nothing of the stripe.
    #[error("nothing is here of {stripe}")]
    NoSuchStripe {
        /// The stripe asked for.
        stripe: StripeId,
    },
    /// The caller acts under an epoch that is past.
    #[error("{stripe} has passed to {current}")]
    Fenced {
        /// The stripe.
        stripe: StripeId,
        /// The epoch that the store has promised to.
        current: Epoch,
    },
    /// The caller acts under a layout that is past.
    #[error("the layout of {stripe} is now {current}")]
    StaleGeneration {
        /// The stripe.
        stripe: StripeId,
        /// The generation that the store knows.
        current: Generation,
    },
    /// The update's number is at or below the committed mark, or below what the chunk includes.
    #[error("{stripe} is settled up to {mark}, so {sequence} comes too late")]
    Settled {
        /// The stripe.
        stripe: StripeId,
        /// The committed mark.
        mark: Sequence,
        /// The update refused.
        sequence: Sequence,
    },
    /// The recovery rule dropped this update; a late copy of it changes nothing.
    #[error("{sequence} of {stripe} was dropped")]
    Dropped {
        /// The stripe.
        stripe: StripeId,
        /// The update refused.
        sequence: Sequence,
    },
    /// Another update with this number is recorded already.
    #[error("{chunk} holds {} of {} already", held.sequence, held.epoch)]
    SequenceTaken {
        /// The chunk.
        chunk: ChunkId,
        /// The stamp of the record that is held.
        held: UpdateStamp,
    },
    /// A range leaves the chunk.
    #[error("bytes {}..{} leave {chunk}, which has {chunk_bytes} bytes", range.offset, range.end())]
    OutOfChunk {
        /// The chunk.
        chunk: ChunkId,
        /// The range asked for.
        range: ByteRange,
        /// The chunk's size.
        chunk_bytes: u64,
    },
    /// A record or chunk is not of a shape that can be stored.
    #[error("cannot store this: {reason}")]
    Malformed {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A record is larger than the journal takes.
    #[error("a record of {bytes} bytes is more than the journal's {limit_bytes}; split the update")]
    RecordTooLarge {
        /// Bytes of the record.
        bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// A chunk writer was given bytes that it has already.
    #[error("bytes {}..{} of {chunk} were written before", range.offset, range.end())]
    Overlap {
        /// The chunk.
        chunk: ChunkId,
        /// The range given.
        range: ByteRange,
    },
    /// A chunk writer was finished before it had all bytes.
    #[error("bytes {}..{} of {chunk} are missing", missing.offset, missing.end())]
    Incomplete {
        /// The chunk.
        chunk: ChunkId,
        /// The first bytes that were never written.
        missing: ByteRange,
    },
    /// A record above the committed mark touches the range: whether it stands is not known here.
    #[error("{first} of {chunk} is not settled; the mark is {above}")]
    Unsettled {
        /// The chunk.
        chunk: ChunkId,
        /// The committed mark.
        above: Sequence,
        /// The first unsettled update that touches the range.
        first: Sequence,
    },
    /// The chunk already includes updates behind the cut.
    #[error("{chunk} includes updates up to {applied}, behind the cut asked for")]
    CutPassed {
        /// The chunk.
        chunk: ChunkId,
        /// The last update that the chunk's own bytes include.
        applied: Sequence,
    },
    /// Stored bytes are not what was written. They are not served; the chunk needs repair.
    #[error("bytes {}..{} of {chunk} are corrupt", range.offset, range.end())]
    Corrupt {
        /// The chunk.
        chunk: ChunkId,
        /// The bytes of it that cannot be trusted.
        range: ByteRange,
    },
}

impl StoreError {
    pub(crate) fn io(operation: &'static str, path: &str, source: io::Error) -> Self {
        Self::Io {
            operation,
            path: path.to_owned(),
            source,
        }
    }

    /// Damage that leaves nothing of a chunk to serve.
    pub(crate) fn corrupt_whole(chunk: ChunkId) -> Self {
        let range = Damage::WHOLE;
        Self::Corrupt { chunk, range }
    }

    /// Whether the disk had no room, said by the disk or by the store's own reserve.
    pub fn is_no_space(&self) -> bool {
        match self {
            Self::NoSpace { .. } => true,
            Self::Io { source, .. } => source.kind() == io::ErrorKind::StorageFull,
            _ => false,
        }
    }
}

/// Whether the process or the system ran out of descriptors or memory: nothing is wrong with the
/// disk then.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
    let code = error.raw_os_error();
    shortages.iter().any(|e| code == Some(e.raw_os_error()))
        || error.kind() == io::ErrorKind::OutOfMemory
}

/// Adds the operation and the path to a failed file operation.
pub(crate) trait IoContext<T> {
    fn context(self, operation: &'static str, path: &str) -> Result<T, StoreError>;

    /// As [`IoContext::context`] for an operation that fails as a whole or not at all: a shortage is
    /// [`StoreError::Busy`], which latches nothing. A write or a sync may be half done and never
    /// comes here.
    fn context_or_busy(self, operation: &'static str, path: &str) -> Result<T, StoreError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn context(self, operation: &'static str, path: &str) -> Result<T, StoreError> {
        self.map_err(|source| StoreError::io(operation, path, source))
    }

    fn context_or_busy(self, operation: &'static str, path: &str) -> Result<T, StoreError> {
        self.map_err(|source| {
            if is_shortage(&source) {
                let path = path.to_owned();
                StoreError::Busy {
                    operation,
                    path,
                    source,
                }
            } else {
                StoreError::io(operation, path, source)
            }
        })
    }
}

/// What allocating `needed_bytes` for something has come to: a full disk is a clean refusal.
pub(crate) fn allocated(
    outcome: io::Result<()>,
    operation: &'static str,
    path: &str,
    needed_bytes: u64,
) -> Result<(), StoreError> {
    match outcome {
        Err(source) if source.kind() == io::ErrorKind::StorageFull => Err(StoreError::NoSpace {
            operation,
            needed_bytes,
        }),
        other => other.context("allocate", path),
    }
}
