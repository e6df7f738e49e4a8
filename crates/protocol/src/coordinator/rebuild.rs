//! Making a lost chunk: where, from which other chunks, and whether it came out whole.

use super::rounds::{OUTRUN_COUNT_MAX, Progress, Round, SHORT_DEADLINE_MS};
use super::survey::{Setback, Survey};
use super::{Coordinator, lock};
use crate::initiate::{PartFailed, RunTerms, run_plan};
use crate::message::{Effect, NodeReply, NodeRequest, Purpose, ReadCut, Refusal, RunId};
use gabion_layout::{ChunkId, ChunkIndex, Epoch, NodeId, Sequence, StripeId};
use gabion_meta::{KeyValue, MetaError};
use gabion_plan::{Cost, Plan, check};
use gabion_planner::{placement, repair};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

/// One try to make a chunk.
pub(super) struct Rebuild {
    pub(super) chunk: ChunkIndex,
    pub(super) requestor: NodeId,
    /// The term under which it was planned.
    epoch: Epoch,
    /// The update as of which it is made.
    pub(super) base: Sequence,
    plan: Plan,
    /// Chunks that could not be read when it was planned.
    pub(super) lost: Vec<ChunkIndex>,
    cost: Cost,
    /// How often the requestor had joined when the try began.
    joins: Option<u64>,
    /// Whether the requestor holds the chunk that is to be replaced.
    in_place: bool,
    began_ms: u64,
}

