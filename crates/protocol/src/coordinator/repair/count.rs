//! Making rebuilt chunks count: they catch up under the lease, and one transaction notes their places.

use super::Repair;
use super::attempt::{Avoidance, Made, Progress, Rebuild, Round};
use super::survey::{Survey, TaskError};
use crate::coordinator::core::lock;
use crate::coordinator::garbage::Discard;
use gabion_layout::{ChunkId, ChunkIndex, Epoch, Generation, NodeId, StripeId};
use gabion_meta::{KeyValue, MetaError};
use std::sync::Arc;

/// The outcome of a rebuilt chunk.
enum Fate {
    /// It counts.
    Counts,
    /// The stripe has changed, or does not need it any more.
    Moot,
    /// Updates have gone further than the logs reach.
    Outrun,
}

impl<K: KeyValue + Send + Sync + 'static> Repair<K> {
    /// Brings rebuilt chunks up to date and makes them count, under a lease. Chunks for which that fails
    /// are discarded.
    pub(super) async fn count_made(
        self: &Arc<Self>,
        id: StripeId,
        round: &Round,
        rebuild: &Rebuild,
        progress: &mut Progress,
    ) -> Result<(), TaskError> {
        let (mut counts, mut is_outrun, mut error) = (false, false, None);
        for made in &rebuild.made {
            let fate = self.try_count(id, round, rebuild, *made, progress).await;
            counts |= matches!(fate, Ok(Fate::Counts));
            is_outrun |= matches!(fate, Ok(Fate::Outrun));
            if !matches!(fate, Ok(Fate::Counts)) {
                self.abandon(id, made, round.epoch, progress).await;
            }
            error = error.or(fate.err());
        }
        progress.outrun_count += u32::from(is_outrun);
        if counts {
            let mut repaired = lock(&self.counts);
            repaired.planned_cross_rack_bytes += rebuild.cost.cross_rack_bytes;
            repaired.busy_ms += self.core.ports.now_ms().saturating_sub(rebuild.began_ms);
        }
        error.map_or(Ok(()), Err)
    }

    async fn try_count(
        self: &Arc<Self>,
        id: StripeId,
        round: &Round,
        rebuild: &Rebuild,
        made: Made,
        progress: &mut Progress,
    ) -> Result<Fate, TaskError> {
        let (chunk, requestor) = (made.chunk, made.requestor);
        let Some(survey) = self.survey(id).await? else {
            return Ok(Fate::Moot);
        };
        if !survey.fleet.work(&survey.stripe).contains(&chunk) {
            // Its node has returned with it, or stays.
            return Ok(Fate::Moot);
        }
        if !self
            .bring_up(&survey, chunk, requestor, rebuild.base, round)
            .await?
        {
            return Ok(Fate::Outrun);
        }
        let holder = survey.stripe.nodes[chunk.at()];
        // A whole chunk counts, and its node serves it, until its copy counts.
        let moves = survey.fleet.to_move(&survey.stripe).contains(&chunk);
        let left = moves.then_some(holder);
        let place = (requestor, Some(rebuild.generation));
        let relocated = self.relocate(&survey, chunk, place, made.joins);
        let counts = if made.in_place {
            relocated.await?
        } else {
            let counted = self.count_as_move(&survey, round.epoch, left, relocated);
            counted.await?
        };
        if !counts {
            return Ok(Fate::Moot);
        }
        self.count(&survey, rebuild);
        if !made.in_place {
            self.discard(holder, survey.id(chunk), round.epoch, progress)
                .await;
        }
        Ok(Fate::Counts)
    }

    /// Removes a rebuilt chunk that will not count. A chunk that was rebuilt in place is replaced by the
    /// next one.
    pub(super) async fn abandon(
        &self,
        stripe: StripeId,
        made: &Made,
        epoch: Epoch,
        progress: &mut Progress,
    ) {
        let index = made.chunk;
        if !made.in_place {
            let chunk = ChunkId { stripe, index };
            self.discard(made.requestor, chunk, epoch, progress).await;
        }
    }

    /// Orders a node to remove a chunk that does not count. A copy of the order may arrive late, even when the node has
    /// confirmed it; a later term is safe from it.
    async fn discard(&self, node: NodeId, chunk: ChunkId, epoch: Epoch, progress: &mut Progress) {
        match self.garbage.discard(node, chunk, epoch).await {
            Discard::Unsent => {}
            Discard::Confirmed => {
                progress.taken_away.insert((chunk.index, node));
            }
            Discard::Unconfirmed => {
                let why = "it has not confirmed an order to remove a chunk".to_owned();
                progress.avoid(node, Avoidance::Other(why));
            }
        }
    }

    /// Makes a chunk count on a node, where it was made in this generation or has caught up. False when the
    /// stripe has changed since it was planned for.
    pub(super) async fn relocate(
        &self,
        survey: &Survey,
        chunk: ChunkIndex,
        (node, made_in): (NodeId, Option<Generation>),
        joins_before: Option<u64>,
    ) -> Result<bool, TaskError> {
        let (id, generation) = (survey.stripe.id, survey.stripe.generation);
        let joins = self.nodes.hold_joins().await;
        if joins.get(&node).copied() != joins_before {
            // The node may have reported its chunks before this one was whole, and been told to delete it.
            return Err(TaskError(format!(
                "{node} joined again while {chunk} was rebuilt on it"
            )));
        }
        let moved = self
            .core
            .with_meta(move |meta| meta.relocate(id, generation, chunk, (node, made_in)))
            .await;
        match moved {
            Ok(_) => {
                self.nodes.note_change(&survey.stripe.nodes, id);
                Ok(true)
            }
            Err(MetaError::GenerationChanged { .. } | MetaError::UnknownStripe(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn count(&self, survey: &Survey, rebuild: &Rebuild) {
        let (now_ms, bytes) = (self.core.ports.now_ms(), survey.stripe.chunk_bytes);
        self.throttle.note_made(bytes, now_ms);
        let mut repaired = lock(&self.counts);
        if rebuild.is_move {
            repaired.moved_chunk_count += 1;
            repaired.moved_bytes += bytes;
        } else {
            repaired.repaired_chunk_count += 1;
            repaired.repaired_bytes += bytes;
        }
    }
}
