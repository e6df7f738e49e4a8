//! The store's index in memory: the promises of each stripe, and the state of each chunk by room.
//! Bytes stay on the disk.

use crate::chunk::Header;
use crate::error::StoreError;
use crate::journal::entry::{StripeMark, UpdateHead};
use crate::records::ChunkRecords;
use crate::records::record::UpdateStamp;
use crate::records::runs::Runs;
use crate::reserve::Reserve;
use gabion_layout::{
    ByteRange, ChunkId, ChunkIndex, Epoch, Generation, Keeping, Sequence, StripeId,
};
use std::collections::BTreeMap;

/// A stripe with chunks or promises in this store.
#[derive(Debug, Default)]
pub(crate) struct Stripe {
    epoch: Epoch,
    generation: Generation,
    mark: Sequence,
    /// Updates above the mark that the recovery rule dropped; late copies are refused.
    dropped: Vec<UpdateStamp>,
    pub(crate) chunks: BTreeMap<ChunkIndex, Chunk>,
}

/// A chunk with a file.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    pub(crate) header: Header,
    pub(crate) records: ChunkRecords,
    /// The reserve of the chunk's records, if it has one. Invariant: `Some` only while the header
    /// is known and has a reserve.
    pub(crate) reserve: Option<Reserve>,
    pub(crate) runs: Runs,
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

    /// The ids of its chunks.
    pub(crate) fn chunk_ids(&self, stripe: StripeId) -> impl Iterator<Item = ChunkId> {
        let id = move |&index| ChunkId { stripe, index };
        self.chunks.keys().map(id)
    }
}

impl Chunk {
    /// Its keeping; `None` while its header is unknown.
    pub(crate) fn keeping(&self) -> Option<Keeping> {
        match self.header {
            Header::Known(header) => Some(header.spec.keeping),
            Header::Unread | Header::Damaged | Header::Torn => None,
        }
    }

    /// Stops serving it: its header is `lost`.
    pub(crate) fn lose(&mut self, lost: Header) {
        self.header = lost;
        self.reserve = None;
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
