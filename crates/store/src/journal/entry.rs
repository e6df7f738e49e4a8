//! Contents of the journal's entries.
//!
//! An entry has a head of a few numbers and, for updates and images, a body with chunk bytes.
//! `docs/format.md` has the layout. Every decoder here returns `None` for bytes that no writer
//! makes.

use crate::codec::{Reader, put_varint};
use crate::journal::frame;
use crate::records::record::{Piece, Record, RecordKind, UpdateStamp};
use gabion_layout::{ByteRange, ChunkId, ChunkIndex, Epoch, Generation, RunId, Sequence, StripeId};

/// An entry's head, decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    /// A participant's record. The body is the pieces' bytes, end to end. A reserve contains only
    /// these.
    Update(UpdateHead),
    /// State of a stripe: a fence, a committed mark or a checkpoint of both, and records that the
    /// recovery rule dropped.
    State {
        stripe: StripeMark,
        dropped: Vec<UpdateStamp>,
    },
    /// After-images of the bytes that an apply is about to change in place.
    Image {
        chunk: ChunkId,
        birth_lsn: u64,
        upto: Sequence,
        /// Start of the chunk's reserve after the apply; it moves when the apply empties the
        /// reserve.
        reserve_lsn: u64,
    },
    /// The image up to `upto` is in place and durable.
    Applied { chunk: ChunkId, upto: Sequence },
    /// The chunk and all its records are gone.
    Removed { chunk: ChunkId },
    /// Everything before this position is synced. It has no other content.
    Synced,
    /// Positions of a chunk's records that the process no longer lists in memory. A start ignores
    /// it.
    List { chunk: ChunkId },
    /// The reserve of the chunk born at `birth_lsn` was synced up to a position of its own.
    Witness {
        chunk: ChunkId,
        birth_lsn: u64,
        synced_lsn: u64,
    },
    /// The runs of a chunk's records after an update, or some of them: further entries have the
    /// others. They add to the runs known so far.
    Runs {
        chunk: ChunkId,
        complete_after: Sequence,
        runs: Vec<(Sequence, RunId)>,
    },
}

/// The part of a stripe's state that the journal keeps; each field only grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StripeMark {
    pub(crate) stripe: StripeId,
    pub(crate) epoch: Epoch,
    pub(crate) generation: Generation,
    pub(crate) mark: Sequence,
}

/// The head of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct UpdateHead {
    pub(crate) chunk: ChunkId,
    pub(crate) generation: Generation,
    pub(crate) stamp: UpdateStamp,
    pub(crate) runs: Vec<RunId>,
    pub(crate) kind: RecordKind,
    pub(crate) participants: Participants,
    pub(crate) pieces: Vec<PieceHead>,
}

/// One range of a record, in the chunk that the record is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PieceHead {
    pub(crate) data: ChunkIndex,
    pub(crate) range: ByteRange,
}

/// A set of chunks of one stripe as a bit map without trailing zeros: 2 bytes for 16 chunks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Participants(Box<[u8]>);

impl Participants {
    pub(crate) fn new(chunks: &[ChunkIndex]) -> Self {
        let bytes = chunks.iter().max().map_or(0, |last| last.at() / 8 + 1);
        let mut map = vec![0; bytes];
        for chunk in chunks {
            map[chunk.at() / 8] |= 1 << (chunk.at() % 8);
        }
        Self(map.into_boxed_slice())
    }

    pub(crate) fn to_vec(&self) -> Vec<ChunkIndex> {
        let has = |at: &usize| self.0[at / 8] & (1 << (at % 8)) != 0;
        (0..self.0.len() * 8)
            .filter(has)
            .map(|at| ChunkIndex(at as u8))
            .collect()
    }
}

const UPDATE: u8 = 1;
const STATE: u8 = 2;
pub(crate) const IMAGE: u8 = 3;
const APPLIED: u8 = 4;
const REMOVED: u8 = 5;
const SYNCED: u8 = 6;
const LIST: u8 = 7;
const WITNESS: u8 = 8;
const RUNS: u8 = 9;

/// Enough for most heads.
const HEAD_BYTES: usize = 48;

/// Set in the first byte of an update that has one run.
const HAS_RUN: u8 = 0x80;
/// Set in the first byte of an update that has several runs.
const HAS_RUNS: u8 = 0x40;

