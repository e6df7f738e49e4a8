//! A disk whose syncs are timed. The store has no clock, so its times are taken around it.

use super::NodeWork;
use gabion_layout::ByteRange;
use gabion_store::{Disk, DiskFile, PhysicalExtent};
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// A disk with a clock around its syncs.
pub(crate) struct TimedDisk {
    disk: Arc<dyn Disk>,
    work: Arc<NodeWork>,
}

struct TimedFile {
    file: Arc<dyn DiskFile>,
    work: Arc<NodeWork>,
}

impl TimedDisk {
    /// This disk, with its syncs timed for `work`.
    pub(crate) fn new(disk: Arc<dyn Disk>, work: Arc<NodeWork>) -> Self {
        Self { disk, work }
    }

    fn timed(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let work = Arc::clone(&self.work);
        Arc::new(TimedFile { file, work })
    }
}

impl Disk for TimedDisk {
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.timed(self.disk.create(path)?))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.timed(self.disk.open(path)?))
    }

    fn create_directory(&self, path: &str) -> io::Result<()> {
        self.disk.create_directory(path)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        self.disk.list(directory)
    }

    fn sync_directory(&self, directory: &str) -> io::Result<()> {
        let began = Instant::now();
        let synced = self.disk.sync_directory(directory);
        self.work.synced("directory", began.elapsed());
        synced
    }

    fn available_bytes(&self) -> io::Result<u64> {
        self.disk.available_bytes()
    }
}

impl DiskFile for TimedFile {
    fn read_exact_at(&self, output: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(output, offset)
    }

    fn read_device_at(&self, output: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_device_at(output, offset)
    }

    fn read_cached_at(&self, output: &mut [u8], offset: u64) -> bool {
        self.file.read_cached_at(output, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        let began = Instant::now();
        let synced = self.file.sync();
        self.work.synced("file", began.elapsed());
        synced
    }

    fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.file.allocate(offset, bytes)
    }

    fn punch_hole(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.file.punch_hole(offset, bytes)
    }

    fn extents(&self, range: ByteRange) -> io::Result<Vec<PhysicalExtent>> {
        self.file.extents(range)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.file.set_length(bytes)
    }
}
