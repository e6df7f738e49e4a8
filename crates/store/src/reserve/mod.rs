//! Reserves: space behind a chunk, in the chunk's own file, that holds the records of its updates.
//!
//! After `CodFS` 4.1: a parity chunk and its deltas are adjacent, so that one read covers both and
//! a delta is written once. Here the reserve is also the log that makes a record durable; its
//! records go to the journal only if the reserve has no space for them.
//!
//! A reserve holds frames of the journal's format, one behind the other from its beginning.
//! Positions keep growing when it is emptied: the header then gives the position behind the last
//! frame as that of the first byte. Older frames stay on disk, but their checksums include other
//! positions, so they never become valid again.
//!
//! A reserve is a hole in the chunk's file until its first record.
//!
//! Memory holds the reserve's ends and the heads of records above the committed mark. Other heads
//! are read on demand, and kept for the few chunks read last.

mod append;
mod contents;
pub(crate) mod resize;
mod spill;
pub(crate) mod sync;
mod syncing;
pub(crate) mod witness;
mod witnessing;

use crate::chunk::file::{self, BLOCK_BYTES, ChunkHeader, ReadFailure};
use crate::disk::{DiskFile, Source};
use crate::journal::entry::{Entry, UpdateHead};
use crate::journal::frame;
use crate::journal::scan::{Found, decode_entry, scan};
use crate::records::record::{Damage, UpdateStamp};
use gabion_layout::{ByteRange, ChunkId, Sequence};
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
    /// The size that it takes with the first record it ever holds, if that is planned.
    planned_bytes: Option<u64>,
    /// Whether all of it is known to have disk space. A new chunk's reserve has none.
    is_backed: bool,
    /// Whether it is being emptied or resized; appends are refused then.
    is_closed: bool,
    record_count: u64,
    oldest: Option<Sequence>,
    newest: Option<Sequence>,
    /// Records above the committed mark.
    unsettled: BTreeMap<Sequence, Reserved>,
    /// Bytes of frames appended since the store was opened.
    appended_bytes: u64,
    /// The number of times it was emptied since the store was opened.
    merge_count: u64,
    /// Appends since the store was opened that waited for a merge, because the reserve was full or
    /// had no space left, or whose record is larger than the reserve.
    stalled_count: u64,
}

/// A record in a reserve, with its location.
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

/// State shared by all reserves.
#[derive(Default)]
pub(crate) struct Reserves {
    heads: HeadCache,
    syncs: Arc<ReserveSyncs>,
    /// The journal's witness of each reserve.
    witnesses: BTreeMap<ChunkId, Witness>,
}

impl Reserves {
    /// The frames in reserves that are not durable yet.
    pub(crate) fn syncs(&self) -> Arc<ReserveSyncs> {
        Arc::clone(&self.syncs)
    }

    /// Forgets the heads of a chunk's records, since a new file replaces the chunk's. Both files
    /// may have begun at the same position of the journal.
    pub(crate) fn forget_heads(&mut self, chunk: ChunkId) {
        self.heads.take(chunk);
    }

    /// The position up to which the journal shows the reserve of a chunk with this header as
    /// synced; 0 if unknown.
    pub(crate) fn witnessed_lsn(&self, header: &ChunkHeader) -> u64 {
        let witness = self.witnesses.get(&header.chunk);
        witness.map_or(0, |witness| witness.of(header))
    }
}

/// Contents of a stretch of a reserve.
struct Stretch {
    records: Vec<Reserved>,
    end_lsn: u64,
    /// Whether it is readable up to its end.
    is_readable: bool,
}

/// The contents of a reserve when its chunk is first needed.
pub(crate) struct FoundReserve {
    records: Vec<Reserved>,
    end_lsn: u64,
    is_backed: bool,
}

