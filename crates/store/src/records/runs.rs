//! Which runs made the updates of a chunk, for clients that lost an answer and ask what became of it.
//!
//! The store remembers the runs of its newest records, whichever chunks they are of; a count bounds
//! them all together. Each chunk knows after which of its updates nothing is missing. An entry goes
//! with its record when the recovery rule drops that, and otherwise when newer ones need its place.
//! Every new segment begins with what is known by then. Records in reserves are written down before
//! a reserve is emptied, so that a start finds all others in the journal or in reserves.

use crate::error::StoreError;
use crate::journal::entry::Entry;
use crate::journal::frame;
use crate::records::record::RunMemory;
use crate::store::{Options, Room, Shared, State, Store};
use gabion_layout::{ChunkId, RunId, Sequence};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

/// Most runs that one entry names, which bounds a frame's head.
const ENTRY_RUN_COUNT_MAX: usize = 2048;
/// Most bytes of a run in an entry: a number of 10 bytes, and the run.
const RUN_BYTES_MAX: usize = 18;
/// Most bytes of the rest of an entry's head: a chunk and two numbers.
const HEAD_BYTES_MAX: usize = 31;
/// Bytes of a segment for each run that the store remembers: all of them take a small part of one.
const SEGMENT_BYTES_PER_RUN: u64 = 512;

/// What is known of one chunk's runs.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    /// The runs of all records after this update are known.
    complete_after: Sequence,
    /// Invariant: later than `complete_after`.
    known: BTreeMap<Sequence, RunId>,
    /// The current segment names all runs up to this update.
    logged: Sequence,
}

/// Chunks that were removed lately whose runs are remembered.
const REMOVED_COUNT_MAX: usize = 1024;
/// Newest runs that are remembered of each of them.
const REMOVED_RUN_COUNT_MAX: usize = 256;

/// The runs of all chunks in the order in which they came.
#[derive(Debug)]
pub(crate) struct RunOrder {
    order: VecDeque<(ChunkId, Sequence)>,
    count_max: usize,
    /// The runs of chunks that were removed, oldest first. A restart forgets them.
    removed: VecDeque<(ChunkId, Runs)>,
}

impl Runs {
    /// Takes note of a run. Whether it was new.
    fn note(&mut self, sequence: Sequence, run: RunId) -> bool {
        sequence > self.complete_after && self.known.insert(sequence, run).is_none()
    }

    /// Forgets an update that was dropped.
    pub(crate) fn drop_update(&mut self, sequence: Sequence) {
        self.known.remove(&sequence);
    }

    /// Forgets the runs up to an update.
    pub(crate) fn forget_upto(&mut self, sequence: Sequence) {
        self.complete_after = self.complete_after.max(sequence);
        self.known.retain(|known, _| *known > sequence);
    }

    fn knows(&self, sequence: Sequence) -> bool {
        self.known.contains_key(&sequence)
    }

    fn memory(&self, run: RunId) -> RunMemory {
        let of_run = self.known.iter().find(|(_, known)| **known == run);
        RunMemory {
            sequence: of_run.map(|(&sequence, _)| sequence),
            complete_after: self.complete_after,
        }
    }

    /// Whether a start knows as much without an entry.
    fn is_trivial(&self) -> bool {
        self.complete_after == Sequence(0) && self.known.is_empty()
    }

    /// Entries that name the runs after an update.
    fn entries(&self, chunk: ChunkId, after: Sequence) -> Vec<Entry> {
        let after = (Bound::Excluded(after), Bound::Unbounded);
        let runs: Vec<(Sequence, RunId)> = self.known.range(after).map(|(&s, &r)| (s, r)).collect();
        let entry = |runs: &[(Sequence, RunId)]| Entry::Runs {
            chunk,
            complete_after: self.complete_after,
            runs: runs.to_vec(),
        };
        if runs.is_empty() {
            return vec![entry(&[])];
        }
        runs.chunks(ENTRY_RUN_COUNT_MAX).map(entry).collect()
    }

    /// The newest update whose run is known, or up to which none is.
    pub(crate) fn newest(&self) -> Sequence {
        let newest = self.known.last_key_value();
        newest.map_or(self.complete_after, |(&sequence, _)| sequence)
    }

