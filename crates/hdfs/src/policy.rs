//! Hadoop's erasure coding policies: the code, and which bytes of a group of blocks each of its blocks holds.
//!
//! Hadoop deals the bytes of a group out to its blocks with data cell by cell. Byte `x` of a block with parity follows
//! from the bytes `x` of all blocks with data, so a block is a chunk. The last cells may be short; bytes behind a
//! block's end count as zeros.

use crate::error::HdfsError;
use gabion_codec::Code;
use gabion_layout::{ChunkIndex, Geometry};

/// The name of a codec in Hadoop's schemas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codec {
    /// `rs`: a Cauchy matrix, as ISA-L's.
    Rs,
    /// `rs-legacy`: division by a generator polynomial.
    RsLegacy,
    /// `xor`: one plain sum.
    Xor,
}

impl Codec {
    /// Reads Hadoop's name of a codec.
    ///
    /// # Errors
    /// [`HdfsError::Policy`] for any other name.
    pub fn named(name: &str) -> Result<Self, HdfsError> {
        match name {
            "rs" => Ok(Self::Rs),
            "rs-legacy" => Ok(Self::RsLegacy),
            "xor" => Ok(Self::Xor),
            _ => Err(HdfsError::Policy(format!(
                "the codec '{name}' is unknown here; use rs, rs-legacy or xor"
            ))),
        }
    }
}

/// An erasure coding policy.
#[derive(Clone, Debug)]
pub struct Policy {
    code: Code,
    cell_bytes: u64,
}

impl Policy {
    /// The policy of `k` blocks with data and `m` with parity, in cells of `cell_bytes`.
    ///
    /// # Errors
    /// [`HdfsError::Policy`] when there is no such policy.
    pub fn new(codec: Codec, k: usize, m: usize, cell_bytes: u64) -> Result<Self, HdfsError> {
        let code = match codec {
            Codec::Rs => Code::cauchy(k, m),
            Codec::RsLegacy => Code::new(gabion_codec::Family::Polynomial { k, m }),
            // One local group of all data, and no other parity.
            Codec::Xor if m == 1 => Code::lrc(k, 1, 0),
            Codec::Xor => {
                return Err(HdfsError::Policy(format!(
                    "the codec xor has 1 block with parity, not {m}"
                )));
            }
        };
        let code = code.map_err(|error| HdfsError::Policy(error.to_string()))?;
        if cell_bytes == 0 {
            return Err(HdfsError::Policy("a cell has no bytes".to_owned()));
        }
        Ok(Self { code, cell_bytes })
    }

    /// The code.
    pub fn code(&self) -> &Code {
        &self.code
    }

    /// Bytes of a block of a group with `group_bytes` data bytes. A block that would have none does not exist.
    pub fn block_bytes(&self, block: ChunkIndex, group_bytes: u64) -> u64 {
        let (k, cell_bytes) = (self.code.k() as u64, self.cell_bytes);
        let row_bytes = k.saturating_mul(cell_bytes);
        let last_bytes = group_bytes % row_bytes;
        let whole = group_bytes / row_bytes * cell_bytes;
        let before = match block.at() as u64 {
            data if data < k => data * cell_bytes,
            // Parity is as long as the first cell.
            _ => 0,
        };
        whole + last_bytes.saturating_sub(before).min(cell_bytes)
    }

    /// The shape of a group: its chunks are as long as its longest block.
    ///
    /// # Errors
    /// [`HdfsError::Policy`] for a group without bytes.
    pub fn geometry(&self, group_bytes: u64) -> Result<Geometry, HdfsError> {
        let chunk_bytes = self.block_bytes(ChunkIndex(0), group_bytes);
        Geometry::new(self.code.k(), self.code.m(), 1, chunk_bytes)
            .map_err(|error| HdfsError::Policy(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(codec: Codec, k: usize, m: usize, group_bytes: u64) -> Vec<u64> {
        let policy = Policy::new(codec, k, m, 100).unwrap();
        let blocks = (0..k + m).map(ChunkIndex::new);
        blocks
            .map(|block| policy.block_bytes(block, group_bytes))
            .collect()
    }

    #[test]
    fn the_last_cells_may_be_short() {
        let rs = |bytes| lengths(Codec::Rs, 3, 2, bytes);
        assert_eq!(rs(600), [200, 200, 200, 200, 200]);
        assert_eq!(rs(601), [201, 200, 200, 201, 201]);
        assert_eq!(rs(730), [300, 230, 200, 300, 300]);
        assert_eq!(rs(1), [1, 0, 0, 1, 1]);
        assert_eq!(rs(250), [100, 100, 50, 100, 100]);
        assert_eq!(lengths(Codec::Xor, 2, 1, 120), [100, 20, 100]);
    }

    #[test]
    fn an_impossible_policy_is_refused() {
        assert!(Policy::new(Codec::Xor, 2, 2, 100).is_err());
        assert!(Policy::new(Codec::Rs, 0, 2, 100).is_err());
        assert!(Policy::new(Codec::RsLegacy, 200, 100, 100).is_err());
        assert!(Policy::new(Codec::Rs, 6, 3, 0).is_err());
        assert!(Codec::named("lzo").is_err());
        let policy = Policy::new(Codec::Rs, 6, 3, 100).unwrap();
        assert!(policy.geometry(0).is_err());
    }
}
