//! Lists of records in the journal: their in-memory state and their layout.

use crate::codec::{Reader, put_varint};
use crate::journal::segment::Position;
use crate::records::layer::Pending;
use gabion_layout::{ChunkId, Sequence};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The settled records of a chunk that are listed in the journal.
#[derive(Debug)]
pub(super) struct Listed {
    /// The last list.
    pub(super) last: Position,
    /// The first record.
    pub(super) oldest: Position,
    /// The highest number of an update.
    pub(super) newest: Sequence,
    /// Bytes of the records' frames.
    pub(super) bytes: u64,
    /// Entries that each segment keeps for this, records and lists.
    pub(super) kept: BTreeMap<u64, u64>,
}

/// The records of [`Listed`], read back.
pub(super) struct ListedRecords {
    pub(super) chunk: ChunkId,
    pub(super) birth_lsn: u64,
    pub(super) last: Position,
    pub(super) records: Arc<Vec<Pending>>,
}

impl Listed {
    /// The records of a first list, which is at `last`.
    pub(super) fn new(last: Position, oldest: Position) -> Self {
        Self {
            last,
            oldest,
            newest: Sequence(0),
            bytes: 0,
            kept: BTreeMap::new(),
        }
    }

    /// Adds a list of records.
    pub(super) fn add(&mut self, list: Position, records: &[(Sequence, Position)]) {
        self.last = list;
        *self.kept.entry(list.segment).or_default() += 1;
        for &(sequence, position) in records {
            self.oldest = self.oldest.min(position);
            self.newest = self.newest.max(sequence);
            self.bytes += u64::from(position.frame_bytes);
            *self.kept.entry(position.segment).or_default() += 1;
        }
    }
}

/// Encodes the body of a list: the location of the previous list, then of each record.
pub(super) fn encode(before: Option<Position>, listed: &[(Sequence, Position)]) -> Vec<u8> {
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

pub(super) fn decode(body: &[u8]) -> Option<(Option<Place>, Vec<Place>)> {
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
