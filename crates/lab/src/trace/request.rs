//! A request to a volume.

use std::num::NonZeroU64;

/// Whether a request reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestKind {
    /// Stored bytes are read.
    Read,
    /// Stored bytes are replaced.
    Write,
}

/// One request to a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// When it was made, in units of 100 ns; from when they count is the trace's own affair (the
    /// year 1601 for MSR Cambridge).
    pub at_ticks: u64,
    /// Read or write.
    pub kind: RequestKind,
    /// First byte.
    pub offset_bytes: u64,
    /// Number of bytes, at least 1; `offset_bytes + length_bytes` does not overflow.
    pub length_bytes: u64,
}

impl Request {
    /// The request on a file of `file_bytes` bytes instead of its volume: addresses are folded over at
    /// the file's end, and a request that would straddle it is moved down to stop there. One longer
    /// than the file becomes all of it.
    #[must_use]
    pub fn folded(self, file_bytes: NonZeroU64) -> Self {
        let length_bytes = self.length_bytes.min(file_bytes.get());
        let offset_bytes = self.offset_bytes % file_bytes;
        Self {
            offset_bytes: offset_bytes.min(file_bytes.get() - length_bytes),
            length_bytes,
            ..self
        }
    }

    /// One past the last byte.
    pub const fn end_bytes(&self) -> u64 {
        self.offset_bytes + self.length_bytes
    }
}
