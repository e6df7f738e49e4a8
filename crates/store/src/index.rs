//! The store's index in memory: the promises of each stripe, and the state of each chunk by room.
//! Bytes stay on the disk.

use crate::chunk::Header;
use crate::chunk::file::ChunkHeader;
use crate::error::StoreError;
use crate::journal::entry::{StripeMark, UpdateHead};
use crate::records::record::UpdateStamp;
use crate::records::runs::Runs;
use crate::records::{ChunkRecords, Obsolete};
use crate::reserve::{self, Reserve};
use gabion_layout::{
    ByteRange, ChunkId, ChunkIndex, Epoch, Generation, Keeping, Sequence, StripeId,
};
use std::collections::BTreeMap;
use std::ops::Bound;

/// The stripes with chunks or promises in this store.
#[derive(Debug, Default)]
pub(crate) struct Index {
    stripes: BTreeMap<StripeId, Stripe>,
}

/// A stripe with chunks or promises in this store.
#[derive(Debug, Default)]
pub(crate) struct Stripe {
    epoch: Epoch,
    generation: Generation,
    mark: Sequence,
    /// Updates above the mark that the recovery rule dropped; late copies are refused.
    dropped: Vec<UpdateStamp>,
    chunks: BTreeMap<ChunkIndex, Chunk>,
}

/// A chunk with a file.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    header: Header,
    records: ChunkRecords,
    /// The reserve of the chunk's records, if it has one. Invariant: `Some` only while the header
    /// is known and has a reserve.
    reserve: Option<Reserve>,
    runs: Runs,
}

impl Index {
    pub(crate) fn stripe(&self, stripe: StripeId) -> Option<&Stripe> {
        self.stripes.get(&stripe)
    }

    pub(crate) fn stripe_mut(&mut self, stripe: StripeId) -> Option<&mut Stripe> {
        self.stripes.get_mut(&stripe)
    }

    /// The stripe, made without chunks and promises if it is not here.
    pub(crate) fn stripe_or_new(&mut self, stripe: StripeId) -> &mut Stripe {
        self.stripes.entry(stripe).or_default()
    }

    /// All stripes, in the order of their ids.
    pub(crate) fn stripes(&self) -> impl Iterator<Item = (StripeId, &Stripe)> {
        self.stripes.iter().map(|(&id, stripe)| (id, stripe))
    }

    /// The first stripe behind `after`, or of all.
    pub(crate) fn stripe_behind(&self, after: Option<StripeId>) -> Option<StripeId> {
        let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.stripes.range((behind, Bound::Unbounded));
        rest.next().map(|(&stripe, _)| stripe)
    }

    /// The updates of a stripe up to here are settled.
    pub(crate) fn mark(&self, stripe: StripeId) -> Sequence {
        self.stripe(stripe).map_or(Sequence(0), Stripe::mark)
    }

    pub(crate) fn chunk(&self, chunk: ChunkId) -> Option<&Chunk> {
        self.stripe(chunk.stripe)?.chunk(chunk.index)
    }

    pub(crate) fn chunk_mut(&mut self, chunk: ChunkId) -> Option<&mut Chunk> {
        let stripe = self.stripe_mut(chunk.stripe)?;
        stripe.chunks.get_mut(&chunk.index)
    }

    /// The chunk, with an unread header if it was not here.
    pub(crate) fn chunk_or_new(&mut self, chunk: ChunkId) -> &mut Chunk {
        let stripe = self.stripe_or_new(chunk.stripe);
        stripe.chunks.entry(chunk.index).or_default()
    }

    /// All chunks, in the order of their ids.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = (ChunkId, &Chunk)> {
        self.stripes().flat_map(|(stripe, held)| {
            let with_id = move |(index, chunk)| (ChunkId { stripe, index }, chunk);
            held.chunks().map(with_id)
        })
    }

    /// All chunks, in the order of their ids.
    pub(crate) fn chunks_mut(&mut self) -> impl Iterator<Item = &mut Chunk> {
        self.stripes.values_mut().flat_map(Stripe::chunks_mut)
    }

    /// Removes a chunk, and its stripe's promises with the last chunk of the stripe.
    pub(crate) fn remove(&mut self, chunk: ChunkId) -> Option<Chunk> {
        let stripe = self.stripe_mut(chunk.stripe)?;
        let removed = stripe.chunks.remove(&chunk.index);
        if stripe.chunks.is_empty() {
            self.stripes.remove(&chunk.stripe);
        }
        removed
    }
}

