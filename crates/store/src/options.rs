//! Sizes that a store is opened with.

/// Sizes that a store is opened with. They may change from one start to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Bytes of a journal segment; two are allocated at any time. The largest record is a quarter.
    pub segment_bytes: u64,
    /// Bytes that new chunks leave free on the disk, so that the journal can go on.
    pub free_bytes: u64,
    /// Above this many segments, an apply copies the last needed records out of the oldest one.
    pub segment_count_max: usize,
    /// Settled records of chunks that keep them in the log are merged in the background only while
    /// there are more than so many bytes of them.
    pub log_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            free_bytes: 256 << 20,
            segment_count_max: 16,
            log_bytes: 256 << 20,
        }
    }
}

/// Smallest segment that makes sense: a quarter of it holds a block's image with all headers.
const SEGMENT_BYTES_MIN: u64 = 64 << 10;

impl Options {
    pub(crate) fn segment_bytes(self) -> u64 {
        self.segment_bytes.max(SEGMENT_BYTES_MIN)
    }

    /// Largest record, so that one always fits into a fresh segment, and its image too.
    pub(crate) fn record_bytes_max(self) -> u64 {
        self.segment_bytes() / 4
    }
}
