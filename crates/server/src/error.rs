//! Errors that end a process: one plain sentence each.

use gabion_flash::FlashError;
use gabion_layout::{ClusterId, NodeId};
use gabion_meta::MetaError;
use gabion_protocol::node::JoinError;
use gabion_sql::SqlError;
use gabion_store::StoreError;
use gabion_wire::RenewalError;
use gabion_wire::WireError;
use gabion_wire::trust::TrustError;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The reason why a server process ended.
#[derive(Debug, Error)]
pub enum ServerError {
    /// A file of the process itself could not be read or written.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// The operation.
        operation: &'static str,
        /// Its path.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A recovery is to read metadata in a database.
    #[error(
        "--recover reads metadata in a file and not in a database; restore the earlier copy to a file in --data, and omit \
        --metadata and --metadata-file"
    )]
    RecoversNoDatabase,
    /// The disk of the metadata log has no room for a new base.
    #[error(
        "the disk of {} has {} MiB free, and a new base needs {} MiB; free space on it, or the log grows",
        directory.display(), free_bytes >> 20, needed_bytes.div_ceil(1 << 20)
    )]
    LogDiskFull {
        /// The log's directory.
        directory: PathBuf,
        /// Free bytes.
        free_bytes: u64,
        /// Bytes of the files there, with some to spare.
        needed_bytes: u64,
    },
    /// The process cannot listen on the address.
    #[error(
        "cannot listen on {address}: {}; choose an address of this machine and a free port with --listen",
        why_not_listening(source)
    )]
    Listen {
        /// The address.
        address: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The process cannot serve its metrics on the address.
    #[error(
        "cannot serve metrics on {address}: {}; choose an address of this machine and a free port with --metrics",
        why_not_listening(source)
    )]
    Metrics {
        /// The address.
        address: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The node's identity file is invalid.
    #[error("{} is not a valid identity file ({reason}); restore the file, or start with an empty directory as a new node", path.display())]
    Identity {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// There is no store, and `init` is off.
    #[error("{} has no node's store; mount its disk, or add --init to create a new node there", path.display())]
    NoStore {
        /// Its expected place.
        path: PathBuf,
    },
    /// The node has joined a cluster before, and its store is gone.
    #[error("the store of {node} of cluster {cluster} is missing in {}; mount its disk, or add --init if its chunks \
    are lost for good", path.display())]
    StoreGone {
        /// The node.
        node: NodeId,
        /// Its cluster.
        cluster: ClusterId,
        /// The expected path of its store.
        path: PathBuf,
    },
    /// The store belongs to another node than the directory.
    #[error("{} is the directory of {expected}, but contains the store of {found}; mount the disk of {expected}", path.display())]
    OtherStore {
        /// The node's directory.
        path: PathBuf,
        /// The node of the directory, in words.
        expected: String,
        /// The node of the store, in words.
        found: String,
    },
    /// The node's store was made with the other engine.
    #[error("the store in {} was created with --engine {has}; start the node with that engine, or choose another \
    --data", directory.display())]
    OtherEngine {
        /// The node's directory.
        directory: PathBuf,
        /// The engine of its store.
        has: &'static str,
    },
    /// The devices of a new array do not fit on their disk.
    #[error("new devices need {} MiB in {}, but {} MiB are free there; choose a smaller --device-size, or devices on a \
    larger disk", needed >> 20, directory.display(), free >> 20)]
    NoSpace {
        /// A directory on the disk.
        directory: PathBuf,
        /// Bytes of all new devices there.
        needed: u64,
        /// Free bytes there.
        free: u64,
    },
    /// There is no metadata, and `init` is off.
    #[error("{} does not exist; mount its disk, or add --init to create a new cluster there", path.display())]
    NoMetadata {
        /// The file.
        path: PathBuf,
    },
    /// The database holds no cluster, and `init` is off.
    #[error(
        "the database {address} has no cluster; correct its address, or add --init to create a new cluster there"
    )]
    NoCluster {
        /// The database, without a password.
        address: String,
    },
    /// The database cannot be used for metadata.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// The node's data cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The array cannot be used.
    #[error(transparent)]
    Flash(#[from] FlashError),
    /// A device for a new array is not blank.
    #[error("{} is not blank, but there is no array memory at {}; name the memory of its array with --nvram, or \
    overwrite the device's first and last MiB with zeros", path.display(), nvram.display())]
    UsedDevice {
        /// The device.
        path: PathBuf,
        /// The path of the array's memory.
        nvram: PathBuf,
    },
    /// A device for a new array is named twice.
    #[error("{} is named twice in --devices; name each device once", path.display())]
    SameDevice {
        /// The device.
        path: PathBuf,
    },
    /// An array's memory is a device, a directory or the like.
    #[error("{} is not a regular file; name a regular file with --nvram, on a file system with DAX if the memory is \
    persistent", path.display())]
    MemoryNotAFile {
        /// Its path.
        path: PathBuf,
    },
    /// The file for an array's memory has contents of others.
    #[error("{} has contents, and they are not the memory of an array; name a new or empty file with --nvram, or remove \
    this one if nothing needs it", path.display())]
    ForeignMemory {
        /// Its path.
        path: PathBuf,
    },
    /// The metadata cannot be used.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// The node may not join.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The disk of a serving node failed.
    #[error(
        "the store has failed, and the node has left the cluster: {cause}; replace its disk, then restart the node"
    )]
    StoreFailed {
        /// The store's first failure.
        cause: String,
    },
    /// A process without TLS would be reachable from other machines.
    #[error(
        "--insecure is for loopback only, and {address} is not a loopback address; omit --insecure, or listen on \
        127.0.0.1"
    )]
    NotLoopback {
        /// The address.
        address: String,
    },
    /// The certificate is that of another process.
    #[error(
        "the certificate belongs to {found}, but this process is {wanted}; name the right directory with --tls"
    )]
    OtherCertificate {
        /// The certificate's name.
        found: String,
        /// The name of the process.
        wanted: String,
    },
    /// Certificates or keys cannot be used.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The process gets no certificate.
    #[error(transparent)]
    Renewal(#[from] RenewalError),
    /// The network failed permanently.
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

/// Random bytes that no peer can guess.
pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N], ServerError> {
    gabion_wire::random_bytes().map_err(no_randomness)
}

/// Why a process cannot listen on an address, in words of this program where it has some.
pub fn why_not_listening(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::AddrInUse => "another process uses the port".to_owned(),
        ErrorKind::AddrNotAvailable => "this machine has no such address".to_owned(),
        ErrorKind::PermissionDenied => "this user may not use the port".to_owned(),
        _ => error.to_string(),
    }
}