impl Reserve {
    fn empty(first_lsn: u64, bytes: u64) -> Self {
        Self {
            first_lsn,
            end_lsn: first_lsn,
            bytes,
            planned_bytes: None,
            is_backed: false,
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

    /// This reserve after a header change to this beginning and size.
    fn changed_to(self, first_lsn: u64, bytes: u64) -> Self {
        if first_lsn == self.first_lsn {
            let planned_bytes = self.planned_bytes.filter(|_| bytes == self.bytes);
            return Self {
                bytes,
                planned_bytes,
                ..self
            };
        }
        Self {
            is_backed: self.is_backed,
            is_closed: self.is_closed,
            appended_bytes: self.appended_bytes,
            merge_count: self.merge_count + 1,
            stalled_count: self.stalled_count,
            ..Self::empty(first_lsn, bytes)
        }
    }

    /// Whether no record was ever in it: positions begin at 0 and only grow.
    fn is_new(&self) -> bool {
        self.end_lsn == 0
    }

    /// The size that it takes when it gets its disk space for a record; `None` if it has that, or needs none.
    fn unbacked_bytes(&self, frame_bytes: u64) -> Option<u64> {
        let planned_bytes = self.planned_bytes.filter(|_| self.is_new());
        let planned_bytes =
            planned_bytes.map(|bytes| bytes.max(frame_bytes.next_multiple_of(BLOCK_BYTES)));
        let needs_space = !self.is_backed && self.bytes > 0;
        needs_space.then(|| planned_bytes.unwrap_or(self.bytes))
    }

    /// Whether it has its disk space.
    pub(crate) fn is_backed(&self) -> bool {
        self.is_backed
    }

    /// Bytes of it that have disk space.
    pub(crate) fn backed_bytes(&self) -> u64 {
        if self.is_backed { self.bytes } else { 0 }
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.end_lsn - self.first_lsn
    }

    pub(crate) fn fits(&self, frame_bytes: u64) -> bool {
        self.used_bytes() + frame_bytes <= self.bytes
    }

    /// Forgets the heads of records that are now settled.
    pub(crate) fn settle(&mut self, mark: Sequence) {
        self.unsettled.retain(|sequence, _| *sequence > mark);
    }

    /// Forgets a dropped record. Its copy in the reserve was removed before.
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

    /// The lowest update number in it.
    pub(crate) fn oldest(&self) -> Option<Sequence> {
        self.oldest
    }

    /// Whether a record of this size fits, now or once the reserve is empty.
    pub(crate) fn may_take(&self, frame_bytes: u64) -> bool {
        !self.is_closed && frame_bytes <= self.bytes
    }

    /// Counts an append whose record has gone to the journal, if no merge would have made room for
    /// it.
    pub(crate) fn note_spilled(&mut self, frame_bytes: u64) {
        self.stalled_count += u64::from(self.bytes > 0 && frame_bytes > self.bytes);
    }

    /// Counts an append that waited for a merge.
    pub(crate) fn note_stall(&mut self) {
        self.stalled_count += 1;
    }

    /// Refuses appends until it is reopened, if it holds records. Returns its end then.
    pub(crate) fn close(&mut self) -> Option<u64> {
        let is_used = self.used_bytes() > 0;
        self.is_closed |= is_used;
        is_used.then_some(self.end_lsn)
    }

    /// Takes over its contents; records at or below the mark are settled.
    fn adopt(&mut self, found: FoundReserve, mark: Sequence) {
        for record in found.records {
            self.add(&record);
            let sequence = record.head.stamp.sequence;
            if sequence > mark {
                self.unsettled.insert(sequence, record);
            }
        }
        self.end_lsn = found.end_lsn;
        self.is_backed = found.is_backed;
    }

    /// Notes a record written at its end. Returns the new end.
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

/// The reserve of a chunk with this header, from its `known` earlier state.
pub(crate) fn follow(known: Option<Reserve>, header: &ChunkHeader) -> Option<Reserve> {
    let bytes = header.spec.keeping.reserve_bytes()?;
    Some(match known {
        Some(known) => known.changed_to(header.reserve_lsn, bytes),
        None => Reserve::empty(header.reserve_lsn, bytes),
    })
}

/// The records in a stretch of `chunk`'s reserve, which begins at position `first_lsn` and ends at
/// `end_lsn` or, if that is unknown, somewhere behind `synced_lsn`.
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
            // A damaged body is reported when the record is read.
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

/// Reads a reserve's contents, and cuts off unsynced frames that a crash left. Frames before
/// `synced_lsn` were synced.
///
/// # Errors
/// [`ReadFailure::Corrupt`] when a synced frame cannot be read: it may have been a record of any
/// bytes of the chunk.
pub(crate) fn find(
    file: &dyn DiskFile,
    header: &ChunkHeader,
    synced_lsn: u64,
) -> Result<Option<FoundReserve>, ReadFailure> {
    let Some(bytes) = header.spec.keeping.reserve_bytes() else {
        return Ok(None);
    };
    let offset = header.extent().reserve_offset();
    // A damaged header may promise more than the file has.
    if file.length().is_ok_and(|length| length < offset + bytes) {
        return Err(ReadFailure::Corrupt(Damage::WHOLE));
    }
    let mut frames = vec![0; bytes as usize];
    // Frames that a failed sync left only in the page cache must not become durable.
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
    // An unsynced frame may have survived behind one that did not. It must not become valid again
    // once new frames reach it.
    if frame::has_frame(&frames[end..], found.end_lsn) {
        let cleared = file.punch_hole(offset + end as u64, (frames.len() - end) as u64);
        cleared
            .and_then(|()| file.sync())
            .map_err(ReadFailure::Io)?;
    }
    Ok(Some(FoundReserve {
        records: found.records,
        end_lsn: found.end_lsn,
        is_backed: is_backed(file, ByteRange::new(offset, bytes)),
    }))
}

/// Whether all of a range is known to have disk space. Not every file system tells.
fn is_backed(file: &dyn DiskFile, range: ByteRange) -> bool {
    let extents = file.extents(range).unwrap_or_default();
    extents.iter().map(|extent| extent.length).sum::<u64>() == range.length
}
