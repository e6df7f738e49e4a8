//! What the store asks of a disk: a handful of file operations over relative paths.
//!
//! Paths are relative to the store's root, use `/` and never contain `..`. The store decides what
//! must be durable and when; a disk only says honestly whether it did what it was told.
//! [`RealDisk`](crate::RealDisk) is a directory of a file system, [`SimDisk`](crate::SimDisk) a
//! disk in memory that crashes on request.

mod device_read;
mod fiemap;
pub(crate) mod flash;
pub(crate) mod real;
pub(crate) mod sim;

use crate::error::{IoContext, StoreError};
use gabion_layout::ByteRange;
use std::io;
use std::sync::Arc;

/// Bytes that a disk writes all or nothing. The store lets a header fit in one sector and expects
/// a larger write to tear between sectors when the power fails.
pub const SECTOR_BYTES: u64 = 512;

/// Bytes of a file that lie together on its disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PhysicalExtent {
    /// The first byte, in the file.
    pub offset: u64,
    /// The same byte's place on the disk.
    pub physical: u64,
    /// How many bytes.
    pub length: u64,
}

/// A place with files. Operations block; all of them may run from several threads at once.
pub trait Disk: Send + Sync + 'static {
    /// Creates an empty file and opens it. The name is durable only after
    /// [`Disk::sync_directory`] on its directory.
    ///
    /// # Errors
    /// When the file exists already, or the disk fails or is full.
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when there is none, or whatever the disk fails with.
    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Creates a directory; does nothing when it exists.
    ///
    /// # Errors
    /// When the disk fails or is full.
    fn create_directory(&self, path: &str) -> io::Result<()>;

    /// Renames a file, replacing the target atomically. It is durable only after
    /// [`Disk::sync_directory`] on the target's directory.
    ///
    /// # Errors
    /// When `from` does not exist or the disk fails.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file's name. Open handles stay readable.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when there is none, or whatever the disk fails with.
    fn remove(&self, path: &str) -> io::Result<()>;

    /// The names in a directory, sorted; the empty path is the root.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when there is no such directory, or whatever the disk fails with.
    fn list(&self, directory: &str) -> io::Result<Vec<String>>;

    /// Makes the creations, renames and removals in a directory durable. It takes no descriptor
    /// beyond one that it keeps for each directory from the first time on: what has happened must
    /// not stay in doubt for want of one.
    ///
    /// # Errors
    /// When the disk fails: nothing is known then about what is durable.
    fn sync_directory(&self, directory: &str) -> io::Result<()>;

    /// Bytes that can still be allocated.
    ///
    /// # Errors
    /// When the disk fails.
    fn available_bytes(&self) -> io::Result<u64>;
}

/// An open file of a [`Disk`]. Offsets and lengths are bytes.
pub trait DiskFile: Send + Sync + 'static {
    /// Fills `output` from `offset`.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] when the file is too short, or whatever the disk fails
    /// with.
    fn read_exact_at(&self, output: &mut [u8], offset: u64) -> io::Result<()>;

    /// Fills `output` from `offset` with what the device below has, whatever the system remembers of
    /// the file, and lets the system forget what it remembers: after a failed sync, systems go on
    /// serving from memory what never reached the device. A disk without such a memory reads.
    ///
    /// # Errors
    /// As [`DiskFile::read_exact_at`], and when the system cannot be made to forget.
    fn read_device_at(&self, output: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(output, offset)
    }

    /// Fills `output` from `offset` if that waits for nothing, and says whether it did. If not,
    /// nothing is said of why, nor of what `output` holds. A disk that cannot tell never does.
    fn read_cached_at(&self, output: &mut [u8], offset: u64) -> bool {
        let _ = (output, offset);
        false
    }

    /// Writes all of `bytes` at `offset`, growing the file where needed.
    ///
    /// # Errors
    /// When the disk fails or is full; part of the bytes may have been written then.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes everything written so far durable, the file's length included.
    ///
    /// # Errors
    /// When the disk fails: nothing is known then about what is durable.
    fn sync(&self) -> io::Result<()>;

    /// Reserves the space of `bytes` from `offset` on. What was written there stays; what was not
    /// is zeros. The file grows to the end of it where needed.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] when the disk has no room, or whatever it fails with.
    fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()>;

    /// Gives the space of `bytes` from `offset` on back and leaves zeros, in a file that keeps its
    /// length. It is durable after [`DiskFile::sync`]; a crash before may undo it.
    ///
    /// # Errors
    /// When the disk fails. A file system without holes leaves zeros that take space.
    fn punch_hole(&self, offset: u64, bytes: u64) -> io::Result<()>;

    /// Where `range` of the file lies on the disk, in the order of the file; holes lie nowhere.
    ///
    /// # Errors
    /// When the file system does not tell.
    fn extents(&self, range: ByteRange) -> io::Result<Vec<PhysicalExtent>>;

    /// The file's length.
    ///
    /// # Errors
    /// When the disk fails.
    fn length(&self) -> io::Result<u64>;

    /// Cuts the file off at `bytes`.
    ///
    /// # Errors
    /// When the disk fails.
    fn truncate(&self, bytes: u64) -> io::Result<()>;
}

/// Where bytes of a file are read from.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// The file, as the system gives it.
    File(&'a dyn DiskFile),
    /// What of it is in memory.
    Cached(&'a dyn DiskFile),
    /// What of it is on its device, whatever the system remembers of it.
    Device(&'a dyn DiskFile),
}

impl Source<'_> {
    /// Fills `output` from `offset`.
    pub(crate) fn fill(self, output: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::File(file) => file.read_exact_at(output, offset),
            Self::Device(file) => file.read_device_at(output, offset),
            Self::Cached(file) if file.read_cached_at(output, offset) => Ok(()),
            Self::Cached(_) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// Removes a file. One that is gone already is what was wanted.
pub(crate) fn remove_if_there(disk: &dyn Disk, path: &str) -> Result<(), StoreError> {
    match disk.remove(path) {
        Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.context("remove", path),
    }
}

/// Writes a new file and makes its bytes durable.
pub(crate) fn write_file(disk: &dyn Disk, path: &str, bytes: &[u8]) -> Result<(), StoreError> {
    let file = disk.create(path).context("create", path)?;
    file.write_all_at(bytes, 0).context("write", path)?;
    file.sync().context("sync", path)
}

/// Gives a file of the root another name there, durably.
pub(crate) fn rename_in_root(disk: &dyn Disk, from: &str, to: &str) -> Result<(), StoreError> {
    disk.rename(from, to).context("rename", to)?;
    disk.sync_directory("").context("sync directory", "")
}
