//! Reads a finalized block of a `DataNode`, and verifies what it reads.
//!
//! Beside each block lies its file of checksums: two bytes of version (1), one byte of type (1 for CRC32, 2 for
//! CRC32C), four bytes with the number of bytes a checksum, then four bytes for each checksum, all big-endian.

use crate::error::HdfsError;
use bytes::{Bytes, BytesMut};
use gabion_layout::ByteRange;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

const META_VERSION: u16 = 1;
const META_HEADER_BYTES: u64 = 7;
/// Most bytes that one checksum may cover: a read fetches whole ones.
const BYTES_PER_CHECKSUM_MAX: u32 = 1 << 20;

/// The checksums of a block's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Checksum {
    /// Hadoop's number of the type: 1 for CRC32, 2 for CRC32C.
    pub kind: u8,
    /// Bytes that one checksum covers.
    pub bytes_per_checksum: u32,
}

impl Checksum {
    /// The checksum of some bytes.
    pub(crate) fn of(self, bytes: &[u8]) -> u32 {
        match self.kind {
            1 => crc_fast::crc32_iso_hdlc(bytes),
            _ => crc_fast::crc32_iscsi(bytes),
        }
    }
}

/// An open block.
#[derive(Debug)]
pub struct BlockFile {
    path: PathBuf,
    data: File,
    sums: File,
    length: u64,
    checksum: Checksum,
}

impl BlockFile {
    /// Opens a block of `length` bytes with its checksums.
    ///
    /// # Errors
    /// [`HdfsError::Io`] when a file cannot be read, [`HdfsError::Corrupt`] when one is shorter than the block needs,
    /// and [`HdfsError::ChecksumKind`] for checksums that cannot be verified.
    pub fn open(path: &Path, sums_path: &Path, length: u64) -> Result<Self, HdfsError> {
        let data = open(path)?;
        let sums = open(sums_path)?;
        let mut header = [0; META_HEADER_BYTES as usize];
        read_at(&sums, sums_path, &mut header, 0)?;
        let [v0, v1, kind, b0, b1, b2, b3] = header;
        let checksum = Checksum {
            kind,
            bytes_per_checksum: u32::from_be_bytes([b0, b1, b2, b3]),
        };
        let corrupt = |path: &Path, reason: String| HdfsError::Corrupt {
            path: path.to_owned(),
            reason,
        };
        let version = u16::from_be_bytes([v0, v1]);
        let is_sound = version == META_VERSION
            && (1..=BYTES_PER_CHECKSUM_MAX).contains(&checksum.bytes_per_checksum);
        if !is_sound {
            let reason = format!("its header {header:?} is not one of version {META_VERSION}");
            return Err(corrupt(sums_path, reason));
        }
        if !(1..=2).contains(&kind) {
            let path = sums_path.to_owned();
            return Err(HdfsError::ChecksumKind { path, kind });
        }
        let sum_count = length.div_ceil(u64::from(checksum.bytes_per_checksum));
        for (file, path, needed) in [
            (&data, path, length),
            (&sums, sums_path, META_HEADER_BYTES + 4 * sum_count),
        ] {
            let has = file
                .metadata()
                .map_err(|source| io("look at", path, source))?;
            if has.len() < needed {
                let reason = format!("it has {} bytes and needs {needed}", has.len());
                return Err(corrupt(path, reason));
            }
        }
        Ok(Self {
            path: path.to_owned(),
            data,
            sums,
            length,
            checksum,
        })
    }

    /// The checksums of the bytes.
    pub fn checksum(&self) -> Checksum {
        self.checksum
    }

    /// Its bytes.
    pub(crate) fn block_bytes(&self) -> u64 {
        self.length
    }

    /// Verified bytes; those behind the block's end are zeros.
    ///
    /// # Errors
    /// [`HdfsError::Corrupt`] when they do not match their checksums; [`HdfsError::Io`].
    pub fn read(&self, range: ByteRange) -> Result<Bytes, HdfsError> {
        let mut wanted = BytesMut::zeroed(range.length as usize);
        let end = range.end().min(self.length);
        if range.offset >= end {
            return Ok(wanted.freeze());
        }
        let unit = u64::from(self.checksum.bytes_per_checksum);
        let first = range.offset / unit;
        let covered = first * unit..end.next_multiple_of(unit).min(self.length);
        let skipped = (range.offset - covered.start) as usize;
        if skipped == 0 && covered.end == end {
            // The common case: no bytes beside the wanted ones are needed.
            let place = &mut wanted[..(end - range.offset) as usize];
            self.verified(first, covered.start, place)?;
        } else {
            let mut bytes = vec![0; (covered.end - covered.start) as usize];
            self.verified(first, covered.start, &mut bytes)?;
            let length = (end - range.offset) as usize;
            wanted[..length].copy_from_slice(&bytes[skipped..skipped + length]);
        }
        Ok(wanted.freeze())
    }

