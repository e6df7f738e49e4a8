//! What the store keeps in memory: each stripe's state, each chunk's header once it was needed,
//! and where each pending record lies. Bytes stay on the disk.

use crate::chunk::file::ChunkHeader;
use crate::journal::Position;
use crate::journal::entry::{StripeMark, UpdateHead};
use crate::records::listed::Swapped;
use crate::records::record::{RecordKind, UpdateStamp};
use crate::records::runs::Runs;
use crate::reserve::Reserve;
use gabion_layout::{ByteRange, ChunkIndex, Epoch, Generation, Keeping, Sequence, StripeId};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

/// A stripe of which the store holds chunks or has promised something.
#[derive(Debug, Default)]
pub(crate) struct Stripe {
    pub(crate) epoch: Epoch,
    pub(crate) generation: Generation,
    pub(crate) mark: Sequence,
    /// Updates above the mark that the recovery rule dropped; late copies are refused.
    pub(crate) dropped: Vec<UpdateStamp>,
    pub(crate) chunks: BTreeMap<ChunkIndex, Chunk>,
}

/// A chunk whose file is there.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    pub(crate) header: Header,
    /// Records in the journal that the chunk's own bytes do not include. Invariant: each is kept
    /// there.
    pub(crate) pending: BTreeMap<Sequence, Pending>,
    /// Where the chunk keeps records instead. Invariant: `Some` only while the header is known and
    /// says that there is one.
    pub(crate) reserve: Option<Reserve>,
    /// Settled records in the journal that are not among the pending ones, which are later.
    pub(crate) swapped: Option<Swapped>,
    pub(crate) runs: Runs,
}

/// What is known of a chunk's header.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Header {
    /// Nobody needed it yet.
    #[default]
    Unread,
    /// As it is on disk.
    Known(ChunkHeader),
    /// It or the chunk as a whole cannot be trusted.
    Damaged,
    /// A write to the chunk failed, and the store with it. What is on the disk is known again after the
    /// next start, when the journal mends what was half written: it is not damage.
    Torn,
}

/// A record that is not yet part of the chunk's own bytes.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) head: UpdateHead,
    pub(crate) position: Position,
}

/// What keeps changes of a chunk's file apart from reads of it.
///
/// Order of locks: `change`, then `content`, then the store's state.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// Held by whoever applies to, replaces or removes the chunk, from beginning to end.
    change: Mutex<()>,
    /// Held shared while the file is read, alone while its bytes change.
    content: RwLock<()>,
}

const POISONED: &str = "no thread panics while it holds a chunk";

impl Gate {
    /// Waits until nobody else changes the chunk.
    pub(crate) fn begin_change(&self) -> MutexGuard<'_, ()> {
        self.change.lock().expect(POISONED)
    }

    /// Waits until nobody reads the chunk.
    pub(crate) fn exclude_readers(&self) -> RwLockWriteGuard<'_, ()> {
        self.content.write().expect(POISONED)
    }

    /// Waits until the chunk's bytes are at rest.
    pub(crate) fn begin_read(&self) -> RwLockReadGuard<'_, ()> {
        self.content.read().expect(POISONED)
    }

    /// The same, unless the bytes are not at rest.
    pub(crate) fn try_begin_read(&self) -> Option<RwLockReadGuard<'_, ()>> {
        match self.content.try_read() {
            Ok(shared) => Some(shared),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => panic!("{POISONED}"),
        }
    }
}

impl Stripe {
    /// Takes over what an entry or a header says; each part only grows.
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
                    reserve.unsettled.retain(|sequence, _| *sequence > mark);
                }
            }
        }
    }

    pub(crate) fn state_mark(&self, stripe: StripeId) -> StripeMark {
        StripeMark {
            stripe,
            epoch: self.epoch,
            generation: self.generation,
            mark: self.mark,
        }
    }
}

impl Chunk {
    /// How it keeps records; `None` while its header is not known.
    pub(crate) fn keeping(&self) -> Option<Keeping> {
        match self.header {
            Header::Known(header) => Some(header.spec.keeping),
            Header::Unread | Header::Damaged | Header::Torn => None,
        }
    }

    /// Pending records up to a sequence that are to become part of the chunk's own bytes.
    pub(crate) fn mergeable(&self, upto: Sequence) -> impl Iterator<Item = &Pending> {
        let settled = self.pending.range(..=upto).map(|(_, record)| record);
        settled.filter(|record| !record.head.kind.is_appended())
    }

    /// Pending records of updates after `sequence`, oldest first.
    pub(crate) fn pending_after(
        &self,
        sequence: Sequence,
    ) -> impl Iterator<Item = (&Sequence, &Pending)> {
        let after = (Bound::Excluded(sequence), Bound::Unbounded);
        self.pending.range(after)
    }
}

impl UpdateHead {
    /// Whether one of its pieces has a byte of `range`.
    pub(crate) fn touches(&self, range: ByteRange) -> bool {
        let mut pieces = self.pieces.iter().enumerate();
        pieces.any(|(at, piece)| piece.range.intersect(range).is_some() && self.changes_chunk(at))
    }

    /// Whether a piece is of the record's own chunk: appended ones may be originals, or of a data
    /// chunk on another node.
    pub(crate) fn changes_chunk(&self, at: usize) -> bool {
        match self.kind {
            RecordKind::NewBytes | RecordKind::ParityDelta => true,
            RecordKind::Appended { original_count } => {
                at >= usize::from(original_count) && self.pieces[at].data == self.chunk.index
            }
        }
    }
}
