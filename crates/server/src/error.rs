//! Why a process cannot start or go on: one plain sentence each.

use gabion_flash::FlashError;
use gabion_meta::MetaError;
use gabion_protocol::node::JoinError;
use gabion_store::StoreError;
use gabion_wire::WireError;
use std::fs::File;
use std::io::Read as _;
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

/// Bytes that nobody can guess.
pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N], ServerError> {
    let path = Path::new("/dev/urandom");
    let mut bytes = [0; N];
    let drawn = File::open(path).and_then(|mut file| file.read_exact(&mut bytes));
    drawn.map_err(io_error("read", path))?;
    Ok(bytes)
}
