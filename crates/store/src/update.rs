//! Records and promises: append, fence, collect, commit, resolve.
//!
//! This is a participant's durable half of the update protocol. The store decides nothing about
//! which update stands; it keeps what it was told, refuses what is past, and says what it has.

use crate::apply::ApplySummary;
use crate::chunk_file::Extent;
use crate::disk::Disk;
use crate::entry::{Entry, StripeMark, UpdateHead};
use crate::error::StoreError;
use crate::frame;
use crate::index::{Pending, Stripe};
use crate::record::{Record, RecordSummary, StripeState, UpdateStamp};
use crate::store::{Lsn, Options, Room, Shared, State, Store};
use gabion_layout::{ChunkId, Epoch, Generation, Keeping, Sequence, StripeId};
use std::collections::BTreeMap;

/// Most pieces of one record, which bounds a frame's head.
const PIECE_COUNT_MAX: usize = 4096;
/// Most updates of an epoch that are remembered as dropped, which bounds a frame's head.
const DROPPED_COUNT_MAX: usize = 2048;

impl<D: Disk> Store<D> {
    /// Appends a record, which is durable once [`Store::sync`] has returned for the answer.
    ///
    /// A record that is held already changes nothing; the answer is its position. A record of an
    /// epoch or generation above the known ones raises them, so that older primaries are refused
    /// from then on.
    ///
    /// # Errors
    /// - [`StoreError::Fenced`], [`StoreError::StaleGeneration`]: the sender is past.
    /// - [`StoreError::Settled`], [`StoreError::Dropped`]: the record comes too late.
    /// - [`StoreError::SequenceTaken`]: another epoch's update of this number is held.
    /// - [`StoreError::NoSuchChunk`], [`StoreError::OutOfChunk`], [`StoreError::Malformed`],
    ///   [`StoreError::RecordTooLarge`]: it cannot be kept.
    /// - [`StoreError::Corrupt`]: the chunk as a whole needs repair first.
    /// - [`StoreError::NoSpace`]: the disk is full; nothing was appended.
    /// - [`StoreError::Io`], [`StoreError::Failed`]: the store takes no writes any more.
    pub fn append(&self, record: &Record<'_>) -> Result<Lsn, StoreError> {
        let head = UpdateHead::of(record);
        check_shape(record, &head, self.shared.options)?;
        let mut state = self.shared.lock();
        if let Some(held) = self.shared.admit(&mut state, record, &head)? {
            return Ok(held);
        }
        if state.merges_first(record.chunk) {
            drop(state);
            // Damage keeps records pending, which refuses nothing.
            let mut summary = ApplySummary::default();
            self.shared
                .apply_chunk(record.chunk, u64::MAX, &mut summary)?;
            state = self.shared.lock();
            if let Some(held) = self.shared.admit(&mut state, record, &head)? {
                return Ok(held);
            }
        }
        let entry = Entry::Update(head);
        let body: Vec<&[u8]> = record.pieces.iter().map(|piece| piece.bytes).collect();
        let position = self
            .shared
            .append(&mut state, &entry, &body, Room::Ordinary)?;
        let Entry::Update(head) = entry else {
            unreachable!("it was made an update above");
        };
        let stripe = state.stripes.entry(record.chunk.stripe).or_default();
        stripe.learn(record.stamp.epoch, record.generation, Sequence(0));
        state.remember(Pending { head, position });
        Ok(Lsn(position.end_lsn()))
    }

    /// Promises, durably, to refuse every epoch before `epoch` and generation before
    /// `generation`. Repeating a fence is harmless.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] and [`StoreError::StaleGeneration`] when a later one was promised to
    /// already; [`StoreError::NoSpace`], [`StoreError::Io`], [`StoreError::Failed`].
    pub fn fence(
        &self,
        stripe: StripeId,
        epoch: Epoch,
        generation: Generation,
    ) -> Result<(), StoreError> {
        let needed_lsn = {
            let mut state = self.shared.lock();
            self.shared.check_latch()?;
            match state.know_stripe(&self.shared.disk, stripe) {
                Ok(()) | Err(StoreError::NoSuchStripe { .. }) => {}
                Err(error) => return Err(error),
            }
            let unknown = Stripe::default();
            let known = state.stripes.get(&stripe).unwrap_or(&unknown);
            check_epoch(known, stripe, epoch)?;
            check_generation(known, stripe, generation)?;
            if (epoch, generation) > (known.epoch, known.generation) {
                let mark = known.mark;
                let fence = StripeMark {
                    stripe,
                    epoch,
                    generation,
                    mark,
                };
                let entry = state_entry(fence, Vec::new());
                self.shared
                    .append(&mut state, &entry, &[], Room::Reserved)?;
                let known = state.stripes.entry(stripe).or_default();
                known.learn(epoch, generation, mark);
            }
            // An equal fence may have been learned from something that is not durable yet.
            state.journal.needed_lsn
        };
        self.shared.sync(needed_lsn)
    }

