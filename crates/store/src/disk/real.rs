//! A directory of a real file system as a [`Disk`].
//!
//! The directory is locked while the disk exists, so that two processes cannot write to one store.
//! The lock belongs to the process and ends with it.

use crate::disk::fiemap;
use crate::disk::{Disk, DiskFile, PhysicalExtent};
use crate::error::StoreError;
use gabion_layout::ByteRange;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The file whose lock marks the directory as in use.
const LOCK_NAME: &str = "lock";

/// A [`Disk`] on a directory.
#[derive(Debug)]
pub struct RealDisk {
    root: PathBuf,
    /// Directories synced before, by path: 256 of chunks and a few more.
    directories: Mutex<BTreeMap<String, Arc<File>>>,
    /// Invariant: holds an exclusive lock. Dropping it releases the directory.
    _lock: File,
}

impl RealDisk {
    /// Opens the directory `root`, creates it if it is missing, and locks it.
    ///
    /// # Errors
    /// [`StoreError::Locked`] when another process, or another `RealDisk` of this one, holds the
    /// lock; [`StoreError::Io`] when the directory cannot be created or the lock file not opened.
    pub fn open(root: impl AsRef<Path>) -> Result<Self, StoreError> {
        let root = root.as_ref().to_path_buf();
        let failed = |operation, path: &Path| {
            let path = path.display().to_string();
            move |source| StoreError::io(operation, &path, source)
        };
        fs::create_dir_all(&root).map_err(failed("create directory", &root))?;
        let lock_path = root.join(LOCK_NAME);
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .map_err(failed("open", &lock_path))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self {
                root,
                directories: Mutex::default(),
                _lock: lock,
            }),
            Err(TryLockError::WouldBlock) => Err(StoreError::Locked {
                path: root.display().to_string(),
            }),
            Err(TryLockError::Error(source)) => Err(failed("lock", &lock_path)(source)),
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// A directory's descriptor, kept open.
    fn directory(&self, path: &str) -> io::Result<Arc<File>> {
        // A map of open files is consistent after every call, even if another thread panics in one.
        let known = self.directories.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        if let Some(directory) = known.get(path) {
            return Ok(Arc::clone(directory));
        }
        let directory = Arc::new(File::open(self.at(path))?);
        known.insert(path.to_owned(), Arc::clone(&directory));
        Ok(directory)
    }
}

impl Disk for RealDisk {
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(self.at(path))
            .map(into_file)
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.at(path))
            .map(into_file)
    }

    fn create_directory(&self, path: &str) -> io::Result<()> {
        match fs::create_dir(self.at(path)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => other?,
        }
        // Opens the descriptor now, so that a sync never needs a new one.
        self.directory(path).map(|_| ())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.at(from), self.at(to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.at(path))
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.at(directory))? {
            // A name that is not UTF-8 is foreign.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync_directory(&self, directory: &str) -> io::Result<()> {
        self.directory(directory)?.sync_all()
    }

    fn available_bytes(&self) -> io::Result<u64> {
        free_bytes(&self.root)
    }
}

/// Free bytes for this user on the file system of a directory.
///
/// # Errors
/// When the file system does not say.
pub fn free_bytes(directory: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(directory)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

fn into_file(file: File) -> Arc<dyn DiskFile> {
    Arc::new(file)
}

impl DiskFile for File {
    fn read_exact_at(&self, output: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, output, offset)
    }

    fn read_device_at(&self, output: &mut [u8], offset: u64) -> io::Result<()> {
        gabion_flash::read_past_cache(self, output, offset)
    }

    fn read_cached_at(&self, output: &mut [u8], offset: u64) -> bool {
        // A short read means that the rest is on the disk or behind the file's end.
        let length = output.len();
        let read = preadv2(
            self,
            &mut [IoSliceMut::new(output)],
            offset,
            ReadWriteFlags::NOWAIT,
        );
        read == Ok(length)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        match fallocate(self, FallocateFlags::empty(), offset, bytes) {
            // If the file system cannot reserve space, the file is filled with zeros. A disk that
            // fills up later then fails a write, which latches the store instead of refusing.
            Err(Errno::OPNOTSUPP) if self.metadata()?.len() < offset + bytes => {
                self.set_len(offset + bytes)
            }
            Err(Errno::OPNOTSUPP) => Ok(()),
            other => other.map_err(io::Error::from),
        }
    }

    fn punch_hole(&self, offset: u64, bytes: u64) -> io::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(self, flags, offset, bytes) {
            Err(Errno::OPNOTSUPP) => write_zeros(self, offset, bytes),
            other => other.map_err(io::Error::from),
        }
    }

    fn extents(&self, range: ByteRange) -> io::Result<Vec<PhysicalExtent>> {
        fiemap::extents(self, range)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }
}

/// Writes zeros in place of a hole.
fn write_zeros(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    let zeros = vec![0; bytes.min(1 << 20) as usize];
    let mut at = offset;
    while at < offset + bytes {
        let part = &zeros[..(offset + bytes - at).min(zeros.len() as u64) as usize];
        FileExt::write_all_at(file, part, at)?;
        at += part.len() as u64;
    }
    Ok(())
}
