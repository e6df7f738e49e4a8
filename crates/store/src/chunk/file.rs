//! A chunk on disk: header, checksum table, data.
//!
//! The header fits in one sector, so it never tears. The table has a CRC32C for every 4 KiB block
//! of data; the last block is shorter if the chunk's size is not a multiple. Data begins at a 4 KiB
//! boundary. Every read verifies the checksum.

use crate::checksum::crc32c;
use crate::codec::Reader;
use crate::disk::Source;
use crate::error::{IoContext, StoreError, is_inconclusive};
use crate::paths::chunk_path;
use crate::records::record::{ChunkSpec, Damage};
use gabion_layout::{
    ByteRange, ChunkId, ChunkIndex, Generation, Keeping, Sequence, StripeId, StripeRecord,
};
use std::io;

/// Bytes covered by one checksum of the table.
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// Bytes before the table; the first sector of them is the header.
const HEADER_PAGE_BYTES: u64 = 4096;
pub(crate) const HEADER_BYTES: usize = 88;
const MAGIC: [u8; 8] = *b"GABIONCK";
const VERSION: u32 = 2;
/// Largest reserve that the store accepts, so that one read can fetch it.
pub(crate) const RESERVE_BYTES_MAX: u64 = 256 << 20;
/// Bytes read and checked at a time, so that they are still in the processor's cache when checked.
const STRIDE_BYTES: u64 = 256 << 10;

/// The header of a chunk file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChunkHeader {
    pub(crate) chunk: ChunkId,
    pub(crate) spec: ChunkSpec,
    /// The journal's position when the file was created. Distinguishes successive files of a chunk.
    pub(crate) birth_lsn: u64,
    /// The position of the reserve's first byte. Each time the reserve is emptied, it grows by the
    /// bytes that the reserve held, so that older frames never become valid again.
    pub(crate) reserve_lsn: u64,
}

impl ChunkHeader {
    /// Encodes the header's sector, without padding.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&u32::from(self.chunk.index.0).to_le_bytes());
        bytes.extend_from_slice(&self.chunk.stripe.0.to_le_bytes());
        bytes.extend_from_slice(&self.spec.generation.0.to_le_bytes());
        bytes.extend_from_slice(&self.spec.chunk_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.spec.base.0.to_le_bytes());
        bytes.extend_from_slice(&self.birth_lsn.to_le_bytes());
        let (kind, reserve_bytes) = encode_keeping(self.spec.keeping);
        bytes.extend_from_slice(&kind.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&reserve_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.reserve_lsn.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        let crc = crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        debug_assert_eq!(bytes.len(), HEADER_BYTES);
        bytes
    }

    /// Decodes the header; `None` if it is not a header of `chunk`.
    fn decode(bytes: &[u8], chunk: ChunkId) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        if reader.bytes(8)? != MAGIC || reader.u32()? != VERSION {
            return None;
        }
        let index = ChunkIndex(u8::try_from(reader.u32()?).ok()?);
        let stripe = StripeId(reader.u64()?);
        let generation = Generation(reader.count_u64()?);
        let chunk_bytes = reader.u64()?;
        let base = Sequence(reader.count_u64()?);
        let birth_lsn = reader.count_u64()?;
        let kind = reader.u32()?;
        let _reserved = reader.u32()?;
        let keeping = decode_keeping(kind, reader.u64()?)?;
        let reserve_lsn = reader.count_u64()?;
        let _reserved = reader.u32()?;
        let crc = reader.u32()?;
        let is_ours = crc == crc32c(&bytes[..HEADER_BYTES - 4])
            && ChunkId { stripe, index } == chunk
            && is_possible_size(chunk_bytes);
        let spec = ChunkSpec {
            generation,
            chunk_bytes,
            base,
            keeping,
        };
        is_ours.then_some(Self {
            chunk,
            spec,
            birth_lsn,
            reserve_lsn,
        })
    }

    /// The layout of the chunk's file.
    pub(crate) fn extent(&self) -> Extent {
        Extent::new(self.spec.chunk_bytes)
    }
}

/// A keeping as its kind and the bytes of its reserve.
fn encode_keeping(keeping: Keeping) -> (u32, u64) {
    match keeping {
        Keeping::InPlace => (0, 0),
        Keeping::AtOnce => (1, 0),
        Keeping::Log => (2, 0),
        Keeping::Reserve { bytes } => (3, bytes),
    }
}

