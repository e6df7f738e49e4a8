//! Keeping the memory of long logs small.
//!
//! A chunk that keeps its records in the log may have any number of them. Of settled ones, only
//! the last few are listed in memory one by one. Others are listed in the journal itself, in
//! entries that name the positions of many records and of the entry before. In memory are the
//! last entry's position and how much there is. Nothing of this outlives the process: a start
//! reads all records anyway, and lists them anew.

use crate::codec::{Reader, put_varint};
use crate::error::StoreError;
use crate::index::{Chunk, Pending};
use crate::journal::Position;
use crate::journal::entry::Entry;
use crate::journal::frame::{self, Check};
use crate::records::record::Damage;
use crate::store::{Room, Shared, State};
use gabion_layout::{ChunkId, Keeping, Sequence};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most settled records of a log that are listed in memory one by one.
const LISTED_COUNT_MAX: usize = 128;

/// Bytes of a frame that are read at first to learn its head.
const HEAD_BYTES: u32 = 192;

/// The settled records of a chunk that are listed in the journal.
#[derive(Debug)]
pub(crate) struct Swapped {
    /// The last list.
    last: Position,
    /// The first record.
    pub(crate) oldest: Position,
    /// The highest number of an update.
    pub(crate) newest: Sequence,
    /// Bytes of the records' frames.
    pub(crate) bytes: u64,
    /// How much each segment keeps for this, records and lists.
    kept: BTreeMap<u64, u64>,
}

/// The records of [`Swapped`], read back.
#[derive(Debug)]
pub(crate) struct SwappedRecords {
    birth_lsn: u64,
    last: Position,
    records: Arc<Vec<Pending>>,
}