impl UpdateHead {
    pub(crate) fn of(record: &Record<'_>) -> Self {
        let head_of = |piece: &Piece<'_>| PieceHead {
            data: piece.data,
            range: piece.range(),
        };
        Self {
            chunk: record.chunk,
            generation: record.generation,
            stamp: record.stamp,
            runs: record.runs.clone(),
            kind: record.kind,
            participants: Participants::new(&record.participants),
            pieces: record.pieces.iter().map(head_of).collect(),
        }
    }

    /// Bytes of the record in a log.
    pub(crate) fn frame_bytes(&self) -> u64 {
        frame::frame_bytes(self.encode_head().len(), self.piece_bytes() as usize) as u64
    }

    /// Bytes of all pieces.
    pub(crate) fn piece_bytes(&self) -> u64 {
        // Lengths in a damaged head may have any sum. No body is so long.
        let lengths = self.pieces.iter().map(|piece| piece.range.length);
        lengths.fold(0, u64::saturating_add)
    }

    /// Whether one of its pieces overlaps `range`.
    pub(crate) fn touches(&self, range: ByteRange) -> bool {
        let mut pieces = self.pieces.iter().enumerate();
        pieces.any(|(at, piece)| piece.range.intersect(range).is_some() && self.changes_chunk(at))
    }

    /// Whether a piece is of the record's own chunk: appended pieces may be originals, or of a data
    /// chunk on another node.
    pub(crate) fn changes_chunk(&self, at: usize) -> bool {
        match self.kind {
            RecordKind::NewBytes | RecordKind::ParityDelta => true,
            RecordKind::Appended { original_count } => {
                at >= usize::from(original_count) && self.pieces[at].data == self.chunk.index
            }
        }
    }

    /// The smallest range around all pieces.
    pub(crate) fn hull(&self) -> ByteRange {
        let ranges = || self.pieces.iter().map(|piece| piece.range);
        let start = ranges().map(|range| range.offset).min().unwrap_or(0);
        let end = ranges().map(ByteRange::end).max().unwrap_or(0);
        ByteRange::new(start, end - start)
    }
}

/// A value that is encoded as the head of a frame.
pub(crate) trait Head {
    /// The kind of the frame.
    fn frame_kind(&self) -> u8;

    fn encode_head(&self) -> Vec<u8>;
}

impl Head for UpdateHead {
    fn frame_kind(&self) -> u8 {
        UPDATE
    }

    fn encode_head(&self) -> Vec<u8> {
        let mut head = Vec::with_capacity(HEAD_BYTES);
        put_update(&mut head, self);
        head
    }
}

impl Head for Entry {
    fn frame_kind(&self) -> u8 {
        match self {
            Self::Update(update) => update.frame_kind(),
            Self::State { .. } => STATE,
            Self::Image { .. } => IMAGE,
            Self::Applied { .. } => APPLIED,
            Self::Removed { .. } => REMOVED,
            Self::Synced => SYNCED,
            Self::List { .. } => LIST,
            Self::Witness { .. } => WITNESS,
            Self::Runs { .. } => RUNS,
        }
    }

    fn encode_head(&self) -> Vec<u8> {
        let mut head = Vec::with_capacity(HEAD_BYTES);
        match self {
            Self::Update(update) => return update.encode_head(),
            Self::State { stripe, dropped } => {
                put_stripe(&mut head, *stripe);
                put_varint(&mut head, dropped.len() as u64);
                for stamp in dropped {
                    put_varint(&mut head, stamp.epoch.0);
                    put_varint(&mut head, stamp.sequence.0);
                }
            }
            Self::Image {
                chunk,
                birth_lsn,
                upto,
                reserve_lsn,
            } => {
                put_chunk(&mut head, *chunk);
                put_varint(&mut head, *birth_lsn);
                put_varint(&mut head, upto.0);
                put_varint(&mut head, *reserve_lsn);
            }
            Self::Applied { chunk, upto } => {
                put_chunk(&mut head, *chunk);
                put_varint(&mut head, upto.0);
            }
            Self::Removed { chunk } | Self::List { chunk } => put_chunk(&mut head, *chunk),
            Self::Synced => {}
            Self::Witness {
                chunk,
                birth_lsn,
                synced_lsn,
            } => {
                put_chunk(&mut head, *chunk);
                put_varint(&mut head, *birth_lsn);
                put_varint(&mut head, *synced_lsn);
            }
            Self::Runs {
                chunk,
                complete_after,
                runs,
            } => {
                put_chunk(&mut head, *chunk);
                put_varint(&mut head, complete_after.0);
                put_varint(&mut head, runs.len() as u64);
                for (sequence, run) in runs {
                    put_varint(&mut head, sequence.0);
                    head.extend_from_slice(&run.0.to_le_bytes());
                }
            }
        }
        head
    }
}

