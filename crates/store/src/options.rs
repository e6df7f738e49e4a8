//! Sizes that a store is opened with.

/// Sizes that a store is opened with. They may change at each start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Largest size of a journal segment in bytes. Segments begin small and grow with use; two stay
    /// allocated. The largest record is a quarter.
    pub segment_bytes: u64,
    /// Bytes that new chunks leave free on the disk for the journal.
    pub free_bytes: u64,
    /// Segments above which an apply copies the last needed records out of the oldest one.
    pub segment_count_max: usize,
    /// Bytes of settled records above which the background merges them, for chunks that keep
    /// records in the log.
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

/// Smallest useful segment: a quarter of it holds a block's image with all headers. A new journal
/// begins with it.
pub(crate) const SEGMENT_BYTES_MIN: u64 = 64 << 10;

impl Options {
    /// Largest size of a segment.
    pub(crate) fn segment_bytes(self) -> u64 {
        self.segment_bytes.max(SEGMENT_BYTES_MIN)
    }

    /// Largest record: it always fits into a fresh segment of the largest size, and so does its
    /// image.
    pub(crate) fn record_bytes_max(self) -> u64 {
        self.segment_bytes() / 4
    }
}