    /// Fills `place` from `offset` on, where checksum number `first` begins.
    fn verified(&self, first: u64, offset: u64, place: &mut [u8]) -> Result<(), HdfsError> {
        read_at(&self.data, &self.path, place, offset)?;
        let unit = self.checksum.bytes_per_checksum as usize;
        let mut sums = vec![0; 4 * place.len().div_ceil(unit)];
        read_at(
            &self.sums,
            &self.path,
            &mut sums,
            META_HEADER_BYTES + 4 * first,
        )?;
        for (at, (piece, sum)) in place.chunks(unit).zip(sums.chunks_exact(4)).enumerate() {
            if self.checksum.of(piece).to_be_bytes() != sum {
                let at = offset + (at * unit) as u64;
                let end = at + piece.len() as u64;
                return Err(HdfsError::Corrupt {
                    path: self.path.clone(),
                    reason: format!("bytes {at}..{end} do not match their checksum"),
                });
            }
        }
        Ok(())
    }
}

pub(crate) fn open(path: &Path) -> Result<File, HdfsError> {
    File::open(path).map_err(|source| io("open", path, source))
}

pub(crate) fn read_at(
    file: &File,
    path: &Path,
    place: &mut [u8],
    offset: u64,
) -> Result<(), HdfsError> {
    let read = file.read_exact_at(place, offset);
    read.map_err(|source| io("read", path, source))
}

pub(crate) fn io(operation: &'static str, path: &Path, source: std::io::Error) -> HdfsError {
    let path = path.to_owned();
    HdfsError::Io {
        operation,
        path,
        source,
    }
}

/// The first bytes of a file of checksums.
pub(crate) fn meta_header(checksum: Checksum) -> Vec<u8> {
    let mut header = META_VERSION.to_be_bytes().to_vec();
    header.push(checksum.kind);
    header.extend(checksum.bytes_per_checksum.to_be_bytes());
    header
}

/// Writes a block with its checksums, as a `DataNode` does.
#[cfg(test)]
pub(crate) fn write_block(path: &Path, sums_path: &Path, bytes: &[u8], checksum: Checksum) {
    let mut sums = meta_header(checksum);
    for piece in bytes.chunks(checksum.bytes_per_checksum as usize) {
        sums.extend(checksum.of(piece).to_be_bytes());
    }
    std::fs::write(path, bytes).unwrap();
    std::fs::write(sums_path, sums).unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(bytes: &[u8], checksum: Checksum) -> (tempfile::TempDir, PathBuf, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("blk_1");
        let sums = directory.path().join("blk_1_1.meta");
        write_block(&path, &sums, bytes, checksum);
        (directory, path, sums)
    }

    #[test]
    fn ranges_are_verified_and_end_in_zeros() {
        let bytes: Vec<u8> = (0..1300u32).map(|at| (at * 7) as u8).collect();
        for kind in [1, 2] {
            let checksum = Checksum {
                kind,
                bytes_per_checksum: 512,
            };
            let (_directory, path, sums) = block(&bytes, checksum);
            let file = BlockFile::open(&path, &sums, 1300).unwrap();
            assert_eq!(file.checksum(), checksum);
            let mut padded = bytes.clone();
            padded.resize(4000, 0);
            for (offset, length) in [
                (0, 512),
                (0, 1300),
                (100, 700),
                (1290, 400),
                (1300, 5),
                (2000, 9),
            ] {
                let read = file.read(ByteRange::new(offset, length)).unwrap();
                let there = offset as usize..(offset + length) as usize;
                assert_eq!(read, padded[there], "type {kind}, {offset}+{length}");
            }
        }
    }

    #[test]
    fn a_changed_byte_is_found_where_it_is_read() {
        let checksum = Checksum {
            kind: 2,
            bytes_per_checksum: 512,
        };
        let (_directory, path, sums) = block(&[5; 2000], checksum);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[600] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let file = BlockFile::open(&path, &sums, 2000).unwrap();
        assert!(file.read(ByteRange::new(0, 512)).is_ok());
        assert!(file.read(ByteRange::new(1024, 900)).is_ok());
        let error = file.read(ByteRange::new(1000, 100)).unwrap_err();
        assert!(error.to_string().contains("512..1024"), "{error}");
    }

    #[test]
    fn what_cannot_be_verified_is_refused() {
        let checksum = |kind, bytes_per_checksum| Checksum {
            kind,
            bytes_per_checksum,
        };
        let (_directory, path, sums) = block(&[5; 2000], checksum(2, 512));
        let open = |length| BlockFile::open(&path, &sums, length);
        assert!(matches!(open(2001), Err(HdfsError::Corrupt { .. })));
        let header = |kind, unit: u32| {
            let mut header = std::fs::read(&sums).unwrap();
            header[2] = kind;
            header[3..7].copy_from_slice(&unit.to_be_bytes());
            std::fs::write(&sums, header).unwrap();
        };
        header(0, 512);
        assert!(matches!(
            open(2000),
            Err(HdfsError::ChecksumKind { kind: 0, .. })
        ));
        header(2, 0);
        assert!(matches!(open(2000), Err(HdfsError::Corrupt { .. })));
        header(2, u32::MAX);
        assert!(matches!(open(2000), Err(HdfsError::Corrupt { .. })));
        std::fs::write(&sums, [0, 1]).unwrap();
        assert!(open(2000).is_err());
    }
}