    /// Bytes that a checkpoint of it takes at most.
    pub(crate) fn checkpoint_bytes_max(&self) -> u64 {
        if self.is_trivial() {
            return 0;
        }
        let entry_count = self.known.len() / ENTRY_RUN_COUNT_MAX + 1;
        let run_bytes = self.known.len() * RUN_BYTES_MAX;
        (entry_count * frame::frame_bytes(HEAD_BYTES_MAX + 8, 0) + run_bytes) as u64
    }
}

impl RunOrder {
    pub(crate) fn new(options: Options) -> Self {
        let count_max = options.segment_bytes() / SEGMENT_BYTES_PER_RUN;
        Self {
            order: VecDeque::new(),
            count_max: count_max as usize,
            removed: VecDeque::new(),
        }
    }

    /// Remembers for a while the runs of a chunk that is removed. All of its updates are settled.
    pub(crate) fn retire(&mut self, chunk: ChunkId, mut runs: Runs) {
        let mut newest_first = runs.known.keys().rev();
        if let Some(&oldest) = newest_first.nth(REMOVED_RUN_COUNT_MAX) {
            runs.forget_upto(oldest);
        }
        if self.removed.len() >= REMOVED_COUNT_MAX {
            self.removed.pop_front();
        }
        self.removed.push_back((chunk, runs));
    }

    fn removed(&self, chunk: ChunkId) -> Option<&Runs> {
        let newest_first = self.removed.iter().rev();
        let mut found = newest_first.filter(|(removed, _)| *removed == chunk);
        found.next().map(|(_, runs)| runs)
    }
}

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
            && let Some(runs) = state.run_order.removed(chunk)
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
        if entry.runs.newest() <= entry.runs.logged {
            return Ok(());
        }
        for entry in entry.runs.entries(chunk, entry.runs.logged) {
            self.append(state, &entry, &[], Room::Reserved)?;
        }
        if let Some(entry) = state.chunk_mut(chunk) {
            entry.runs.logged = entry.runs.newest();
        }
        Ok(())
    }

    /// Makes durable that nothing is known of runs up to `base`, before a chunk is visible that has
    /// all updates up to there in its own bytes.
    pub(crate) fn announce_made(&self, chunk: ChunkId, base: Sequence) -> Result<(), StoreError> {
        if base == Sequence(0) {
            return Ok(());
        }
        let lsn = {
            let mut state = self.lock();
            // Checkpoints say so too until the chunk is here.
            state.making.insert(chunk, base);
            let appended = self.append(&mut state, &made(chunk, base), &[], Room::Reserved);
            if appended.is_err() {
                state.making.remove(&chunk);
            }
            appended?.end_lsn()
        };
        self.sync(lsn)
    }
}

fn made(chunk: ChunkId, base: Sequence) -> Entry {
    Entry::Runs {
        chunk,
        complete_after: base,
        runs: Vec::new(),
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
        self.run_order.order.push_back((chunk, sequence));
        while self.run_order.order.len() > self.run_order.count_max {
            let Some((oldest, sequence)) = self.run_order.order.pop_front() else {
                break;
            };
            if let Some(entry) = self.chunk_mut(oldest)
                && entry.runs.knows(sequence)
            {
                entry.runs.forget_upto(sequence);
            }
        }
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
        let mut entries = Vec::new();
        for (&stripe, held) in &self.stripes {
            for (&index, chunk) in &held.chunks {
                if !chunk.runs.is_trivial() {
                    let id = ChunkId { stripe, index };
                    entries.extend(chunk.runs.entries(id, Sequence(0)));
                }
            }
        }
        let making = self.making.iter();
        entries.extend(making.map(|(&chunk, &base)| made(chunk, base)));
        entries
    }

    /// Takes over that the current segment has the checkpoint.
    pub(crate) fn runs_are_logged(&mut self) {
        let stripes = self.stripes.values_mut();
        for chunk in stripes.flat_map(|held| held.chunks.values_mut()) {
            chunk.runs.logged = chunk.runs.newest();
        }
    }

    /// Bytes that a checkpoint of all runs takes at most.
    pub(crate) fn runs_checkpoint_bytes_max(&self) -> u64 {
        let stripes = self.stripes.values();
        let chunks = stripes.flat_map(|held| held.chunks.values());
        let known: u64 = chunks.map(|chunk| chunk.runs.checkpoint_bytes_max()).sum();
        let made_bytes = frame::frame_bytes(HEAD_BYTES_MAX, 0) as u64;
        known + made_bytes * self.making.len() as u64
    }
}
