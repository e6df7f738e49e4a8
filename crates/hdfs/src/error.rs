//! The errors of this crate.

use gabion_layout::ChunkIndex;
use std::path::PathBuf;
use thiserror::Error;

/// Errors of an agent's requests.
#[derive(Debug, Error)]
pub enum HdfsError {
    /// A policy that Hadoop does not have, or this agent does not know.
    #[error("{0}")]
    Policy(String),
    /// A file cannot be opened or read.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// The failed operation, such as `open`.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// Stored bytes do not match their checksums.
    #[error("{} is corrupt: {reason}", path.display())]
    Corrupt {
        /// The block's file.
        path: PathBuf,
        /// The mismatch.
        reason: String,
    },
    /// A block has checksums of a kind that cannot be verified.
    #[error("{} has checksums of type {kind}; only CRC32 (1) and CRC32C (2) are verified", path.display())]
    ChecksumKind {
        /// The file with the checksums.
        path: PathBuf,
        /// Hadoop's number of the type.
        kind: u8,
    },
    /// A file's name is not one of its format, or is taken.
    #[error("{}: {reason}", path.display())]
    Name {
        /// The file.
        path: PathBuf,
        /// The allowed values.
        reason: String,
    },
    /// The restored chunk does not fit the others.
    #[error(
        "chunk {} is not consistent with the restored chunk and the others, and no file was written; check the code, \
        the order of the chunks, and that all belong to one stripe",
        .0.0
    )]
    Order(ChunkIndex),
    /// A connection failed, or its peer sent what it must not send.
    #[error("{peer}: {reason}")]
    Peer {
        /// The peer.
        peer: String,
        /// The reason.
        reason: String,
    },
}
