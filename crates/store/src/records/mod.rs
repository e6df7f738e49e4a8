//! Records of updates that chunks do not include yet, and the store's promises about them.
//!
//! [`ChunkRecords`] is the state of one chunk's records in the journal, [`Records`] the state
//! shared by all chunks. [`crate::reserve`] has the records in reserves.

mod append;
pub(crate) mod appended;
pub(crate) mod inventory;
pub(crate) mod layer;
mod layers;
mod list;
mod listing;
pub(crate) mod lsn;
mod missed;
mod pending;
mod pin;
pub(crate) mod record;
mod run_memory;
pub(crate) mod runs;
mod settle;

use crate::journal::segment::Position;
use crate::options::Options;
use gabion_layout::{ChunkId, Sequence, StripeId};
use layer::Pending;
use list::{Listed, ListedRecords};
use runs::RunOrder;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// The records of one chunk in the journal that the chunk's own bytes do not include.
#[derive(Debug, Default)]
pub(crate) struct ChunkRecords {
    /// Invariant: the journal keeps each.
    pending: BTreeMap<Sequence, Pending>,
    /// Settled records that are not among the pending ones; all pending ones are later.
    listed: Option<Listed>,
}

/// Records that no chunk needs.
#[derive(Debug, Default)]
#[must_use = "the journal keeps them until they are released"]
pub(crate) struct Obsolete {
    pending: Vec<Pending>,
    listed: Option<Listed>,
}

/// The pinned cuts of each stripe, with their counts. Invariant: no count is zero.
#[derive(Debug, Default)]
struct Pins {
    counts: BTreeMap<(StripeId, Sequence), u64>,
}

impl Pins {
    fn add(&mut self, stripe: StripeId, cut: Sequence) {
        *self.counts.entry((stripe, cut)).or_default() += 1;
    }

    fn remove(&mut self, stripe: StripeId, cut: Sequence) {
        if let Some(count) = self.counts.get_mut(&(stripe, cut)) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&(stripe, cut));
            }
        }
    }

    /// The lowest pinned cut of a stripe.
    fn lowest(&self, stripe: StripeId) -> Option<Sequence> {
        let all = (stripe, Sequence(0))..=(stripe, Sequence(u64::MAX));
        self.counts.range(all).next().map(|(&(_, cut), _)| cut)
    }
}

/// State shared by the records of all chunks.
pub(crate) struct Records {
    pins: Pins,
    /// Stripes whose mark is higher than the journal says.
    unlogged_marks: BTreeSet<StripeId>,
    /// Bytes of the frames of all pending and listed records.
    pending_bytes: u64,
    /// The listed records that were read last: usually one chunk is read at a time.
    listed: Option<ListedRecords>,
    run_order: RunOrder,
    /// Chunks that are about to become visible, each with the update up to which no run is known.
    announced: BTreeMap<ChunkId, Sequence>,
}

impl Records {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            pins: Pins::default(),
            unlogged_marks: BTreeSet::new(),
            pending_bytes: 0,
            listed: None,
            run_order: RunOrder::new(options),
            announced: BTreeMap::new(),
        }
    }

    /// Journal bytes of records that chunks do not include yet.
    pub(crate) fn pending_bytes(&self) -> u64 {
        self.pending_bytes
    }

    /// Notes that the journal has the marks of all stripes.
    pub(crate) fn marks_are_logged(&mut self) {
        self.unlogged_marks.clear();
    }
}

impl ChunkRecords {
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.listed.is_none()
    }

    /// Number of pending records, without listed ones.
    pub(crate) fn pending_count(&self) -> u64 {
        self.pending.len() as u64
    }

    pub(crate) fn contains(&self, sequence: Sequence) -> bool {
        self.pending.contains_key(&sequence)
    }

    /// Whether some of its records are not in memory.
    pub(crate) fn has_listed(&self) -> bool {
        self.listed.is_some()
    }

    /// Pending records up to a sequence that are to be merged into the chunk's own bytes.
    pub(crate) fn mergeable(&self, upto: Sequence) -> impl Iterator<Item = &Pending> {
        let settled = self.pending.range(..=upto).map(|(_, record)| record);
        settled.filter(|record| !record.head.kind.is_appended())
    }

    /// The oldest record to be merged into the chunk's own bytes, and the bytes of all such
    /// records.
    pub(crate) fn backlog(&self, upto: Sequence) -> Option<(Position, u64)> {
        let settled = || self.mergeable(upto).map(|record| record.position);
        let listed = self.listed.as_ref();
        let oldest = settled().chain(listed.map(|listed| listed.oldest)).min()?;
        let bytes = settled().map(|position| u64::from(position.frame_bytes));
        Some((oldest, bytes.chain(listed.map(|listed| listed.bytes)).sum()))
    }

    /// Pending records of updates after `sequence`, oldest first.
    pub(crate) fn after(&self, sequence: Sequence) -> impl Iterator<Item = &Pending> {
        let after = (Bound::Excluded(sequence), Bound::Unbounded);
        self.pending.range(after).map(|(_, record)| record)
    }

    /// Pending records in a segment of the journal.
    pub(crate) fn in_segment(&self, segment: u64) -> impl Iterator<Item = &Pending> {
        let records = self.pending.values();
        records.filter(move |record| record.position.segment == segment)
    }

    /// Whether listed records, or lists of them, are in a segment of the journal.
    pub(crate) fn lists_in(&self, segment: u64) -> bool {
        let listed = self.listed.as_ref();
        listed.is_some_and(|listed| listed.kept.contains_key(&segment))
    }

    /// Removes the records that a chunk with this base includes.
    pub(crate) fn take_upto(&mut self, base: Sequence) -> Obsolete {
        let next = base.0.checked_add(1);
        let later = next.map(|next| self.pending.split_off(&Sequence(next)));
        let included = std::mem::replace(&mut self.pending, later.unwrap_or_default());
        Obsolete {
            pending: included.into_values().collect(),
            listed: self.listed.take_if(|listed| listed.newest <= base),
        }
    }

    /// Removes the records before a position.
    pub(crate) fn take_before(&mut self, lsn: u64) -> Obsolete {
        let is_before = |_: &Sequence, record: &mut Pending| record.position.lsn < lsn;
        let before = self.pending.extract_if(.., is_before);
        Obsolete {
            pending: before.map(|(_, record)| record).collect(),
            listed: None,
        }
    }

    /// Removes all records.
    pub(crate) fn take_all(&mut self) -> Obsolete {
        let all = std::mem::take(self);
        Obsolete {
            pending: all.pending.into_values().collect(),
            listed: all.listed,
        }
    }
}