fn decode_keeping(kind: u32, reserve_bytes: u64) -> Option<Keeping> {
    let keeping = match kind {
        0 => Keeping::InPlace,
        1 => Keeping::AtOnce,
        2 => Keeping::Log,
        3 => Keeping::Reserve {
            bytes: reserve_bytes,
        },
        _ => return None,
    };
    let is_possible =
        encode_keeping(keeping) == (kind, reserve_bytes) && reserve_bytes <= RESERVE_BYTES_MAX;
    is_possible.then_some(keeping)
}

pub(crate) fn is_possible_size(chunk_bytes: u64) -> bool {
    // It bounds the table to 16 MiB.
    (1..=StripeRecord::CHUNK_BYTES_MAX).contains(&chunk_bytes)
}

/// Arithmetic over a chunk file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) chunk_bytes: u64,
}

impl Extent {
    /// # Panics
    /// If the chunk size is zero or above the limit.
    pub(crate) fn new(chunk_bytes: u64) -> Self {
        assert!(
            is_possible_size(chunk_bytes),
            "the caller has checked the size"
        );
        Self { chunk_bytes }
    }

    pub(crate) fn block_count(self) -> u64 {
        self.chunk_bytes.div_ceil(BLOCK_BYTES)
    }

    pub(crate) fn table_offset(block: u64) -> u64 {
        HEADER_PAGE_BYTES + block * 4
    }

    pub(crate) fn data_offset(self, offset: u64) -> u64 {
        HEADER_PAGE_BYTES + (self.block_count() * 4).next_multiple_of(BLOCK_BYTES) + offset
    }

    /// The start of the reserve, for a chunk that has one.
    pub(crate) fn reserve_offset(self) -> u64 {
        self.own_bytes().next_multiple_of(BLOCK_BYTES)
    }

    /// Bytes of the chunk's file before its reserve.
    pub(crate) fn own_bytes(self) -> u64 {
        self.data_offset(self.chunk_bytes)
    }

    /// Bytes of the chunk's file.
    pub(crate) fn file_bytes(self, keeping: Keeping) -> u64 {
        match keeping.reserve_bytes() {
            Some(bytes) => self.reserve_offset() + bytes,
            None => self.own_bytes(),
        }
    }

    /// The bytes of a chunk that a block covers.
    pub(crate) fn block_range(self, block: u64) -> ByteRange {
        let offset = block * BLOCK_BYTES;
        ByteRange::new(offset, BLOCK_BYTES.min(self.chunk_bytes - offset))
    }

    /// The smallest range of whole blocks around `range`, which must lie in the chunk.
    pub(crate) fn block_span(self, range: ByteRange) -> ByteRange {
        let offset = range.offset / BLOCK_BYTES * BLOCK_BYTES;
        let end = range.end().next_multiple_of(BLOCK_BYTES);
        ByteRange::new(offset, end.min(self.chunk_bytes) - offset)
    }

    /// Whether a range lies in the chunk.
    pub(crate) fn contains(self, range: ByteRange) -> bool {
        range
            .offset
            .checked_add(range.length)
            .is_some_and(|end| end <= self.chunk_bytes)
    }
}

/// The reason why bytes of a chunk file could not be read.
pub(crate) enum ReadFailure {
    /// Memory ran out, the page cache hides the device, or the disk refused a write that had to come
    /// first. The bytes may be intact.
    Io(io::Error),
    /// These bytes of the chunk do not match their checksum, are missing, or the disk cannot read
    /// them.
    Corrupt(ByteRange),
}

impl ReadFailure {
    pub(crate) fn into_error(self, chunk: ChunkId) -> StoreError {
        match self {
            Self::Io(source) => Err::<(), _>(source)
                .context_or_busy("read", &chunk_path(chunk))
                .expect_err("it was a failure"),
            Self::Corrupt(range) => StoreError::Corrupt { chunk, range },
        }
    }
}

/// Reads and checks the header of `chunk`'s file.
pub(crate) fn read_header(file: Source<'_>, chunk: ChunkId) -> Result<ChunkHeader, ReadFailure> {
    let mut bytes = [0; HEADER_BYTES];
    read_exact(file, &mut bytes, 0, Damage::WHOLE)?;
    ChunkHeader::decode(&bytes, chunk).ok_or(ReadFailure::Corrupt(Damage::WHOLE))
}

