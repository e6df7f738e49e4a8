//! The storage behind a cache: a cluster, or in tests a model of one.

use crate::error::ClientError;
use crate::extent::Extent;
use crate::moment::{Moment, Version};
use crate::open_runs::{Attempted, LastAttempt};
use bytes::Bytes;
use gabion_layout::ByteRange;

/// Source and destination of segments.
pub(crate) trait Backing: Sync {
    /// An open file. The cache keeps it with the file's segments, to write them back.
    type File: Clone + Send + Sync;

    /// Reads a piece of one segment.
    fn read(
        &self,
        file: &Self::File,
        extent: Extent,
    ) -> impl Future<Output = Result<Moment, ClientError>> + Send;

    /// Overwrites ranges of the file's segment from byte `at` on by one update, with `bytes`: the first
    /// range's, then the next one's. Returns when it is durable. If that needs several updates, none is
    /// made, and the result is none; this is never so for a single range. `last_attempt` gets the attempt that
    /// may take effect although this fails or is dropped.
    fn update(
        &self,
        file: &Self::File,
        at: u64,
        ranges: &[ByteRange],
        bytes: Bytes,
        last_attempt: &LastAttempt,
    ) -> impl Future<Output = Result<Option<Version>, ClientError>> + Send;

    /// Whether an update that failed or was dropped took effect. It takes no effect after that.
    fn decide(
        &self,
        file: &Self::File,
        attempted: &Attempted,
    ) -> impl Future<Output = Result<bool, ClientError>> + Send;

    /// Overwrites bytes in any number of segments, atomically; returns when they are durable.
    fn write(
        &self,
        file: &Self::File,
        offset: u64,
        bytes: Bytes,
    ) -> impl Future<Output = Result<(), ClientError>> + Send;

    /// The current version of the segment of `extent`; none if it cannot be determined at once.
    fn version(
        &self,
        file: &Self::File,
        extent: Extent,
    ) -> impl Future<Output = Option<Version>> + Send;
}