impl Stripe {
    /// The highest epoch promised.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The highest generation known.
    pub(crate) fn generation(&self) -> Generation {
        self.generation
    }

    /// All updates up to here are settled.
    pub(crate) fn mark(&self) -> Sequence {
        self.mark
    }

    /// Updates above the mark that the recovery rule dropped.
    pub(crate) fn dropped(&self) -> &[UpdateStamp] {
        &self.dropped
    }

    /// Refuses a stale epoch.
    pub(crate) fn check_epoch(&self, stripe: StripeId, epoch: Epoch) -> Result<(), StoreError> {
        if epoch < self.epoch {
            let current = self.epoch;
            return Err(StoreError::Fenced { stripe, current });
        }
        Ok(())
    }

    /// Refuses a stale generation.
    pub(crate) fn check_generation(
        &self,
        stripe: StripeId,
        generation: Generation,
    ) -> Result<(), StoreError> {
        if generation < self.generation {
            let current = self.generation;
            return Err(StoreError::StaleGeneration { stripe, current });
        }
        Ok(())
    }

    /// Merges the contents of an entry or a header; each part only grows.
    pub(crate) fn learn(&mut self, epoch: Epoch, generation: Generation, mark: Sequence) {
        self.epoch = self.epoch.max(epoch);
        self.generation = self.generation.max(generation);
        self.raise_mark(mark);
    }

    pub(crate) fn raise_mark(&mut self, mark: Sequence) {
        if mark > self.mark {
            self.mark = mark;
            self.dropped.retain(|stamp| stamp.sequence > mark);
            for chunk in self.chunks.values_mut() {
                if let Some(reserve) = &mut chunk.reserve {
                    reserve.settle(mark);
                }
            }
        }
    }

    /// Remembers dropped updates, to refuse late copies.
    pub(crate) fn drop_updates(&mut self, stamps: Vec<UpdateStamp>) {
        self.dropped.extend(stamps);
        self.dropped.sort_unstable();
        self.dropped.dedup();
    }

    /// Forgets dropped updates that the store refuses without a list: at or below the mark, or from
    /// an older epoch.
    pub(crate) fn trim_dropped(&mut self) {
        let (mark, epoch) = (self.mark, self.epoch);
        let is_needed = |stamp: &UpdateStamp| stamp.sequence > mark && stamp.epoch >= epoch;
        self.dropped.retain(is_needed);
    }

    pub(crate) fn state_mark(&self, stripe: StripeId) -> StripeMark {
        StripeMark {
            stripe,
            epoch: self.epoch,
            generation: self.generation,
            mark: self.mark,
        }
    }

    pub(crate) fn chunk(&self, index: ChunkIndex) -> Option<&Chunk> {
        self.chunks.get(&index)
    }

    /// Its chunks, in order.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = (ChunkIndex, &Chunk)> {
        self.chunks.iter().map(|(&index, chunk)| (index, chunk))
    }

    /// Its chunks, in order.
    pub(crate) fn chunks_mut(&mut self) -> impl Iterator<Item = &mut Chunk> {
        self.chunks.values_mut()
    }

    /// A chunk with a damaged header, if no other chunk is intact: the store does not know the
    /// records in its reserve. Beside an intact chunk, a damaged one counts as a leftover of an
    /// earlier layout, which must not hold up settlements until it is removed.
    pub(crate) fn lost_chunk(&self) -> Option<ChunkIndex> {
        if self
            .chunks()
            .any(|(_, chunk)| chunk.known_header().is_some())
        {
            return None;
        }
        let is_lost = |(index, chunk): (ChunkIndex, &Chunk)| chunk.is_damaged().then_some(index);
        self.chunks().find_map(is_lost)
    }

    /// The ids of its chunks.
    pub(crate) fn chunk_ids(&self, stripe: StripeId) -> impl Iterator<Item = ChunkId> {
        let id = move |&index| ChunkId { stripe, index };
        self.chunks.keys().map(id)
    }
}

