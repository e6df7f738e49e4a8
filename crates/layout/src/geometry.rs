//! The shape of a stripe and the arithmetic from byte addresses to chunks.

use crate::checked::checked;
use crate::ids::ChunkIndex;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A range of bytes; the context gives the object. One that is read from a message or a disk ends below 2^64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct ByteRange {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

checked!(ByteRange, |range| range
    .offset
    .checked_add(range.length)
    .is_some());

impl ByteRange {
    /// The range of `length` bytes from `offset`.
    pub const fn new(offset: u64, length: u64) -> Self {
        Self { offset, length }
    }

    /// One past the last byte. Saturates, so a hostile range cannot wrap around.
    pub const fn end(self) -> u64 {
        self.offset.saturating_add(self.length)
    }

    /// Whether the range has no bytes.
    pub const fn is_empty(self) -> bool {
        self.length == 0
    }

    /// The bytes in both ranges, if any.
    #[must_use]
    pub fn intersect(self, other: Self) -> Option<Self> {
        let offset = self.offset.max(other.offset);
        let end = self.end().min(other.end());
        (offset < end).then(|| Self::new(offset, end - offset))
    }

    /// The same bytes as ranges that neither overlap nor touch, in order.
    ///
    /// ```
    /// use gabion_layout::ByteRange;
    ///
    /// let ranges = [(8, 2), (0, 4), (4, 1), (2, 1)].map(|(at, length)| ByteRange::new(at, length));
    /// let union = ByteRange::union(ranges.into());
    /// assert_eq!(union, [ByteRange::new(0, 5), ByteRange::new(8, 2)]);
    /// ```
    #[must_use]
    pub fn union(mut ranges: Vec<Self>) -> Vec<Self> {
        ranges.sort_unstable();
        let mut union: Vec<Self> = Vec::new();
        for range in ranges {
            match union.last_mut() {
                Some(last) if range.offset <= last.end() => {
                    last.length = last.end().max(range.end()) - last.offset;
                }
                _ => union.push(range),
            }
        }
        union
    }
}

/// A range of bytes within one chunk of a stripe.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct ChunkRange {
    /// The chunk.
    pub chunk: ChunkIndex,
    /// Bytes within that chunk.
    pub range: ByteRange,
}

/// An invalid geometry, or an address outside of it.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum GeometryError {
    /// The counts of chunks are invalid.
    #[error(
        "a stripe has at least 1 data chunk and at most 255 chunks in total, not {k} data and {m} parity chunks"
    )]
    Chunks {
        /// Data chunks requested.
        k: usize,
        /// Parity chunks requested.
        m: usize,
    },
    /// The chunk size is not divisible into the code's sub-chunks.
    #[error(
        "a chunk of {chunk_bytes} bytes cannot be cut into {sub_chunks} equal sub-chunks; use a multiple of {sub_chunks} bytes"
    )]
    ChunkBytes {
        /// The chunk size requested.
        chunk_bytes: u64,
        /// Sub-chunks of a chunk of this code.
        sub_chunks: usize,
    },
    /// A range exceeds the stripe.
    #[error("bytes {offset}..{end} exceed the stripe, which holds {stripe_bytes} data bytes")]
    OutOfStripe {
        /// First byte requested.
        offset: u64,
        /// One past the last byte requested.
        end: u64,
        /// Data bytes of the stripe.
        stripe_bytes: u64,
    },
}

/// The shape of a stripe: `k` data and `m` parity chunks of `chunk_bytes` bytes, each of which the
/// code sees as `sub_chunks` equal rows (1 for Reed-Solomon, `p - 1` for RDP and EVENODD).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Geometry {
    k: u8,
    m: u8,
    sub_chunks: u16,
    /// Invariant: above 0 and a multiple of `sub_chunks`.
    chunk_bytes: u64,
}

impl Geometry {
    /// The geometry of `k` data and `m` parity chunks of `chunk_bytes` bytes in `sub_chunks` rows.
    ///
    /// # Errors
    /// [`GeometryError::Chunks`] unless `1 <= k` and `k + m <= 255`;
    /// [`GeometryError::ChunkBytes`] unless `chunk_bytes` is a positive multiple of `sub_chunks`.
    pub fn new(
        k: usize,
        m: usize,
        sub_chunks: usize,
        chunk_bytes: u64,
    ) -> Result<Self, GeometryError> {
        if k == 0 || k.saturating_add(m) > 255 {
            return Err(GeometryError::Chunks { k, m });
        }
        let rows = sub_chunks as u64;
        if rows == 0 || rows > 255 || chunk_bytes == 0 || !chunk_bytes.is_multiple_of(rows) {
            return Err(GeometryError::ChunkBytes {
                chunk_bytes,
                sub_chunks,
            });
        }
        Ok(Self {
            k: k as u8,
            m: m as u8,
            sub_chunks: sub_chunks as u16,
            chunk_bytes,
        })
    }

    /// Data chunks of a stripe.
    pub const fn k(self) -> usize {
        self.k as usize
    }

    /// Parity chunks of a stripe.
    pub const fn m(self) -> usize {
        self.m as usize
    }

