//! The progress of a long operation.

/// Receives the progress of a long operation.
pub trait Progress: Send + Sync {
    /// `done_bytes` of `total_bytes` are stored durably, or delivered to the reader.
    fn advanced(&self, done_bytes: u64, total_bytes: u64);
}

/// Ignores progress.
impl Progress for () {
    fn advanced(&self, _: u64, _: u64) {}
}
