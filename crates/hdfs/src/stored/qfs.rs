//! QFS's chunk files.
//!
//! A file begins with a header of 16 KiB, of which 4,400 bytes are used: a magic number, a version (both 4 bytes), the
//! ids of file and chunk, the chunk's version and its bytes (8 each), 1,024 checksums (4 each), a count of reads (4),
//! 256 bytes that can name the file system, and 4 that are not used. Behind them are 8 bytes with their Adler-32, or
//! 0. Numbers are in the order of the machine's bytes; this module knows little-endian ones. Each checksum is the
//! Adler-32 of 64 KiB of the chunk, the last with zeros behind the chunk's end.

use super::chunk::{NewChunk, StoredChunk, corrupt, mismatch, name_parts, read_units, wrong_name};
use super::new_file::NewFile;
use crate::block::{io, open, read_at};
use crate::error::HdfsError;
use bytes::Bytes;
use gabion_layout::ByteRange;
use simd_adler32::adler32;
use std::fs::File;
use std::path::{Path, PathBuf};

const HEADER_BYTES: u64 = 16 << 10;
/// The used part of the header.
const INFO_BYTES: usize = 4400;
const MAGIC: u32 = 0xcafe_cafe;
const VERSION: u32 = 1;
const UNIT_BYTES: u64 = 64 << 10;
const CHUNK_BYTES_MAX: u64 = 64 << 20;
const SUMS_AT: usize = 40;
const FILE_SYSTEM_AT: usize = SUMS_AT + 4 * 1024 + 4;
const FILE_SYSTEM_BYTES: usize = 256;

/// The parts of the name of a chunk's file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ids {
    file: u64,
    chunk: u64,
    version: u64,
}

impl Ids {
    fn of_name(path: &Path) -> Result<Self, HdfsError> {
        let numbers = name_parts(path, '.').into_iter().map(|part| {
            let is_number = part.bytes().all(|digit| digit.is_ascii_digit());
            part.parse().ok().filter(|_| is_number)
        });
        match numbers.collect::<Option<Vec<u64>>>().as_deref() {
            Some(&[file, chunk, version]) => Ok(Self {
                file,
                chunk,
                version,
            }),
            _ => Err(wrong_name(
                path,
                "a chunk of QFS is named FILE.CHUNK.VERSION, three numbers",
            )),
        }
    }
}

/// An open chunk.
#[derive(Debug)]
pub(super) struct Chunk {
    path: PathBuf,
    file: File,
    length: u64,
    sums: Vec<u32>,
    info: Box<[u8]>,
}

impl Chunk {
    pub(super) fn open(path: &Path) -> Result<Self, HdfsError> {
        Self::open_as(path, Ids::of_name(path)?)
    }

    fn open_as(path: &Path, ids: Ids) -> Result<Self, HdfsError> {
        let file = open(path)?;
        let mut info = vec![0; INFO_BYTES + 8].into_boxed_slice();
        read_at(&file, path, &mut info, 0)?;
        let number = |at: usize| u64::from(word(&info, at)) | u64::from(word(&info, at + 4)) << 32;
        if (word(&info, 0), word(&info, 4)) != (MAGIC, VERSION) {
            return Err(corrupt(
                path,
                "its header is not one of QFS in little-endian order, version 1",
            ));
        }
        let sum = number(INFO_BYTES);
        if sum != 0 && sum != u64::from(adler32(&&info[..INFO_BYTES])) {
            return Err(corrupt(path, "its header does not match its checksum"));
        }
        let found = Ids {
            file: number(8),
            chunk: number(16),
            version: number(24),
        };
        if found != ids {
            let Ids {
                file,
                chunk,
                version,
            } = found;
            let reason = format!("its header is that of {file}.{chunk}.{version}");
            return Err(corrupt(path, reason));
        }
        let length = number(32);
        let has = file
            .metadata()
            .map_err(|source| io("look at", path, source))?;
        if length > CHUNK_BYTES_MAX || has.len() < HEADER_BYTES + length {
            let reason = format!("it has {} bytes, and its header says {length}", has.len());
            return Err(corrupt(path, reason));
        }
        let count = length.div_ceil(UNIT_BYTES) as usize;
        let sums = (0..count).map(|at| word(&info, SUMS_AT + 4 * at)).collect();
        Ok(Self {
            path: path.to_owned(),
            file,
            length,
            sums,
            info,
        })
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes[at..].first_chunk().copied();
    u32::from_le_bytes(word.unwrap_or_default())
}

/// The checksum of a unit, of which the last may be short.
fn sum_of(unit: &[u8]) -> u32 {
    let mut padded = unit.to_vec();
    padded.resize(UNIT_BYTES as usize, 0);
    adler32(&padded.as_slice())
}

impl StoredChunk for Chunk {
    fn length(&self) -> u64 {
        self.length
    }

