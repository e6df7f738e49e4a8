//! The cluster as the storage behind a client's cache.

use crate::cache::Backing;
use crate::client::Client;
use crate::error::ClientError;
use crate::extent::Extent;
use crate::file::{File, Opened};
use crate::moment::{Moment, Version};
use crate::open_runs::{Attempted, LastAttempt};
use crate::place::Place;
use crate::reading::Reading;
use bytes::Bytes;
use gabion_layout::ByteRange;
use std::sync::Arc;

impl Backing for Client {
    type File = Arc<Opened>;

    async fn read(&self, file: &Self::File, extent: Extent) -> Result<Moment, ClientError> {
        File::of(self, file).read_extent(extent).await
    }

    async fn update(
        &self,
        file: &Self::File,
        at: u64,
        ranges: &[ByteRange],
        bytes: Bytes,
        last_attempt: &LastAttempt,
    ) -> Result<Option<Version>, ClientError> {
        let file = File::of(self, file);
        let extents = File::pieces(at, ranges);
        let written = file.write_extents(&extents, &bytes, last_attempt).await?;
        Ok(written.map(|(stripe, sequence)| Version { stripe, sequence }))
    }

    async fn decide(&self, file: &Self::File, attempted: &Attempted) -> Result<bool, ClientError> {
        let file = File::of(self, file);
        match attempted {
            Attempted::Update(run) => Ok(file.decide(run).await?.is_some()),
            Attempted::Replacement(open) => file.decide_replacement(open).await,
            Attempted::Inline(open) => file.decide_inline(open).await,
        }
    }

    async fn write(&self, file: &Self::File, offset: u64, bytes: Bytes) -> Result<(), ClientError> {
        File::of(self, file).write(offset, bytes).await
    }

    async fn version(&self, file: &Self::File, extent: Extent) -> Option<Version> {
        let file = File::of(self, file);
        let layout = file.layout_of(extent.in_file()).await.ok()?;
        let stripe = layout.find(&extent)?;
        let geometry = layout.geometry(stripe).ok()?;
        let attempts = self.attempts("asking for a version".to_owned(), 0);
        let limit_ms = attempts.attempt_ms();
        let mark = file
            .ask_mark(&layout, stripe, (false, Vec::new()), limit_ms)
            .await;
        let (epoch, sequence, _) = mark.ok()?;
        // The primary that answered may have lost its lease without knowing it, and others may have
        // written since. The nodes know: they serve no cut of a past term.
        let byte = (ByteRange::new(extent.range.offset, 1), &Place::new(1));
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
