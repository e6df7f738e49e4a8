//! Makes room in the journal, and writes the checkpoint at the front of each segment.

use crate::error::StoreError;
use crate::index::Stripe;
use crate::journal::entry::Entry;
use crate::journal::frame;
use crate::journal::segment::SEGMENT_HEADER_BYTES;
use crate::state::State;
use gabion_layout::StripeId;

/// Segments of the next size for which the disk must have room before segments grow with use.
const SEGMENTS_OF_ROOM: u64 = 4;

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
        match self.grow_segments(frame_bytes) {
            // Operations that settle, fence or free use the spare as it is.
            Err(StoreError::NoSpace { .. }) if room == Room::Reserved => {}
            grown => grown?,
        }
        if !self.journal.fits(frame_bytes) {
            let next_bytes = self.next_segment_bytes()?;
            self.rotate_to(next_bytes)?;
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

    /// Enlarges segments if an entry of this size needs it. A segment of the new size then begins,
    /// so that the next start knows.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] with nothing changed.
    pub(crate) fn grow_segments(&mut self, frame_bytes: u64) -> Result<(), StoreError> {
        let needed_bytes = frame_bytes.saturating_mul(4).next_power_of_two();
        let needed_bytes = needed_bytes.min(self.journal.segment_bytes_max());
        if needed_bytes <= self.journal.segment_bytes() {
            return Ok(());
        }
        self.journal
            .make_spare(self.spare_bytes_max(needed_bytes))?;
        self.journal.trim()?;
        self.rotate_to(needed_bytes)
    }

    /// The size of segments after the current one is full: twice as large, while the disk has room
    /// for several.
    fn next_segment_bytes(&self) -> Result<u64, StoreError> {
        let (now_bytes, largest_bytes) = (
            self.journal.segment_bytes(),
            self.journal.segment_bytes_max(),
        );
        let next_bytes = (2 * now_bytes).min(largest_bytes);
        if next_bytes == now_bytes {
            return Ok(now_bytes);
        }
        let available = self.journal.available_bytes()?;
        let has_room = available / SEGMENTS_OF_ROOM >= next_bytes;
        Ok(if has_room { next_bytes } else { now_bytes })
    }

    /// Allocates the next segment.
    pub(crate) fn make_spare(&mut self) -> Result<(), StoreError> {
        self.journal
            .make_spare(self.spare_bytes_max(self.journal.segment_bytes()))
    }

    /// Begins a new segment with a checkpoint of all stripes.
    pub(crate) fn rotate(&mut self) -> Result<(), StoreError> {
        self.rotate_to(self.journal.segment_bytes())
    }

    /// Begins a new segment with a checkpoint of all stripes. Later ones have `next_bytes`.
    fn rotate_to(&mut self, next_bytes: u64) -> Result<(), StoreError> {
        self.drop_stale_witnesses();
        let least_bytes = self.spare_bytes_min();
        if !self.journal.has_spare(least_bytes) {
            match self.make_spare() {
                // Half a segment suffices for an apply, which frees space.
                Err(StoreError::NoSpace { .. }) => self.journal.make_spare(least_bytes)?,
                other => other?,
            }
        }
        let state_of = |(id, stripe): (StripeId, &Stripe)| Entry::State {
            stripe: stripe.state_mark(id),
            dropped: stripe.dropped().to_vec(),
        };
        self.records.marks_are_logged();
        let states = self.index.stripes().map(state_of);
        let witnesses = self.witnesses_checkpoint();
        let entries = states.chain(self.runs_checkpoint()).chain(witnesses);
        self.journal.rotate(next_bytes, entries)?;
        self.runs_are_logged();
        Ok(())
    }

    /// Bytes that the next segment needs for a checkpoint and some entries.
    fn spare_bytes_min(&self) -> u64 {
        // A stripe's state has at most 4 numbers and a count, of 10 bytes each at most, and two
        // numbers' worth for each dropped update. Tens of bytes are usual.
        let bound = |(_, stripe): (StripeId, &Stripe)| {
            frame::frame_bytes(50 + 20 * stripe.dropped().len(), 0) as u64
        };
        let states_bytes: u64 = self.index.stripes().map(bound).sum();
        let checkpoint_bytes =
            states_bytes + self.runs_checkpoint_bytes_max() + self.witnesses_checkpoint_bytes_max();
        SEGMENT_HEADER_BYTES + checkpoint_bytes + self.journal.segment_bytes() / 2
    }

    /// Bytes of the next segment where there is space, if segments have `segment_bytes`.
    fn spare_bytes_max(&self, segment_bytes: u64) -> u64 {
        self.spare_bytes_min().max(segment_bytes)
    }
}
