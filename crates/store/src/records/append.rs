//! Appends a record: checks whether the protocol admits it, and places it by the chunk's keeping.

use crate::chunk::apply::ApplySummary;
use crate::chunk::file::Extent;
use crate::error::StoreError;
use crate::journal::checkpoint::Room;
use crate::journal::entry::UpdateHead;
use crate::journal::frame;
use crate::options::Options;
use crate::records::layer::Pending;
use crate::records::lsn::Lsn;
use crate::records::record::{RECORD_RUN_COUNT_MAX, Record, RecordKind};
use crate::state::State;
use crate::store::{Shared, Store};
use gabion_layout::{ChunkId, Keeping, Sequence};

/// Most pieces of one record, which bounds a frame's head.
const PIECE_COUNT_MAX: usize = 4096;

impl Store {
    /// Appends a record, which is durable once [`Store::sync`] has returned for the returned
    /// position.
    ///
    /// A record that is already held changes nothing; its position is returned. A record of an
    /// epoch or generation above the known ones raises them, so that older primaries are refused
    /// from then on.
    ///
    /// # Errors
    /// - [`StoreError::Fenced`], [`StoreError::StaleGeneration`]: the sender is stale.
    /// - [`StoreError::Settled`], [`StoreError::Dropped`]: the record is too late.
    /// - [`StoreError::SequenceTaken`]: another epoch's update of this number is held.
    /// - [`StoreError::NoSuchChunk`], [`StoreError::OutOfChunk`], [`StoreError::Malformed`],
    ///   [`StoreError::RecordTooLarge`]: it cannot be kept.
    /// - [`StoreError::Corrupt`]: the chunk as a whole needs repair first.
    /// - [`StoreError::NoSpace`]: the disk is full; nothing was appended.
    /// - [`StoreError::Io`], [`StoreError::Failed`]: the store no longer accepts writes.
    pub fn append(&self, record: &Record<'_>) -> Result<Lsn, StoreError> {
        let head = UpdateHead::of(record);
        check_shape(record, &head, self.shared.options)?;
        let mut state = self.shared.lock();
        if let Some(held) = self.shared.admit(&mut state, record, &head)? {
            return Ok(held);
        }
        let mut has_stalled = false;
        let mut place = state.place_of(&head);
        if matches!(place, Place::Merge | Place::NewReserve) {
            has_stalled = place == Place::Merge && state.reserve(record.chunk).is_some();
            drop(state);
            if place == Place::Merge {
                self.shared.merge_first(record, has_stalled)?;
            } else {
                self.shared.back_reserve(record.chunk, head.frame_bytes())?;
            }
            state = self.shared.lock();
            if let Some(held) = self.shared.admit(&mut state, record, &head)? {
                return Ok(held);
            }
            place = state.place_of(&head);
        }
        let runs = head.runs.clone();
        let frame_bytes = head.frame_bytes();
        let goes_to_reserve =
            place == Place::Reserve && self.shared.journal_can_take(&mut state, frame_bytes)?;
        let lsn = if goes_to_reserve {
            self.shared.append_to_reserve(&mut state, record, head)?
        } else {
            self.shared.append_to_journal(&mut state, record, head)?
        };
        state.note_runs(record.chunk, record.stamp.sequence, &runs);
        self.shared.counters.add(|c| &c.append_count, 1);
        Ok(lsn.stalled(has_stalled))
    }
}

impl Shared {
    /// Whether the store admits a record; its position if it is already held.
    fn admit(
        &self,
        state: &mut State,
        record: &Record<'_>,
        head: &UpdateHead,
    ) -> Result<Option<Lsn>, StoreError> {
        self.check_latch()?;
        let header = state.header(record.chunk)?;
        check_ranges(head, header.extent())?;
        state.admit(record)
    }

    /// Merges a chunk's settled records to make space for another one.
    fn merge_first(&self, record: &Record<'_>, has_stalled: bool) -> Result<(), StoreError> {
        let gate = self.lock().chunks.gate(record.chunk);
        let _changing = gate.begin_change();
        // Damage keeps records in place, which is no reason to refuse.
        let mut summary = ApplySummary::default();
        self.apply_chunk(&gate, record.chunk, u64::MAX, &mut summary)?;
        let merge_count = u64::from(summary.record_count > 0);
        self.counters
            .add(|c| &c.foreground_merge_count, merge_count);
        if has_stalled {
            let bytes = record.pieces.iter().map(|piece| piece.bytes.len() as u64);
            self.counters.add(|c| &c.stalled_append_bytes, bytes.sum());
            self.counters.add(|c| &c.stalled_append_count, 1);
            if let Some(reserve) = self.lock().reserve_mut(record.chunk) {
                reserve.note_stall();
            }
        }
        Ok(())
    }

    fn append_to_journal(
        &self,
        state: &mut State,
        record: &Record<'_>,
        head: UpdateHead,
    ) -> Result<Lsn, StoreError> {
        let body: Vec<&[u8]> = record.pieces.iter().map(|piece| piece.bytes).collect();
        let position = self.append(state, &head, &body, Room::Ordinary)?;
        let stripe = state.index.stripe_or_new(record.chunk.stripe);
        stripe.learn(record.stamp.epoch, record.generation, Sequence(0));
        if let Some(reserve) = state.reserve_mut(record.chunk) {
            reserve.note_spilled(head.frame_bytes());
            self.counters.add(|c| &c.spilled_record_count, 1);
        }
        state.remember(Pending { head, position });
        self.list_settled(state, record.chunk)?;
        Ok(Lsn::in_journal(position.end_lsn()))
    }
}

