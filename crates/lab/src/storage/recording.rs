//! A disk that notes what a store asks of it, in the order in which it was done: what the disk model
//! is driven with, and what an experiment counts.

use crate::disk_model::{Access, DiskModel, FileNumber};
use gabion_layout::ByteRange;
use gabion_store::{Disk, DiskFile, PhysicalExtent};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An operation on one of a disk's files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recorded {
    /// The file; it keeps its number when it is renamed.
    pub file: FileNumber,
    /// The operation.
    pub access: Access,
}

/// The record of a disk's operations, shared by the disk and its readers.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    shared: Arc<Mutex<Recording>>,
}

#[derive(Debug, Default)]
struct Recording {
    /// Numbers by path.
    files: BTreeMap<String, FileNumber>,
    next_file: u64,
    operations: Vec<Recorded>,
}

impl Recorder {
    /// Returns the operations recorded since they were last taken.
    pub fn take(&self) -> Vec<Recorded> {
        std::mem::take(&mut self.lock().operations)
    }

    fn lock(&self) -> MutexGuard<'_, Recording> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, file: FileNumber, access: Access) {
        self.lock().operations.push(Recorded { file, access });
    }
}

/// The sums of a stretch of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IoCount {
    /// Read operations.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write operations.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Syncs of files.
    pub syncs: u64,
}

impl IoCount {
    /// Adds operations.
    pub fn add(&mut self, operations: &[Recorded]) {
        for operation in operations {
            match operation.access {
                Access::Read { length, .. } => {
                    self.reads += 1;
                    self.read_bytes += length;
                }
                Access::Write { length, .. } => {
                    self.writes += 1;
                    self.written_bytes += length;
                }
                Access::Sync => self.syncs += 1,
                _ => {}
            }
        }
    }
}

/// Drives a model with recorded operations; the answer is how long it was busy, in nanoseconds.
pub fn replay(model: &mut DiskModel, operations: &[Recorded]) -> u64 {
    let times = operations
        .iter()
        .map(|operation| model.access(operation.file, operation.access));
    times.sum()
}

/// The same for stores that never sync: writes wait in the page cache until it is full, and the rest is written at
/// the end.
pub fn replay_unsynced(model: &mut DiskModel, operations: &[Recorded]) -> u64 {
    let is_sync = |operation: &&Recorded| operation.access == Access::Sync;
    let others = operations.iter().filter(|operation| !is_sync(operation));
    let times = others.map(|operation| model.access(operation.file, operation.access));
    times.sum::<u64>() + model.write_back()
}

/// A [`Disk`] that records. Operations are noted once they have succeeded.
pub struct RecordingDisk {
    disk: Arc<dyn Disk>,
    recorder: Recorder,
}

impl RecordingDisk {
    /// Records what is asked of `disk` from here on.
    pub fn new(disk: impl Disk, recorder: Recorder) -> Self {
        let disk = Arc::new(disk);
        Self { disk, recorder }
    }

    fn file(&self, path: &str, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let mut recording = self.recorder.lock();
        let next = FileNumber(recording.next_file);
        let number = *recording.files.entry(path.to_owned()).or_insert(next);
        recording.next_file += u64::from(number == next);
        drop(recording);
        Arc::new(RecordingFile {
            file,
            number,
            recorder: self.recorder.clone(),
        })
    }
}

impl Disk for RecordingDisk {
    gabion_store::pass_on! { disk:
        fn create_directory(&self, path: &str) -> io::Result<()>;
        fn list(&self, directory: &str) -> io::Result<Vec<String>>;
        fn sync_directory(&self, directory: &str) -> io::Result<()>;
        fn available_bytes(&self) -> io::Result<u64>;
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.create(path)?;
        Ok(self.file(path, file))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.open(path)?;
        Ok(self.file(path, file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)?;
        let mut recording = self.recorder.lock();
        let replaced = recording.files.remove(to);
        if let Some(file) = recording.files.remove(from) {
            recording.files.insert(to.to_owned(), file);
        }
        if let Some(file) = replaced {
            let access = Access::Remove;
            recording.operations.push(Recorded { file, access });
        }
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.disk.remove(path)?;
        let mut recording = self.recorder.lock();
        if let Some(file) = recording.files.remove(path) {
            let access = Access::Remove;
            recording.operations.push(Recorded { file, access });
        }
        Ok(())
    }
}

/// An open file of a [`RecordingDisk`].
struct RecordingFile {
    file: Arc<dyn DiskFile>,
    number: FileNumber,
    recorder: Recorder,
}

impl DiskFile for RecordingFile {
    gabion_store::pass_on! { file:
        fn punch_hole(&self, offset: u64, bytes: u64) -> io::Result<()>;
        fn extents(&self, range: ByteRange) -> io::Result<Vec<PhysicalExtent>>;
        fn length(&self) -> io::Result<u64>;
    }

    fn read_exact_at(&self, output: &mut [u8], offset: u64) -> io::Result<()> {
        let length = output.len() as u64;
        self.file.read_exact_at(output, offset)?;
        self.recorder
            .note(self.number, Access::Read { offset, length });
        Ok(())
    }

    fn read_device_at(&self, output: &mut [u8], offset: u64) -> io::Result<()> {
        let length = output.len() as u64;
        self.file.read_device_at(output, offset)?;
        self.recorder
            .note(self.number, Access::Read { offset, length });
        Ok(())
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let length = bytes.len() as u64;
        self.file.write_all_at(bytes, offset)?;
        self.recorder
            .note(self.number, Access::Write { offset, length });
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()?;
        self.recorder.note(self.number, Access::Sync);
        Ok(())
    }

    fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.file.allocate(offset, bytes)?;
        let length = offset + bytes;
        self.recorder.note(self.number, Access::Allocate { length });
        Ok(())
    }

    // The model keeps a hole's space where it is: nothing moves for it.
    fn set_length(&self, bytes: u64) -> io::Result<()> {
        let known_bytes = self.file.length()?;
        if bytes > known_bytes {
            // CodFS allocates a reserve together with its chunk.
            return self.allocate(known_bytes, bytes - known_bytes);
        }
        self.file.set_length(bytes)?;
        self.recorder
            .note(self.number, Access::Truncate { length: bytes });
        Ok(())
    }
}