/// Reads whole blocks and verifies each. `span` is a block span of the extent; `output` has its
/// length.
pub(crate) fn read_blocks(
    file: Source<'_>,
    extent: Extent,
    span: ByteRange,
    output: &mut [u8],
) -> Result<(), ReadFailure> {
    assert_eq!(span, extent.block_span(span), "blocks are checked whole");
    assert_eq!(span.length, output.len() as u64);
    let first_block = span.offset / BLOCK_BYTES;
    let block_count = span.length.div_ceil(BLOCK_BYTES);
    let mut table = vec![0; block_count as usize * 4];
    read_exact(file, &mut table, Extent::table_offset(first_block), span)?;
    let strides = output.chunks_mut(STRIDE_BYTES as usize);
    let tables = table.chunks(STRIDE_BYTES as usize / BLOCK_BYTES as usize * 4);
    let mut offset = span.offset;
    for (stride, crcs) in strides.zip(tables) {
        let range = ByteRange::new(offset, stride.len() as u64);
        read_exact(file, stride, extent.data_offset(offset), range)?;
        for (block, crc) in stride.chunks(BLOCK_BYTES as usize).zip(crcs.chunks(4)) {
            if crc32c(block).to_le_bytes() != crc {
                let bad = ByteRange::new(offset, block.len() as u64);
                return Err(ReadFailure::Corrupt(bad));
            }
            offset += block.len() as u64;
        }
    }
    Ok(())
}

/// Reads bytes of a file. An early end of file or a read error counts as damage to `range` of the
/// chunk, unless the error says nothing about the device's bytes.
pub(crate) fn read_exact(
    file: Source<'_>,
    output: &mut [u8],
    offset: u64,
    range: ByteRange,
) -> Result<(), ReadFailure> {
    file.fill(output, offset).map_err(|error| {
        if is_inconclusive(&error) || error.kind() == io::ErrorKind::WouldBlock {
            ReadFailure::Io(error)
        } else {
            ReadFailure::Corrupt(range)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> ChunkHeader {
        ChunkHeader {
            chunk: ChunkId {
                stripe: StripeId(0xabc),
                index: ChunkIndex(7),
            },
            spec: ChunkSpec {
                generation: Generation(3),
                chunk_bytes: 10_000,
                base: Sequence(9),
                keeping: Keeping::Reserve { bytes: 8192 },
            },
            birth_lsn: 77,
            reserve_lsn: 4000,
        }
    }

    #[test]
    fn a_header_comes_back_only_whole_and_only_for_its_chunk() {
        let header = header();
        let bytes = header.encode();
        assert_eq!(ChunkHeader::decode(&bytes, header.chunk), Some(header));
        for keeping in [Keeping::InPlace, Keeping::AtOnce, Keeping::Log] {
            let spec = ChunkSpec {
                keeping,
                ..header.spec
            };
            let header = ChunkHeader { spec, ..header };
            let decoded = ChunkHeader::decode(&header.encode(), header.chunk);
            assert_eq!(decoded, Some(header));
        }
        let other = ChunkId {
            index: ChunkIndex(8),
            ..header.chunk
        };
        assert_eq!(ChunkHeader::decode(&bytes, other), None);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(ChunkHeader::decode(&damaged, header.chunk), None);
        }
    }

    #[test]
    fn extents_align_data_and_end_with_the_chunk() {
        let extent = Extent::new(10_000);
        assert_eq!(extent.block_count(), 3);
        assert_eq!(extent.data_offset(0), 8192);
        assert_eq!(extent.file_bytes(Keeping::Log), 18_192);
        let keeping = Keeping::Reserve { bytes: 100 };
        assert_eq!(extent.file_bytes(keeping), 20_480 + 100);
        assert_eq!(extent.block_range(2), ByteRange::new(8192, 1808));
        let span = extent.block_span(ByteRange::new(5000, 4000));
        assert_eq!(span, ByteRange::new(4096, 5904));
        assert!(!extent.contains(ByteRange::new(u64::MAX, 2)));
        let large = Extent::new(4 << 20);
        assert_eq!(large.data_offset(0), 8192);
        assert_eq!(Extent::new((4 << 20) + 1).data_offset(0), 4096 * 3);
    }
}
