//! The client's part of a plan: bytes in memory instead of a disk.

use crate::place::Place;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use gabion_exec::{Sink, Source};
use gabion_layout::{ByteRange, ChunkIndex, ChunkRange};
use gabion_protocol::message::Refusal;
use gabion_protocol::run::LocalIo;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The new data of a whole stripe, data chunks concatenated.
pub(crate) struct Segment {
    pub(crate) bytes: Bytes,
    pub(crate) chunk_bytes: u64,
}

impl LocalIo for Segment {
    fn fetch(
        &self,
        source: Source,
        range: ByteRange,
    ) -> BoxFuture<'static, Result<Bytes, Refusal>> {
        let Source::Input(chunk) = source else {
            return ready(Err(no_disk())).boxed();
        };
        let start = chunk.at() as u64 * self.chunk_bytes + range.offset;
        let end = start.saturating_add(range.length);
        let is_inside = range.end() <= self.chunk_bytes && end <= self.bytes.len() as u64;
        let piece = if is_inside {
            Ok(self.bytes.slice(start as usize..end as usize))
        } else {
            Err(Refusal::Invalid(
                "the plan asks for bytes behind the segment".to_owned(),
            ))
        };
        ready(piece).boxed()
    }

    fn store(&self, _: Sink, _: ByteRange, _: Bytes) -> BoxFuture<'static, Result<(), Refusal>> {
        ready(Err(no_disk())).boxed()
    }
}

/// The ranges of a stripe that an attempt reads, concatenated in the place of the read.
pub(crate) struct ReadBuffer {
    ranges: Vec<ChunkRange>,
    place: Arc<Place>,
    /// Bytes of each range that are still missing.
    left_bytes: Vec<AtomicU64>,
}

impl ReadBuffer {
    /// For an attempt to read these ranges into a place of their length.
    pub(crate) fn new(ranges: Vec<ChunkRange>, place: &Arc<Place>) -> Self {
        let left_bytes = ranges.iter().map(|part| AtomicU64::new(part.range.length));
        Self {
            left_bytes: left_bytes.collect(),
            ranges,
            place: Arc::clone(place),
        }
    }

    /// The chunks with missing bytes.
    pub(crate) fn awaited(&self) -> Vec<ChunkIndex> {
        let parts = self.ranges.iter().zip(&self.left_bytes);
        let awaited = parts.filter(|(_, left)| left.load(Ordering::Relaxed) > 0);
        awaited.map(|(part, _)| part.chunk).collect()
    }

    /// The position of a chunk's bytes, if they were requested, and their range.
    fn position(&self, chunk: ChunkIndex, range: ByteRange) -> Option<(usize, usize)> {
        let mut before = 0;
        for (at, part) in self.ranges.iter().enumerate() {
            let is_here = part.chunk == chunk
                && part.range.offset <= range.offset
                && range.end() <= part.range.end();
            if is_here {
                return Some(((before + range.offset - part.range.offset) as usize, at));
            }
            before += part.range.length;
        }
        None
    }
}

impl LocalIo for ReadBuffer {
    fn fetch(&self, _: Source, _: ByteRange) -> BoxFuture<'static, Result<Bytes, Refusal>> {
        ready(Err(no_disk())).boxed()
    }

    fn store(
        &self,
        sink: Sink,
        range: ByteRange,
        bytes: Bytes,
    ) -> BoxFuture<'static, Result<(), Refusal>> {
        let Sink::Deliver(chunk) = sink else {
            return ready(Err(no_disk())).boxed();
        };
        let has_length = bytes.len() as u64 == range.length;
        let stored = match self.position(chunk, range) {
            Some((at, of)) if has_length && self.place.write(at, &bytes) => {
                // Each slice comes once.
                self.left_bytes[of].fetch_sub(range.length, Ordering::Relaxed);
                Ok(())
            }
            _ => Err(Refusal::Invalid(
                "the plan delivers bytes that were not asked for".to_owned(),
            )),
        };
        ready(stored).boxed()
    }
}

fn no_disk() -> Refusal {
    Refusal::Invalid("a client stores nothing".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: ChunkIndex = ChunkIndex(0);
    const SECOND: ChunkIndex = ChunkIndex(1);

    fn now<T>(future: BoxFuture<'static, T>) -> T {
        future.now_or_never().expect("memory answers at once")
    }

    #[test]
    fn a_segment_gives_its_chunks_and_nothing_behind_them() {
        let segment = Segment {
            bytes: Bytes::from_static(b"abcdwxyz"),
            chunk_bytes: 4,
        };
        let fetch = |chunk, offset, length| {
            now(segment.fetch(Source::Input(chunk), ByteRange::new(offset, length)))
        };
        assert_eq!(fetch(FIRST, 1, 3).unwrap(), "bcd");
        assert_eq!(fetch(SECOND, 0, 4).unwrap(), "wxyz");
        // The last of these would be bytes of the next chunk.
        for (chunk, offset, length) in [(SECOND, 2, 3), (ChunkIndex(2), 0, 1), (FIRST, 3, 2)] {
            assert!(
                fetch(chunk, offset, length).is_err(),
                "{chunk} {offset}+{length}"
            );
        }
        assert!(fetch(FIRST, 2, u64::MAX).is_err());
    }

    #[test]
    fn a_buffer_takes_requested_bytes_in_any_order() {
        let asked = |chunk, offset, length| ChunkRange {
            chunk,
            range: ByteRange::new(offset, length),
        };
        let place = Place::new(5);
        let buffer = ReadBuffer::new(vec![asked(FIRST, 6, 2), asked(SECOND, 0, 3)], &place);
        let store = |sink, offset, bytes: &'static [u8]| {
            let range = ByteRange::new(offset, bytes.len() as u64);
            now(buffer.store(sink, range, Bytes::from_static(bytes)))
        };
        store(Sink::Deliver(SECOND), 1, b"de").unwrap();
        assert_eq!(buffer.awaited(), [FIRST, SECOND]);
        store(Sink::Deliver(FIRST), 6, b"ab").unwrap();
        assert_eq!(buffer.awaited(), [SECOND]);
        store(Sink::Deliver(SECOND), 0, b"c").unwrap();
        assert_eq!(buffer.awaited(), []);
        assert!(store(Sink::Deliver(FIRST), 0, b"x").is_err());
        assert!(store(Sink::Deliver(SECOND), 2, b"xy").is_err());
        assert!(store(Sink::Write(FIRST), 6, b"x").is_err());
        assert_eq!(place.take(), &b"abcde"[..]);
    }
}
