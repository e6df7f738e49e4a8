//! What a node keeps its store on: a directory, or an array of SSDs. One type for both, so that nothing
//! above asks which it is.

use crate::ServerError;
use crate::array::{Array, ArrayConfig, ArrayFile};
use crate::array_watch::ArrayWatch;
use gabion_layout::ByteRange;
use gabion_store::{Disk, DiskFile, PhysicalExtent, RealDisk};
use std::fs::File;
use std::io;
use std::path::Path;

/// What a node keeps its store on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Engine {
    /// Files of a directory.
    Files,
    /// An array of SSDs that is written in whole stripes (TWEEN).
    Tween(ArrayConfig),
}

/// A [`Disk`] of either kind.
pub(crate) enum EngineDisk {
    Files(RealDisk),
    Array(Array),
}

/// An open file of an [`EngineDisk`].
pub(crate) enum EngineFile {
    Files(File),
    Array(ArrayFile),
}

impl EngineDisk {
    /// Whether there is anything of a disk where a node keeps its store. What there is may still hold
    /// no store.
    pub(crate) fn exists(engine: &Engine, store: &Path) -> bool {
        match engine {
            Engine::Files => store.exists(),
            Engine::Tween(config) => config.nvram.exists(),
        }
    }

    /// Opens what a node keeps its store on, or makes it. Blocks.
    pub(crate) fn open(engine: &Engine, store: &Path) -> Result<Self, ServerError> {
        match engine {
            Engine::Files => Ok(Self::Files(RealDisk::open(store)?)),
            Engine::Tween(config) => Ok(Self::Array(Array::open(config)?)),
        }
    }

    /// Bytes that it may hold in all, where that is not the file system's to say.
    pub(crate) fn capacity_bytes(&self) -> Option<u64> {
        match self {
            Self::Files(_) => None,
            Self::Array(array) => Some(array.capacity_bytes()),
        }
    }

    /// How the array fares, where it is one.
    pub(crate) fn watch(&self) -> Option<ArrayWatch> {
        match self {
            Self::Files(_) => None,
            Self::Array(array) => Some(array.watch().clone()),
        }
    }
}

impl Disk for EngineDisk {
    type File = EngineFile;

    fn create(&self, path: &str) -> io::Result<EngineFile> {
        match self {
            Self::Files(disk) => disk.create(path).map(EngineFile::Files),
            Self::Array(array) => array.disk().create(path).map(EngineFile::Array),
        }
    }

    fn open(&self, path: &str) -> io::Result<EngineFile> {
        match self {
            Self::Files(disk) => Disk::open(disk, path).map(EngineFile::Files),
            Self::Array(array) => array.disk().open(path).map(EngineFile::Array),
        }
    }

    fn create_directory(&self, path: &str) -> io::Result<()> {
        match self {
            Self::Files(disk) => disk.create_directory(path),
            Self::Array(array) => array.disk().create_directory(path),
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        match self {
            Self::Files(disk) => disk.rename(from, to),
            Self::Array(array) => array.disk().rename(from, to),
        }
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        match self {
            Self::Files(disk) => disk.remove(path),
            Self::Array(array) => array.disk().remove(path),
        }
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        match self {
            Self::Files(disk) => disk.list(directory),
            Self::Array(array) => array.disk().list(directory),
        }
    }

    fn sync_directory(&self, directory: &str) -> io::Result<()> {
        match self {
            Self::Files(disk) => disk.sync_directory(directory),
            Self::Array(array) => array.disk().sync_directory(directory),
        }
    }

    fn available_bytes(&self) -> io::Result<u64> {
        match self {
            Self::Files(disk) => disk.available_bytes(),
            Self::Array(array) => array.disk().available_bytes(),
        }
    }
}

impl DiskFile for EngineFile {
    fn read_exact_at(&self, output: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::Files(file) => DiskFile::read_exact_at(file, output, offset),
            Self::Array(file) => file.read_exact_at(output, offset),
        }
    }

    fn read_device_at(&self, output: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::Files(file) => file.read_device_at(output, offset),
            Self::Array(file) => file.read_device_at(output, offset),
        }
    }

    fn read_cached_at(&self, output: &mut [u8], offset: u64) -> bool {
        match self {
            Self::Files(file) => DiskFile::read_cached_at(file, output, offset),
            Self::Array(file) => file.read_cached_at(output, offset),
        }
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        match self {
            Self::Files(file) => DiskFile::write_all_at(file, bytes, offset),
            Self::Array(file) => file.write_all_at(bytes, offset),
        }
    }

    fn sync(&self) -> io::Result<()> {
        match self {
            Self::Files(file) => file.sync(),
            Self::Array(file) => file.sync(),
        }
    }

    fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()> {
        match self {
            Self::Files(file) => file.allocate(offset, bytes),
            Self::Array(file) => file.allocate(offset, bytes),
        }
    }

    fn punch_hole(&self, offset: u64, bytes: u64) -> io::Result<()> {
        match self {
            Self::Files(file) => file.punch_hole(offset, bytes),
            Self::Array(file) => file.punch_hole(offset, bytes),
        }
    }

    fn extents(&self, range: ByteRange) -> io::Result<Vec<PhysicalExtent>> {
        match self {
            Self::Files(file) => file.extents(range),
            Self::Array(file) => file.extents(range),
        }
    }

    fn length(&self) -> io::Result<u64> {
        match self {
            Self::Files(file) => file.length(),
            Self::Array(file) => file.length(),
        }
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        match self {
            Self::Files(file) => file.truncate(bytes),
            Self::Array(file) => file.truncate(bytes),
        }
    }
}