    fn read(&self, range: ByteRange) -> Result<Bytes, HdfsError> {
        read_units(self.length, UNIT_BYTES, range, |from, to| {
            let mut bytes = vec![0; (to - from) as usize];
            read_at(&self.file, &self.path, &mut bytes, HEADER_BYTES + from)?;
            for (unit, at) in bytes.chunks(UNIT_BYTES as usize).zip(from / UNIT_BYTES..) {
                if self.sums[at as usize] != sum_of(unit) {
                    let from = at * UNIT_BYTES;
                    return Err(mismatch(&self.path, from, from + unit.len() as u64));
                }
            }
            Ok(bytes)
        })
    }
}

/// A chunk in the making.
pub(super) struct New {
    file: NewFile,
    ids: Ids,
    length: u64,
    /// The name of the file system.
    file_system: Vec<u8>,
}

impl New {
    /// A chunk of the same file as the one at `beside`.
    pub(super) fn create(path: &Path, length: u64, beside: &Path) -> Result<Self, HdfsError> {
        let (ids, of_sibling) = (Ids::of_name(path)?, Ids::of_name(beside)?);
        if ids.file != of_sibling.file {
            let of = of_sibling.file;
            let reason = format!("the other chunks are of file {of}, so its name begins with {of}");
            return Err(wrong_name(path, &reason));
        }
        if length > CHUNK_BYTES_MAX {
            return Err(wrong_name(path, "a chunk of QFS has at most 64 MiB"));
        }
        let sibling = Chunk::open_as(beside, of_sibling)?;
        let file_system = &sibling.info[FILE_SYSTEM_AT..][..FILE_SYSTEM_BYTES];
        Ok(Self {
            file: NewFile::create(path)?,
            ids,
            length,
            file_system: file_system.to_vec(),
        })
    }

    /// The header of what the file holds.
    fn header(&self) -> Result<Vec<u8>, HdfsError> {
        let mut header = Vec::with_capacity(HEADER_BYTES as usize);
        header.extend(MAGIC.to_le_bytes());
        header.extend(VERSION.to_le_bytes());
        let Ids {
            file,
            chunk,
            version,
        } = self.ids;
        for number in [file, chunk, version, self.length] {
            header.extend(number.to_le_bytes());
        }
        let mut unit = vec![0; UNIT_BYTES as usize];
        for from in (0..self.length).step_by(UNIT_BYTES as usize) {
            let place = &mut unit[..(self.length - from).min(UNIT_BYTES) as usize];
            self.file.read(HEADER_BYTES + from, place)?;
            header.extend(sum_of(place).to_le_bytes());
        }
        header.resize(FILE_SYSTEM_AT, 0);
        header.extend(&self.file_system);
        header.resize(INFO_BYTES, 0);
        let sum = u64::from(adler32(&header.as_slice()));
        header.extend(sum.to_le_bytes());
        header.resize(HEADER_BYTES as usize, 0);
        Ok(header)
    }
}

impl NewChunk for New {
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), HdfsError> {
        self.file.write(HEADER_BYTES + offset, bytes)
    }

    fn seal(&self) -> Result<Box<dyn StoredChunk>, HdfsError> {
        self.file.write(0, &self.header()?)?;
        self.file.sync()?;
        let chunk = Chunk::open_as(self.file.temporary(), self.ids)?;
        Ok(Box::new(chunk))
    }

    fn publish(&self) -> Result<(), HdfsError> {
        self.file.publish()
    }
}
