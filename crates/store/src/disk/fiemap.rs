//! The location of a file on its disk: the FIEMAP call of Linux,
//! `Documentation/filesystems/fiemap.rst`.

// The call takes a structure of variable length.
#![allow(unsafe_code)]

use crate::disk::PhysicalExtent;
use gabion_layout::ByteRange;
use rustix::ioctl::{Direction, Opcode, Updater, ioctl, opcode};
use std::fs::File;
use std::io;

/// Extents requested per call.
const EXTENT_COUNT: usize = 64;
/// The number of the call; it encodes the size of the request without its extents.
const FIEMAP: Opcode = opcode::from_components(Direction::ReadWrite, b'f', 11, 32);
/// Allocate unallocated bytes before the answer.
const FLAG_SYNC: u32 = 1;
/// Extent flag: the file's last.
const EXTENT_LAST: u32 = 1;
/// Extent flag: location unknown.
const EXTENT_UNKNOWN: u32 = 2;

/// `struct fiemap` with room for extents behind it.
#[repr(C)]
struct Request {
    start: u64,
    length: u64,
    flags: u32,
    mapped_count: u32,
    extent_count: u32,
    reserved: u32,
    extents: [RawExtent; EXTENT_COUNT],
}

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// The extents that hold `range` of a file, in order, cut to it. Holes have none.
pub(crate) fn extents(file: &File, range: ByteRange) -> io::Result<Vec<PhysicalExtent>> {
    let mut found = Vec::new();
    let mut start = range.offset;
    while start < range.end() {
        let mut request = Request {
            start,
            length: range.end() - start,
            flags: FLAG_SYNC,
            mapped_count: 0,
            extent_count: EXTENT_COUNT as u32,
            reserved: 0,
            extents: [RawExtent::default(); EXTENT_COUNT],
        };
        // SAFETY: the call reads and writes a `struct fiemap` followed by `extent_count` extents,
        // which is the layout of `Request`.
        unsafe {
            ioctl(file, Updater::<FIEMAP, Request>::new(&mut request))?;
        }
        let mapped = &request.extents[..(request.mapped_count as usize).min(EXTENT_COUNT)];
        let Some(last) = mapped.last() else { break };
        for raw in mapped {
            if raw.flags & EXTENT_UNKNOWN != 0 {
                return Err(io::Error::other(
                    "the file system does not report the location of a file",
                ));
            }
            let whole = ByteRange::new(raw.logical, raw.length);
            if let Some(shared) = whole.intersect(range) {
                found.push(PhysicalExtent {
                    offset: shared.offset,
                    physical: raw.physical + (shared.offset - raw.logical),
                    length: shared.length,
                });
            }
        }
        if last.flags & EXTENT_LAST != 0 {
            break;
        }
        start = last.logical + last.length;
    }
    Ok(found)
}
