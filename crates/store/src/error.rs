//! Errors of the store.

use crate::records::record::{Damage, UpdateStamp};
use gabion_flash::CacheFault;
use gabion_layout::{ByteRange, ChunkId, Epoch, Generation, Sequence, StripeId};
use rustix::io::Errno;
use std::io;
use thiserror::Error;

/// The reason why an operation of the store failed.
#[derive(Debug, Error)]
pub enum StoreError {
    /// A file operation failed. After a failed required write or sync, the store is latched and
    /// answers later writes with [`StoreError::Failed`].
    #[error("cannot {operation} {path}: {source}")]
    Io {
        /// The operation.
        operation: &'static str,
        /// The file or directory, relative to the store's root.
        path: String,
        /// The system's error.
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
    /// The process has no descriptor or memory left to open or read a file. Nothing changed; the
    /// same call may succeed later.
    #[error(
        "cannot {operation} {path} for lack of descriptors or memory: {source}; try again later"
    )]
    Busy {
        /// The operation.
        operation: &'static str,
        /// The file, relative to the store's root.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// This version cannot read the directory's contents.
    #[error("{path} is not a store that this version can read: {reason}")]
    UnknownFormat {
        /// The file that shows this, relative to the store's root.
        path: String,
        /// The reason.
        reason: String,
    },
    /// The disk has no space. Nothing was changed.
    #[error("no space left for {operation}: {needed_bytes} bytes needed beyond the reserve")]
    NoSpace {
        /// The refused operation.
        operation: &'static str,
        /// Bytes that it needs.
        needed_bytes: u64,
    },
    /// An earlier required write or sync failed, so the store cannot guarantee new ones.
    #[error("the store refuses writes after a failed one: {cause}")]
    Failed {
        /// The first failure.
        cause: String,
    },
    /// The store does not hold the chunk.
    #[error("this store does not hold {chunk}")]
    NoSuchChunk {
        /// The requested chunk.
        chunk: ChunkId,
    },
    /// A new chunk would replace one.
    #[error("{chunk} is stored already, and a new chunk must not replace it")]
    ChunkExists {
        /// The chunk.
        chunk: ChunkId,
    },
    /// The store knows nothing of the stripe.
    #[error("this store has no data of {stripe}")]
    NoSuchStripe {
        /// The requested stripe.
        stripe: StripeId,
    },
    /// The caller's epoch is stale.
    #[error("{stripe} is at {current}, but the request has an earlier epoch")]
    Fenced {
        /// The stripe.
        stripe: StripeId,
        /// The epoch that the store has promised.
        current: Epoch,
    },
    /// The caller's layout is stale.
    #[error("the layout of {stripe} is now {current}")]
    StaleGeneration {
        /// The stripe.
        stripe: StripeId,
        /// The generation that the store knows.
        current: Generation,
    },
    /// The update's number is at or below the committed mark, or below the chunk's base.
    #[error("{sequence} of {stripe} is too late; the committed mark is {mark}")]
    Settled {
        /// The stripe.
        stripe: StripeId,
        /// The committed mark.
        mark: Sequence,
        /// The refused update.
        sequence: Sequence,
    },
    /// The recovery rule dropped this update; a late copy of it changes nothing.
    #[error("{sequence} of {stripe} was dropped")]
    Dropped {
        /// The stripe.
        stripe: StripeId,
        /// The refused update.
        sequence: Sequence,
    },
    /// The chunk already holds another update with this number.
    #[error("{chunk} already holds {} of {}", held.sequence, held.epoch)]
    SequenceTaken {
        /// The chunk.
        chunk: ChunkId,
        /// The stamp of the held record.
        held: UpdateStamp,
    },
    /// A range exceeds the chunk.
    #[error("bytes {}..{} exceed {chunk}, which has {chunk_bytes} bytes", range.offset, range.end())]
    OutOfChunk {
        /// The chunk.
        chunk: ChunkId,
        /// The requested range.
        range: ByteRange,
        /// The chunk's size.
        chunk_bytes: u64,
    },
    /// The store cannot keep a record or chunk of this shape.
    #[error("cannot store this: {reason}")]
    Malformed {
        /// The reason.
        reason: &'static str,
    },
    /// A record exceeds the journal's limit.
    #[error(
        "a record of {bytes} bytes exceeds the journal's limit of {limit_bytes}; split the update"
    )]
    RecordTooLarge {
        /// Bytes of the record.
        bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// A chunk writer was given the same bytes twice.
    #[error("bytes {}..{} of {chunk} were already written", range.offset, range.end())]
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
    /// A record above the committed mark touches the range; this store does not know whether it
    /// stands.
    #[error("{first} of {chunk} is not settled; the committed mark is {above}")]
    Unsettled {
        /// The chunk.
        chunk: ChunkId,
        /// The committed mark.
        above: Sequence,
        /// The first unsettled update that touches the range.
        first: Sequence,
    },
    /// The chunk already includes updates after the requested cut.
    #[error("{chunk} already includes updates up to {applied}, which is above the requested cut")]
    CutPassed {
        /// The chunk.
        chunk: ChunkId,
        /// The last update that the chunk's own bytes include.
        applied: Sequence,
    },
    /// Stored bytes differ from those written. They are not served; the chunk needs repair.
    #[error("bytes {}..{} of {chunk} are corrupt", range.offset, range.end())]
    Corrupt {
        /// The chunk.
        chunk: ChunkId,
        /// The untrusted bytes of it.
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

    /// Damage to the whole chunk.
    pub(crate) fn corrupt_whole(chunk: ChunkId) -> Self {
        let range = Damage::WHOLE;
        Self::Corrupt { chunk, range }
    }

    /// Whether the disk has no space, by its own report or by the store's reserve.
    pub fn is_no_space(&self) -> bool {
        match self {
            Self::NoSpace { .. } => true,
            Self::Io { source, .. } => is_full(source),
            _ => false,
        }
    }
}

/// Whether the file system, or a quota of it, is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
    kinds.contains(&error.kind())
}

/// Whether the process or the system ran out of descriptors or memory; the disk is intact then.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
    let code = error.raw_os_error();
    shortages.iter().any(|e| code == Some(e.raw_os_error()))
        || error.kind() == io::ErrorKind::OutOfMemory
}

/// Whether a read failed in a way that says nothing about the device's bytes: descriptors or memory
/// ran out, or the page cache hides the device. It is no damage then, and the reader must stop.
pub(crate) fn is_inconclusive(error: &io::Error) -> bool {
    is_shortage(error) || CacheFault::is_in(error)
}

/// Whether the device or the file system has lost what was asked for: damage, as opposed to a
/// refusal (permissions, limits) that says nothing about the bytes.
pub(crate) fn is_lost(error: &io::Error) -> bool {
    let losses = [
        Errno::IO,
        // A file system's own checksums and structure.
        Errno::UCLEAN,
        Errno::BADMSG,
        // Errors of media, targets and protection information.
        Errno::NODATA,
        Errno::REMOTEIO,
        Errno::ILSEQ,
    ];
    let code = error.raw_os_error();
    losses.iter().any(|e| code == Some(e.raw_os_error()))
}

/// Adds the operation and the path to a failed file operation.
pub(crate) trait IoContext<T> {
    fn context(self, operation: &'static str, path: &str) -> Result<T, StoreError>;

    /// Like [`IoContext::context`] for an operation that either succeeds or changes nothing: a
    /// shortage is [`StoreError::Busy`], which latches nothing. A write or a sync may be half
    /// complete and never uses this.
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

/// The result of allocating `needed_bytes`: a full disk is a clean refusal.
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
