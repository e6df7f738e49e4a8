//! Files of keys and certificates: replaced atomically, readable by their owner alone.
//!
//! Processes change them under a lock that they hold for milliseconds. A paused process may hold it forever, so each
//! wait has a time limit.

use super::error::{TrustError, io_error};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

const LOCK_FILE: &str = "lock";
/// Maximum wait of a process for the lock.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two attempts to lock.
const LOCK_AGAIN_AFTER: Duration = Duration::from_millis(5);

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
        sync_directory_of(path)
    };
    write().map_err(io_error("write", path))
}

/// Gives a file the name of another one, which it replaces, durably.
pub(super) fn rename(from: &Path, to: &Path) -> Result<(), TrustError> {
    let renamed = fs::rename(from, to).and_then(|()| sync_directory_of(to));
    renamed.map_err(io_error("write", to))
}

fn sync_directory_of(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Locks a directory's files against other processes until the result is dropped.
pub(super) fn lock(directory: &Path) -> Result<File, TrustError> {
    let path = directory.join(LOCK_FILE);
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(0o600);
    let file = options.open(&path).map_err(io_error("lock", &path))?;
    let operation = FlockOperation::NonBlockingLockExclusive;
    take(file, operation, &path, LOCK_PATIENCE)
}

/// The same against writers alone. Files that another tool has written have no lock.
pub(super) fn lock_shared(directory: &Path) -> Result<Option<File>, TrustError> {
    let path = directory.join(LOCK_FILE);
    match File::open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        opened => {
            let file = opened.map_err(io_error("lock", &path))?;
            let operation = FlockOperation::NonBlockingLockShared;
            take(file, operation, &path, LOCK_PATIENCE).map(Some)
        }
    }
}

/// Waits for a lock, up to a time limit.
fn take(
    file: File,
    operation: FlockOperation,
    path: &Path,
    patience: Duration,
) -> Result<File, TrustError> {
    let since = Instant::now();
    loop {
        match flock(&file, operation) {
            Ok(()) => return Ok(file),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if since.elapsed() < patience => sleep(LOCK_AGAIN_AFTER),
            Err(Errno::WOULDBLOCK) => {
                let path = path.to_owned();
                return Err(TrustError::Locked { path });
            }
            Err(error) => return Err(io_error("lock", path)(error.into())),
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

fn there<T>(path: &Path, read: io::Result<T>) -> Result<Option<T>, TrustError> {
    match read {
        Ok(contents) => Ok(Some(contents)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error("read", path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_another_process_keeps_is_not_waited_for_without_end() {
        let directory = tempfile::tempdir().unwrap();
        let held = lock(directory.path()).unwrap();
        let path = directory.path().join(LOCK_FILE);
        let attempt = |operation| {
            let file = File::open(&path).unwrap();
            take(file, operation, &path, Duration::from_millis(20))
        };
        for operation in [
            FlockOperation::NonBlockingLockExclusive,
            FlockOperation::NonBlockingLockShared,
        ] {
            let refused = attempt(operation).unwrap_err();
            assert!(matches!(&refused, TrustError::Locked { path: named } if *named == path));
        }
        drop(held);
        let shared = lock_shared(directory.path()).unwrap();
        assert!(shared.is_some() && lock_shared(directory.path()).unwrap().is_some());
        attempt(FlockOperation::NonBlockingLockExclusive).unwrap_err();
    }
}
