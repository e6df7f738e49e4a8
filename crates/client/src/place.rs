//! Places of the bytes of a read: parts of one buffer, so that each piece arrives where the caller gets it and nothing
//! is copied afterwards.
//!
//! A place belongs to one piece. Its attempts write there, one after another. The second source of a hedged read runs
//! beside the first, so it has a buffer of its own, whose bytes are copied into the place if it wins.

use crate::extent::Extent;
use bytes::BytesMut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The bytes of one piece. They are zero at first.
#[derive(Debug)]
pub(crate) struct Place(Mutex<BytesMut>);

impl Place {
    /// A buffer of its own.
    pub(crate) fn new(length_bytes: u64) -> Arc<Self> {
        Self::of(BytesMut::zeroed(length_bytes as usize))
    }

    fn of(bytes: BytesMut) -> Arc<Self> {
        Arc::new(Self(Mutex::new(bytes)))
    }

    /// Divides a buffer into places of these lengths, which together have at most its length.
    pub(crate) fn divide(
        mut buffer: BytesMut,
        lengths: impl Iterator<Item = u64>,
    ) -> Vec<Arc<Self>> {
        let places = lengths.map(|length| Self::of(buffer.split_to(length as usize)));
        places.collect()
    }

    /// The buffer that was divided into these places, with their bytes. Nothing is copied.
    pub(crate) fn unite<'p>(places: impl IntoIterator<Item = &'p Arc<Self>>) -> BytesMut {
        let mut buffer = BytesMut::new();
        for place in places {
            buffer.unsplit(place.take());
        }
        buffer
    }

    /// Writes bytes from an offset on. Returns whether they fit.
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) -> bool {
        let mut place = self.lock();
        let Some(part) = place
            .get_mut(at..)
            .and_then(|rest| rest.get_mut(..bytes.len()))
        else {
            return false;
        };
        part.copy_from_slice(bytes);
        true
    }

    /// Makes all bytes zero.
    pub(crate) fn clear(&self) {
        self.lock().fill(0);
    }

    /// Takes the bytes out. The place has none then.
    pub(crate) fn take(&self) -> BytesMut {
        std::mem::take(&mut *self.lock())
    }

    /// Puts the bytes back.
    pub(crate) fn put(&self, bytes: BytesMut) {
        *self.lock() = bytes;
    }

    fn lock(&self) -> MutexGuard<'_, BytesMut> {
        // Bytes of a piece that is not whole are never used.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A piece of a stripe to be read.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) extent: Extent,
    /// The place of its bytes.
    pub(crate) place: Arc<Place>,
    /// Most bytes that the operation reads at a time. They may come by one link, so time limits depend on them.
    pub(crate) at_once_bytes: u64,
}

impl Wanted {
    /// A piece that is read alone, into a buffer of its own.
    pub(crate) fn alone(extent: Extent) -> Self {
        let length = extent.range.length;
        Self {
            extent,
            place: Place::new(length),
            at_once_bytes: length,
        }
    }

    /// The same piece, to be read beside this into a buffer of its own.
    pub(crate) fn elsewhere(&self) -> Self {
        Self {
            place: Place::new(self.extent.range.length),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_one_buffer_are_written_in_any_order_and_nothing_is_copied() {
        let buffer = BytesMut::zeroed(6);
        let address = buffer.as_ptr();
        let places = Place::divide(buffer, [1, 3, 2].into_iter());
        assert!(places[2].write(0, b"ef"));
        assert!(places[1].write(1, b"cd") && places[1].write(0, b"b"));
        assert!(!places[1].write(2, b"xy"), "it would reach the next one");
        assert!(!places[1].write(4, b""));
        let bytes: Vec<u8> = Place::unite(&places).into();
        assert_eq!(bytes, b"\0bcdef");
        assert_eq!(bytes.as_ptr(), address);
    }

    #[test]
    fn a_place_is_zero_after_it_was_cleared() {
        let place = Place::new(3);
        assert!(place.write(0, b"abc"));
        place.clear();
        assert_eq!(place.take(), [0; 3][..]);
        place.put(BytesMut::from(&b"ab"[..]));
        assert!(place.write(1, b"c"));
        assert_eq!(place.take(), b"ac"[..]);
    }
}
