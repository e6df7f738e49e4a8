//! Encodes a segment and sends each chunk to its node, for puts and for writes that span stripes.

use crate::client::{Client, check};
use crate::error::ClientError;
use crate::extent::keepings;
use crate::memory::Segment;
use bytes::Bytes;
use gabion_codec::Code;
use gabion_layout::{Epoch, Geometry, NodeId, Sequence, StripeRecord, Topology};
use gabion_meta::PoolSpec;
use gabion_planner::{Stripe, encode};
use gabion_protocol::initiate::{PartFailed, RunTerms};
use gabion_protocol::message::{Effect, Purpose, ReadCut, Ticket};
use std::sync::Arc;

/// Slice size of encodings, in bytes.
const ENCODE_SLICE_BYTES: u64 = 256 << 10;
/// Parameters of encoding besides the stripe.
pub(crate) struct Encoder {
    pub(crate) client: Client,
    pub(crate) code: Code,
    pub(crate) pool: PoolSpec,
    pub(crate) topology: Topology,
}

impl Encoder {
    /// Encodes a segment; returns when all chunks of its stripe are durable except those left out,
    /// or when one fails.
    pub(crate) async fn store(
        &self,
        (record, ticket): (&StripeRecord, Option<Ticket>),
        geometry: Geometry,
        segment: Bytes,
    ) -> Result<Result<(), PartFailed>, ClientError> {
        let left_out: Vec<_> = record.stale.iter().map(|stale| stale.chunk).collect();
        let stripe = Stripe {
            id: record.id,
            code: &self.code,
            geometry,
            placement: &record.nodes,
            lost: &left_out,
        };
        let plan = encode::direct(&stripe, NodeId::CLIENT, ENCODE_SLICE_BYTES)
            .map_err(|error| ClientError::Broken(error.to_string()))?
            .kept(keepings(&self.pool, geometry.chunk_bytes()));
        check(&plan, &self.code)?;
        let what = format!("storing {}", record.id);
        let stored_bytes = geometry.chunk_bytes() * geometry.n() as u64;
        let at_a_time = self.client.in_flight_count(geometry.stripe_bytes()) as u64;
        let attempts = self.client.patient_attempts(what, at_a_time * stored_bytes);
        let terms = RunTerms {
            run: self.client.draw_run(),
            joined: Vec::new(),
            epoch: Epoch(0),
            generation: record.generation,
            cut: ReadCut::Committed(Epoch(0), Sequence(0)),
            effect: Effect::Install { base: Sequence(0) },
            purpose: Purpose::Encode,
            spread_ms: 0,
            deadline_ms: attempts.attempt_ms(),
            stall_ms: Some(self.client.stall_ms()),
            ticket,
        };
        let io = Arc::new(Segment {
            bytes: segment,
            chunk_bytes: geometry.chunk_bytes(),
        });
        let stored = self.client.run(&plan, &self.topology, &terms, io).await;
        Ok(stored.map(|_| ()))
    }
}

impl Client {
    /// Number of stripes of this size in flight at a time.
    pub(crate) fn in_flight_count(&self, stripe_bytes: u64) -> usize {
        (self.shared.options.in_flight_bytes / stripe_bytes.max(1)).clamp(1, 3) as usize
    }
}

/// A participant's name in a sentence.
pub(crate) fn place(node: NodeId) -> String {
    if node == NodeId::CLIENT {
        "this client".to_owned()
    } else {
        node.to_string()
    }
}
