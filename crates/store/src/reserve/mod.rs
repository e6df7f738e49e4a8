//! Space reserved behind a chunk, in the chunk's own file, that holds the records of its updates.
//!
//! After `CodFS` 4.1: a parity chunk and its deltas lie next to each other, so that both are read
//! in one go and a delta is written once. Here the reserve is also the log that makes a record
//! durable; its records are never in the journal, unless the reserve has no room for them.
//!
//! A reserve holds the journal's frames, one behind the other from its beginning. Positions go on
//! growing when it is emptied: the header then says that its first byte has the position behind
//! the last frame. Frames of before stay where they are but have other positions in their
//! checksums, so they never count again.
//!
//! In memory are the reserve's ends and the heads of records above the committed mark. The heads
//! of others are read when somebody needs them, and kept for the few chunks read last.

mod append;
mod contents;
pub(crate) mod resize;
mod spill;
pub(crate) mod sync;
mod syncing;
pub(crate) mod witness;
mod witnessing;

use crate::chunk::file::{self, ChunkHeader, ReadFailure};
use crate::disk::{DiskFile, Source};
use crate::journal::entry::{Entry, UpdateHead};
use crate::journal::frame;
use crate::journal::scan::{Found, decode_entry, scan};
use crate::records::record::{Damage, UpdateStamp};
use gabion_layout::{ChunkId, Sequence};
use std::collections::BTreeMap;
use std::sync::Arc;
use sync::ReserveSyncs;
use witness::Witness;

/// Most reserves whose heads are kept in memory.
const HEADS_COUNT_MAX: usize = 8;

/// A chunk's reserve.
#[derive(Debug)]
pub(crate) struct Reserve {
    /// The position of its first byte.
    first_lsn: u64,
    /// The position behind its last frame.
    end_lsn: u64,
    bytes: u64,
    /// Whether it is being emptied or resized; nobody appends then.
    is_closed: bool,
    record_count: u64,
    oldest: Option<Sequence>,
    newest: Option<Sequence>,
    /// Records above the committed mark.
    unsettled: BTreeMap<Sequence, Reserved>,
    /// Bytes of frames appended since the store was opened.
    appended_bytes: u64,
    /// How often it was emptied since the store was opened.
    merge_count: u64,
    /// Appends that waited for a merge since the store was opened: it was full, or nothing was left.
    stalled_count: u64,
}

/// A record in a reserve, and where.
#[derive(Clone, Debug)]
pub(crate) struct Reserved {
    pub(crate) head: UpdateHead,
    pub(crate) lsn: u64,
    pub(crate) frame_bytes: u32,
}

/// The heads of a reserve's records up to a position, in their order.
#[derive(Debug)]
struct Heads {
    first_lsn: u64,
    end_lsn: u64,
    records: Arc<Vec<Reserved>>,
}

/// Heads of the reserves that were read last, the last one at the end.
#[derive(Default)]
struct HeadCache {
    heads: Vec<(ChunkId, Heads)>,
}

impl HeadCache {
    fn take(&mut self, chunk: ChunkId) -> Option<Heads> {
        let at = self.heads.iter().position(|(known, _)| *known == chunk)?;
        Some(self.heads.remove(at).1)
    }

    fn put(&mut self, chunk: ChunkId, heads: Heads) {
        if self.heads.len() >= HEADS_COUNT_MAX {
            self.heads.remove(0);
        }
        self.heads.push((chunk, heads));
    }
}

/// What belongs to all reserves together.
#[derive(Default)]
pub(crate) struct Reserves {
    heads: HeadCache,
    syncs: Arc<ReserveSyncs>,
    /// What the journal says of each reserve.
    witnesses: BTreeMap<ChunkId, Witness>,
}

impl Reserves {
    /// Which frames in reserves are not durable yet.
    pub(crate) fn syncs(&self) -> Arc<ReserveSyncs> {
        Arc::clone(&self.syncs)
    }

