//! The store's interface to an SSD: reads, writes, syncs and discards of byte ranges.
//!
//! [`FileDevice`] is a file or a raw block device; [`ModelDevice`](crate::ModelDevice) counts the
//! operations of a modelled SSD; [`SimDevice`](crate::SimDevice) loses power on request. A device
//! reports truthfully whether an operation succeeded, and has no other duty.

use crate::device_read::read_past_cache;
use crate::geometry::{PAGE_BYTES, is_zero};
use rustix::fs::{FallocateFlags, OFlags, fallocate, major, minor};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Unit of the allocated space in a file's metadata, for any block size.
const STAT_BLOCK_BYTES: u64 = 512;

/// One device of an array. Offsets and lengths are bytes. Operations block; several may run at once.
pub trait Device: Send + Sync {
    /// The device's capacity in bytes.
    ///
    /// # Errors
    /// If the device fails.
    fn capacity_bytes(&self) -> io::Result<u64>;

    /// Fills `output` from `offset`.
    ///
    /// # Errors
    /// If the range is not on the device or the device fails.
    fn read_at(&self, offset: u64, output: &mut [u8]) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`. They are durable after [`Device::sync`].
    ///
    /// # Errors
    /// If the range is not on the device or the device fails; some of the bytes may have been
    /// written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// If the device fails: it is unknown then what is durable.
    fn sync(&self) -> io::Result<()>;

    /// Discards the bytes of a range that are no longer needed (TRIM). Later reads of them return
    /// arbitrary bytes.
    ///
    /// # Errors
    /// If the device fails. A device without discard does nothing.
    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()>;

    /// Whether a write within the device may find no space below it, as in a file with holes.
    ///
    /// # Errors
    /// If the device fails.
    fn is_sparse(&self) -> io::Result<bool> {
        Ok(false)
    }

    /// Allocates space for the first `bytes`, so that writes to them cannot run out of it. Their
    /// contents stay.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] when there is none, or any error of the device.
    fn reserve(&self, bytes: u64) -> io::Result<()> {
        let _ = bytes;
        Ok(())
    }
}

impl<D: Device + ?Sized> Device for std::sync::Arc<D> {
    fn capacity_bytes(&self) -> io::Result<u64> {
        (**self).capacity_bytes()
    }

    fn read_at(&self, offset: u64, output: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, output)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        (**self).write_at(offset, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        (**self).sync()
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        (**self).discard(offset, bytes)
    }

    fn is_sparse(&self) -> io::Result<bool> {
        (**self).is_sparse()
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        (**self).reserve(bytes)
    }
}

/// A file or a raw block device.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    capacity_bytes: u64,
}

impl FileDevice {
    /// Opens an existing file or block device. Its cached pages are dropped, so that a header whose
    /// sync has failed does not count.
    ///
    /// # Errors
    /// If it cannot be opened for reading and writing, does not report its length, or its first page
    /// cannot be read; [`io::ErrorKind::ResourceBusy`] for a block device that is mounted or in use.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        if fs::metadata(path)?.file_type().is_block_device() {
            options.custom_flags(OFlags::EXCL.bits().cast_signed());
        }
        let file = options.open(path)?;
        let mut end = &file;
        // Block devices have no length in their metadata; seeking to the end gives it.
        let capacity_bytes = io::Seek::seek(&mut end, io::SeekFrom::End(0))?;
        let mut first = [0; PAGE_BYTES];
        if capacity_bytes >= first.len() as u64 {
            read_past_cache(&file, &mut first, 0)?;
        }
        Ok(Self {
            file,
            capacity_bytes,
        })
    }

    /// Creates a file of `capacity_bytes`, with its space reserved if the file system can.
    ///
    /// # Errors
    /// If it exists already, or the file system fails or is full.
    pub fn create(path: &Path, capacity_bytes: u64) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        Self::enlarge(file, capacity_bytes)
    }

    /// Opens a file or block device, or creates the file. A missing or empty one gets
    /// `capacity_bytes`, reserved if the file system can.
    ///
    /// # Errors
    /// As for [`FileDevice::open`] and [`FileDevice::create`].
    pub fn open_or_create(path: &Path, capacity_bytes: u64) -> io::Result<Self> {
        match Self::create(path, capacity_bytes) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made,
        }
        let device = Self::open(path)?;
        if device.capacity_bytes > 0 {
            return Ok(device);
        }
        Self::enlarge(device.file, capacity_bytes)
    }

    fn enlarge(file: File, capacity_bytes: u64) -> io::Result<Self> {
        match fallocate(&file, FallocateFlags::empty(), 0, capacity_bytes) {
            Err(Errno::OPNOTSUPP) => file.set_len(capacity_bytes)?,
            other => other?,
        }
        Ok(Self {
            file,
            capacity_bytes,
        })
    }
}

/// Bytes at each end of a device that are zeros if it is blank.
const BLANK_BYTES: u64 = 1 << 20;

/// Whether a device looks unused: its first and its last MiB are zeros. File systems, arrays and partition tables mark
/// their devices there, some of them behind empty pages. An array accepts only such a device as a new one.
///
/// # Errors
/// If the device fails.
pub fn is_blank(device: &impl Device) -> io::Result<bool> {
    let capacity_bytes = device.capacity_bytes()?;
    let length_bytes = capacity_bytes.min(BLANK_BYTES);
    let mut bytes = vec![0; length_bytes as usize];
    for offset in [0, capacity_bytes - length_bytes] {
        device.read_at(offset, &mut bytes)?;
        if !is_zero(&bytes) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The disk of a file or a block device: its sysfs path if that exists, otherwise the number of the
/// file system. None if neither can be found.
pub fn disk_of(path: &Path) -> Option<PathBuf> {
    let found = fs::metadata(path).ok()?;
    let number = if found.file_type().is_block_device() {
        found.rdev()
    } else {
        found.dev()
    };
    let name = format!("{}:{}", major(number), minor(number));
    match fs::canonicalize(Path::new("/sys/dev/block").join(&name)) {
        Ok(part) if part.join("partition").exists() => part.parent().map(Path::to_owned),
        Ok(disk) => Some(disk),
        Err(_) => Some(PathBuf::from(name)),
    }
}

impl Device for FileDevice {
    fn capacity_bytes(&self) -> io::Result<u64> {
        Ok(self.capacity_bytes)
    }

    fn read_at(&self, offset: u64, output: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(output, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let is_block_device = !self.file.metadata()?.is_file();
        if is_block_device {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            return match fallocate(&self.file, flags, offset, bytes) {
                Err(Errno::OPNOTSUPP) => Ok(()),
                other => other.map_err(io::Error::from),
            };
        }
        // A hole in a file would free its space and fragment it; the next stripe would need the
        // space again.
        Ok(())
    }
    fn is_sparse(&self) -> io::Result<bool> {
        let found = self.file.metadata()?;
        Ok(found.is_file() && found.blocks() * STAT_BLOCK_BYTES < found.len())
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        if !self.file.metadata()?.is_file() {
            return Ok(());
        }
        match fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, bytes) {
            Err(Errno::OPNOTSUPP) => Ok(()),
            other => other.map_err(io::Error::from),
        }
    }
}
