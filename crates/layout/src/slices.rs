//! A stream of slices in a few numbers, so that a plan for a 64 MiB chunk is as small as one for 4
//! KiB.

use crate::geometry::ByteRange;
use serde::{Deserialize, Serialize};

/// Byte positions within a chunk, as `count` slices: slice `t` starts at `offset + t * stride` and
/// has `slice_bytes` bytes, except the last, which has `tail_bytes`. With `stride == slice_bytes`
/// the slices are contiguous; a larger stride interleaves several streams, as the cyclic version of
/// repair pipelining does (`ECPipe` 4.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Slices {
    /// First byte of the first slice.
    pub offset: u64,
    /// Bytes of each slice except the last.
    pub slice_bytes: u64,
    /// Distance between the first bytes of neighbouring slices; at least `slice_bytes`.
    pub stride: u64,
    /// Number of slices, at least 1.
    pub count: u64,
    /// Bytes of the last slice, `1..=slice_bytes`.
    pub tail_bytes: u64,
}

impl Slices {
    /// The range in one slice.
    ///
    /// # Panics
    /// If the range is empty: a stream has at least one byte.
    pub fn whole(range: ByteRange) -> Self {
        Self::contiguous(range, range.length)
    }

    /// The range as neighbouring slices of at most `slice_bytes` bytes.
    ///
    /// # Panics
    /// If the range or a slice is empty.
    pub fn contiguous(range: ByteRange, slice_bytes: u64) -> Self {
        assert!(
            range.length > 0 && slice_bytes > 0,
            "a stream of slices has at least one byte"
        );
        let slice_bytes = slice_bytes.min(range.length);
        let count = range.length.div_ceil(slice_bytes);
        let tail_bytes = range.length - (count - 1) * slice_bytes;
        Self {
            offset: range.offset,
            slice_bytes,
            stride: slice_bytes,
            count,
            tail_bytes,
        }
    }

    /// Whether the numbers are valid; a peer's stream is checked before use.
    pub const fn is_valid(&self) -> bool {
        let shape = self.count >= 1
            && self.slice_bytes >= 1
            && self.tail_bytes >= 1
            && self.tail_bytes <= self.slice_bytes
            && self.stride >= self.slice_bytes;
        let Some(span) = (self.count.saturating_sub(1)).checked_mul(self.stride) else {
            return false;
        };
        let Some(last) = self.offset.checked_add(span) else {
            return false;
        };
        shape && last.checked_add(self.tail_bytes).is_some()
    }

    /// Bytes of all slices together.
    pub const fn bytes(&self) -> u64 {
        (self.count - 1) * self.slice_bytes + self.tail_bytes
    }

    /// The range of slice `t`.
    ///
    /// # Panics
    /// If there is no slice `t`.
    pub fn slice(&self, t: u64) -> ByteRange {
        assert!(t < self.count, "slice {t} of {}", self.count);
        let length = if t + 1 == self.count {
            self.tail_bytes
        } else {
            self.slice_bytes
        };
        ByteRange::new(self.offset + t * self.stride, length)
    }

    /// From the first to the last byte, gaps included.
    pub const fn span(&self) -> ByteRange {
        ByteRange::new(
            self.offset,
            (self.count - 1) * self.stride + self.tail_bytes,
        )
    }

    /// The same stream, moved so that it starts at `offset`.
    #[must_use]
    pub const fn at(mut self, offset: u64) -> Self {
        self.offset = offset;
        self
    }

    /// Whether both streams have slices of the same sizes, so that they can be combined byte by
    /// byte.
    pub const fn same_shape(&self, other: &Self) -> bool {
        self.slice_bytes == other.slice_bytes
            && self.count == other.count
            && self.tail_bytes == other.tail_bytes
    }

    /// Whether the slices touch, so that the stream is one plain range.
    pub const fn is_contiguous(&self) -> bool {
        self.count == 1 || self.stride == self.slice_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn contiguous_slices_tile_the_range(offset in 0u64..1 << 40, length in 1u64..1 << 22, slice in 1u64..1 << 16) {
            let slices = Slices::contiguous(ByteRange::new(offset, length), slice);
            prop_assert!(slices.is_valid() && slices.is_contiguous());
            prop_assert_eq!(slices.bytes(), length);
            prop_assert_eq!(slices.span(), ByteRange::new(offset, length));
            prop_assert_eq!(slices.slice(0).offset, offset);
            prop_assert_eq!(slices.slice(slices.count - 1).end(), offset + length);
        }
    }

    #[test]
    fn interleaved_streams_leave_gaps() {
        let stream = Slices {
            offset: 100,
            slice_bytes: 10,
            stride: 30,
            count: 3,
            tail_bytes: 4,
        };
        assert!(stream.is_valid() && !stream.is_contiguous());
        assert_eq!(
            (stream.bytes(), stream.span()),
            (24, ByteRange::new(100, 64))
        );
        assert_eq!(stream.slice(1), ByteRange::new(130, 10));
        assert_eq!(stream.slice(2), ByteRange::new(160, 4));
        assert_eq!(stream.at(0).slice(2), ByteRange::new(60, 4));
        assert!(stream.same_shape(&stream.at(7)));
        assert!(!stream.same_shape(&Slices { count: 2, ..stream }));
    }

    #[test]
    fn hostile_numbers_are_invalid() {
        let good = Slices::contiguous(ByteRange::new(0, 100), 10);
        assert!(good.is_valid());
        for bad in [
            Slices { count: 0, ..good },
            Slices {
                tail_bytes: 0,
                ..good
            },
            Slices {
                tail_bytes: 11,
                ..good
            },
            Slices { stride: 9, ..good },
            Slices {
                stride: u64::MAX,
                ..good
            },
            Slices {
                offset: u64::MAX - 3,
                ..good
            },
        ] {
            assert!(!bad.is_valid(), "{bad:?}");
        }
    }
}
