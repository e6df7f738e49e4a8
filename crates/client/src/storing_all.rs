//! The stripes of a put that are being stored, a few at a time, and a count of those that are stored.

use crate::elsewhere::{AvoidedNodes, Storing};
use crate::encoder::Encoder;
use crate::error::ClientError;
use crate::progress::Progress;
use crate::task::Task;
use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt};
use gabion_layout::{Geometry, StripeRecord};
use gabion_meta::PENDING_STRIPES_MAX;
use gabion_protocol::message::{OpenPut, Ticket};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most stripes that are begun and not among the first ones that are all stored, when more are reserved. The `k`
/// blocks of a segment enter the file's map together, so up to `k * ceil(this / k)` blocks have not entered it then.
/// The coordinator reserves whole segments, of half of [`PENDING_STRIPES_MAX`] blocks at most, or one segment: for any
/// `k`, these are at most 508 blocks together.
const BEHIND_COUNT_MAX: u64 = PENDING_STRIPES_MAX / 4;

/// A stored stripe behind its place among the file's stripes and its bytes of the file.
type StoredAt = (u64, u64, StripeRecord);

/// Stripes that are being stored, a few at a time.
pub(crate) struct StoringAll<'a> {
    put: OpenPut,
    encoder: Arc<Encoder>,
    progress: &'a dyn Progress,
    avoided: Arc<AvoidedNodes>,
    /// Each with its place among the file's stripes, and its bytes of the file.
    storing: FuturesUnordered<Task<Result<StoredAt, ClientError>>>,
    /// Those that were begun.
    pub(crate) begun_count: u64,
    pub(crate) stored: Stored,
    done_bytes: u64,
}

/// The stripes that are stored.
#[derive(Default)]
pub(crate) struct Stored {
    /// Their number.
    pub(crate) count: u64,
    /// Bytes of their chunks.
    pub(crate) bytes: u64,
    /// Chunks that are not stored.
    pub(crate) left_out_count: u64,
    /// The first stripes of the file, all of which are stored.
    pub(crate) first_count: u64,
    /// The places of those behind a stripe that is not stored yet.
    apart: BTreeSet<u64>,
}

impl Stored {
    fn note(&mut self, place: u64, stripe: &StripeRecord) {
        self.count += 1;
        self.left_out_count += stripe.stale.len() as u64;
        self.bytes += stripe.chunk_bytes * (stripe.nodes.len() - stripe.stale.len()) as u64;
        self.apart.insert(place);
        while self.apart.remove(&self.first_count) {
            self.first_count += 1;
        }
    }
}

impl<'a> StoringAll<'a> {
    pub(crate) fn new(put: OpenPut, encoder: &Arc<Encoder>, progress: &'a dyn Progress) -> Self {
        Self {
            put,
            encoder: Arc::clone(encoder),
            progress,
            avoided: Arc::default(),
            storing: FuturesUnordered::new(),
            begun_count: 0,
            stored: Stored::default(),
            done_bytes: 0,
        }
    }

    /// Waits until another stripe of this shape fits into memory: one that is being read takes as much as one
    /// that is being stored.
    pub(crate) async fn make_room(
        &mut self,
        shape: Geometry,
        total_bytes: u64,
    ) -> Result<(), ClientError> {
        let client = &self.encoder.client;
        let in_flight_count = client.in_flight_count(shape.stripe_bytes());
        while self.storing.len() >= in_flight_count {
            self.wait_for_one(total_bytes).await?;
        }
        Ok(())
    }

    /// Begins to store a segment of which `data_bytes` bytes are the file's.
    pub(crate) fn store(
        &mut self,
        (record, ticket): (StripeRecord, Option<Ticket>),
        shape: Geometry,
        segment: Bytes,
        data_bytes: u64,
    ) {
        let one = Storing {
            put: self.put,
            encoder: Arc::clone(&self.encoder),
            avoided: Arc::clone(&self.avoided),
            record,
            ticket,
        };
        let (ports, place) = (self.encoder.client.ports(), self.begun_count);
        self.storing.push(Task::spawn(ports, async move {
            let record = one.store(shape, segment).await?;
            Ok((place, data_bytes, record))
        }));
        self.begun_count += 1;
    }

    pub(crate) async fn wait_for_one(&mut self, total_bytes: u64) -> Result<(), ClientError> {
        if let Some(one) = self.storing.next().await {
            let (place, data_bytes, record) = one?;
            self.stored.note(place, &record);
            self.done_bytes += data_bytes;
            self.progress.advanced(self.done_bytes, total_bytes);
        }
        Ok(())
    }

    /// Waits until few stripes are stored behind one that is not: the others wait for it to be counted.
    pub(crate) async fn catch_up(&mut self, total_bytes: u64) -> Result<(), ClientError> {
        while self.begun_count - self.stored.first_count > BEHIND_COUNT_MAX {
            self.wait_for_one(total_bytes).await?;
        }
        Ok(())
    }

    /// Waits for all of them.
    pub(crate) async fn finish(mut self, total_bytes: u64) -> Result<Stored, ClientError> {
        while !self.storing.is_empty() {
            self.wait_for_one(total_bytes).await?;
        }
        Ok(self.stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_wait_and_blocks_that_are_reserved_fit_into_one_transaction() {
        // A stripe has at most 255 chunks, of which at least one is of parity.
        for k in 1..255 {
            let behind_count = BEHIND_COUNT_MAX.div_ceil(k) * k;
            let reserved_count = (PENDING_STRIPES_MAX / 2 / k).max(1) * k;
            let count = behind_count + reserved_count;
            assert!(count <= PENDING_STRIPES_MAX, "{count} for k = {k}");
        }
    }
}
