//! A model of a spinning disk: the time of a recorded run of file operations on a drive with seeks, rotation and a
//! transfer rate, under a page cache and a file system that allocates files in one piece if possible.
//!
//! It is for figures of papers whose drives no longer exist. It keeps no bytes and checks nothing:
//! [`gabion_store::SimDisk`] is the disk that tears and rots. Everything is an expected value, so equal
//! runs take equal times.
//!
//! - A run of adjacent sectors that starts at the head's position costs only its transfer; any other run also costs a
//!   seek by its distance and half a rotation. Short gaps ahead are passed over.
//! - Reads are served one after another. Writes wait in the page cache until their file is synced, or
//!   until there are too many, and are then written in one sweep across the disk.
//! - Read and written bytes stay in the page cache until [`DiskModel::drop_caches`]: the test
//!   machines of the `CodFS` thesis (chapter 5) had more memory than data.
//! - The file system's own journal and inodes cost nothing.

mod drive;
mod ranges;
mod volume;

pub use drive::{Drive, ST1000DM003};

use drive::Head;
use ranges::Ranges;
use std::collections::BTreeMap;
use volume::Volume;

/// Bytes of writes that wait in the page cache before they are written without being asked for.
const DIRTY_BYTES_MAX: u64 = 256 << 20;

/// Number of a file; recorders number files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FileNumber(pub u64);

/// One operation on a file. Offsets and lengths are bytes of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Bytes are read.
    Read {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
    },
    /// Bytes are written; they may wait for a sync.
    Write {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
    },
    /// Everything written so far must be on the disk.
    Sync,
    /// Space is reserved for the file up to this length.
    Allocate {
        /// Bytes of the file.
        length: u64,
    },
    /// Bytes are given back, the file keeps its length.
    Punch {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
    },
    /// The file ends here from now on.
    Truncate {
        /// Bytes that are left.
        length: u64,
    },
    /// The file is gone.
    Remove,
}

/// The work of a model up to now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskUse {
    /// Time that the drive was busy.
    pub busy_ns: u64,
    /// Times that the head was positioned: seek and rotation.
    pub seek_count: u64,
    /// Bytes that came from the drive.
    pub read_bytes: u64,
    /// Bytes that went to the drive.
    pub written_bytes: u64,
}

impl DiskUse {
    /// Returns the work after `earlier`.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            busy_ns: self.busy_ns - earlier.busy_ns,
            seek_count: self.seek_count - earlier.seek_count,
            read_bytes: self.read_bytes - earlier.read_bytes,
            written_bytes: self.written_bytes - earlier.written_bytes,
        }
    }
}

/// A drive with files on it.
#[derive(Clone, Debug)]
pub struct DiskModel {
    head: Head,
    volume: Volume,
    /// The contents of the page cache, by address on the drive.
    cached: Ranges,
    /// Written bytes that are not on the drive yet, by address.
    dirty: BTreeMap<FileNumber, Ranges>,
    dirty_bytes: u64,
    used: DiskUse,
}

impl DiskModel {
    /// An empty drive.
    pub fn new(drive: Drive) -> Self {
        Self {
            head: Head::new(drive),
            volume: Volume::new(drive.capacity_bytes),
            cached: Ranges::default(),
            dirty: BTreeMap::new(),
            dirty_bytes: 0,
            used: DiskUse::default(),
        }
    }

    /// Does one operation; the answer is how long the drive was busy with it, in nanoseconds.
    pub fn access(&mut self, file: FileNumber, access: Access) -> u64 {
        let before_ns = self.used.busy_ns;
        match access {
            Access::Read { offset, length } => {
                for (address, length) in self.volume.locate(file, offset, length) {
                    for (missing, length) in self.cached.gaps(address, length) {
                        self.position_and(missing, length);
                        self.used.read_bytes += length;
                    }
                    self.cached.insert(address, length);
                }
            }
            Access::Write { offset, length } => self.write(file, offset, length),
            Access::Sync => self.flush(&[file]),
            Access::Allocate { length } => self.volume.reserve(file, 0, length),
            Access::Punch { offset, length } => self.release(file, offset, length),
            Access::Truncate { length } => self.release(file, length, u64::MAX - length),
            Access::Remove => {
                self.release(file, 0, u64::MAX);
                self.dirty.remove(&file);
            }
        }
        self.used.busy_ns - before_ns
    }

    /// Writes back everything and empties the page cache, as a test does before it measures.
    pub fn drop_caches(&mut self) {
        self.write_back();
        self.cached = Ranges::default();
    }

    /// Writes back everything in one sweep; the answer is how long the drive was busy with it, in nanoseconds.
    pub fn write_back(&mut self) -> u64 {
        let before_ns = self.used.busy_ns;
        let files: Vec<FileNumber> = self.dirty.keys().copied().collect();
        self.flush(&files);
        self.used.busy_ns - before_ns
    }

    /// Returns the work up to now.
    pub const fn used(&self) -> DiskUse {
        self.used
    }

    fn write(&mut self, file: FileNumber, offset: u64, length: u64) {
        self.volume.reserve(file, offset, length);
        let dirty = self.dirty.entry(file).or_default();
        for (address, length) in self.volume.locate(file, offset, length) {
            self.dirty_bytes += dirty.insert(address, length);
            self.cached.insert(address, length);
        }
        if self.dirty_bytes > DIRTY_BYTES_MAX {
            self.write_back();
        }
    }

    /// Writes the dirty bytes of these files in one sweep: upwards from the head, then from the
    /// drive's beginning.
    fn flush(&mut self, files: &[FileNumber]) {
        let mut runs = Ranges::default();
        for file in files {
            for (address, length) in self.dirty.remove(file).unwrap_or_default().iter() {
                runs.insert(address, length);
                self.dirty_bytes -= length;
            }
        }
        let (below, above): (Vec<_>, Vec<_>) = runs
            .iter()
            .partition(|&(address, _)| address < self.head.address());
        for (address, length) in above.into_iter().chain(below) {
            self.position_and(address, length);
            self.used.written_bytes += length;
        }
    }

    /// Gives bytes of a file back; what waits to be written there need not be.
    fn release(&mut self, file: FileNumber, offset: u64, length: u64) {
        for (address, length) in self.volume.release(file, offset, length) {
            self.cached.remove(address, length);
            if let Some(dirty) = self.dirty.get_mut(&file) {
                self.dirty_bytes -= dirty.remove(address, length);
            }
        }
    }

    fn position_and(&mut self, address: u64, length: u64) {
        let (time_ns, is_positioned) = self.head.transfer(address, length);
        self.used.busy_ns += time_ns;
        self.used.seek_count += u64::from(is_positioned);
    }
}

#[cfg(test)]
mod tests;
