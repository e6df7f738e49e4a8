//! Keeps pending records for their chunks, and releases them in the journal when they are no longer
//! needed.

use crate::records::Obsolete;
use crate::records::layer::Pending;
use crate::state::State;
use gabion_layout::{Sequence, StripeId};

impl State {
    /// Adds a record to the pending ones of its chunk, which must be here.
    pub(crate) fn remember(&mut self, pending: Pending) {
        self.journal.keep(pending.position);
        self.adopt(pending);
    }

    /// As [`State::remember`] for a record that the journal keeps already.
    fn adopt(&mut self, pending: Pending) {
        let (position, sequence) = (pending.position, pending.head.stamp.sequence);
        self.records.pending_bytes += u64::from(position.frame_bytes);
        let entry = self
            .chunk_mut(pending.head.chunk)
            .expect("records are kept for chunks that are here");
        if let Some(older) = entry.records_mut().pending.insert(sequence, pending) {
            self.release_pending(&older);
        }
    }

    /// Releases records in the journal that are no longer needed.
    pub(crate) fn release(&mut self, obsolete: Obsolete) {
        for pending in &obsolete.pending {
            self.release_pending(pending);
        }
        if let Some(listed) = obsolete.listed {
            self.records.listed = None;
            self.records.pending_bytes -= listed.bytes;
            for (segment, count) in listed.kept {
                self.journal.release_many(segment, count);
            }
        }
    }

    pub(super) fn release_pending(&mut self, pending: &Pending) {
        self.records.pending_bytes -= u64::from(pending.position.frame_bytes);
        self.journal.release(pending.position);
    }

    /// Notes that records have moved from a reserve to the journal, which keeps them.
    pub(crate) fn adopt_spilled(&mut self, spilled: Vec<Pending>) {
        for pending in spilled {
            if self.chunk(pending.head.chunk).is_some() {
                self.adopt(pending);
            } else {
                self.journal.release(pending.position);
            }
        }
    }

    /// Forgets journal copies of records that stay in their reserve.
    pub(crate) fn unspill(&mut self, spilled: Vec<Pending>) {
        for pending in spilled {
            self.journal.release(pending.position);
        }
    }

    /// The last update of a stripe that may be merged into its chunks now.
    pub(crate) fn mergeable_upto(&self, stripe: StripeId) -> Sequence {
        let mark = self.index.mark(stripe);
        let pinned = self.records.pins.lowest(stripe);
        pinned.map_or(mark, |cut| cut.min(mark))
    }
}
