//! Noting, logging and recalling which runs made the updates of chunks.

use crate::error::StoreError;
use crate::journal::checkpoint::Room;
use crate::journal::entry::Entry;
use crate::records::record::RunMemory;
use crate::records::runs::{Runs, base_entry, base_entry_bytes_max};
use crate::state::State;
use crate::store::{Shared, Store};
use gabion_layout::{ChunkId, RunId, Sequence};

impl Store {
    /// What the store remembers of a run at one of its chunks. It speaks of what is appended by now,
    /// durable or not, settled or not. Of a chunk that was removed lately, it speaks of what was settled.
    ///
    /// # Errors
    /// [`StoreError::NoSuchChunk`]; [`StoreError::Corrupt`] when the chunk as a whole is damaged;
    /// [`StoreError::Io`] and [`StoreError::Failed`].
    pub fn run_memory(&self, chunk: ChunkId, run: RunId) -> Result<RunMemory, StoreError> {
        self.shared.check_latch()?;
        let mut state = self.shared.lock();
        if state.chunk(chunk).is_none()
            && let Some(runs) = state.records.run_order.removed(chunk)
        {
            return Ok(runs.memory(run));
        }
        // Its reserve may have records that no start has looked at.
        state.header(chunk)?;
        let entry = state.chunk(chunk);
        let entry = entry.ok_or(StoreError::NoSuchChunk { chunk })?;
        Ok(entry.runs.memory(run))
    }
}

impl Shared {
    /// Writes down which runs a chunk's records are of, as far as the current segment does not say so.
    /// The caller syncs the journal.
    pub(crate) fn log_runs(&self, state: &mut State, chunk: ChunkId) -> Result<(), StoreError> {
        let Some(entry) = state.chunk(chunk) else {
            return Ok(());
        };
        let logged = entry.runs.logged();
        if entry.runs.newest() <= logged {
            return Ok(());
        }
        for entry in entry.runs.entries(chunk, logged) {
            self.append(state, &entry, &[], Room::Reserved)?;
        }
        if let Some(entry) = state.chunk_mut(chunk) {
            entry.runs.are_logged();
        }
        Ok(())
    }

    /// Makes durable that nothing is known of runs up to `base`, before a chunk is visible that has
    /// all updates up to there in its own bytes.
    pub(crate) fn announce_base(&self, chunk: ChunkId, base: Sequence) -> Result<(), StoreError> {
        if base == Sequence(0) {
            return Ok(());
        }
        let lsn = {
            let mut state = self.lock();
            // Checkpoints say so too until the chunk is here.
            state.records.announced.insert(chunk, base);
            let appended = self.append(&mut state, &base_entry(chunk, base), &[], Room::Reserved);
            if appended.is_err() {
                state.records.announced.remove(&chunk);
            }
            appended?.end_lsn()
        };
        self.sync(lsn)
    }
}

impl State {
    /// Takes note of the run of a record of a chunk, or of a record that stands for all before it.
    pub(crate) fn note_run(&mut self, chunk: ChunkId, sequence: Sequence, run: Option<RunId>) {
        let Some(entry) = self.chunk_mut(chunk) else {
            return;
        };
        let Some(run) = run else {
            entry.runs.forget_upto(sequence);
            return;
        };
        if !entry.runs.note(sequence, run) {
            return;
        }
        for (oldest, sequence) in self.records.run_order.add(chunk, sequence) {
            if let Some(entry) = self.chunk_mut(oldest)
                && entry.runs.knows(sequence)
            {
                entry.runs.forget_upto(sequence);
            }
        }
    }

    /// Remembers for a while the runs of a chunk that was removed, if all its updates are settled.
    pub(crate) fn retire_runs(&mut self, chunk: ChunkId, runs: Runs, mark: Sequence) {
        if runs.newest() <= mark {
            self.records.run_order.retire(chunk, runs);
        }
    }

    /// Takes over that a chunk is visible that has all updates up to `base` in its own bytes.
    pub(crate) fn end_announcement(&mut self, chunk: ChunkId, base: Sequence) {
        self.records.announced.remove(&chunk);
        self.note_run(chunk, base, None);
    }

    /// Takes over what an entry of the journal says of a chunk's runs.
    pub(crate) fn recall_runs(
        &mut self,
        chunk: ChunkId,
        complete_after: Sequence,
        runs: Vec<(Sequence, RunId)>,
    ) {
        for (sequence, run) in runs {
            self.note_run(chunk, sequence, Some(run));
        }
        self.note_run(chunk, complete_after, None);
    }

    /// Entries for a checkpoint that say all that is known of runs.
    pub(crate) fn runs_checkpoint(&self) -> Vec<Entry> {
        let chunks = self.all_chunks();
        let known = chunks.filter(|(_, chunk)| !chunk.runs.is_trivial());
        let known = known.flat_map(|(id, chunk)| chunk.runs.entries(id, Sequence(0)));
        let announced = self.records.announced.iter();
        known
            .chain(announced.map(|(&chunk, &base)| base_entry(chunk, base)))
            .collect()
    }

    /// Takes over that the current segment has the checkpoint.
    pub(crate) fn runs_are_logged(&mut self) {
        let stripes = self.stripes.values_mut();
        for chunk in stripes.flat_map(|held| held.chunks.values_mut()) {
            chunk.runs.are_logged();
        }
    }

    /// Bytes that a checkpoint of all runs takes at most.
    pub(crate) fn runs_checkpoint_bytes_max(&self) -> u64 {
        let chunks = self.all_chunks();
        let known: u64 = chunks
            .map(|(_, chunk)| chunk.runs.checkpoint_bytes_max())
            .sum();
        known + base_entry_bytes_max() * self.records.announced.len() as u64
    }
}
