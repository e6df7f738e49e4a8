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
    gabion_store::pass_on! { disk:
        fn create_directory(&self, path: &str) -> io::Result<()>;
        fn rename(&self, from: &str, to: &str) -> io::Result<()>;
        fn remove(&self, path: &str) -> io::Result<()>;
        fn list(&self, directory: &str) -> io::Result<Vec<String>>;
        fn available_bytes(&self) -> io::Result<u64>;
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.timed(self.disk.create(path)?))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.timed(self.disk.open(path)?))
    }

    fn sync_directory(&self, directory: &str) -> io::Result<()> {
        let began = Instant::now();
        let synced = self.disk.sync_directory(directory);
        self.work.synced("directory", began.elapsed());
        synced
    }
}

impl DiskFile for TimedFile {
    gabion_store::pass_on! { file:
        fn read_exact_at(&self, output: &mut [u8], offset: u64) -> io::Result<()>;
        fn read_device_at(&self, output: &mut [u8], offset: u64) -> io::Result<()>;
        fn read_cached_at(&self, output: &mut [u8], offset: u64) -> bool;
        fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
        fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()>;
        fn punch_hole(&self, offset: u64, bytes: u64) -> io::Result<()>;
        fn extents(&self, range: ByteRange) -> io::Result<Vec<PhysicalExtent>>;
        fn length(&self) -> io::Result<u64>;
        fn set_length(&self, bytes: u64) -> io::Result<()>;
    }

    fn sync(&self) -> io::Result<()> {
        let began = Instant::now();
        let synced = self.file.sync();
        self.work.synced("file", began.elapsed());
        synced
    }
}