impl Entry {
    /// Whether entries of this kind only confirm other frames, so that losing one loses nothing.
    pub(crate) fn only_confirms(kind: u8) -> bool {
        matches!(kind, SYNCED | WITNESS)
    }

    pub(crate) fn decode(kind: u8, head: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(head);
        let entry = match kind {
            UPDATE => Self::Update(update(&mut reader)?),
            STATE => {
                let stripe = stripe(&mut reader)?;
                let count = reader.varint()?;
                let dropped = (0..count)
                    .map(|_| stamp(&mut reader))
                    .collect::<Option<_>>()?;
                Self::State { stripe, dropped }
            }
            IMAGE => Self::Image {
                chunk: chunk(&mut reader)?,
                birth_lsn: reader.count()?,
                upto: Sequence(reader.count()?),
                reserve_lsn: reader.count()?,
            },
            APPLIED => Self::Applied {
                chunk: chunk(&mut reader)?,
                upto: Sequence(reader.count()?),
            },
            REMOVED => Self::Removed {
                chunk: chunk(&mut reader)?,
            },
            SYNCED => Self::Synced,
            LIST => Self::List {
                chunk: chunk(&mut reader)?,
            },
            WITNESS => Self::Witness {
                chunk: chunk(&mut reader)?,
                birth_lsn: reader.count()?,
                synced_lsn: reader.count()?,
            },
            RUNS => {
                let chunk = chunk(&mut reader)?;
                let complete_after = Sequence(reader.count()?);
                let count = reader.varint()?;
                let mut run = || Some((Sequence(reader.count()?), RunId(reader.u64()?)));
                let runs = (0..count).map(|_| run()).collect::<Option<_>>()?;
                Self::Runs {
                    chunk,
                    complete_after,
                    runs,
                }
            }
            _ => return None,
        };
        reader.finish()?;
        Some(entry)
    }
}

fn put_chunk(head: &mut Vec<u8>, chunk: ChunkId) {
    head.push(chunk.index.0);
    put_varint(head, chunk.stripe.0);
}

fn chunk(reader: &mut Reader<'_>) -> Option<ChunkId> {
    let index = ChunkIndex(reader.u8()?);
    let stripe = StripeId(reader.varint()?);
    Some(ChunkId { stripe, index })
}

fn put_stripe(head: &mut Vec<u8>, stripe: StripeMark) {
    put_varint(head, stripe.stripe.0);
    put_varint(head, stripe.epoch.0);
    put_varint(head, stripe.generation.0);
    put_varint(head, stripe.mark.0);
}

fn stripe(reader: &mut Reader<'_>) -> Option<StripeMark> {
    Some(StripeMark {
        stripe: StripeId(reader.varint()?),
        epoch: Epoch(reader.count()?),
        generation: Generation(reader.count()?),
        mark: Sequence(reader.count()?),
    })
}

fn stamp(reader: &mut Reader<'_>) -> Option<UpdateStamp> {
    Some(UpdateStamp {
        epoch: Epoch(reader.count()?),
        sequence: Sequence(reader.count()?),
    })
}

fn put_update(head: &mut Vec<u8>, update: &UpdateHead) {
    let kind = match update.kind {
        RecordKind::NewBytes => 0,
        RecordKind::ParityDelta => 1,
        RecordKind::Appended { .. } => 2,
    };
    match &*update.runs {
        [] => head.push(kind),
        [_] => head.push(kind | HAS_RUN),
        several => {
            head.push(kind | HAS_RUNS);
            put_varint(head, several.len() as u64);
        }
    }
    for run in &update.runs {
        head.extend_from_slice(&run.0.to_le_bytes());
    }
    put_chunk(head, update.chunk);
    put_varint(head, update.generation.0);
    put_varint(head, update.stamp.epoch.0);
    put_varint(head, update.stamp.sequence.0);
    head.push(update.participants.0.len() as u8);
    head.extend_from_slice(&update.participants.0);
    if let RecordKind::Appended { original_count } = update.kind {
        put_varint(head, u64::from(original_count));
    }
    for piece in &update.pieces {
        head.push(piece.data.0);
        put_varint(head, piece.range.offset);
        put_varint(head, piece.range.length);
    }
}

