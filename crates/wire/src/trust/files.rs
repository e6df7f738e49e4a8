//! Files of keys and certificates: replaced atomically, readable by their owner alone.

use super::error::{TrustError, io_error};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

const LOCK_FILE: &str = "lock";

/// Makes a directory that only its owner may enter, and those above it.
pub(super) fn make_directory(path: &Path) -> Result<(), TrustError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(io_error("create", path))
}

/// Replaces a file, durably. Only its owner may read it.
pub(super) fn replace(path: &Path, contents: impl AsRef<[u8]>) -> Result<(), TrustError> {
    let temporary = path.with_extension(format!("new-{}", std::process::id()));
    let write = || {
        // One that an earlier process with this number has left.
        let _ = fs::remove_file(&temporary);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(contents.as_ref())?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
    };
    write().map_err(io_error("write", path))
}

/// Locks a directory's files against other processes until the result is dropped.
pub(super) fn lock(directory: &Path) -> Result<File, TrustError> {
    let path = directory.join(LOCK_FILE);
    let lock = || {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let file = options.open(&path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    };
    lock().map_err(io_error("lock", &path))
}

/// The same against writers alone. Files that another tool has written have no lock.
pub(super) fn lock_shared(directory: &Path) -> Result<Option<File>, TrustError> {
    let path = directory.join(LOCK_FILE);
    match File::open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        opened => {
            let lock = |file: File| {
                flock(&file, FlockOperation::LockShared)?;
                Ok(Some(file))
            };
            opened.and_then(lock).map_err(io_error("lock", &path))
        }
    }
}

/// The text of a file; none if there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<String>, TrustError> {
    there(path, fs::read_to_string(path))
}

/// The bytes of a file; none if there is no such file.
pub(super) fn read_bytes(path: &Path) -> Result<Option<Vec<u8>>, TrustError> {
    there(path, fs::read(path))
}

fn there<T>(path: &Path, read: std::io::Result<T>) -> Result<Option<T>, TrustError> {
    match read {
        Ok(contents) => Ok(Some(contents)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error("read", path)(error)),
    }
}
