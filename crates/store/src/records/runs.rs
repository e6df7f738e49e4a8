//! The runs of a chunk's updates, for clients that lost an answer and ask for the outcome.
//!
//! The store remembers the runs of its newest records over all chunks, up to a total count. Each
//! chunk knows the update after which its memory is complete. An entry is removed when the recovery
//! rule drops its record, or when newer entries need its place. Every new segment begins with all
//! runs known by then. The runs of a reserve's records are logged before the reserve is emptied, so
//! that a start finds all others in the journal or in reserves.

use crate::journal::entry::Entry;
use crate::journal::frame;
use crate::options::Options;
use crate::records::record::RunMemory;
use gabion_layout::{ChunkId, RunId, Sequence};
use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;

/// Most runs in one entry, which bounds a frame's head.
const ENTRY_RUN_COUNT_MAX: usize = 2048;
/// Most bytes of a run in an entry: a number of 10 bytes, and the run.
const RUN_BYTES_MAX: usize = 18;
/// Most bytes of the rest of an entry's head: a chunk and two numbers.
const HEAD_BYTES_MAX: usize = 31;
/// Segment bytes for each remembered run: all runs take a small part of a segment.
const SEGMENT_BYTES_PER_RUN: u64 = 512;

/// The known runs of one chunk.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    /// The runs of all records after this update are known.
    complete_after: Sequence,
    /// Invariant: later than `complete_after`.
    known: BTreeSet<(Sequence, RunId)>,
    /// The current segment names all runs up to this update.
    logged: Sequence,
}

/// Most recently removed chunks whose runs are remembered.
const REMOVED_COUNT_MAX: usize = 1024;
/// Most runs remembered of each of them, the newest.
const REMOVED_RUN_COUNT_MAX: usize = 256;

/// The runs of all chunks in order of arrival.
#[derive(Debug)]
pub(crate) struct RunOrder {
    order: VecDeque<(ChunkId, Sequence)>,
    count_max: usize,
    /// The runs of removed chunks, oldest first. A restart forgets them.
    removed: VecDeque<(ChunkId, Runs)>,
}

impl Runs {
    /// Notes a run. Returns whether it was new.
    pub(super) fn note(&mut self, sequence: Sequence, run: RunId) -> bool {
        sequence > self.complete_after && self.known.insert((sequence, run))
    }

    /// Forgets an update that was dropped.
    pub(crate) fn drop_update(&mut self, sequence: Sequence) {
        self.known.retain(|(known, _)| *known != sequence);
    }

    /// Forgets the runs up to an update.
    pub(crate) fn forget_upto(&mut self, sequence: Sequence) {
        self.complete_after = self.complete_after.max(sequence);
        self.known.retain(|(known, _)| *known > sequence);
    }

    pub(super) fn knows(&self, sequence: Sequence) -> bool {
        let of_update = (sequence, RunId(0))..=(sequence, RunId(u64::MAX));
        self.known.range(of_update).next().is_some()
    }

    pub(super) fn memory(&self, run: RunId) -> RunMemory {
        let of_run = self.known.iter().find(|(_, known)| *known == run);
        RunMemory {
            sequence: of_run.map(|&(sequence, _)| sequence),
            complete_after: self.complete_after,
        }
    }

    /// Whether a start learns as much without an entry.
    pub(super) fn is_trivial(&self) -> bool {
        self.complete_after == Sequence(0) && self.known.is_empty()
    }

    /// Entries that name the runs after an update.
    pub(super) fn entries(&self, chunk: ChunkId, after: Sequence) -> Vec<Entry> {
        let after = Bound::Excluded((after, RunId(u64::MAX)));
        let runs = self.known.range((after, Bound::Unbounded)).copied();
        let runs: Vec<(Sequence, RunId)> = runs.collect();
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

    /// The update up to which the current segment names all runs.
    pub(super) fn logged(&self) -> Sequence {
        self.logged
    }

    /// Notes that the current segment names all runs.
    pub(super) fn are_logged(&mut self) {
        self.logged = self.newest();
    }

    /// The newest update whose run is known, or the one up to which no run is.
    pub(crate) fn newest(&self) -> Sequence {
        let newest = self.known.last();
        newest.map_or(self.complete_after, |&(sequence, _)| sequence)
    }

    /// Upper bound of the bytes of a checkpoint of it.
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

    /// Adds a run, and removes the oldest ones above the limit.
    pub(super) fn add(&mut self, chunk: ChunkId, sequence: Sequence) -> Vec<(ChunkId, Sequence)> {
        self.order.push_back((chunk, sequence));
        let excess = self.order.len().saturating_sub(self.count_max);
        self.order.drain(..excess).collect()
    }

    /// Remembers the runs of a removed chunk for some time. All its updates are settled.
    pub(crate) fn retire(&mut self, chunk: ChunkId, mut runs: Runs) {
        let mut newest_first = runs.known.iter().rev();
        if let Some(&(oldest, _)) = newest_first.nth(REMOVED_RUN_COUNT_MAX) {
            runs.forget_upto(oldest);
        }
        if self.removed.len() >= REMOVED_COUNT_MAX {
            self.removed.pop_front();
        }
        self.removed.push_back((chunk, runs));
    }

    pub(super) fn removed(&self, chunk: ChunkId) -> Option<&Runs> {
        let newest_first = self.removed.iter().rev();
        let mut found = newest_first.filter(|(removed, _)| *removed == chunk);
        found.next().map(|(_, runs)| runs)
    }
}

/// The entry that no run up to the base of a new chunk is known.
pub(super) fn base_entry(chunk: ChunkId, base: Sequence) -> Entry {
    Entry::Runs {
        chunk,
        complete_after: base,
        runs: Vec::new(),
    }
}

/// Upper bound of the bytes of such an entry.
pub(super) fn base_entry_bytes_max() -> u64 {
    frame::frame_bytes(HEAD_BYTES_MAX, 0) as u64
}