impl Shared {
    /// Lists a chunk's settled records in the journal when there are many and its keeping lets
    /// them stay there. A full disk keeps them in memory.
    pub(crate) fn swap_out(&self, state: &mut State, chunk: ChunkId) -> Result<(), StoreError> {
        let mark = state.stripes[&chunk.stripe].mark;
        let is_long = |entry: &&Chunk| {
            entry.pending.len() > LISTED_COUNT_MAX && entry.keeping() == Some(Keeping::Log)
        };
        let Some(entry) = state.chunk(chunk).filter(is_long) else {
            return Ok(());
        };
        let settled = entry.mergeable(mark);
        let listed = settled.map(|record| (record.head.stamp.sequence, record.position));
        let listed: Vec<(Sequence, Position)> = listed.collect();
        if listed.len() < LISTED_COUNT_MAX {
            return Ok(());
        }
        let before = entry.swapped.as_ref().map(|swapped| swapped.last);
        let body = encode(before, &listed);
        let entry = Entry::List { chunk };
        let last = match self.append(state, &entry, &[&body], Room::Ordinary) {
            Ok(position) => position,
            Err(StoreError::NoSpace { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        state.journal.keep(last);
        let entry = state.chunk_mut(chunk).expect("it was there above");
        entry
            .pending
            .retain(|&sequence, record| sequence > mark || record.head.kind.is_appended());
        let swapped = entry.swapped.get_or_insert_with(|| Swapped {
            last,
            oldest: listed[0].1,
            newest: Sequence(0),
            bytes: 0,
            kept: BTreeMap::new(),
        });
        swapped.last = last;
        *swapped.kept.entry(last.segment).or_default() += 1;
        for (sequence, position) in listed {
            swapped.oldest = swapped.oldest.min(position);
            swapped.newest = swapped.newest.max(sequence);
            swapped.bytes += u64::from(position.frame_bytes);
            *swapped.kept.entry(position.segment).or_default() += 1;
        }
        Ok(())
    }
}

impl State {
    /// The records of a chunk that are listed in the journal.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] for the whole chunk when a list or the head of a record cannot be
    /// read; [`StoreError::Io`].
    pub(crate) fn swapped(&mut self, chunk: ChunkId) -> Result<Arc<Vec<Pending>>, StoreError> {
        let swapped = self.chunk(chunk).and_then(|entry| entry.swapped.as_ref());
        let Some(last) = swapped.map(|swapped| swapped.last) else {
            return Ok(Arc::default());
        };
        let birth_lsn = self.header(chunk)?.birth_lsn;
        let is_same = |known: &&SwappedRecords| (known.birth_lsn, known.last) == (birth_lsn, last);
        if let Some(known) = self.swapped_cache.get(&chunk).filter(is_same) {
            return Ok(Arc::clone(&known.records));
        }
        let mut records = Vec::new();
        let mut next = Some(last);
        let mut buffer = Vec::new();
        while let Some(position) = next {
            self.journal.locate(position).read(&mut buffer)?;
            let corrupt = || StoreError::Corrupt {
                chunk,
                range: Damage::WHOLE,
            };
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
        // One chunk is read at a time as a rule, from one end to the other.
        self.swapped_cache.clear();
        let known = SwappedRecords {
            birth_lsn,
            last,
            records: Arc::clone(&records),
        };
        self.swapped_cache.insert(chunk, known);
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
        // The body is read when somebody needs it. Most heads are short.
        for limit_bytes in [HEAD_BYTES, frame_bytes] {
            let located = self.journal.locate(position);
            located.read_front(&mut buffer, limit_bytes)?;
            if let Some((kind, head)) = frame::front(&buffer, lsn)
                && let Some(Entry::Update(head)) = Entry::decode(kind, head)
            {
                return Ok(Pending { head, position });
            }
        }
        let range = Damage::WHOLE;
        Err(StoreError::Corrupt { chunk, range })
    }

    /// The chunks that have listed records, or lists of them, in a segment.
    pub(crate) fn listed_in(&self, segment: u64) -> Vec<ChunkId> {
        let stripes = self.stripes.iter();
        let chunks = stripes.flat_map(|(&stripe, held)| {
            let id = move |index| ChunkId { stripe, index };
            held.chunks
                .iter()
                .map(move |(&index, entry)| (id(index), entry))
        });
        let is_there = |entry: &Chunk| {
            let swapped = entry.swapped.as_ref();
            swapped.is_some_and(|swapped| swapped.kept.contains_key(&segment))
        };
        let there = chunks.filter(|(_, entry)| is_there(entry));
        there.map(|(chunk, _)| chunk).collect()
    }

    /// Lets the journal know that records are needed no more.
    pub(crate) fn forget_swapped(&mut self, swapped: Swapped) {
        self.swapped_cache.clear();
        self.pending_bytes -= swapped.bytes;
        for (segment, count) in swapped.kept {
            self.journal.release_many(segment, count);
        }
    }
}

/// The body of a list: where the list before is, then where each record is.
fn encode(before: Option<Position>, listed: &[(Sequence, Position)]) -> Vec<u8> {
    let mut body = Vec::with_capacity(listed.len() * 8);
    put_varint(&mut body, before.map_or(0, |position| position.lsn + 1));
    put_varint(
        &mut body,
        before.map_or(0, |position| u64::from(position.frame_bytes)),
    );
    let mut lsn = 0;
    for (_, position) in listed {
        // Records mostly lie in the order of their numbers, so differences are small.
        put_varint(&mut body, position.lsn.wrapping_sub(lsn));
        put_varint(&mut body, u64::from(position.frame_bytes));
        lsn = position.lsn;
    }
    body
}

/// A frame's position and bytes.
type Place = (u64, u32);

fn decode(body: &[u8]) -> Option<(Option<Place>, Vec<Place>)> {
    let mut reader = Reader::new(body);
    let mut place = || Some((reader.varint()?, u32::try_from(reader.varint()?).ok()?));
    let (behind, frame_bytes) = place()?;
    let before = behind.checked_sub(1).map(|lsn| (lsn, frame_bytes));
    let mut listed = Vec::new();
    let mut lsn = 0u64;
    while let Some((difference, frame_bytes)) = place() {
        lsn = lsn.wrapping_add(difference);
        listed.push((lsn, frame_bytes));
    }
    Some((before, listed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_comes_back_and_takes_little() {
        let position = |lsn: u64| Position {
            lsn,
            segment: lsn >> 26,
            frame_bytes: 4160,
        };
        let out_of_order = [5 << 26, (5 << 26) + 8320, (5 << 26) + 4160, 7 << 26];
        let listed: Vec<_> = out_of_order.map(|lsn| (Sequence(1), position(lsn))).into();
        for before in [None, Some(position(0)), Some(position(1 << 40))] {
            let body = encode(before, &listed);
            let (found, places) = decode(&body).unwrap();
            assert_eq!(found, before.map(|p| (p.lsn, p.frame_bytes)));
            assert_eq!(places, out_of_order.map(|lsn| (lsn, 4160)));
        }
        let neighbours: Vec<_> = (0..1000)
            .map(|at| (Sequence(at), position(at * 9000)))
            .collect();
        assert!(encode(None, &neighbours).len() < 6 * 1000);
        assert!(decode(&[0xff; 3]).is_none());
    }
}
