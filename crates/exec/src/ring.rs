//! The slices of one value between its producer and its consumers. A ring tracks how many consumers
//! still need each slice, and which buffers may be reused; the executor knows the meaning of the
//! slices and their consumers.

use bytes::{Buf, Bytes, BytesMut};
use std::collections::VecDeque;

/// Slices that a value buffers at most, and so the credit that a sender has at the start. Both ends
/// of a link must agree on it.
pub const RING_SLICES: u64 = 8;

/// Slices requested at once from a disk or a sender while a stream is in flight: a message or a read for
/// each would cost more than its slice. The other half of the ring covers the wait.
pub(crate) const BATCH_SLICES: u64 = RING_SLICES / 2;

const CACHE_LINE_BYTES: usize = 64;

/// A slot for one slice.
#[derive(Debug)]
struct Slot {
    /// None while the slice is being fetched.
    bytes: Option<Bytes>,
    /// Consumers that have not taken the slice yet.
    waiting_count: usize,
}

/// The slices of a value that not all consumers have taken yet.
#[derive(Debug)]
pub(crate) struct Ring {
    consumer_count: usize,
    /// Number of the front slice.
    base: u64,
    /// Slices from `base` on. Invariant: at most [`RING_SLICES`].
    slots: VecDeque<Slot>,
    /// Sums that all consumers have taken, oldest first. A pending send or store may still hold
    /// one; once it is released, its memory is reused for the next sum. Invariant: at most
    /// [`RING_SLICES`].
    spent: VecDeque<Bytes>,
}

impl Ring {
    pub(crate) fn new(consumer_count: usize) -> Self {
        Self {
            consumer_count,
            base: 0,
            slots: VecDeque::new(),
            spent: VecDeque::new(),
        }
    }

    /// Number of the first slice that is present or expected.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Number of the slice after the last one that has a slot.
    pub(crate) fn end(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    pub(crate) fn has_room(&self) -> bool {
        (self.slots.len() as u64) < RING_SLICES
    }

    pub(crate) fn get(&self, slice: u64) -> Option<&Bytes> {
        self.slots.get(self.position(slice)?)?.bytes.as_ref()
    }

    /// Whether the slice has a slot without bytes.
    pub(crate) fn is_awaited(&self, slice: u64) -> bool {
        let slot = self.position(slice).and_then(|at| self.slots.get(at));
        slot.is_some_and(|slot| slot.bytes.is_none())
    }

    /// Adds a slot at the end, with its bytes if they are available.
    pub(crate) fn push(&mut self, bytes: Option<Bytes>) {
        assert!(self.has_room(), "a full ring takes no slices");
        self.slots.push_back(Slot {
            bytes,
            waiting_count: self.consumer_count,
        });
    }

    /// Gives an awaited slice its bytes.
    pub(crate) fn fill(&mut self, slice: u64, bytes: Bytes) {
        assert!(self.is_awaited(slice), "only an awaited slice is filled");
        let at = (slice - self.base) as usize;
        self.slots[at].bytes = Some(bytes);
    }

    /// Notes that one more consumer has taken the slice.
    pub(crate) fn take(&mut self, slice: u64) {
        let at = self.position(slice).expect("a slice that is taken is here");
        self.slots[at].waiting_count -= 1;
    }

    /// Whether the front slice can be dropped.
    pub(crate) fn is_front_taken(&self) -> bool {
        let front = self.slots.front();
        front.is_some_and(|slot| slot.waiting_count == 0 && slot.bytes.is_some())
    }

    /// Drops the front slices that all consumers have taken. With `keep`, their buffers are kept
    /// for [`Ring::blank`].
    pub(crate) fn trim(&mut self, keep: bool) {
        while self.is_front_taken() {
            let slot = self.slots.pop_front().expect("the front exists");
            if keep {
                self.spent.extend(slot.bytes);
                if self.spent.len() as u64 > RING_SLICES {
                    self.spent.pop_front();
                }
            }
            self.base += 1;
        }
    }

    /// A buffer for the next sum, with any content: the oldest spent one if it is no longer in use.
    /// New memory must be zeroed, which for large slices costs a good part of the sum itself.
    pub(crate) fn blank(&mut self, length: usize) -> BytesMut {
        match self.spent.pop_front().map(Bytes::try_into_mut) {
            Some(Ok(mut buffer)) => {
                buffer.resize(length, 0);
                buffer
            }
            Some(Err(held)) => {
                self.spent.push_front(held);
                aligned(length)
            }
            None => aligned(length),
        }
    }

    fn position(&self, slice: u64) -> Option<usize> {
        usize::try_from(slice.checked_sub(self.base)?).ok()
    }
}

/// A new buffer that begins on a cache line, because kernels write whole lines: one that straddles
/// two costs twice.
fn aligned(length: usize) -> BytesMut {
    let mut buffer = BytesMut::zeroed(length + CACHE_LINE_BYTES - 1);
    let start = buffer.as_ptr().align_offset(CACHE_LINE_BYTES);
    buffer.advance(start);
    buffer.truncate(length);
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spent_buffer_is_reused_only_after_its_release() {
        let mut ring = Ring::new(0);
        let first = ring.blank(100);
        let address = first.as_ptr();
        assert_eq!(address as usize % CACHE_LINE_BYTES, 0);
        let held = first.freeze();
        ring.push(Some(held.clone()));
        ring.trim(true);
        assert_eq!(ring.base(), 1);
        assert_ne!(ring.blank(100).as_ptr(), address);
        drop(held);
        assert_eq!(ring.blank(100).as_ptr(), address);
    }

    #[test]
    fn slices_leave_in_order_once_all_consumers_have_them() {
        let mut ring = Ring::new(2);
        ring.push(None);
        ring.push(None);
        ring.fill(1, Bytes::from_static(b"b"));
        ring.take(1);
        ring.take(1);
        ring.trim(false);
        assert_eq!((ring.base(), ring.end()), (0, 2));
        ring.fill(0, Bytes::from_static(b"a"));
        ring.take(0);
        ring.trim(false);
        assert_eq!(ring.base(), 0);
        ring.take(0);
        ring.trim(false);
        assert_eq!((ring.base(), ring.end()), (2, 2));
        assert!(ring.get(1).is_none() && !ring.is_awaited(2));
    }
}
