//! The durable frames in reserves, and one sync of a file for all callers that wait for it.
//!
//! Callers that wait for different files sync them concurrently, so a file system that joins
//! commits, or a disk that joins flushes, can combine them. Callers that wait for the same file
//! share one sync: while it runs, callers of the next one gather.

use crate::disk::DiskFile;
use crate::error::StoreError;
use gabion_layout::ChunkId;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Chunk files with frames that may not be durable.
///
/// Lock order: the store's state, then this.
#[derive(Default)]
pub(crate) struct ReserveSyncs {
    files: Mutex<BTreeMap<ChunkId, Unsynced>>,
    /// Positions up to which frames became durable since the journal last recorded them.
    unwitnessed: Mutex<BTreeMap<ChunkId, u64>>,
    done: Condvar,
}

struct Unsynced {
    file: Arc<dyn DiskFile>,
    /// The position behind the last frame written.
    written_lsn: u64,
    /// The position up to which frames are durable.
    synced_lsn: u64,
    is_syncing: bool,
}

/// A file to sync, and the position up to which that makes its frames durable.
pub(super) type SyncTarget = (Arc<dyn DiskFile>, u64);

const POISONED: &str = "no thread panics while it holds the unsynced files";

impl ReserveSyncs {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ChunkId, Unsynced>> {
        self.files.lock().expect(POISONED)
    }

    /// Notes that frames up to `written_lsn` were written. For a file that is not listed, those up
    /// to `synced_lsn` are durable.
    pub(crate) fn note(
        &self,
        chunk: ChunkId,
        file: &Arc<dyn DiskFile>,
        synced_lsn: u64,
        written_lsn: u64,
    ) {
        let mut files = self.lock();
        let fresh = || Unsynced {
            file: Arc::clone(file),
            written_lsn,
            synced_lsn,
            is_syncing: false,
        };
        let known = files.entry(chunk).or_insert_with(fresh);
        known.written_lsn = known.written_lsn.max(written_lsn);
    }

    /// The position up to which a chunk's frames are durable; `None` for all of them.
    pub(crate) fn synced_lsn(&self, chunk: ChunkId) -> Option<u64> {
        self.lock().get(&chunk).map(|known| known.synced_lsn)
    }

    /// Forgets a file, whose frames are durable elsewhere, merged or gone.
    pub(crate) fn forget(&self, chunk: ChunkId) {
        self.lock().remove(&chunk);
        self.witnessed(chunk);
        self.done.notify_all();
    }

    pub(super) fn unsynced(&self) -> Vec<(ChunkId, u64)> {
        let files = self.lock();
        files.iter().map(|(&c, f)| (c, f.written_lsn)).collect()
    }

    /// Returns the file to sync, with the position that the sync covers; `None` once the frames
    /// before `lsn` are durable. `check` ends the wait with an error.
    pub(super) fn begin(
        &self,
        chunk: ChunkId,
        lsn: u64,
        check: impl Fn() -> Result<(), StoreError>,
    ) -> Result<Option<SyncTarget>, StoreError> {
        let mut files = self.lock();
        loop {
            check()?;
            match files.get_mut(&chunk) {
                Some(known) if known.synced_lsn < lsn => {
                    if !known.is_syncing {
                        known.is_syncing = true;
                        return Ok(Some((Arc::clone(&known.file), known.written_lsn)));
                    }
                }
                _ => return Ok(None),
            }
            files = self.done.wait(files).expect(POISONED);
        }
    }

    /// The chunks with frames that became durable since the journal recorded them, each with the
    /// position.
    pub(crate) fn unwitnessed(&self) -> BTreeMap<ChunkId, u64> {
        self.unwitnessed.lock().expect(POISONED).clone()
    }

    /// Notes that the journal has recorded the chunk, or need not.
    pub(crate) fn witnessed(&self, chunk: ChunkId) {
        self.unwitnessed.lock().expect(POISONED).remove(&chunk);
    }

    /// Notes the outcome of a sync.
    pub(super) fn end(&self, chunk: ChunkId, file: &Arc<dyn DiskFile>, synced_lsn: Option<u64>) {
        let mut files = self.lock();
        // Another file may have replaced the chunk's since.
        if let Some(known) = files.get_mut(&chunk)
            && Arc::ptr_eq(&known.file, file)
        {
            known.is_syncing = false;
            known.synced_lsn = known.synced_lsn.max(synced_lsn.unwrap_or(0));
            let synced_lsn = known.synced_lsn;
            if synced_lsn >= known.written_lsn {
                files.remove(&chunk);
            }
            let mut unwitnessed = self.unwitnessed.lock().expect(POISONED);
            unwitnessed.insert(chunk, synced_lsn);
        }
        self.done.notify_all();
    }
}
