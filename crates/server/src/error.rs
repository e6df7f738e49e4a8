//! Why a process cannot start or go on: one plain sentence each.

use gabion_flash::FlashError;
use gabion_layout::{ClusterId, NodeId};
use gabion_meta::MetaError;
use gabion_protocol::node::JoinError;
use gabion_store::StoreError;
use gabion_wire::WireError;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a server process ended.
#[derive(Debug, Error)]
pub enum ServerError {
    /// A file of the process itself could not be read or written.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose a free port with --listen")]
    Listen {
        /// The address.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The node's identity file is not one.
    #[error("{} does not say which node this is ({reason}); restore the file, or start with an empty directory as a new node", path.display())]
    Identity {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no store where one should be, and none is to be made.
    #[error("{} holds no node's store; mount its disk, or add --init to make a new node there", path.display())]
    NoStore {
        /// Where it should be.
        path: PathBuf,
    },
    /// The node has been in a cluster, and its store is gone.
    #[error("{node} of cluster {cluster} kept its store in {}, and there is none; mount its disk, or, if its chunks are lost for good, add --init", path.display())]
    StoreGone {
        /// The node.
        node: NodeId,
        /// Its cluster.
        cluster: ClusterId,
        /// Where its store should be.
        path: PathBuf,
    },
    /// The store is of another node than the directory.
    #[error("{} is the directory of {expected}, and the store in it is that of {found}; mount the disk of {expected}", path.display())]
    OtherStore {
        /// The node's directory.
        path: PathBuf,
        /// Whose directory it is, in words.
        expected: String,
        /// Whose store it is, in words.
        found: String,
    },
    /// There is no metadata where it should be, and none is to be made.
    #[error("{} does not exist; mount its disk, or add --init to make a new cluster there", path.display())]
    NoMetadata {
        /// The file.
        path: PathBuf,
    },
    /// The node's data cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The array cannot be used.
    #[error(transparent)]
    Flash(#[from] FlashError),
    /// An array would have to be made of a device that holds something.
    #[error("{} is not blank, and there is no array's memory at {}; name the memory of the array that it is of, or overwrite its first 4 KiB", path.display(), nvram.display())]
    UsedDevice {
        /// The device.
        path: PathBuf,
        /// Where the memory of its array was looked for.
        nvram: PathBuf,
    },
    /// The metadata cannot be used.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// The node may not join.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The disk failed under a node that served.
    #[error(
        "the store has failed, and the node has left the cluster: {cause}; replace its disk, then start the node anew"
    )]
    StoreFailed {
        /// The store's first failure.
        cause: String,
    },
    /// The network failed for good.
    #[error(transparent)]
    Wire(#[from] WireError),
}

/// The error of an operation on a path.
pub(crate) fn io_error(
    operation: &'static str,
    path: &Path,
) -> impl FnOnce(std::io::Error) -> ServerError {
    let path = path.to_owned();
    move |source| ServerError::Io {
        operation,
        path,
        source,
    }
}

/// The error when the system gives no randomness.
pub(crate) fn no_randomness(source: std::io::Error) -> ServerError {
    io_error("read", Path::new("/dev/urandom"))(source)
}

/// Bytes that no peer can guess.
pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N], ServerError> {
    gabion_wire::random_bytes().map_err(no_randomness)
}
