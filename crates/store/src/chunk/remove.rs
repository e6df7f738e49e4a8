//! Chunk removal.

use crate::disk::{Disk, remove_if_there};
use crate::error::{IoContext, StoreError};
use crate::index::Stripe;
use crate::journal::checkpoint::Room;
use crate::journal::entry::Entry;
use crate::paths::{chunk_directory, chunk_path};
use crate::state::State;
use crate::store::Store;
use gabion_layout::{ChunkId, Epoch, StripeId};

impl Store {
    /// Removes a chunk and its records durably. Does nothing if the chunk is missing.
    ///
    /// With the last chunk of a stripe, the store also forgets its promises about the stripe.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`], [`StoreError::Io`] and [`StoreError::Failed`].
    pub fn remove(&self, chunk: ChunkId) -> Result<(), StoreError> {
        self.remove_if(chunk, |_| Ok(()))
    }

    /// Removes every chunk of a stripe that is here, as [`Store::remove`] does.
    ///
    /// # Errors
    /// As [`Store::remove`]; chunks may be left then.
    pub fn remove_stripe(&self, stripe: StripeId) -> Result<(), StoreError> {
        let held: Vec<ChunkId> = {
            let state = self.shared.lock();
            let held = state.index.stripe(stripe);
            held.map_or_else(Vec::new, |held| held.chunk_ids(stripe).collect())
        };
        held.into_iter().try_for_each(|chunk| self.remove(chunk))
    }

    /// Removes a chunk as [`Store::remove`] does, for a caller that knows no term of the stripe
    /// after `epoch`. If the store has promised a later epoch, the chunk may be a newer one than
    /// the caller means, so it stays.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] when a later epoch was promised; as [`Store::remove`].
    pub fn discard(&self, chunk: ChunkId, epoch: Epoch) -> Result<(), StoreError> {
        let check = |known: &Stripe| known.check_epoch(chunk.stripe, epoch);
        self.remove_if(chunk, check)
    }

    /// Removes a chunk unless the stripe's state at the instant of the removal forbids it.
    fn remove_if(
        &self,
        chunk: ChunkId,
        check: impl Fn(&Stripe) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let put_away = |disk: &dyn Disk, _: &[(ChunkId, u64)]| unlink(disk, chunk);
        self.remove_checked(&[chunk], check, put_away)
    }

    /// Removes those of the chunks that are here. `put_away` handles their files durably; it gets
    /// each chunk with the position of its journal entry.
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
        // Gates are taken in order and once each, like every caller that takes several; this
        // excludes deadlocks.
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
        // The journal entry comes first: if the file went while its records remained, a new file of
        // the same chunk would adopt the old records.
        let mut removed = Vec::with_capacity(chunks.len());
        let (mut needed_lsn, mut ended) = (0, Ok(()));
        for chunk in chunks {
            let mut state = shared.lock();
            let known = state.index.stripe(chunk.stripe);
            let Some(known) = known.filter(|known| known.chunk(chunk.index).is_some()) else {
                continue;
            };
            let entry = Entry::Removed { chunk };
            let appended =
                check(known).and_then(|()| shared.append(&mut state, &entry, &[], Room::Reserved));
            match appended {
                Ok(position) => {
                    removed.push((chunk, position.lsn));
                    needed_lsn = position.end_lsn();
                }
                // The earlier ones have their entries, which the next start would carry out.
                Err(error) => {
                    ended = Err(error);
                    break;
                }
            }
        }
        if removed.is_empty() {
            return ended;
        }
        if let Err(latched) = shared.check_latch() {
            return ended.and(Err(latched));
        }
        shared.sync(needed_lsn)?;
        shared.require(put_away(&*shared.disk, &removed))?;
        let mut state = shared.lock();
        for (chunk, _) in removed {
            state.forget_chunk(chunk);
        }
        ended
    }
}

/// Removes a chunk's file durably; a missing file is no error.
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
        if self.index.stripe(chunk.stripe).is_none() {
            return;
        }
        self.reserves.forget_heads(chunk);
        let mark = self.index.mark(chunk.stripe);
        if let Some(mut gone) = self.index.remove(chunk) {
            let (records, runs) = gone.take_records();
            self.retire_runs(chunk, runs, mark);
            self.release(records);
        }
        self.clear_suspicion(chunk);
        self.chunks.forget(chunk);
    }
}