    /// What the store holds of a stripe above its mark. Everything reported is durable.
    ///
    /// # Errors
    /// [`StoreError::NoSuchStripe`]; [`StoreError::Io`] and [`StoreError::Failed`].
    pub fn collect(&self, stripe: StripeId) -> Result<StripeState, StoreError> {
        let (found, needed_lsn) = {
            let mut state = self.shared.lock();
            state.know_stripe(&self.shared.disk, stripe)?;
            let known = &state.stripes[&stripe];
            let pending = known.chunks.values().flat_map(|chunk| {
                let unsettled = chunk.pending_after(known.mark);
                unsettled.map(|(_, pending)| summary(&pending.head))
            });
            let found = StripeState {
                epoch: known.epoch,
                generation: known.generation,
                mark: known.mark,
                records: pending.collect(),
            };
            (found, state.journal.needed_lsn)
        };
        self.shared.sync(needed_lsn)?;
        Ok(found)
    }

    /// Takes over that all updates up to `upto` are settled. It counts at once and is logged
    /// without a sync: after a crash the store may know a lower mark, and hold more as unsettled.
    ///
    /// # Errors
    /// [`StoreError::NoSuchStripe`]; [`StoreError::Io`] and [`StoreError::Failed`].
    pub fn commit(&self, stripe: StripeId, upto: Sequence) -> Result<(), StoreError> {
        let mut state = self.shared.lock();
        self.shared.check_latch()?;
        let known = state
            .stripes
            .get_mut(&stripe)
            .ok_or(StoreError::NoSuchStripe { stripe })?;
        if upto <= known.mark {
            return Ok(());
        }
        known.raise_mark(upto);
        let entry = state_entry(known.state_mark(stripe), Vec::new());
        match self.shared.append(&mut state, &entry, &[], Room::Ordinary) {
            // A full disk may cost the mark, which costs nothing but a recovery's time.
            Ok(_) | Err(StoreError::NoSpace { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Makes the recovery rule's outcome durable: updates up to `mark` stand but those `dropped`.
    /// Records above the mark from epochs before `epoch` are dropped too, listed or not: their
    /// primary is fenced and whoever resolves has decided about all that stand.
    ///
    /// # Errors
    /// - [`StoreError::Fenced`] when a later epoch was promised to.
    /// - [`StoreError::Settled`] when a record to drop is held at or below the mark that was known
    ///   before: it stood already.
    /// - [`StoreError::NoSuchStripe`], [`StoreError::NoSpace`], [`StoreError::Io`],
    ///   [`StoreError::Failed`]; [`StoreError::Malformed`] when more than 2048 updates are dropped.
    pub fn resolve(
        &self,
        stripe: StripeId,
        epoch: Epoch,
        mark: Sequence,
        dropped: &[Sequence],
    ) -> Result<(), StoreError> {
        let lsn = {
            let mut state = self.shared.lock();
            self.shared.check_latch()?;
            state.know_stripe(&self.shared.disk, stripe)?;
            let known = &state.stripes[&stripe];
            check_epoch(known, stripe, epoch)?;
            let stamps = known.stamps_to_drop(stripe, epoch, mark, dropped)?;
            let outcome = StripeMark {
                stripe,
                epoch,
                generation: known.generation,
                mark: mark.max(known.mark),
            };
            let entry = state_entry(outcome, stamps.clone());
            let position = self
                .shared
                .append(&mut state, &entry, &[], Room::Reserved)?;
            state.learn(outcome, stamps);
            position.end_lsn()
        };
        self.shared.sync(lsn)
    }
}

impl<D: Disk> Shared<D> {
    /// Whether the store takes a record. The position of the record when it is held already.
    fn admit(
        &self,
        state: &mut State<D>,
        record: &Record<'_>,
        head: &UpdateHead,
    ) -> Result<Option<Lsn>, StoreError> {
        self.check_latch()?;
        let header = state.header(&self.disk, record.chunk)?;
        check_ranges(head, header.extent())?;
        state.admit(record)
    }
}

impl<D: Disk> State<D> {
    /// Whether a chunk merges the records that it has before it takes another one.
    fn merges_first(&self, chunk: ChunkId) -> bool {
        let upto = self.mergeable_upto(chunk.stripe);
        self.chunk(chunk).is_some_and(|entry| {
            matches!(
                entry.keeping(),
                Some(Keeping::AtOnce | Keeping::Reserve { bytes: 0 })
            ) && entry.pending.range(..=upto).next().is_some()
        })
    }

    /// Whether the protocol lets a record in. The position of the record when it is held already.
    fn admit(&self, record: &Record<'_>) -> Result<Option<Lsn>, StoreError> {
        let (chunk, stamp) = (record.chunk, record.stamp);
        let known = &self.stripes[&chunk.stripe];
        check_epoch(known, chunk.stripe, stamp.epoch)?;
        check_generation(known, chunk.stripe, record.generation)?;
        match known.chunks[&chunk.index].pending.get(&stamp.sequence) {
            Some(held) if held.head.stamp == stamp => {
                return Ok(Some(Lsn(held.position.end_lsn())));
            }
            Some(held) => {
                let held = held.head.stamp;
                return Err(StoreError::SequenceTaken { chunk, held });
            }
            None => {}
        }
        if stamp.sequence <= known.mark {
            return Err(StoreError::Settled {
                stripe: chunk.stripe,
                mark: known.mark,
                sequence: stamp.sequence,
            });
        }
        if known.dropped.contains(&stamp) {
            return Err(StoreError::Dropped {
                stripe: chunk.stripe,
                sequence: stamp.sequence,
            });
        }
        Ok(None)
    }

    /// Takes over what a state entry says, now or at replay.
    pub(crate) fn learn(&mut self, outcome: StripeMark, dropped: Vec<UpdateStamp>) {
        let stripe = self.stripes.entry(outcome.stripe).or_default();
        let mut gone = Vec::new();
        for stamp in &dropped {
            for chunk in stripe.chunks.values_mut() {
                let is_it = |held: &Pending| held.head.stamp == *stamp;
                if chunk.pending.get(&stamp.sequence).is_some_and(is_it) {
                    gone.extend(chunk.pending.remove_entry(&stamp.sequence));
                }
            }
        }
        stripe.dropped.extend(dropped);
        stripe.dropped.sort_unstable();
        stripe.dropped.dedup();
        stripe.learn(outcome.epoch, outcome.generation, outcome.mark);
        // What is at or below the mark or from an older epoch is refused without a list.
        let (mark, epoch) = (stripe.mark, stripe.epoch);
        let is_needed = |stamp: &UpdateStamp| stamp.sequence > mark && stamp.epoch >= epoch;
        stripe.dropped.retain(is_needed);
        for record in gone {
            self.forget(BTreeMap::from([record]));
        }
    }
}

impl Stripe {
    /// The stamps that a resolution drops: those listed and held, those listed for late copies of
    /// this epoch, and those that older epochs left above the mark.
    fn stamps_to_drop(
        &self,
        stripe: StripeId,
        epoch: Epoch,
        mark: Sequence,
        dropped: &[Sequence],
    ) -> Result<Vec<UpdateStamp>, StoreError> {
        let mut stamps = Vec::new();
        for chunk in self.chunks.values() {
            for (sequence, pending) in &chunk.pending {
                let stamp = pending.head.stamp;
                let is_listed = dropped.contains(sequence);
                if is_listed && *sequence <= self.mark {
                    return Err(StoreError::Settled {
                        stripe,
                        mark: self.mark,
                        sequence: *sequence,
                    });
                }
                if is_listed || (*sequence > mark.max(self.mark) && stamp.epoch < epoch) {
                    stamps.push(stamp);
                }
            }
        }
        let late = dropped
            .iter()
            .map(|&sequence| UpdateStamp { epoch, sequence });
        stamps.extend(late.filter(|stamp| stamp.sequence > mark));
        stamps.sort_unstable();
        stamps.dedup();
        if self.dropped.len() + stamps.len() > DROPPED_COUNT_MAX {
            let reason = "one epoch dropped more than 2048 updates; raise the mark first";
            return Err(StoreError::Malformed { reason });
        }
        Ok(stamps)
    }
}

fn state_entry(stripe: StripeMark, dropped: Vec<UpdateStamp>) -> Entry {
    Entry::State { stripe, dropped }
}

fn summary(head: &UpdateHead) -> RecordSummary {
    RecordSummary {
        chunk: head.chunk,
        stamp: head.stamp,
        participants: head.participants.to_vec(),
    }
}

fn check_epoch(known: &Stripe, stripe: StripeId, epoch: Epoch) -> Result<(), StoreError> {
    if epoch < known.epoch {
        let current = known.epoch;
        return Err(StoreError::Fenced { stripe, current });
    }
    Ok(())
}

fn check_generation(
    known: &Stripe,
    stripe: StripeId,
    generation: Generation,
) -> Result<(), StoreError> {
    if generation < known.generation {
        let current = known.generation;
        return Err(StoreError::StaleGeneration { stripe, current });
    }
    Ok(())
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
    if !record.participants.is_sorted_by(|a, b| a < b) {
        return malformed("participants must be in increasing order");
    }
    if !record.participants.contains(&record.chunk.index) {
        return malformed("a record's own chunk takes part in its update");
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
