//! The parts that all formats share: open and new chunks, names, ranges and errors.

use crate::block::BlockFile;
use crate::error::HdfsError;
use bytes::{Bytes, BytesMut};
use gabion_layout::ByteRange;
use std::path::Path;

/// An open chunk.
pub(crate) trait StoredChunk: Send + Sync {
    /// Its bytes, without headers and checksums.
    fn length(&self) -> u64;

    /// Verified bytes; those behind the chunk's end are zeros.
    ///
    /// # Errors
    /// [`HdfsError::Corrupt`] when they do not match their checksums; [`HdfsError::Io`].
    fn read(&self, range: ByteRange) -> Result<Bytes, HdfsError>;
}

impl StoredChunk for BlockFile {
    fn length(&self) -> u64 {
        self.block_bytes()
    }

    fn read(&self, range: ByteRange) -> Result<Bytes, HdfsError> {
        Self::read(self, range)
    }
}

/// A chunk that is written under a temporary name. Dropping it before it is published removes it.
pub(crate) trait NewChunk: Send + Sync {
    /// Writes bytes; `offset` is a multiple of 64 KiB.
    ///
    /// # Errors
    /// [`HdfsError::Io`].
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), HdfsError>;

    /// Adds headers and checksums of what the files hold now, and makes all durable. The chunk can be read then.
    ///
    /// # Errors
    /// [`HdfsError::Io`].
    fn seal(&self) -> Result<Box<dyn StoredChunk>, HdfsError>;

    /// Gives the files their names.
    ///
    /// # Errors
    /// [`HdfsError::Io`]; [`HdfsError::Name`] when another file has got one of the names.
    fn publish(&self) -> Result<(), HdfsError>;
}

/// Cuts a range out of whole units of `unit` bytes, which `verified` reads: from the first position to the second,
/// which is a multiple of the unit or the chunk's end.
pub(super) fn read_units(
    length: u64,
    unit: u64,
    range: ByteRange,
    verified: impl FnOnce(u64, u64) -> Result<Vec<u8>, HdfsError>,
) -> Result<Bytes, HdfsError> {
    let mut wanted = BytesMut::zeroed(range.length as usize);
    let end = range.end().min(length);
    if range.offset < end {
        let first = range.offset / unit * unit;
        let bytes = verified(first, end.next_multiple_of(unit).min(length))?;
        let place = (range.offset - first) as usize..(end - first) as usize;
        wanted[..place.len()].copy_from_slice(&bytes[place]);
    }
    Ok(wanted.freeze())
}

/// The parts of a file's name between these characters.
pub(super) fn name_parts(path: &Path, between: char) -> Vec<&str> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.unwrap_or_default().split(between).collect()
}

/// The error of bytes that do not match a checksum.
pub(super) fn mismatch(path: &Path, from: u64, to: u64) -> HdfsError {
    HdfsError::Corrupt {
        path: path.to_owned(),
        reason: format!("bytes {from}..{to} do not match their checksum"),
    }
}

pub(super) fn corrupt(path: &Path, reason: impl Into<String>) -> HdfsError {
    HdfsError::Corrupt {
        path: path.to_owned(),
        reason: reason.into(),
    }
}

pub(super) fn wrong_name(path: &Path, allowed: &str) -> HdfsError {
    HdfsError::Name {
        path: path.to_owned(),
        reason: allowed.to_owned(),
    }
}