fn update(reader: &mut Reader<'_>) -> Option<UpdateHead> {
    let first = reader.u8()?;
    let mut kind = match first & !(HAS_RUN | HAS_RUNS) {
        0 => RecordKind::NewBytes,
        1 => RecordKind::ParityDelta,
        2 => RecordKind::Appended { original_count: 0 },
        _ => return None,
    };
    let run_count = match first & (HAS_RUN | HAS_RUNS) {
        0 => 0,
        HAS_RUN => 1,
        HAS_RUNS => reader.varint()?,
        _ => return None,
    };
    let mut run = || Some(RunId(reader.u64()?));
    let runs = (0..run_count).map(|_| run()).collect::<Option<_>>()?;
    let chunk = chunk(reader)?;
    let generation = Generation(reader.count()?);
    let stamp = stamp(reader)?;
    let map_bytes = usize::from(reader.u8()?);
    let participants = Participants(reader.bytes(map_bytes)?.into());
    if let RecordKind::Appended { original_count } = &mut kind {
        *original_count = u16::try_from(reader.varint()?).ok()?;
    }
    let mut pieces = Vec::new();
    while let Some(data) = reader.u8() {
        let range = ByteRange::new(reader.varint()?, reader.varint()?);
        range.offset.checked_add(range.length)?;
        let data = ChunkIndex(data);
        pieces.push(PieceHead { data, range });
    }
    Some(UpdateHead {
        chunk,
        generation,
        stamp,
        runs,
        kind,
        participants,
        pieces,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_layout::COUNT_MAX;
    use proptest::prelude::*;

    fn check(entry: &Entry) {
        let head = entry.encode_head();
        assert_eq!(
            Entry::decode(entry.frame_kind(), &head).as_ref(),
            Some(entry)
        );
    }

    #[test]
    fn every_entry_comes_back() {
        let chunk = ChunkId {
            stripe: StripeId(u64::MAX),
            index: ChunkIndex(254),
        };
        let stripe = StripeMark {
            stripe: StripeId(1),
            epoch: Epoch(COUNT_MAX),
            generation: Generation(300),
            mark: Sequence(4),
        };
        let upto = Sequence(1 << 40);
        let stamp = |epoch, sequence| UpdateStamp {
            epoch: Epoch(epoch),
            sequence: Sequence(sequence),
        };
        check(&Entry::State {
            stripe,
            dropped: vec![stamp(1, 5), stamp(700, 9)],
        });
        check(&Entry::Image {
            chunk,
            birth_lsn: 99,
            upto,
            reserve_lsn: 4096,
        });
        check(&Entry::Applied { chunk, upto });
        check(&Entry::Removed { chunk });
        check(&Entry::Synced);
        check(&Entry::List { chunk });
        check(&Entry::Witness {
            chunk,
            birth_lsn: 99,
            synced_lsn: 1 << 33,
        });
        check(&Entry::Runs {
            chunk,
            complete_after: Sequence(7),
            runs: vec![(Sequence(8), RunId(u64::MAX)), (upto, RunId(0))],
        });
    }

    proptest! {
        #[test]
        fn updates_come_back(
            index in 0u8..255, stripe: u64, epoch in 0..=COUNT_MAX, sequence in 0..=COUNT_MAX,
            runs in proptest::collection::vec(proptest::num::u64::ANY, 0..4),
            kind in proptest::sample::select(vec![
                RecordKind::NewBytes,
                RecordKind::ParityDelta,
                RecordKind::Appended { original_count: 0 },
                RecordKind::Appended { original_count: u16::MAX },
            ]),
            chunks in proptest::collection::btree_set(0u8..255, 0..20),
            ranges in proptest::collection::vec((0u8..255, 0u64..1 << 40, 1u64..1 << 20), 1..5),
        ) {
            let chunks: Vec<_> = chunks.into_iter().map(ChunkIndex).collect();
            let participants = Participants::new(&chunks);
            prop_assert_eq!(participants.to_vec(), chunks);
            check(&Entry::Update(UpdateHead {
                chunk: ChunkId { stripe: StripeId(stripe), index: ChunkIndex(index) },
                generation: Generation(7),
                stamp: UpdateStamp { epoch: Epoch(epoch), sequence: Sequence(sequence) },
                runs: runs.into_iter().map(RunId).collect(),
                kind,
                participants,
                pieces: ranges.into_iter().map(|(data, offset, length)| PieceHead {
                    data: ChunkIndex(data), range: ByteRange::new(offset, length),
                }).collect(),
            }));
        }

        #[test]
        fn any_bytes_decode_without_a_panic(kind: u8, head: Vec<u8>) {
            let _ = Entry::decode(kind, &head);
        }
    }
}
