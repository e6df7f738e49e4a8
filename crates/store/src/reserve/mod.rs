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

pub(crate) mod resize;
mod spill;
pub(crate) mod sync;
pub(crate) mod witness;

use crate::chunk::file::{self, ChunkHeader, ReadFailure};
use crate::chunk::read::Layer;
use crate::disk::{DiskFile, Source};
use crate::error::{IoContext, StoreError};
use crate::index::Chunk;
use crate::journal::entry::{Entry, UpdateHead};
use crate::journal::frame;
use crate::journal::scan::{Found, decode_entry, scan};
use crate::journal::{Holder, Located};
use crate::paths::chunk_path;
use crate::records::lsn::Lsn;
use crate::records::record::{Damage, Record};
use crate::store::{Room, Shared, State};
use gabion_layout::{ByteRange, ChunkId, Keeping, Sequence};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most reserves whose heads are kept in memory.
const HEADS_COUNT_MAX: usize = 8;

/// A chunk's reserve.
#[derive(Debug)]
pub(crate) struct Reserve {
    /// The position of its first byte.
    pub(crate) first_lsn: u64,
    /// The position behind its last frame.
    pub(crate) end_lsn: u64,
    pub(crate) bytes: u64,
    /// Whether it is being emptied or resized; nobody appends then.
    pub(crate) is_closed: bool,
    pub(crate) record_count: u64,
    pub(crate) oldest: Option<Sequence>,
    pub(crate) newest: Option<Sequence>,
    /// Records above the committed mark.
    pub(crate) unsettled: BTreeMap<Sequence, Reserved>,
    /// Bytes of frames appended since the store was opened.
    pub(crate) appended_bytes: u64,
    /// How often it was emptied since the store was opened.
    pub(crate) merge_count: u64,
    /// Appends that waited for a merge since the store was opened: it was full, or nothing was left.
    pub(crate) stalled_count: u64,
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
#[derive(Debug, Default)]
pub(crate) struct HeadCache {
    heads: Vec<(ChunkId, Heads)>,
}

impl HeadCache {
    fn take(&mut self, chunk: ChunkId) -> Option<Heads> {
        let at = self.heads.iter().position(|(known, _)| *known == chunk)?;
        Some(self.heads.remove(at).1)
    }

    /// Forgets a chunk's, since another file takes its place. Two lives of a chunk may have begun at
    /// the same position of the journal.
    pub(crate) fn forget(&mut self, chunk: ChunkId) {
        self.take(chunk);
    }