    /// All chunks of a stripe.
    pub const fn n(self) -> usize {
        self.k() + self.m()
    }

    /// Rows of a chunk in the code.
    pub const fn sub_chunks(self) -> usize {
        self.sub_chunks as usize
    }

    /// Bytes of a chunk.
    pub const fn chunk_bytes(self) -> u64 {
        self.chunk_bytes
    }

    /// Bytes of a sub-chunk.
    pub const fn sub_chunk_bytes(self) -> u64 {
        self.chunk_bytes / self.sub_chunks as u64
    }

    /// Data bytes of a stripe, `k * chunk_bytes`.
    pub const fn stripe_bytes(self) -> u64 {
        self.k as u64 * self.chunk_bytes
    }

    /// Whether `chunk` holds data.
    pub const fn is_data(self, chunk: ChunkIndex) -> bool {
        chunk.0 < self.k
    }

    /// The data chunks' indices.
    pub fn data_chunks(self) -> impl DoubleEndedIterator<Item = ChunkIndex> + ExactSizeIterator {
        (0..self.k).map(ChunkIndex)
    }

    /// The parity chunks' indices.
    pub fn parity_chunks(self) -> impl DoubleEndedIterator<Item = ChunkIndex> + ExactSizeIterator {
        (self.k..self.k + self.m).map(ChunkIndex)
    }

    /// All chunks' indices, data first.
    pub fn chunks(self) -> impl DoubleEndedIterator<Item = ChunkIndex> + ExactSizeIterator {
        (0..self.k + self.m).map(ChunkIndex)
    }

    /// Cuts a range of the stripe's data bytes into ranges of single data chunks, in order. Data
    /// bytes fill chunk 0 first, then chunk 1.
    ///
    /// # Errors
    /// [`GeometryError::OutOfStripe`] when the range exceeds the stripe.
    pub fn split(self, range: ByteRange) -> Result<Vec<ChunkRange>, GeometryError> {
        if range.end() > self.stripe_bytes() {
            return Err(GeometryError::OutOfStripe {
                offset: range.offset,
                end: range.end(),
                stripe_bytes: self.stripe_bytes(),
            });
        }
        let mut parts = Vec::new();
        let mut offset = range.offset;
        while offset < range.end() {
            let chunk = offset / self.chunk_bytes;
            let end = range.end().min((chunk + 1) * self.chunk_bytes);
            parts.push(ChunkRange {
                chunk: ChunkIndex::new(chunk as usize),
                range: ByteRange::new(offset - chunk * self.chunk_bytes, end - offset),
            });
            offset = end;
        }
        Ok(parts)
    }

    /// Cuts a range of one chunk at the borders of its sub-chunks, in order.
    pub fn split_rows(self, range: ByteRange) -> Vec<ByteRange> {
        let row_bytes = self.sub_chunk_bytes();
        let mut parts = Vec::new();
        let mut offset = range.offset;
        while offset < range.end() {
            let end = range.end().min((offset / row_bytes + 1) * row_bytes);
            parts.push(ByteRange::new(offset, end - offset));
            offset = end;
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refuses_shapes_that_no_code_has() {
        assert!(Geometry::new(0, 2, 1, 4096).is_err());
        assert!(Geometry::new(200, 56, 1, 4096).is_err());
        assert!(Geometry::new(4, 2, 4, 4098).is_err());
        assert!(Geometry::new(4, 2, 1, 0).is_err());
        assert!(Geometry::new(254, 1, 1, 1).is_ok());
    }

    proptest! {
        #[test]
        fn split_covers_the_range_once_and_in_order(
            k in 1usize..20, chunk in 1u64..5000, offset in 0u64..100_000, length in 0u64..100_000,
        ) {
            let geometry = Geometry::new(k, 2, 1, chunk).unwrap();
            let range = ByteRange::new(offset, length);
            match geometry.split(range) {
                Err(_) => prop_assert!(range.end() > geometry.stripe_bytes()),
                Ok(parts) => {
                    let mut at = offset;
                    for part in &parts {
                        prop_assert!(part.range.end() <= chunk && !part.range.is_empty());
                        prop_assert_eq!(part.chunk.at() as u64 * chunk + part.range.offset, at);
                        at += part.range.length;
                    }
                    prop_assert_eq!(at, range.end());
                }
            }
        }

        #[test]
        fn rows_never_straddle(rows in 1usize..20, row_bytes in 1u64..100, a in 0u64..2000, b in 0u64..2000) {
            let chunk = rows as u64 * row_bytes;
            let geometry = Geometry::new(2, 2, rows, chunk).unwrap();
            let (start, end) = (a.min(b) % chunk, a.max(b) % chunk);
            let range = ByteRange::new(start.min(end), start.max(end) - start.min(end));
            let parts = geometry.split_rows(range);
            prop_assert_eq!(parts.iter().map(|p| p.length).sum::<u64>(), range.length);
            for part in parts {
                prop_assert_eq!(part.offset / row_bytes, (part.end() - 1) / row_bytes);
            }
        }
    }
}