/// Placement of a chunk's next record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Journal,
    Reserve,
    /// The reserve once it has its disk space, and the journal while the disk is full.
    NewReserve,
    /// None until settled records are merged.
    Merge,
}

impl State {
    /// Placement of a record of a chunk whose header is known.
    fn place_of(&self, head: &UpdateHead) -> Place {
        let chunk = head.chunk;
        let Some(entry) = self.chunk(chunk) else {
            return Place::Journal;
        };
        let Some(header) = entry.known_header() else {
            return Place::Journal;
        };
        if head.kind.is_appended() {
            return Place::Journal;
        }
        let upto = self.mergeable_upto(chunk.stripe);
        match (entry.reserve(), header.spec.keeping) {
            (Some(reserve), Keeping::Reserve { bytes: 1.. }) => {
                let frame_bytes = head.frame_bytes();
                if !reserve.may_take(frame_bytes) {
                    Place::Journal
                } else if !reserve.is_backed() {
                    Place::NewReserve
                } else if reserve.fits(frame_bytes) {
                    Place::Reserve
                } else if reserve
                    .oldest()
                    .is_some_and(|o| o.max(Sequence(header.spec.base.0.saturating_add(1))) <= upto)
                {
                    Place::Merge
                } else {
                    Place::Journal
                }
            }
            (_, Keeping::AtOnce | Keeping::Reserve { bytes: 0 })
                if entry.records().mergeable(upto).next().is_some() =>
            {
                Place::Merge
            }
            _ => Place::Journal,
        }
    }

    /// Whether the protocol admits a record; its position if it is already held.
    fn admit(&self, record: &Record<'_>) -> Result<Option<Lsn>, StoreError> {
        let (chunk, stamp) = (record.chunk, record.stamp);
        let known = self.index.stripe(chunk.stripe);
        let known = known.ok_or(StoreError::NoSuchChunk { chunk })?;
        known.check_epoch(chunk.stripe, stamp.epoch)?;
        known.check_generation(chunk.stripe, record.generation)?;
        let entry = known.chunk(chunk.index);
        let entry = entry.ok_or(StoreError::NoSuchChunk { chunk })?;
        let pending = entry.records().pending.get(&stamp.sequence);
        let pending = pending.map(|held| {
            let lsn = Lsn::in_journal(held.position.end_lsn());
            (held.head.stamp, lsn)
        });
        let reserve = entry.reserve();
        let reserved = reserve.and_then(|reserve| reserve.unsettled_at(stamp.sequence));
        let reserved = reserved.map(|held| {
            let end_lsn = held.lsn + u64::from(held.frame_bytes);
            (held.head.stamp, Lsn::in_reserve(chunk, end_lsn))
        });
        match pending.or(reserved) {
            Some((held, lsn)) if held == stamp => return Ok(Some(lsn)),
            Some((held, _)) => return Err(StoreError::SequenceTaken { chunk, held }),
            None => {}
        }
        if stamp.sequence <= known.mark() {
            return Err(StoreError::Settled {
                stripe: chunk.stripe,
                mark: known.mark(),
                sequence: stamp.sequence,
            });
        }
        if known.dropped().contains(&stamp) {
            return Err(StoreError::Dropped {
                stripe: chunk.stripe,
                sequence: stamp.sequence,
            });
        }
        Ok(None)
    }
}

fn check_shape(record: &Record<'_>, head: &UpdateHead, options: Options) -> Result<(), StoreError> {
    let malformed = |reason| Err(StoreError::Malformed { reason });
    if record.stamp.sequence == Sequence(0) {
        return malformed("updates are numbered from 1");
    }
    if record.pieces.is_empty() || record.pieces.iter().any(|piece| piece.bytes.is_empty()) {
        return malformed("a record has at least one piece, and a piece at least one byte");
    }
    if record.pieces.len() > PIECE_COUNT_MAX {
        return malformed("a record has at most 4096 pieces");
    }
    if record.runs.len() > RECORD_RUN_COUNT_MAX {
        return malformed("a record has at most 64 runs");
    }
    if !record.participants.is_sorted_by(|a, b| a < b) {
        return malformed("participants must be in increasing order");
    }
    if let RecordKind::Appended { original_count } = record.kind
        && usize::from(original_count) > record.pieces.len()
    {
        return malformed("a record has more originals than pieces");
    }
    if !record.participants.contains(&record.chunk.index) {
        return malformed("a record's participants must include its own chunk");
    }
    let bytes = frame::PREFIX_BYTES as u64 + head.piece_bytes();
    let limit_bytes = options.record_bytes_max();
    if bytes > limit_bytes {
        return Err(StoreError::RecordTooLarge { bytes, limit_bytes });
    }
    Ok(())
}

fn check_ranges(head: &UpdateHead, extent: Extent) -> Result<(), StoreError> {
    let chunk: ChunkId = head.chunk;
    match head
        .pieces
        .iter()
        .find(|piece| !extent.contains(piece.range))
    {
        None => Ok(()),
        Some(piece) => Err(StoreError::OutOfChunk {
            chunk,
            range: piece.range,
            chunk_bytes: extent.chunk_bytes,
        }),
    }
}
