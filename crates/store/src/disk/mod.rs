//! The store's interface to a disk: a few file operations over relative paths.
//!
//! Paths are relative to the store's root, use `/` and never contain `..`. The store decides what
//! must be durable and when; a disk reports truthfully whether an operation succeeded.
//! [`RealDisk`](crate::RealDisk) is a directory of a file system, [`SimDisk`](crate::SimDisk) a
//! disk in memory that crashes on request.

mod fiemap;
pub(crate) mod flash;
pub(crate) mod real;
pub(crate) mod sim;

use crate::error::{IoContext, StoreError};
use gabion_layout::ByteRange;
use std::io;
use std::sync::Arc;

/// Bytes that a disk writes atomically. The store keeps a header within one sector and expects a
/// larger write to tear between sectors when the power fails.
pub const SECTOR_BYTES: u64 = 512;

/// A contiguous run of a file's bytes on its disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PhysicalExtent {
    /// The first byte, in the file.
    pub offset: u64,
    /// Its place on the disk.
    pub physical: u64,
    /// Length in bytes.
    pub length: u64,
}

/// Implements methods of [`Disk`] or [`DiskFile`] by the same methods of the disk or the file in a field: for a disk
/// around another one.
#[macro_export]
macro_rules! pass_on {
    ($field:ident: $(fn $name:ident(&self $(, $argument:ident: $type:ty)*) -> $result:ty;)*) => {
        $(fn $name(&self $(, $argument: $type)*) -> $result {
            self.$field.$name($($argument),*)
        })*
    };
}

/// A place for files. Operations block; several threads may call any of them at once.
pub trait Disk: Send + Sync + 'static {
    /// Creates an empty file and opens it. The name is durable only after [`Disk::sync_directory`]
    /// of its directory.
    ///
    /// # Errors
    /// When the file exists already, or the disk fails or is full.
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if it is missing, or any error of the disk.
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
    /// [`io::ErrorKind::NotFound`] if it is missing, or any error of the disk.
    fn remove(&self, path: &str) -> io::Result<()>;

    /// The names in a directory, sorted; the empty path is the root.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if the directory is missing, [`io::ErrorKind::NotADirectory`] if
    /// it is a file, or any error of the disk.
    fn list(&self, directory: &str) -> io::Result<Vec<String>>;

    /// Makes the creations, renames and removals in a directory durable. It keeps one descriptor
    /// for each directory from the first call on, so that a later sync never fails for lack of one.
    ///
    /// # Errors
    /// If the disk fails: it is unknown then what is durable.
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
    /// [`io::ErrorKind::UnexpectedEof`] when the file is too short, or any error of the disk.
    fn read_exact_at(&self, output: &mut [u8], offset: u64) -> io::Result<()>;

    /// Fills `output` from `offset` with the bytes of the device below, and drops the system's
    /// cached pages of the file: after a failed sync, systems go on serving cached pages that never
    /// reached the device. A disk without a cache reads normally.
    ///
    /// # Errors
    /// As [`DiskFile::read_exact_at`], and a [`CacheFault`](gabion_flash::CacheFault) if the system
    /// cannot write dirty pages back or keeps cached pages that differ.
    fn read_device_at(&self, output: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(output, offset)
    }

    /// Fills `output` from `offset` if that needs no wait, and returns whether it did. If not, the
    /// reason is unknown and the contents of `output` are undefined. A disk that cannot tell
    /// returns false.
    fn read_cached_at(&self, output: &mut [u8], offset: u64) -> bool {
        let _ = (output, offset);
        false
    }

    /// Writes all of `bytes` at `offset` and grows the file if needed.
    ///
    /// # Errors
    /// If the disk fails or is full; some of the bytes may have been written.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes everything written so far durable, the file's length included.
    ///
    /// # Errors
    /// If the disk fails: it is unknown then what is durable.
    fn sync(&self) -> io::Result<()>;

    /// Allocates `bytes` from `offset` on. Written bytes stay; unwritten ones read as zeros. The
    /// file grows if needed.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] when the disk has no space, or any error of the disk.
    fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()>;

    /// Frees `bytes` from `offset` on and leaves zeros; the file keeps its length. It is durable
    /// after [`DiskFile::sync`]; an earlier crash may undo it.
    ///
    /// # Errors
    /// If the disk fails. A file system without holes writes zeros, which take space.
    fn punch_hole(&self, offset: u64, bytes: u64) -> io::Result<()>;

    /// The location of `range` on the disk, in file order; holes have none.
    ///
    /// # Errors
    /// If the file system does not report it.
    fn extents(&self, range: ByteRange) -> io::Result<Vec<PhysicalExtent>>;

    /// The file's length.
    ///
    /// # Errors
    /// When the disk fails.
    fn length(&self) -> io::Result<u64>;

    /// Sets the file's length to `bytes`: cuts the file off there, or extends it by a hole, which
    /// reads as zeros and takes no space.
    ///
    /// # Errors
    /// When the disk fails.
    fn set_length(&self, bytes: u64) -> io::Result<()>;
}

/// The source of a read.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// The file, through the page cache.
    File(&'a dyn DiskFile),
    /// Only its cached pages.
    Cached(&'a dyn DiskFile),
    /// The device, past the page cache.
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

/// Removes a file. A missing file is no error.
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

/// Renames a file within the root, durably.
pub(crate) fn rename_in_root(disk: &dyn Disk, from: &str, to: &str) -> Result<(), StoreError> {
    disk.rename(from, to).context("rename", to)?;
    disk.sync_directory("").context("sync directory", "")
}
