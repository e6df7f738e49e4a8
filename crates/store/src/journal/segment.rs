//! One segment of the journal: its header, the location of its frames, and reads of them.
//!
//! Segments are never recycled: the space behind the last frame holds zeros or a torn frame of the
//! same store.

use crate::checksum::crc32c;
use crate::codec::Reader;
use crate::disk::{DiskFile, Source};
use crate::error::{IoContext, StoreError, is_inconclusive, is_shortage};
use crate::paths::{chunk_path, segment_path};
use gabion_layout::ChunkId;
use std::io;
use std::sync::Arc;

/// Bytes of a segment before its first frame; the first sector of them is the header.
pub(crate) const SEGMENT_HEADER_BYTES: u64 = 4096;
/// Granularity of reads where a whole segment cannot be read.
const PAGE_BYTES: usize = 4096;
const HEADER_BYTES: usize = 40;
const MAGIC: [u8; 8] = *b"GABIONJL";
const VERSION: u32 = 2;

/// Location of a frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Position {
    pub(crate) lsn: u64,
    pub(crate) segment: u64,
    pub(crate) frame_bytes: u32,
}

impl Position {
    /// The position behind the frame: once the journal is synced up to here, so is the frame.
    pub(crate) fn end_lsn(self) -> u64 {
        self.lsn + u64::from(self.frame_bytes)
    }
}

/// The location of a frame's bytes; valid even if the file is removed before the read.
pub(crate) struct Located {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) offset: u64,
    pub(crate) lsn: u64,
    pub(crate) frame_bytes: u32,
    pub(crate) holder: Holder,
}

/// The file that holds a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Holder {
    /// A segment of the journal.
    Segment(u64),
    /// A chunk's file with a reserve.
    Chunk(ChunkId),
}

impl Holder {
    fn path(self) -> String {
        match self {
            Self::Segment(number) => segment_path(number),
            Self::Chunk(chunk) => chunk_path(chunk),
        }
    }
}

impl Located {
    /// Reads the frame into `buffer`. The caller verifies it by decoding. A frame that the disk
    /// cannot read comes back as zeros, which never decode.
    pub(crate) fn read(&self, buffer: &mut Vec<u8>) -> Result<(), StoreError> {
        self.read_front(buffer, self.frame_bytes)
    }

    /// Reads at most the first `limit_bytes` of the frame.
    pub(crate) fn read_front(
        &self,
        buffer: &mut Vec<u8>,
        limit_bytes: u32,
    ) -> Result<(), StoreError> {
        buffer.resize(self.frame_bytes.min(limit_bytes) as usize, 0);
        match self.file.read_exact_at(buffer, self.offset) {
            Err(error) if is_shortage(&error) => {
                Err(error).context_or_busy("read", &self.holder.path())
            }
            // Bytes that the disk cannot read are damaged; zeros never form a frame.
            Err(_) => {
                buffer.fill(0);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}

/// The bytes behind a segment's header.
pub(crate) struct Frames {
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) number: u64,
    pub(super) bytes: u64,
}

impl Frames {
    /// Reads the first `limit_bytes` of the frames, or all of them if they are fewer.
    pub(crate) fn read(&self, limit_bytes: u64) -> Result<Vec<u8>, StoreError> {
        let (frames, _) = self.read_pages(Source::File(&*self.file), limit_bytes)?;
        Ok(frames)
    }

    /// Reads all frames from the device; also returns the length behind which all bytes were
    /// readable.
    pub(crate) fn read_device(&self) -> Result<(Vec<u8>, u64), StoreError> {
        self.read_pages(Source::Device(&*self.file), u64::MAX)
    }

    /// Reads all bytes at once, or page by page if some cannot be read; unreadable pages become
    /// zeros. Fails if the page cache hides the device's bytes: they may be intact.
    fn read_pages(
        &self,
        source: Source<'_>,
        limit_bytes: u64,
    ) -> Result<(Vec<u8>, u64), StoreError> {
        let mut frames = vec![0; self.bytes.min(limit_bytes) as usize];
        let mut unreadable_end = 0;
        let is_read = |read: io::Result<()>| match read {
            Err(error) if is_inconclusive(&error) => {
                Err(error).context_or_busy("read", &segment_path(self.number))
            }
            read => Ok(read.is_ok()),
        };
        if is_read(source.fill(&mut frames, SEGMENT_HEADER_BYTES))? {
            return Ok((frames, unreadable_end));
        }
        let mut at = 0;
        for page in frames.chunks_mut(PAGE_BYTES) {
            if !is_read(source.fill(page, SEGMENT_HEADER_BYTES + at))? {
                page.fill(0);
                unreadable_end = at + page.len() as u64;
            }
            at += page.len() as u64;
        }
        Ok((frames, unreadable_end))
    }
}

/// One file of the journal.
pub(super) struct Segment {
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) base_lsn: u64,
    pub(super) capacity_bytes: u64,
    /// Number of records and images in it that are needed.
    pub(super) live_count: u64,
    /// Whether it has unreadable bytes that the next start must find again.
    pub(super) is_damaged: bool,
    /// Whether its file cannot be opened.
    pub(super) is_lost: bool,
}

/// The header of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SegmentHeader {
    /// The size that segments had grown to when this one began; no record in the store is larger
    /// than a quarter of it. 0 in segments of earlier versions, which did not grow.
    pub(super) grown_bytes: u64,
    pub(super) number: u64,
    /// The position of its first frame.
    pub(super) base_lsn: u64,
}

pub(super) fn encode_header(header: SegmentHeader) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&header.grown_bytes.to_le_bytes());
    bytes.extend_from_slice(&header.number.to_le_bytes());
    bytes.extend_from_slice(&header.base_lsn.to_le_bytes());
    let crc = crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    debug_assert_eq!(bytes.len(), HEADER_BYTES);
    bytes
}

/// The header of segment `number`, from the front of its file; `None` if it is damaged.
pub(super) fn decode_header(bytes: &[u8], number: u64) -> Option<SegmentHeader> {
    let mut reader = Reader::new(bytes.get(..HEADER_BYTES)?);
    if reader.bytes(8)? != MAGIC || reader.u32()? != VERSION {
        return None;
    }
    let header = SegmentHeader {
        grown_bytes: reader.u64()?,
        number: reader.u64()?,
        base_lsn: reader.count_u64()?,
    };
    let is_ours = header.number == number && reader.u32()? == crc32c(&bytes[..HEADER_BYTES - 4]);
    is_ours.then_some(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::parse_segment_name;

    #[test]
    fn segment_headers_come_back_only_whole_and_for_their_number() {
        let header = SegmentHeader {
            grown_bytes: 1 << 20,
            number: 9,
            base_lsn: 4096,
        };
        let bytes = encode_header(header);
        assert_eq!(decode_header(&bytes, 9), Some(header));
        assert_eq!(decode_header(&bytes, 8), None);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_header(&damaged, 9), None, "bit {bit}");
        }
    }

    #[test]
    fn segment_names_come_back() {
        let path = segment_path(0x1f);
        let name = path.rsplit('/').next().unwrap();
        assert_eq!(parse_segment_name(name), Some(0x1f));
        assert_eq!(parse_segment_name("1f.log"), None);
        assert_eq!(parse_segment_name("spare"), None);
    }
}