    /// Forgets the heads of a chunk's records, since another file takes its place. Two lives of a chunk
    /// may have begun at the same position of the journal.
    pub(crate) fn forget_heads(&mut self, chunk: ChunkId) {
        self.heads.take(chunk);
    }

    /// The position up to which the journal says that the reserve of a chunk with this header was
    /// synced; 0 if it says nothing.
    pub(crate) fn witnessed_lsn(&self, header: &ChunkHeader) -> u64 {
        let witness = self.witnesses.get(&header.chunk);
        witness.map_or(0, |witness| witness.of(header))
    }
}

/// What a stretch of a reserve holds.
struct Stretch {
    records: Vec<Reserved>,
    end_lsn: u64,
    /// Whether nothing in it is unreadable to the last.
    is_readable: bool,
}

/// What is found in a reserve when its chunk is needed for the first time.
pub(crate) struct FoundReserve {
    records: Vec<Reserved>,
    end_lsn: u64,
}

impl Reserve {
    fn empty(first_lsn: u64, bytes: u64) -> Self {
        Self {
            first_lsn,
            end_lsn: first_lsn,
            bytes,
            is_closed: false,
            record_count: 0,
            oldest: None,
            newest: None,
            unsettled: BTreeMap::new(),
            appended_bytes: 0,
            merge_count: 0,
            stalled_count: 0,
        }
    }

    /// This reserve once the header says that it begins at `first_lsn` and has so many bytes.
    fn changed_to(self, first_lsn: u64, bytes: u64) -> Self {
        if first_lsn == self.first_lsn {
            return Self { bytes, ..self };
        }
        Self {
            is_closed: self.is_closed,
            appended_bytes: self.appended_bytes,
            merge_count: self.merge_count + 1,
            stalled_count: self.stalled_count,
            ..Self::empty(first_lsn, bytes)
        }
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.end_lsn - self.first_lsn
    }

    pub(crate) fn fits(&self, frame_bytes: u64) -> bool {
        self.used_bytes() + frame_bytes <= self.bytes
    }

    /// Forgets the heads of records that are settled by now.
    pub(crate) fn settle(&mut self, mark: Sequence) {
        self.unsettled.retain(|sequence, _| *sequence > mark);
    }

    /// Forgets a record that was dropped. Its own copy in the reserve went before.
    pub(crate) fn drop_update(&mut self, stamp: UpdateStamp) {
        let is_other = |_: &Sequence, record: &mut Reserved| record.head.stamp != stamp;
        self.unsettled.retain(is_other);
    }

    /// The heads of records above the committed mark.
    pub(crate) fn unsettled(&self) -> impl Iterator<Item = &UpdateHead> {
        self.unsettled.values().map(|record| &record.head)
    }

    /// A record above the committed mark.
    pub(crate) fn unsettled_at(&self, sequence: Sequence) -> Option<&Reserved> {
        self.unsettled.get(&sequence)
    }

    /// The position behind its last frame.
    pub(crate) fn end_lsn(&self) -> u64 {
        self.end_lsn
    }

    /// The lowest number of an update of which it holds a record.
    pub(crate) fn oldest(&self) -> Option<Sequence> {
        self.oldest
    }

    /// Whether it may take a record of this size at some time: now, or once it is empty.
    pub(crate) fn may_take(&self, frame_bytes: u64) -> bool {
        !self.is_closed && frame_bytes <= self.bytes
    }

    /// Takes note of an append that waited for a merge.
    pub(crate) fn note_stall(&mut self) {
        self.stalled_count += 1;
    }

    /// Lets nobody append, until it is opened again, if it holds something. Answers where it ends then.
    pub(crate) fn close(&mut self) -> Option<u64> {
        let is_used = self.used_bytes() > 0;
        self.is_closed |= is_used;
        is_used.then_some(self.end_lsn)
    }

    /// Takes over what was found in it; what is at or below the mark is settled.
    fn adopt(&mut self, found: FoundReserve, mark: Sequence) {
        for record in found.records {
            self.add(&record);
            let sequence = record.head.stamp.sequence;
            if sequence > mark {
                self.unsettled.insert(sequence, record);
            }
        }
        self.end_lsn = found.end_lsn;
    }

