//! Bounds the memory of long logs.
//!
//! A chunk that keeps its records in the log may have any number of them. Memory lists only the
//! last few settled ones individually. Entries in the journal list the others: each names the
//! positions of many records and of the previous entry. Memory keeps the last entry's position and
//! the totals. The lists end with the process: a start reads all records anyway, and lists them
//! again.

use crate::error::StoreError;
use crate::index::Chunk;
use crate::journal::checkpoint::Room;
use crate::journal::entry::Entry;
use crate::journal::frame::{self, Check};
use crate::journal::segment::Position;
use crate::records::layer::Pending;
use crate::records::list::{Listed, ListedRecords, decode, encode};
use crate::state::State;
use crate::store::Shared;
use gabion_layout::{ChunkId, Keeping, Sequence};
use std::sync::Arc;

/// Most settled records of a log that memory lists individually.
const LISTED_COUNT_MAX: usize = 128;

/// Bytes of a frame that the first read takes to decode its head.
const HEAD_BYTES: u32 = 192;

impl Shared {
    /// Lists a chunk's settled records in the journal if there are many and its keeping leaves them
    /// there. On a full disk they stay in memory.
    pub(crate) fn list_settled(&self, state: &mut State, chunk: ChunkId) -> Result<(), StoreError> {
        let mark = state.index.mark(chunk.stripe);
        let is_long = |entry: &&Chunk| {
            entry.records().pending.len() > LISTED_COUNT_MAX
                && entry.keeping() == Some(Keeping::Log)
        };
        let Some(entry) = state.chunk(chunk).filter(is_long) else {
            return Ok(());
        };
        let settled = entry.records().mergeable(mark);
        let listed = settled.map(|record| (record.head.stamp.sequence, record.position));
        let listed: Vec<(Sequence, Position)> = listed.collect();
        if listed.len() < LISTED_COUNT_MAX {
            return Ok(());
        }
        let before = entry.records().listed.as_ref().map(|listed| listed.last);
        let body = encode(before, &listed);
        let entry = Entry::List { chunk };
        let last = match self.append(state, &entry, &[&body], Room::Ordinary) {
            Ok(position) => position,
            Err(StoreError::NoSpace { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        state.journal.keep(last);
        let entry = state.chunk_mut(chunk).expect("it was there above");
        let records = entry.records_mut();
        records
            .pending
            .retain(|&sequence, record| sequence > mark || record.head.kind.is_appended());
        let fresh = || Listed::new(last, listed[0].1);
        let known = records.listed.get_or_insert_with(fresh);
        known.add(last, &listed);
        Ok(())
    }
}

impl State {
    /// The records of a chunk that are listed in the journal.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] for the whole chunk when a list or the head of a record cannot be
    /// read; [`StoreError::Io`].
    pub(super) fn listed(&mut self, chunk: ChunkId) -> Result<Arc<Vec<Pending>>, StoreError> {
        let listed = self
            .chunk(chunk)
            .and_then(|entry| entry.records().listed.as_ref());
        let Some(last) = listed.map(|listed| listed.last) else {
            return Ok(Arc::default());
        };
        let birth_lsn = self.header(chunk)?.birth_lsn;
        let is_same = |known: &&ListedRecords| {
            (known.chunk, known.birth_lsn, known.last) == (chunk, birth_lsn, last)
        };
        if let Some(known) = self.records.listed.as_ref().filter(is_same) {
            return Ok(Arc::clone(&known.records));
        }
        let mut records = Vec::new();
        let mut next = Some(last);
        let mut buffer = Vec::new();
        while let Some(position) = next {
            self.journal.locate(position).read(&mut buffer)?;
            let corrupt = || StoreError::corrupt_whole(chunk);
            let Check::Whole(frame) = frame::decode(&buffer, position.lsn) else {
                return Err(corrupt());
            };
            let (before, listed) = decode(frame.body).ok_or_else(corrupt)?;
            for (lsn, frame_bytes) in listed {
                records.push(self.read_listed(chunk, lsn, frame_bytes)?);
            }
            next = before.map(|(lsn, frame_bytes)| self.journal.position_at(lsn, frame_bytes));
        }
        let records = Arc::new(records);
        self.records.listed = Some(ListedRecords {
            chunk,
            birth_lsn,
            last,
            records: Arc::clone(&records),
        });
        Ok(records)
    }

    fn read_listed(
        &self,
        chunk: ChunkId,
        lsn: u64,
        frame_bytes: u32,
    ) -> Result<Pending, StoreError> {
        let position = self.journal.position_at(lsn, frame_bytes);
        let mut buffer = Vec::new();
        // The body is read on demand. Most heads are short.
        for limit_bytes in [HEAD_BYTES, frame_bytes] {
            let located = self.journal.locate(position);
            located.read_front(&mut buffer, limit_bytes)?;
            if let Some((kind, head)) = frame::front(&buffer, lsn)
                && let Some(Entry::Update(head)) = Entry::decode(kind, head)
            {
                return Ok(Pending { head, position });
            }
        }
        Err(StoreError::corrupt_whole(chunk))
    }

    /// The chunks that have listed records, or lists of them, in a segment.
    pub(crate) fn listed_in(&self, segment: u64) -> Vec<ChunkId> {
        let there = self.index.chunks();
        let there = there.filter(|(_, entry)| entry.records().lists_in(segment));
        there.map(|(chunk, _)| chunk).collect()
    }
}
