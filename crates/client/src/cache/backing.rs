//! The storage behind a cache: a cluster, or in tests a model of one.

use crate::client::Client;
use crate::error::ClientError;
use crate::extent::Extent;
use crate::file::{File, Opened};
use crate::read::{Moment, Reading};
use crate::runs::{LastRun, OpenRun};
use bytes::Bytes;
use gabion_layout::{ByteRange, Sequence, StripeId};
use std::sync::Arc;

/// The version of a stripe's bytes. A stripe's number is never reused, nor is a committed update's,
/// so equal versions mean equal bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Version {
    pub(crate) stripe: StripeId,
    /// The stripe's last update.
    pub(crate) sequence: Sequence,
}

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

    /// Overwrites ranges of the file's segment number `at` by one update, with `bytes`: the first
    /// range's, then the next one's. Returns when it is durable. `last_run` gets the run that may
    /// take effect although this fails or is dropped.
    fn update(
        &self,
        file: &Self::File,
        at: usize,
        ranges: &[ByteRange],
        bytes: Bytes,
        last_run: &LastRun,
    ) -> impl Future<Output = Result<Version, ClientError>> + Send;

    /// Whether an update that failed or was dropped took effect. It takes no effect after that.
    fn decide(
        &self,
        file: &Self::File,
        run: &OpenRun,
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

impl Backing for Client {
    type File = Arc<Opened>;

    async fn read(&self, file: &Self::File, extent: Extent) -> Result<Moment, ClientError> {
        File::of(self, file).read_extent(extent).await
    }

    async fn update(
        &self,
        file: &Self::File,
        at: usize,
        ranges: &[ByteRange],
        bytes: Bytes,
        last_run: &LastRun,
    ) -> Result<Version, ClientError> {
        let file = File::of(self, file);
        let extents = file.pieces(at, ranges);
        let (stripe, sequence) = file.write_extents(&extents, &bytes, last_run).await?;
        Ok(Version { stripe, sequence })
    }

    async fn decide(&self, file: &Self::File, run: &OpenRun) -> Result<bool, ClientError> {
        let stood = File::of(self, file).decide(run).await?;
        Ok(stood.is_some())
    }

    async fn write(&self, file: &Self::File, offset: u64, bytes: Bytes) -> Result<(), ClientError> {
        File::of(self, file).write(offset, bytes).await
    }

    async fn version(&self, file: &Self::File, extent: Extent) -> Option<Version> {
        let file = File::of(self, file);
        let layout = file.layout();
        let stripe = layout.stripe(&extent);
        let geometry = layout.geometry(stripe).ok()?;
        let attempts = self.attempts("asking for a version".to_owned(), 0);
        let limit_ms = attempts.attempt_ms();
        let mark = file
            .ask_mark(&layout, stripe, (false, false), limit_ms)
            .await;
        let (epoch, sequence) = mark.ok()?;
        // The primary that answered may have lost its lease without knowing it, and others may have
        // written since. The nodes know: they serve no cut of a past term.
        let byte = ByteRange::new(extent.range.offset, 1);
        let mut reading = Reading::as_of(epoch, sequence);
        let read = file
            .try_read(
                layout.fleet(),
                stripe,
                geometry,
                byte,
                &mut reading,
                &attempts,
            )
            .await;
        let stripe = stripe.id;
        matches!(read, Ok(Ok(_))).then_some(Version { stripe, sequence })
    }
}
