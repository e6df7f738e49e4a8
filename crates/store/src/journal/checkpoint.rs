//! Makes room in the journal, and writes the checkpoint at the front of each segment.

use crate::error::StoreError;
use crate::index::Stripe;
use crate::journal::entry::Entry;
use crate::journal::frame;
use crate::journal::segment::SEGMENT_HEADER_BYTES;
use crate::state::State;
use gabion_layout::StripeId;

/// Whether an append may use the space reserved for freeing space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// No: the append can be refused.
    Ordinary,
    /// Yes: the append settles, fences or frees.
    Reserved,
}

impl State {
    /// Ensures that a frame of this size can be appended.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] when the disk is full; nothing relevant has changed then.
    pub(crate) fn make_room(&mut self, frame_bytes: u64, room: Room) -> Result<(), StoreError> {
        if !self.journal.fits(frame_bytes) {
            self.rotate()?;
        }
        if !self.journal.fits(frame_bytes) {
            // A full disk forced a small segment.
            return Err(StoreError::NoSpace {
                operation: "the journal",
                needed_bytes: frame_bytes,
            });
        }
        if room == Room::Ordinary && !self.journal.has_spare(1) {
            self.make_spare()?;
        }
        Ok(())
    }

    /// Allocates the next segment.
    pub(crate) fn make_spare(&mut self) -> Result<(), StoreError> {
        let least_bytes = self.spare_bytes_min();
        self.journal
            .make_spare(least_bytes.max(self.options.segment_bytes()))
    }

    /// Begins a new segment with a checkpoint of all stripes.
    pub(crate) fn rotate(&mut self) -> Result<(), StoreError> {
        self.drop_stale_witnesses();
        let least_bytes = self.spare_bytes_min();
        if !self.journal.has_spare(least_bytes) {
            match self.make_spare() {
                // Half a segment suffices for an apply, which frees space.
                Err(StoreError::NoSpace { .. }) => self.journal.make_spare(least_bytes)?,
                other => other?,
            }
        }
        let state_of = |(id, stripe): (&StripeId, &Stripe)| Entry::State {
            stripe: stripe.state_mark(*id),
            dropped: stripe.dropped().to_vec(),
        };
        self.records.marks_are_logged();
        let states = self.stripes.iter().map(state_of);
        let witnesses = self.witnesses_checkpoint();
        let entries = states.chain(self.runs_checkpoint()).chain(witnesses);
        self.journal.rotate(entries)?;
        self.runs_are_logged();
        Ok(())
    }

    /// Bytes that the next segment needs for a checkpoint and some entries.
    fn spare_bytes_min(&self) -> u64 {
        // A stripe's state has at most 4 numbers and a count, of 10 bytes each at most, and two
        // numbers' worth for each dropped update. Tens of bytes are usual.
        let bound =
            |stripe: &Stripe| frame::frame_bytes(50 + 20 * stripe.dropped().len(), 0) as u64;
        let states_bytes: u64 = self.stripes.values().map(bound).sum();
        let checkpoint_bytes =
            states_bytes + self.runs_checkpoint_bytes_max() + self.witnesses_checkpoint_bytes_max();
        SEGMENT_HEADER_BYTES + checkpoint_bytes + self.options.segment_bytes() / 2
    }
}
