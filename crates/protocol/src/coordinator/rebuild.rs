//! Making a lost chunk: where, from which other chunks, and whether it came out whole.

use super::rounds::{OUTRUN_COUNT_MAX, Progress, Round, SHORT_DEADLINE_MS};
use super::survey::{Setback, Survey};
use super::{Coordinator, lock};
use crate::initiate::{PartFailed, RunTerms, run_plan};
use crate::message::{Effect, NodeReply, NodeRequest, Purpose, ReadCut, Refusal, RunId};
use gabion_layout::{ChunkId, ChunkIndex, Epoch, NodeId, Sequence, StaleChunk, StripeId};
use gabion_meta::{KeyValue, Meta, MetaError};
use gabion_plan::{Cost, Plan, check};
use gabion_planner::manager::Choice;
use gabion_planner::{placement, repair};
use rand::SeedableRng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};
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
    pub(super) cost: Cost,
    /// How often the requestor had joined when the try began.
    joins: Option<u64>,
    /// Whether the requestor holds the chunk that is to be replaced.
    in_place: bool,
    /// Whether the chunk is whole where it is, and is moved.
    pub(super) is_move: bool,
    /// Over how long its reads are spread.
    pub(super) spread_ms: u64,
    began_ms: u64,
}

impl<K: KeyValue + Send + Sync + 'static> Coordinator<K> {
    /// Who is to hold a lost chunk, or one that is to be moved: its own node if that is up and stays,
    /// or else one that keeps the rack limit, by preference the one with which the repair was
    /// scheduled. If there is none, a lost chunk on a node that leaves or in a crowded rack is better
    /// than none, but the latter only where one more loss would end the stripe: nothing moves the
    /// chunk out again, and the pool's promise about racks is weaker from then on.
    pub(super) async fn choose_requestor(
        self: &Arc<Self>,
        survey: &Survey,
        chunk: ChunkIndex,
        progress: &Progress,
    ) -> Result<NodeId, Setback> {
        let stripe = &survey.stripe;
        let id = survey.id(chunk);
        let shunned = lock(&self.shunned).clone();
        let can_take =
            |node: NodeId| !progress.avoided.contains(&node) && !shunned.contains(&(node, id));
        let candidates = survey.requestors(chunk, can_take);
        let scheduled = progress.admitted.as_ref().map(|admitted| &admitted.intent);
        let scheduled = scheduled.filter(|intent| intent.chunk == chunk);
        if let Some(intent) = scheduled.filter(|intent| candidates.contains(&intent.requestor)) {
            return Ok(intent.requestor);
        }
        let mut rng = ChaCha8Rng::seed_from_u64(self.ports.random());
        if let Some(&node) = candidates.choose(&mut rng) {
            return Ok(node);
        }
        let (pool, lost) = (stripe.pool, survey.fleet.lost(stripe));
        let per_rack = survey.facts.record.spec.chunks_per_rack;
        let no_place = || {
            Setback(format!(
                "{chunk} has no place: no node that is up and stays is outside the stripe and in a \
                 rack with fewer than {per_rack} of its chunks; add nodes or bring failed ones back"
            ))
        };
        if !lost.contains(&chunk) {
            return Err(no_place());
        }
        let holder = stripe.nodes[chunk.at()];
        if survey.fleet.is_up(holder) && can_take(holder) {
            return Ok(holder);
        }
        let this = Arc::clone(self);
        let left = self
            .with_meta(move |meta| this.failures_left(meta, pool, &lost))
            .await?;
        let mut welcoming = survey.fleet.welcoming();
        welcoming.retain(|&node| can_take(node));
        let (topology, nodes) = (survey.topology(), &stripe.nodes);
        let crowded =
            placement::replacement(&topology, &welcoming, nodes, chunk, nodes.len(), &mut rng);
        crowded.ok().filter(|_| left <= 0).ok_or_else(no_place)
    }

    /// Plans to make a chunk, and makes its place ready.
    pub(super) async fn prepare(
        self: &Arc<Self>,
        survey: &Survey,
        chunk: ChunkIndex,
        requestor: NodeId,
        path: Option<Vec<ChunkIndex>>,
        round: &Round,
        progress: &Progress,
    ) -> Result<Rebuild, Setback> {
        let began_ms = self.ports.now_ms();
        let joins = self.joins_of(requestor).await;
        let lost = survey.unreadable(&round.absent);
        let stripe = survey.stripe_for_plans(&lost)?;
        let topology = survey.topology();
        let slice_bytes = self.options.slice_bytes;
        let is_move = survey.fleet.to_move(&survey.stripe).contains(&chunk);
        let plan = if is_move {
            repair::move_chunk(&stripe, chunk, requestor, slice_bytes)?
        } else {
            let path = path.filter(|path| !path.iter().any(|helper| lost.contains(helper)));
            let helpers = repair::helpers_by_distance(&stripe, requestor, &topology);
            let scheme = *lock(&self.scheme);
            let plan = |helpers: &[ChunkIndex]| {
                repair::repair(&stripe, chunk, requestor, helpers, scheme, slice_bytes)
            };
            // Without those that have failed before, if there are others enough.
            let trusted = |helpers: &[ChunkIndex]| progress.trusted(&survey.stripe, helpers);
            plan(&path.map_or_else(Vec::new, |path| trusted(&path)))
                .or_else(|_| plan(&trusted(&helpers)))
                .or_else(|_| plan(&helpers))?
        };
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
            is_move,
            spread_ms: 0,
            began_ms,
        })
    }

    /// Takes a share of the budget for a chunk that is about to be made: the one with which the
    /// repair was scheduled, or, if it came out otherwise, another. Over how long it is to be spread;
    /// none when the budget has no share left for one more chunk of this stripe now.
    pub(super) fn admit(
        &self,
        survey: &Survey,
        rebuild: &Rebuild,
        progress: &mut Progress,
    ) -> Option<u64> {
        let is_first = !std::mem::replace(&mut progress.has_begun, true);
        let admitted = progress.admitted.take();
        let as_planned = admitted.filter(|admitted| {
            (admitted.intent.chunk, admitted.intent.requestor) == (rebuild.chunk, rebuild.requestor)
        });
        if let Some(admitted) = as_planned {
            return Some(admitted.spread_ms);
        }
        let may_go_on = || {
            let throttle = lock(&self.throttle);
            let links = [&rebuild.cost.links[..]];
            let now_ms = self.ports.now_ms();
            let choice = throttle.choose(&links, &survey.topology(), now_ms);
            !throttle.is_paused() && choice == Choice::Begin(0)
        };
        (is_first || may_go_on()).then(|| self.charge(survey, &rebuild.cost))
    }

    /// Takes from the budget what has to be sent in any case. Over how long it should be spread.
    pub(super) fn charge(&self, survey: &Survey, cost: &Cost) -> u64 {
        let topology = survey.topology();
        lock(&self.throttle).take(&cost.links, &topology, self.ports.now_ms())
    }

    /// How often each of some nodes has joined; those that have not since the start are left out.
    pub(super) async fn joins_of_all(&self, nodes: &BTreeSet<NodeId>) -> BTreeMap<NodeId, u64> {
        let joins = self.admission.lock().await;
        let known = nodes
            .iter()
            .filter_map(|node| Some((*node, *joins.get(node)?)));
        known.collect()
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
        let plan = rest.unwrap_or(&rebuild.plan);
        let spread_ms = rest.map_or(rebuild.spread_ms, |rest| {
            let cost = Cost::of(rest, &survey.topology());
            let share = u128::from(rebuild.spread_ms) * u128::from(cost.read_bytes);
            (share / u128::from(rebuild.cost.read_bytes.max(1))) as u64
        });
        // Slices that are spread come one by one, and who waits for the next has not stalled.
        let slice_bytes = self.options.slice_bytes.min(survey.stripe.chunk_bytes);
        let slice_ms = u128::from(rebuild.spread_ms) * u128::from(slice_bytes)
            / u128::from(survey.stripe.chunk_bytes);
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
            spread_ms,
            deadline_ms: (self.options.repair_deadline_ms).saturating_add(spread_ms),
            stall_ms: Some(self.options.repair_stall_ms + 2 * slice_ms as u64),
        };
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
        let is_barred = failed.node == rebuild.requestor && failed.refusal == Refusal::Unsettled;
        if is_barred && !rebuild.in_place {
            // An earlier run of the coordinator has made the chunk there and did not get as far as
            // counting it, so nobody settles the records that it has.
            self.discard(failed.node, survey.id(rebuild.chunk)).await;
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
        let Some(mut survey) = self.survey(id).await? else {
            return Ok(false);
        };
        if !survey.fleet.work(&survey.stripe).contains(&chunk) {
            // Its node has returned with it, or stays.
            return Ok(false);
        }
        if !self
            .bring_up(&survey, chunk, requestor, rebuild.base, round)
            .await?
        {
            progress.outrun_count += 1;
            return Ok(false);
        }
        let is_whole = !survey.stripe.is_stale(chunk);
        if rebuild.is_move && is_whole && !self.retire(&mut survey, chunk, round).await? {
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

    /// Ends the service of a chunk that has been copied, under the lease and before the copy counts: it
    /// is stale from now on, durably, and its node, which is up, refuses whoever knows a layout in
    /// which it is not. Otherwise a reader could find it there after updates that it took no part in. A
    /// crash after this leaves a chunk that has missed nothing, and counts again as soon as somebody
    /// looks. False when the stripe has changed meanwhile.
    async fn retire(
        &self,
        survey: &mut Survey,
        chunk: ChunkIndex,
        round: &Round,
    ) -> Result<bool, Setback> {
        let id = survey.stripe.id;
        let stale = StaleChunk {
            chunk,
            missed_after: Some(round.outcome.mark),
        };
        let expected = survey.stripe.generation.0 + 1;
        let note = move |meta: &Meta<K>| meta.note_stale(id, &[stale]);
        survey.stripe = self.with_meta(note).await?;
        if survey.stripe.generation.0 != expected {
            return Ok(false);
        }
        let request = NodeRequest::Collect {
            stripe: id,
            epoch: round.epoch,
            generation: survey.stripe.generation,
        };
        let holder = survey.stripe.nodes[chunk.at()];
        let reply = self
            .ports
            .call_node(holder, request, SHORT_DEADLINE_MS)
            .await?;
        Ok(matches!(reply, NodeReply::Holding(_)))
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
        let (now_ms, bytes) = (self.ports.now_ms(), survey.stripe.chunk_bytes);
        lock(&self.throttle).made().note(bytes, now_ms);
        let mut repaired = lock(&self.repaired);
        if rebuild.is_move {
            repaired.moved_chunk_count += 1;
            repaired.moved_bytes += bytes;
        } else {
            repaired.repaired_chunk_count += 1;
            repaired.repaired_bytes += bytes;
        }
        repaired.planned_cross_rack_bytes += rebuild.cost.cross_rack_bytes;
        repaired.busy_ms += now_ms.saturating_sub(rebuild.began_ms);
    }
}
