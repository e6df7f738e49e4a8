//! Timed repairs without effect: a plan moves the bytes and makes the chunks as in a real repair,
//! each is read back, and then they are removed again. No record of the stripe changes, and readers
//! of the stripe are unaffected. Experiments use this to time schemes that the coordinator does not
//! offer.

use crate::client::{Client, check};
use crate::error::ClientError;
use futures::future::try_join_all;
use gabion_codec::Code;
use gabion_layout::{ChunkId, ChunkIndex, Epoch, NodeId, Sequence, StripeRecord};
use gabion_plan::{Goal, Plan};
use gabion_protocol::initiate::{RunTerms, run_between_nodes};
use gabion_protocol::message::{Effect, Purpose, ReadCut, Refusal, ask};
use gabion_protocol::ports::{Ask as _, NodeError};
use std::fmt::Debug;
use std::time::Duration;

/// Time limit of a timed repair, and of reading a chunk back afterwards.
const DEADLINE_MS: u64 = 600_000;

impl Client {
    /// Runs plans concurrently that repair or move chunks onto nodes which do not hold them, reads
    /// the chunks back, and removes them. Returns the time until all of them were made. Each plan
    /// comes with the record of its stripe, which must not change in between.
    ///
    /// # Errors
    /// [`ClientError::Broken`] when a plan does not achieve its goal, [`ClientError::Node`] when a
    /// node fails, or a chunk is not whole.
    pub async fn time_repairs(
        &self,
        code: &Code,
        repairs: &[(&StripeRecord, Plan)],
    ) -> Result<Duration, ClientError> {
        for (_, plan) in repairs {
            check(plan, code)?;
        }
        let began_us = self.shared.ports.now_us();
        try_join_all(
            repairs
                .iter()
                .map(|(record, plan)| self.carry_out(record, plan)),
        )
        .await?;
        let taken = Duration::from_micros(self.shared.ports.now_us() - began_us);
        for (record, plan) in repairs {
            for &(index, node) in made(plan) {
                let stripe = record.id;
                self.read_back_and_remove(node, ChunkId { stripe, index })
                    .await?;
            }
        }
        Ok(taken)
    }

    async fn carry_out(&self, record: &StripeRecord, plan: &Plan) -> Result<(), ClientError> {
        // It is made as the coordinator, so it needs no ticket.
        let terms = RunTerms::new(
            self.draw_run(),
            (Epoch(0), record.generation),
            ReadCut::Committed(Epoch(0), Sequence(0)),
            Effect::Install { base: Sequence(0) },
            Purpose::Repair,
            DEADLINE_MS,
        );
        let ran = run_between_nodes(&*self.shared.ports, plan, &terms);
        let failed = |failed: gabion_protocol::initiate::PartFailed| ClientError::Node {
            what: format!("a repair of {} on {}", record.id, failed.node),
            refusal: failed.refusal.into(),
        };
        ran.await.map_err(failed)
    }

    async fn read_back_and_remove(&self, node: NodeId, chunk: ChunkId) -> Result<(), ClientError> {
        let ports = &self.shared.ports;
        let broken = |found: &dyn Debug| {
            ClientError::Broken(format!("{node} has not made {chunk} correctly: {found:?}"))
        };
        let failed = |error: NodeError| match error {
            NodeError::Silent(_) => ClientError::Node {
                what: format!("a repaired chunk on {node}"),
                refusal: Refusal::from(error).into(),
            },
            error => broken(&error),
        };
        let chunks = vec![chunk];
        let scrub = ask::Scrub {
            chunks: chunks.clone(),
        };
        let scrubbed = ports.ask_node(node, scrub, DEADLINE_MS).await;
        let found = scrubbed.map_err(failed)?;
        if found.chunk_count != 1 || !found.damage.is_empty() {
            return Err(broken(&found));
        }
        let removed = ports.ask_node(node, ask::Remove { chunks }, DEADLINE_MS);
        removed.await.map_err(failed)
    }
}

/// The chunks that a plan makes, with their nodes.
fn made(plan: &Plan) -> &[(ChunkIndex, NodeId)] {
    match &plan.goal {
        Goal::Repair { chunks } | Goal::Move { chunks } => chunks,
        _ => &[],
    }
}
