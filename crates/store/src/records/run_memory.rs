//! Notes, logs and recalls the runs of chunks' updates.

use crate::error::StoreError;
use crate::journal::checkpoint::Room;
use crate::journal::entry::Entry;
use crate::records::record::RunMemory;
use crate::records::runs::{Runs, base_entry, base_entry_bytes_max};
use crate::state::State;
use crate::store::{Shared, Store};
use gabion_layout::{ChunkId, RunId, Sequence};

impl Store {
    /// The store's memory of a run at one of its chunks. It includes everything appended so far,
    /// durable or not, settled or not. For a chunk that was removed recently, it includes settled
    /// updates only.
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
        // Its reserve may have records that this process has not read yet.
        state.header(chunk)?;
        let entry = state.chunk(chunk);
        let entry = entry.ok_or(StoreError::NoSuchChunk { chunk })?;
        Ok(entry.runs().memory(run))
    }
}

impl Shared {
    /// Logs the runs of a chunk's records that the current segment does not name yet. The caller
    /// syncs the journal.
    pub(crate) fn log_runs(&self, state: &mut State, chunk: ChunkId) -> Result<(), StoreError> {
        let Some(entry) = state.chunk(chunk) else {
            return Ok(());
        };
        let logged = entry.runs().logged();
        if entry.runs().newest() <= logged {
            return Ok(());
        }
        for entry in entry.runs().entries(chunk, logged) {
            self.append(state, &entry, &[], Room::Reserved)?;
        }
        if let Some(entry) = state.chunk_mut(chunk) {
            entry.runs_mut().are_logged();
        }
        Ok(())
    }

    /// Makes durable that no run up to `base` is known, before a chunk becomes visible whose own
    /// bytes include all updates up to there.
    pub(crate) fn announce_base(&self, chunk: ChunkId, base: Sequence) -> Result<(), StoreError> {
        if base == Sequence(0) {
            return Ok(());
        }
        let lsn = {
            let mut state = self.lock();
            // Checkpoints repeat this until the chunk is visible.
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
    /// Notes the runs of a chunk's record. A record without any stands for all earlier updates.
    pub(crate) fn note_runs(&mut self, chunk: ChunkId, sequence: Sequence, runs: &[RunId]) {
        if runs.is_empty() {
            if let Some(entry) = self.chunk_mut(chunk) {
                entry.runs_mut().forget_upto(sequence);
            }
            return;
        }
        for &run in runs {
            self.note_run(chunk, sequence, run);
        }
    }

    fn note_run(&mut self, chunk: ChunkId, sequence: Sequence, run: RunId) {
        let entry = self.chunk_mut(chunk);
        if !entry.is_some_and(|entry| entry.runs_mut().note(sequence, run)) {
            return;
        }
        for (oldest, sequence) in self.records.run_order.add(chunk, sequence) {
            if let Some(entry) = self.chunk_mut(oldest)
                && entry.runs().knows(sequence)
            {
                entry.runs_mut().forget_upto(sequence);
            }
        }
    }

    /// Remembers the runs of a removed chunk for some time, if all its updates are settled.
    pub(crate) fn retire_runs(&mut self, chunk: ChunkId, runs: Runs, mark: Sequence) {
        if runs.newest() <= mark {
            self.records.run_order.retire(chunk, runs);
        }
    }

    /// Notes that a chunk is visible whose own bytes include all updates up to `base`.
    pub(crate) fn end_announcement(&mut self, chunk: ChunkId, base: Sequence) {
        self.records.announced.remove(&chunk);
        self.note_runs(chunk, base, &[]);
    }

    /// Takes over a journal entry about a chunk's runs.
    pub(crate) fn recall_runs(
        &mut self,
        chunk: ChunkId,
        complete_after: Sequence,
        runs: Vec<(Sequence, RunId)>,
    ) {
        for (sequence, run) in runs {
            self.note_run(chunk, sequence, run);
        }
        self.note_runs(chunk, complete_after, &[]);
    }

    /// Checkpoint entries with all known runs.
    pub(crate) fn runs_checkpoint(&self) -> Vec<Entry> {
        let chunks = self.index.chunks();
        let known = chunks.filter(|(_, chunk)| !chunk.runs().is_trivial());
        let known = known.flat_map(|(id, chunk)| chunk.runs().entries(id, Sequence(0)));
        let announced = self.records.announced.iter();
        known
            .chain(announced.map(|(&chunk, &base)| base_entry(chunk, base)))
            .collect()
    }

    /// Notes that the current segment has the checkpoint.
    pub(crate) fn runs_are_logged(&mut self) {
        for chunk in self.index.chunks_mut() {
            chunk.runs_mut().are_logged();
        }
    }

    /// Upper bound of the bytes of a checkpoint of all runs.
    pub(crate) fn runs_checkpoint_bytes_max(&self) -> u64 {
        let chunks = self.index.chunks();
        let known: u64 = chunks
            .map(|(_, chunk)| chunk.runs().checkpoint_bytes_max())
            .sum();
        known + base_entry_bytes_max() * self.records.announced.len() as u64
    }
}