    /// Takes over that a record was written behind the others. Answers where the reserve ends now.
    fn append(&mut self, record: Reserved) -> u64 {
        self.add(&record);
        self.end_lsn += u64::from(record.frame_bytes);
        self.appended_bytes += u64::from(record.frame_bytes);
        self.unsettled.insert(record.head.stamp.sequence, record);
        self.end_lsn
    }

    fn add(&mut self, record: &Reserved) {
        let sequence = record.head.stamp.sequence;
        self.record_count += 1;
        self.oldest = Some(self.oldest.map_or(sequence, |oldest| oldest.min(sequence)));
        self.newest = self.newest.max(Some(sequence));
    }
}

/// The reserve of a chunk that had the `known` one once its header is this.
pub(crate) fn follow(known: Option<Reserve>, header: &ChunkHeader) -> Option<Reserve> {
    let bytes = header.spec.keeping.reserve_bytes()?;
    Some(match known {
        Some(known) => known.changed_to(header.reserve_lsn, bytes),
        None => Reserve::empty(header.reserve_lsn, bytes),
    })
}

/// The records in a stretch of `chunk`'s reserve, which begins at position `first_lsn` and ends at
/// `end_lsn` or, when that is not known, somewhere behind `synced_lsn`.
fn stretch(
    frames: &[u8],
    chunk: ChunkId,
    first_lsn: u64,
    (synced_lsn, end_lsn): (u64, Option<u64>),
) -> Stretch {
    let mut records = Vec::new();
    let mut is_readable = true;
    let end_lsn = scan(frames, first_lsn, (synced_lsn, end_lsn), |lsn, found| {
        let record = match found {
            // A damaged body is found again when the record is read.
            Found::Whole(frame) | Found::BodyDamaged(frame) => match decode_entry(&frame) {
                Some(Entry::Update(head)) if head.chunk == chunk => Some(Reserved {
                    head,
                    lsn,
                    frame_bytes: frame.padded_bytes as u32,
                }),
                _ => None,
            },
            Found::Unreadable(_) => None,
        };
        is_readable &= record.is_some();
        records.extend(record);
    });
    Stretch {
        records,
        end_lsn,
        is_readable,
    }
}

/// Reads what a reserve holds, and cuts off what a crash has left of frames never synced. Those
/// before `synced_lsn` were, for all that the journal knows.
///
/// # Errors
/// [`ReadFailure::Corrupt`] when something that was synced cannot be read: it may have been a
/// record of any bytes of the chunk.
pub(crate) fn find(
    file: &dyn DiskFile,
    header: &ChunkHeader,
    synced_lsn: u64,
) -> Result<Option<FoundReserve>, ReadFailure> {
    let Some(bytes) = header.spec.keeping.reserve_bytes() else {
        return Ok(None);
    };
    let mut frames = vec![0; bytes as usize];
    let offset = header.extent().reserve_offset();
    // What a failed sync left in the system's memory alone must not come back as durable.
    file::read_exact(Source::Device(file), &mut frames, offset, Damage::WHOLE)?;
    let found = stretch(
        &frames,
        header.chunk,
        header.reserve_lsn,
        (synced_lsn, None),
    );
    if !found.is_readable {
        return Err(ReadFailure::Corrupt(Damage::WHOLE));
    }
    let end = (found.end_lsn - header.reserve_lsn) as usize;
    // An unsynced frame may have survived behind one that did not. It must not count again once
    // new frames have been written up to it.
    if frame::has_frame(&frames[end..], found.end_lsn) {
        frames[end..].fill(0);
        let cleared = file.write_all_at(&frames[end..], offset + end as u64);
        cleared
            .and_then(|()| file.sync())
            .map_err(ReadFailure::Io)?;
    }
    Ok(Some(FoundReserve {
        records: found.records,
        end_lsn: found.end_lsn,
    }))
}
