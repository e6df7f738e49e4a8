//! Making records in reserves durable.

use crate::error::{IoContext, StoreError};
use crate::paths::chunk_path;
use crate::store::Shared;
use gabion_layout::ChunkId;

impl Shared {
    /// Returns once a chunk's frames before `lsn` are durable.
    pub(crate) fn sync_reserve(&self, chunk: ChunkId, lsn: u64) -> Result<(), StoreError> {
        let check = || self.check_latch();
        while let Some((file, written_lsn)) = self.reserve_syncs.begin(chunk, lsn, check)? {
            let synced = self.sync_chunk(chunk, &*file);
            let synced = synced.context("sync", &chunk_path(chunk));
            let synced = self.require(synced);
            self.counters.add(|c| &c.sync_count, 1);
            let reached = synced.is_ok().then_some(written_lsn);
            // Under the state's lock, so that the file is not replaced.
            let state = self.lock();
            self.reserve_syncs.end(chunk, &file, reached);
            drop(state);
            synced?;
        }
        Ok(())
    }

    /// Makes everything appended to reserves durable.
    pub(crate) fn sync_reserves(&self) -> Result<(), StoreError> {
        for (chunk, lsn) in self.reserve_syncs.unsynced() {
            self.sync_reserve(chunk, lsn)?;
        }
        Ok(())
    }
}
