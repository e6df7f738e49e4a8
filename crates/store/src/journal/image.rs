//! The body of an image entry: the bytes that an apply is about to write into a chunk, and the
//! checksums of the blocks that it touches.
//!
//! The image has only the changed bytes. The other bytes of a touched block stay the same, so a
//! block torn by a crash is whole again once the changed bytes are written over it. An image is
//! therefore never much larger than its records.

use crate::codec::Reader;
use std::collections::BTreeMap;

/// Bytes of a chunk after an apply.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Image {
    /// Changed bytes by their offset in the chunk. Invariant: not empty, disjoint.
    pub(crate) ranges: BTreeMap<u64, Vec<u8>>,
    /// The checksums of touched blocks by block number.
    pub(crate) block_crcs: BTreeMap<u64, u32>,
}

impl Image {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let changed_bytes: usize = self.ranges.values().map(Vec::len).sum();
        let table_bytes = 8 + 12 * (self.ranges.len() + self.block_crcs.len());
        let mut body = Vec::with_capacity(table_bytes + changed_bytes);
        body.extend_from_slice(&(self.ranges.len() as u32).to_le_bytes());
        body.extend_from_slice(&(self.block_crcs.len() as u32).to_le_bytes());
        for (offset, bytes) in &self.ranges {
            body.extend_from_slice(&offset.to_le_bytes());
            body.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        }
        for (block, crc) in &self.block_crcs {
            body.extend_from_slice(&block.to_le_bytes());
            body.extend_from_slice(&crc.to_le_bytes());
        }
        for bytes in self.ranges.values() {
            body.extend_from_slice(bytes);
        }
        body
    }

    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(body);
        let range_count = reader.u32()?;
        let block_count = reader.u32()?;
        let mut lengths = Vec::new();
        for _ in 0..range_count {
            lengths.push((reader.u64()?, reader.u32()? as usize));
        }
        let mut image = Self::default();
        for _ in 0..block_count {
            image.block_crcs.insert(reader.u64()?, reader.u32()?);
        }
        for (offset, length) in lengths {
            let bytes = reader.bytes(length)?.to_vec();
            image.ranges.insert(offset, bytes);
        }
        reader.finish()?;
        Some(image)
    }

    /// Whether every range and block lies in a chunk of this size.
    pub(crate) fn fits(&self, chunk_bytes: u64, block_count: u64) -> bool {
        let inside = |(offset, bytes): (&u64, &Vec<u8>)| {
            let end = offset.checked_add(bytes.len() as u64);
            end.is_some_and(|end| end <= chunk_bytes)
        };
        self.ranges.iter().all(inside) && self.block_crcs.keys().all(|block| *block < block_count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_comes_back_and_a_cut_one_does_not() {
        let image = Image {
            ranges: BTreeMap::from([(4090, vec![1; 10]), (9000, vec![2; 3])]),
            block_crcs: BTreeMap::from([(0, 7), (1, 8), (2, 9)]),
        };
        let body = image.encode();
        assert_eq!(body.len(), 8 + 12 * 5 + 13);
        for end in 0..body.len() {
            assert_eq!(Image::decode(&body[..end]), None, "cut at {end}");
        }
        assert_eq!(Image::decode(&body).as_ref(), Some(&image));
        assert!(image.fits(9003, 3));
        assert!(!image.fits(9002, 3));
        assert!(!image.fits(9003, 2));
    }
}