    fn put(&mut self, chunk: ChunkId, heads: Heads) {
        if self.heads.len() >= HEADS_COUNT_MAX {
            self.heads.remove(0);
        }
        self.heads.push((chunk, heads));
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
    pub(crate) fn empty(first_lsn: u64, bytes: u64) -> Self {
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
    pub(crate) fn changed_to(self, first_lsn: u64, bytes: u64) -> Self {
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

    fn add(&mut self, record: &Reserved) {
        let sequence = record.head.stamp.sequence;
        self.record_count += 1;
        self.oldest = Some(self.oldest.map_or(sequence, |oldest| oldest.min(sequence)));
        self.newest = self.newest.max(Some(sequence));
    }
}

/// The reserve that a header speaks of, empty.
pub(crate) fn reserve_of(header: &ChunkHeader) -> Option<Reserve> {
    match header.spec.keeping {
        Keeping::Reserve { bytes } => Some(Reserve::empty(header.reserve_lsn, bytes)),
        Keeping::InPlace | Keeping::AtOnce | Keeping::Log => None,
    }
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
    let Keeping::Reserve { bytes } = header.spec.keeping else {
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

impl State {
    /// Takes over what was found in the reserve of a chunk whose header is known.
    pub(crate) fn adopt_reserve(
        &mut self,
        chunk: ChunkId,
        found: FoundReserve,
        file: &Arc<dyn DiskFile>,
    ) {
        let Some(stripe) = self.stripes.get_mut(&chunk.stripe) else {
            return;
        };
        for record in &found.records {
            let head = &record.head;
            stripe.learn(head.stamp.epoch, head.generation, Sequence(0));
        }
        let mark = stripe.mark;
        let entry = stripe.chunks.get_mut(&chunk.index);
        let Some(reserve) = entry.and_then(|entry| entry.reserve.as_mut()) else {
            return;
        };
        let of = |record: &Reserved| (record.head.stamp.sequence, record.head.run);
        let runs: Vec<_> = found.records.iter().map(of).collect();
        for record in found.records {
            reserve.add(&record);
            let sequence = record.head.stamp.sequence;
            if sequence > mark {
                reserve.unsettled.insert(sequence, record);
            }
        }
        reserve.end_lsn = found.end_lsn;
        let (first_lsn, is_used) = (reserve.first_lsn, reserve.used_bytes() > 0);
        for (sequence, run) in runs {
            self.note_run(chunk, sequence, run);
        }
        if is_used {
            // What a killed process has left may be in the system's memory only.
            self.reserve_syncs
                .note(chunk, file, first_lsn, found.end_lsn);
        }
    }

    /// The heads of all records in a chunk's reserve, in their order; none when it has no reserve.
    ///
    /// # Errors
    /// As [`State::header`]; [`StoreError::Corrupt`] for the whole chunk when something in the
    /// reserve cannot be read.
    pub(crate) fn reserved(&mut self, chunk: ChunkId) -> Result<Arc<Vec<Reserved>>, StoreError> {
        let header = self.header(chunk)?;
        let reserve = self.chunk(chunk).and_then(|entry| entry.reserve.as_ref());
        let Some((first_lsn, end_lsn)) = reserve.map(|r| (r.first_lsn, r.end_lsn)) else {
            return Ok(Arc::default());
        };
        if first_lsn == end_lsn {
            return Ok(Arc::default());
        }
        let known = self.head_cache.take(chunk);
        let known = known.filter(|known| known.first_lsn == first_lsn);
        let mut heads = known.unwrap_or_else(|| Heads {
            first_lsn,
            end_lsn: first_lsn,
            records: Arc::default(),
        });
        if heads.end_lsn < end_lsn {
            let file = self.open_file(chunk)?;
            let mut frames = vec![0; (end_lsn - heads.end_lsn) as usize];
            let offset = header.extent().reserve_offset() + (heads.end_lsn - first_lsn);
            file::read_exact(Source::File(&*file), &mut frames, offset, Damage::WHOLE)
                .map_err(|failure| failure.into_error(chunk))?;
            let found = stretch(&frames, chunk, heads.end_lsn, (0, Some(end_lsn)));
            if !found.is_readable {
                let range = Damage::WHOLE;
                return Err(StoreError::Corrupt { chunk, range });
            }
            Arc::make_mut(&mut heads.records).extend(found.records);
            heads.end_lsn = end_lsn;
        }
        let records = Arc::clone(&heads.records);
        self.head_cache.put(chunk, heads);
        Ok(records)
    }

    /// The records of a chunk after `base` up to `upto` that `is_wanted`, wherever they lie.
    ///
    /// # Errors
    /// As [`State::reserved`].
    pub(crate) fn records(
        &mut self,
        chunk: ChunkId,
        (base, upto): (Sequence, Sequence),
        is_wanted: impl Fn(&UpdateHead) -> bool,
    ) -> Result<BTreeMap<Sequence, Layer>, StoreError> {
        let mut layers = BTreeMap::new();
        let reserved = self.reserved(chunk)?;
        for record in reserved.iter().filter(|record| is_wanted(&record.head)) {
            let sequence = record.head.stamp.sequence;
            if sequence > base && sequence <= upto {
                layers.insert(sequence, self.layer(chunk, record)?);
            }
        }
        for record in self.swapped(chunk)?.iter() {
            let sequence = record.head.stamp.sequence;
            if sequence > base && sequence <= upto && is_wanted(&record.head) {
                let layer = Layer {
                    head: record.head.clone(),
                    located: self.journal.locate(record.position),
                };
                layers.insert(sequence, layer);
            }
        }
        let pending = self.chunk(chunk).into_iter().flat_map(|entry| {
            let after = entry.pending_after(base);
            after.take_while(|(sequence, _)| **sequence <= upto)
        });
        // A record may be in both after a crash while it moved to the journal.
        for (&sequence, record) in pending.filter(|(_, record)| is_wanted(&record.head)) {
            let layer = Layer {
                head: record.head.clone(),
                located: self.journal.locate(record.position),
            };
            layers.insert(sequence, layer);
        }
        Ok(layers)
    }

    /// A record of a chunk's reserve for reading.
    pub(crate) fn layer(&mut self, chunk: ChunkId, record: &Reserved) -> Result<Layer, StoreError> {
        let header = self.header(chunk)?;
        Ok(Layer {
            head: record.head.clone(),
            located: Located {
                file: self.open_file(chunk)?,
                offset: header.extent().reserve_offset() + (record.lsn - header.reserve_lsn),
                lsn: record.lsn,
                frame_bytes: record.frame_bytes,
                holder: Holder::Chunk(chunk),
            },
        })
    }
}

impl Shared {
    /// Appends a record to its chunk's reserve, which has room for it.
    pub(crate) fn append_to_reserve(
        &self,
        state: &mut State,
        record: &Record<'_>,
        head: UpdateHead,
    ) -> Result<Lsn, StoreError> {
        let chunk = record.chunk;
        self.learn_durably(state, record)?;
        let header = state.header(chunk)?;
        let file = state.open_file(chunk)?;
        let known_synced_lsn = self.reserve_syncs.synced_lsn(chunk);
        let body: Vec<&[u8]> = record.pieces.iter().map(|piece| piece.bytes).collect();
        let reserve = state
            .chunk_mut(chunk)
            .and_then(|entry| entry.reserve.as_mut());
        let reserve = reserve.expect("the caller saw that it has room");
        let lsn = reserve.end_lsn;
        let synced_lsn = known_synced_lsn.unwrap_or(lsn);
        let entry = Entry::Update(head);
        let mut bytes = Vec::new();
        let head_bytes = entry.encode_head();
        frame::encode(
            &mut bytes,
            lsn,
            synced_lsn,
            entry.kind(),
            &head_bytes,
            &body,
        );
        let offset = header.extent().reserve_offset() + reserve.used_bytes();
        assert!(
            reserve.fits(bytes.len() as u64),
            "the caller saw that it has room"
        );
        let written = file.write_all_at(&bytes, offset);
        self.require(written.context("write", &chunk_path(chunk)))?;
        let Entry::Update(head) = entry else {
            unreachable!("it was made an update above");
        };
        let record = Reserved {
            head,
            lsn,
            frame_bytes: bytes.len() as u32,
        };
        reserve.add(&record);
        reserve.end_lsn += bytes.len() as u64;
        reserve.appended_bytes += bytes.len() as u64;
        let end_lsn = reserve.end_lsn;
        reserve.unsettled.insert(record.head.stamp.sequence, record);
        self.counters.add(|c| &c.reserve_bytes, bytes.len() as u64);
        self.reserve_syncs.note(chunk, &file, synced_lsn, end_lsn);
        Ok(Lsn::in_reserve(chunk, end_lsn))
    }

    /// Writes down in the journal what a record says of its stripe's epoch and generation when
    /// that is new: the reserve will be emptied before any checkpoint may have it.
    fn learn_durably(&self, state: &mut State, record: &Record<'_>) -> Result<(), StoreError> {
        let stripe = state.stripes.entry(record.chunk.stripe).or_default();
        let known = (stripe.epoch, stripe.generation);
        if record.stamp.epoch > known.0 || record.generation > known.1 {
            stripe.learn(record.stamp.epoch, record.generation, Sequence(0));
            let entry = Entry::State {
                stripe: stripe.state_mark(record.chunk.stripe),
                dropped: Vec::new(),
            };
            self.append(state, &entry, &[], Room::Ordinary)?;
        }
        Ok(())
    }
}

impl Chunk {
    /// The record of an update above the mark, in the journal or in the reserve.
    pub(crate) fn unsettled_after(
        &self,
        mark: Sequence,
    ) -> impl Iterator<Item = (Sequence, &UpdateHead)> {
        let pending = self
            .pending_after(mark)
            .map(|(&s, record)| (s, &record.head));
        let reserved = self.reserve.iter().flat_map(|reserve| &reserve.unsettled);
        let only_there = reserved.filter(move |(s, _)| **s > mark && !self.pending.contains_key(s));
        let mut all: Vec<_> = pending
            .chain(only_there.map(|(&s, record)| (s, &record.head)))
            .collect();
        all.sort_unstable_by_key(|(sequence, _)| *sequence);
        all.into_iter()
    }

    /// The bytes of `range` that a record above the mark touches first.
    pub(crate) fn first_unsettled(&self, mark: Sequence, range: ByteRange) -> Option<Sequence> {
        let touches = |(_, head): &(Sequence, &UpdateHead)| head.touches(range);
        self.unsettled_after(mark).find(touches).map(|(s, _)| s)
    }
}