impl<K: KeyValue + Send + Sync + 'static> Coordinator<K> {
    /// Who is to hold a lost chunk: its own node if that is up, or else one that keeps the rack
    /// limit. If there is none, a chunk in a crowded rack is better than none, but only where one
    /// more loss would end the stripe: nothing moves the chunk out again, and the pool's promise
    /// about racks is weaker from then on.
    pub(super) async fn choose_requestor(
        self: &Arc<Self>,
        survey: &Survey,
        chunk: ChunkIndex,
        progress: &Progress,
    ) -> Result<NodeId, Setback> {
        let stripe = &survey.stripe;
        let holder = stripe.nodes[chunk.at()];
        if survey.fleet.is_up(holder) && !progress.avoided.contains(&holder) {
            return Ok(holder);
        }
        let mut candidates = survey.fleet.up();
        let id = survey.id(chunk);
        {
            let shunned = lock(&self.shunned);
            candidates
                .retain(|node| !progress.avoided.contains(node) && !shunned.contains(&(*node, id)));
        }
        let topology = survey.topology();
        let mut rng = ChaCha8Rng::seed_from_u64(self.ports.random());
        let nodes = &stripe.nodes;
        let per_rack = survey.facts.record.spec.chunks_per_rack;
        let mut place = |per_rack| {
            placement::replacement(&topology, &candidates, nodes, chunk, per_rack, &mut rng)
        };
        let found = place(per_rack);
        if found.is_ok() {
            return Ok(found?);
        }
        let (pool, lost) = (stripe.pool, survey.fleet.lost(stripe));
        let this = Arc::clone(self);
        let left = self
            .with_meta(move |meta| this.failures_left(meta, pool, &lost))
            .await?;
        let crowded = if left <= 0 {
            place(nodes.len()).ok()
        } else {
            None
        };
        crowded.ok_or_else(|| {
            Setback(format!(
                "{chunk} has no place: no node that is up is outside the stripe and in a rack with \
                 fewer than {per_rack} of its chunks; add nodes or bring failed ones back"
            ))
        })
    }

    /// Plans to make a chunk, and makes its place ready.
    pub(super) async fn prepare(
        self: &Arc<Self>,
        survey: &Survey,
        chunk: ChunkIndex,
        requestor: NodeId,
        round: &Round,
        progress: &Progress,
    ) -> Result<Rebuild, Setback> {
        let began_ms = self.ports.now_ms();
        let joins = self.joins_of(requestor).await;
        let lost = survey.unreadable(&round.absent);
        let stripe = survey.stripe_for_plans(&lost)?;
        let topology = survey.topology();
        let helpers = repair::helpers_by_distance(&stripe, requestor, &topology);
        let scheme = *lock(&self.scheme);
        let slice_bytes = self.options.slice_bytes;
        let plan = |helpers: &[ChunkIndex]| {
            repair::repair(&stripe, chunk, requestor, helpers, scheme, slice_bytes)
        };
        // Without those that have failed before, if there are others enough.
        let plan = plan(&progress.trusted(&survey.stripe, &helpers)).or_else(|_| plan(&helpers))?;
        let plan = plan.kept(survey.facts.keepings(survey.stripe.chunk_bytes));
        check(&plan, stripe.code)?;
        let in_place = survey.stripe.node_of(chunk) == Some(requestor);
        if in_place {
            self.fence_in_place(survey, requestor, round).await?;
        }
        Ok(Rebuild {
            chunk,
            requestor,
            epoch: round.epoch,
            base: round.outcome.mark,
            cost: Cost::of(&plan, &topology),
            plan,
            lost,
            joins,
            in_place,
            began_ms,
        })
    }

    /// How often a node has joined.
    pub(super) async fn joins_of(&self, node: NodeId) -> Option<u64> {
        self.admission.lock().await.get(&node).copied()
    }

    /// Makes a node that still has the old chunk refuse clients with old layouts, and forget
    /// records of old terms, which would bar the way of the new chunk. The chunk is lost already,
    /// so nothing is lost by settling it. What the node refuses here it refuses again when it is to
    /// do its part, so only its silence matters.
    async fn fence_in_place(
        &self,
        survey: &Survey,
        requestor: NodeId,
        round: &Round,
    ) -> Result<(), Setback> {
        let (stripe, epoch) = (survey.stripe.id, round.epoch);
        let generation = survey.stripe.generation;
        let requests = [
            NodeRequest::Collect {
                stripe,
                epoch,
                generation,
            },
            NodeRequest::Resolve {
                stripe,
                epoch,
                mark: round.outcome.mark,
                dropped: round.outcome.dropped.clone(),
            },
        ];
        for request in requests {
            self.ports
                .call_node(requestor, request, SHORT_DEADLINE_MS)
                .await?;
        }
        Ok(())
    }

    /// Runs the plan and has the requestor read the new chunk back. When a helper fails, others go on
    /// from where it stopped. False when there must be another plan for the whole.
    pub(super) async fn make(
        &self,
        survey: &Survey,
        rebuild: &Rebuild,
        progress: &mut Progress,
    ) -> Result<bool, Setback> {
        let mut rest = None;
        while let Err(failed) = self.run_rest(survey, rebuild, rest.as_ref()).await {
            let is_over = self.judge(survey, rebuild, &failed, progress).await?;
            if is_over {
                return Ok(false);
            }
            rest = self.rest(survey, rebuild, &failed, progress).await?;
            if rest.is_none() {
                return Err(failed.into());
            }
            lock(&self.repaired).resumed_count += 1;
        }
        let chunk = survey.id(rebuild.chunk);
        let whole = self.read_back(chunk, rebuild.requestor).await;
        if !matches!(whole, Ok(true)) {
            self.give_up(survey.stripe.id, rebuild).await;
        }
        if matches!(whole, Ok(false)) {
            progress.avoided.insert(rebuild.requestor);
        }
        whole
    }

    /// Runs the rebuild's plan, or one for the rest of the chunk.
    async fn run_rest(
        &self,
        survey: &Survey,
        rebuild: &Rebuild,
        rest: Option<&Plan>,
    ) -> Result<(), PartFailed> {
        let base = rebuild.base;
        let terms = RunTerms {
            run: RunId(self.ports.random()),
            epoch: rebuild.epoch,
            generation: survey.stripe.generation,
            cut: ReadCut::Settled(base),
            effect: match rest {
                None => Effect::Install { base },
                Some(_) => Effect::Resume { base },
            },
            purpose: Purpose::Repair,
            deadline_ms: self.options.repair_deadline_ms,
            stall_ms: Some(self.options.repair_stall_ms),
        };
        let plan = rest.unwrap_or(&rebuild.plan);
        let ran = run_plan(&*self.ports, plan, &terms, |_| {
            unreachable!("a repair moves bytes between nodes alone")
        });
        ran.await.map(|_| ())
    }

    /// Draws the lessons of a failed run. Whether the chunk must be planned for anew.
    async fn judge(
        &self,
        survey: &Survey,
        rebuild: &Rebuild,
        failed: &PartFailed,
        progress: &mut Progress,
    ) -> Result<bool, Setback> {
        let blamed = survey.blamed(&failed.refusal);
        if let Some(chunk) = blamed.filter(|&c| survey.stripe.node_of(c) == Some(failed.node)) {
            self.mark(survey.stripe.id, vec![chunk]).await?;
            return Ok(true);
        }
        let cannot_write = matches!(failed.refusal, Refusal::NoSpace | Refusal::Failed(_));
        if failed.node == rebuild.requestor && cannot_write {
            progress.avoided.insert(failed.node);
            return Ok(true);
        }
        let is_outrun = matches!(failed.refusal, Refusal::CutPassed { .. });
        if is_outrun && progress.outrun_count < OUTRUN_COUNT_MAX {
            // A helper has forgotten the pin.
            progress.outrun_count += 1;
            return Ok(true);
        }
        Ok(false)
    }

    /// Has a node read a chunk back. Whether it is whole.
    pub(super) async fn read_back(&self, chunk: ChunkId, node: NodeId) -> Result<bool, Setback> {
        let request = NodeRequest::Scrub {
            chunks: vec![chunk],
        };
        let deadline_ms = self.options.repair_deadline_ms;
        let read_back = self.ports.call_node(node, request, deadline_ms).await?;
        Ok(matches!(
            &read_back,
            NodeReply::Scrubbed { chunk_count: 1, damage, .. } if damage.is_empty()
        ))
    }

    /// Brings a made chunk up to date and makes it count, under a lease. If that does not succeed,
    /// it was made for nothing.
    pub(super) async fn count_made(
        self: &Arc<Self>,
        id: StripeId,
        round: &Round,
        rebuild: &Rebuild,
        progress: &mut Progress,
    ) -> Result<(), Setback> {
        let counted = self.try_count(id, round, rebuild, progress).await;
        if !matches!(counted, Ok(true)) {
            self.give_up(id, rebuild).await;
        }
        counted.map(|_| ())
    }

    async fn try_count(
        self: &Arc<Self>,
        id: StripeId,
        round: &Round,
        rebuild: &Rebuild,
        progress: &mut Progress,
    ) -> Result<bool, Setback> {
        let (chunk, requestor) = (rebuild.chunk, rebuild.requestor);
        let Some(survey) = self.survey(id).await? else {
            return Ok(false);
        };
        if !survey.fleet.due(&survey.stripe).contains(&chunk) {
            // Its node has returned with it.
            return Ok(false);
        }
        if !self
            .bring_up(&survey, chunk, requestor, rebuild.base, round)
            .await?
        {
            progress.outrun_count += 1;
            return Ok(false);
        }
        if !self
            .relocate(&survey, chunk, requestor, rebuild.joins)
            .await?
        {
            return Ok(false);
        }
        self.count(&survey, rebuild);
        if !rebuild.in_place {
            let holder = survey.stripe.nodes[chunk.at()];
            self.discard(holder, survey.id(chunk)).await;
        }
        Ok(true)
    }

    /// Has a chunk removed that was made and will not count. One that was made in place is replaced
    /// by the next.
    pub(super) async fn give_up(&self, stripe: StripeId, rebuild: &Rebuild) {
        if !rebuild.in_place {
            let index = rebuild.chunk;
            self.discard(rebuild.requestor, ChunkId { stripe, index })
                .await;
        }
    }

    /// Makes the new chunk count. False when the stripe has changed since it was planned for.
    pub(super) async fn relocate(
        &self,
        survey: &Survey,
        chunk: ChunkIndex,
        node: NodeId,
        joins_before: Option<u64>,
    ) -> Result<bool, Setback> {
        let (id, generation) = (survey.stripe.id, survey.stripe.generation);
        let joins = self.admission.lock().await;
        if joins.get(&node).copied() != joins_before {
            // It may have told its chunks before this one was whole, and been told to delete it.
            return Err(Setback(format!(
                "{node} has joined anew while it was given {chunk}"
            )));
        }
        let moved = self
            .with_meta(move |meta| meta.relocate(id, generation, chunk, node))
            .await;
        match moved {
            Ok(_) => Ok(true),
            Err(MetaError::GenerationChanged { .. } | MetaError::UnknownStripe(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn count(&self, survey: &Survey, rebuild: &Rebuild) {
        let mut repaired = lock(&self.repaired);
        repaired.repaired_chunk_count += 1;
        repaired.repaired_bytes += survey.stripe.chunk_bytes;
        repaired.planned_cross_rack_bytes += rebuild.cost.cross_rack_bytes;
        repaired.busy_ms += self.ports.now_ms().saturating_sub(rebuild.began_ms);
    }
}