impl Chunk {
    pub(crate) fn header(&self) -> Header {
        self.header
    }

    /// Its header; `None` while that is unknown.
    pub(crate) fn known_header(&self) -> Option<ChunkHeader> {
        match self.header {
            Header::Known(header) => Some(header),
            Header::Unread | Header::Damaged | Header::Torn => None,
        }
    }

    /// Whether its header was not read yet.
    pub(crate) fn is_unread(&self) -> bool {
        matches!(self.header, Header::Unread)
    }

    /// Whether its header is damaged, or its file is missing.
    pub(crate) fn is_damaged(&self) -> bool {
        matches!(self.header, Header::Damaged)
    }

    /// Its keeping; `None` while its header is unknown.
    pub(crate) fn keeping(&self) -> Option<Keeping> {
        self.known_header().map(|header| header.spec.keeping)
    }

    /// Its records in the journal.
    pub(crate) fn records(&self) -> &ChunkRecords {
        &self.records
    }

    pub(crate) fn records_mut(&mut self) -> &mut ChunkRecords {
        &mut self.records
    }

    /// The reserve of its records, if it has one.
    pub(crate) fn reserve(&self) -> Option<&Reserve> {
        self.reserve.as_ref()
    }

    pub(crate) fn reserve_mut(&mut self) -> Option<&mut Reserve> {
        self.reserve.as_mut()
    }

    /// The runs of its updates.
    pub(crate) fn runs(&self) -> &Runs {
        &self.runs
    }

    pub(crate) fn runs_mut(&mut self) -> &mut Runs {
        &mut self.runs
    }

    /// Takes over its header as it is on disk now, and lets its reserve follow. Returns the records
    /// that the chunk includes.
    pub(crate) fn follow(&mut self, header: ChunkHeader) -> Obsolete {
        self.header = Header::Known(header);
        self.reserve = reserve::follow(self.reserve.take(), &header);
        self.records.take_upto(header.spec.base)
    }

    /// Notes that another file has taken the place of its own, which had the reserve.
    pub(crate) fn replace_file(&mut self) {
        self.reserve = None;
    }

    /// Stops serving it: its header is `lost`.
    pub(crate) fn lose(&mut self, lost: Header) {
        self.header = lost;
        self.reserve = None;
    }

    /// Forgets all its records, and returns them with the runs of its updates.
    pub(crate) fn take_records(&mut self) -> (Obsolete, Runs) {
        (self.records.take_all(), std::mem::take(&mut self.runs))
    }

    /// The records of updates above the mark, in the journal or in the reserve, oldest first.
    pub(crate) fn unsettled_after(
        &self,
        mark: Sequence,
    ) -> impl Iterator<Item = (Sequence, &UpdateHead)> {
        let pending = self.records.after(mark);
        let reserved = self.reserve.iter().flat_map(Reserve::unsettled);
        let is_only_there = move |head: &&UpdateHead| {
            head.stamp.sequence > mark && !self.records.contains(head.stamp.sequence)
        };
        let heads = pending.map(|record| &record.head);
        let heads = heads.chain(reserved.filter(is_only_there));
        let mut all: Vec<_> = heads.map(|head| (head.stamp.sequence, head)).collect();
        all.sort_unstable_by_key(|(sequence, _)| *sequence);
        all.into_iter()
    }

    /// The first record above the mark that touches `range`.
    pub(crate) fn first_unsettled(&self, mark: Sequence, range: ByteRange) -> Option<Sequence> {
        let touches = |(_, head): &(Sequence, &UpdateHead)| head.touches(range);
        self.unsettled_after(mark).find(touches).map(|(s, _)| s)
    }
}
