//! Taking chunks away.

use crate::disk::{Disk, remove_if_there};
use crate::error::{IoContext, StoreError};
use crate::index::Stripe;
use crate::journal::checkpoint::Room;
use crate::journal::entry::Entry;
use crate::paths::{chunk_directory, chunk_path};
use crate::state::State;
use crate::store::Store;
use gabion_layout::{ChunkId, Epoch};

impl Store {
    /// Removes a chunk and its records, durably. Does nothing when it is not here.
    ///
    /// With its last chunk the store also forgets what it has promised about the stripe.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`], [`StoreError::Io`] and [`StoreError::Failed`].
    pub fn remove(&self, chunk: ChunkId) -> Result<(), StoreError> {
        self.remove_if(chunk, |_| Ok(()))
    }

    /// Removes a chunk as [`Store::remove`] does, for somebody who knows nothing of the stripe's terms
    /// after `epoch`: where a later one was promised to, the chunk may be another than was meant, and
    /// stays.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] when a later epoch was promised to; as [`Store::remove`].
    pub fn discard(&self, chunk: ChunkId, epoch: Epoch) -> Result<(), StoreError> {
        let check = |known: &Stripe| known.check_epoch(chunk.stripe, epoch);
        self.remove_if(chunk, check)
    }

    /// Removes a chunk if nothing that is known of its stripe speaks against it at the instant from
    /// which the chunk is gone.
    fn remove_if(
        &self,
        chunk: ChunkId,
        check: impl Fn(&Stripe) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let put_away = |disk: &dyn Disk, _: &[(ChunkId, u64)]| unlink(disk, chunk);
        self.remove_checked(&[chunk], check, put_away)
    }

    /// Removes those of the chunks that are here. Their files are put away durably, each with the position
    /// of the journal's entry.
    pub(crate) fn remove_all(
        &self,
        chunks: &[ChunkId],
        put_away: impl FnOnce(&dyn Disk, &[(ChunkId, u64)]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.remove_checked(chunks, |_| Ok(()), put_away)
    }

    fn remove_checked(
        &self,
        chunks: &[ChunkId],
        check: impl Fn(&Stripe) -> Result<(), StoreError>,
        put_away: impl FnOnce(&dyn Disk, &[(ChunkId, u64)]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let shared = &self.shared;
        // In their order, and each once: whoever else takes several gates does the same.
        let mut chunks = chunks.to_vec();
        chunks.sort_unstable();
        chunks.dedup();
        let gates: Vec<_> = {
            let mut state = shared.lock();
            chunks.retain(|&chunk| state.chunk(chunk).is_some());
            chunks
                .iter()
                .map(|&chunk| state.chunks.gate(chunk))
                .collect()
        };
        if chunks.is_empty() {
            return Ok(());
        }
        let _changing: Vec<_> = gates.iter().map(|gate| gate.begin_change()).collect();
        let _alone: Vec<_> = gates.iter().map(|gate| gate.exclude_readers()).collect();
        // The journal goes first: with the file gone and its records still there, a new file of
        // the same chunk would take the old records for its own.
        let mut removed = Vec::with_capacity(chunks.len());
        let mut needed_lsn = 0;
        for chunk in chunks {
            let mut state = shared.lock();
            if state.chunk(chunk).is_none() {
                continue;
            }
            check(&state.stripes[&chunk.stripe])?;
            let entry = Entry::Removed { chunk };
            let position = shared.append(&mut state, &entry, &[], Room::Reserved)?;
            removed.push((chunk, position.lsn));
            needed_lsn = position.end_lsn();
        }
        shared.sync(needed_lsn)?;
        shared.require(put_away(&*shared.disk, &removed))?;
        let mut state = shared.lock();
        for (chunk, _) in removed {
            state.forget_chunk(chunk);
        }
        Ok(())
    }
}

/// Removes a chunk's file durably; a file that has vanished stays so.
fn unlink(disk: &dyn Disk, chunk: ChunkId) -> Result<(), StoreError> {
    let path = chunk_path(chunk);
    let directory = chunk_directory(chunk);
    remove_if_there(disk, &path)?;
    disk.sync_directory(&directory)
        .context("sync directory", &directory)
}

impl State {
    /// Forgets a chunk whose file is gone.
    pub(crate) fn forget_chunk(&mut self, chunk: ChunkId) {
        self.reserves.syncs().forget(chunk);
        let stripe = self.stripes.get_mut(&chunk.stripe);
        let Some(stripe) = stripe else { return };
        self.reserves.forget_heads(chunk);
        let mark = stripe.mark();
        let gone = stripe.chunks.remove(&chunk.index);
        if stripe.chunks.is_empty() {
            self.stripes.remove(&chunk.stripe);
        }
        if let Some(mut gone) = gone {
            self.retire_runs(chunk, gone.runs, mark);
            self.release(gone.records.take_all());
        }
        self.clear_suspicion(chunk);
        self.chunks.forget(chunk);
    }
}
