//! Blocks of HDFS-RAID with checksums in the block's own file: behind each unit of the block its checksum, 4 bytes in
//! big-endian order, and no header. The name has all else: `blk_ID_STAMP_2_TYPE_UNIT`.

use super::chunk::{NewChunk, StoredChunk, corrupt, mismatch, name_parts, read_units, wrong_name};
use super::new_file::NewFile;
use crate::block::{Checksum, io, open, read_at};
use crate::error::HdfsError;
use bytes::Bytes;
use gabion_layout::ByteRange;
use std::fs::File;
use std::path::{Path, PathBuf};

const SUM_BYTES: u64 = 4;
/// The number of this form in names.
const FORM: &str = "2";
const ALLOWED: &str = "a block with checksums in it is named blk_ID_STAMP_2_TYPE_UNIT, where TYPE is 1 or 2 and UNIT divides 65536";

/// Whether a file's name is that of a block with checksums in it.
pub(super) fn is_name(path: &Path) -> bool {
    name_parts(path, '_').len() > 3
}

/// The checksums that a block's name tells.
fn checksum_of(path: &Path) -> Result<Checksum, HdfsError> {
    let parsed = || {
        let ["blk", id, stamp, FORM, kind, unit] = name_parts(path, '_')[..] else {
            return None;
        };
        let (_, _): (i64, i64) = (id.parse().ok()?, stamp.parse().ok()?);
        let kind = kind.parse().ok().filter(|kind| (1..=2).contains(kind))?;
        let is_divisor = |unit: &u32| *unit > 0 && (64 << 10) % *unit == 0;
        let bytes_per_checksum = unit.parse().ok().filter(is_divisor)?;
        Some(Checksum {
            kind,
            bytes_per_checksum,
        })
    };
    parsed().ok_or_else(|| wrong_name(path, ALLOWED))
}

/// An open block.
#[derive(Debug)]
pub(super) struct Block {
    path: PathBuf,
    file: File,
    checksum: Checksum,
    length: u64,
}

impl Block {
    pub(super) fn open(path: &Path) -> Result<Self, HdfsError> {
        Self::open_with(path, checksum_of(path)?)
    }

    fn open_with(path: &Path, checksum: Checksum) -> Result<Self, HdfsError> {
        let file = open(path)?;
        let has = file
            .metadata()
            .map_err(|source| io("look at", path, source))?;
        let whole = u64::from(checksum.bytes_per_checksum) + SUM_BYTES;
        let rest = has.len() % whole;
        if (1..=SUM_BYTES).contains(&rest) {
            let reason = format!("it has {} bytes, which end within a checksum", has.len());
            return Err(corrupt(path, reason));
        }
        let length = has.len() - has.len().div_ceil(whole) * SUM_BYTES;
        Ok(Self {
            path: path.to_owned(),
            file,
            checksum,
            length,
        })
    }
}

/// Returns the offset in the file of a block's position, a multiple of the unit or the block's end.
fn place_of(position: u64, unit: u64) -> u64 {
    position + position.div_ceil(unit) * SUM_BYTES
}

impl StoredChunk for Block {
    fn length(&self) -> u64 {
        self.length
    }

    fn read(&self, range: ByteRange) -> Result<Bytes, HdfsError> {
        let unit = u64::from(self.checksum.bytes_per_checksum);
        read_units(self.length, unit, range, |from, to| {
            let (start, end) = (place_of(from, unit), place_of(to, unit));
            let mut stored = vec![0; (end - start) as usize];
            read_at(&self.file, &self.path, &mut stored, start)?;
            let mut bytes = Vec::with_capacity((to - from) as usize);
            for piece in stored.chunks((unit + SUM_BYTES) as usize) {
                let (data, sum) = piece.split_at(piece.len() - SUM_BYTES as usize);
                if self.checksum.of(data).to_be_bytes() != sum {
                    let at = from + bytes.len() as u64;
                    return Err(mismatch(&self.path, at, at + data.len() as u64));
                }
                bytes.extend_from_slice(data);
            }
            Ok(bytes)
        })
    }
}

/// A block in the making.
pub(super) struct New {
    file: NewFile,
    checksum: Checksum,
}

impl New {
    pub(super) fn create(path: &Path, _length: u64) -> Result<Self, HdfsError> {
        let checksum = checksum_of(path)?;
        let file = NewFile::create(path)?;
        Ok(Self { file, checksum })
    }
}

impl NewChunk for New {
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), HdfsError> {
        let unit = u64::from(self.checksum.bytes_per_checksum);
        let mut stored = Vec::new();
        for piece in bytes.chunks(unit as usize) {
            stored.extend_from_slice(piece);
            stored.extend(self.checksum.of(piece).to_be_bytes());
        }
        self.file.write(place_of(offset, unit), &stored)
    }

    fn seal(&self) -> Result<Box<dyn StoredChunk>, HdfsError> {
        self.file.sync()?;
        let block = Block::open_with(self.file.temporary(), self.checksum)?;
        Ok(Box::new(block))
    }

    fn publish(&self) -> Result<(), HdfsError> {
        self.file.publish()
    }
}
