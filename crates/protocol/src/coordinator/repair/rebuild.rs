//! Making lost chunks: where, from which other chunks, and whether they count. Running the plan is in
//! `resume`.

use super::rounds::{Progress, Round, SHORT_DEADLINE_MS};
use super::survey::{Setback, Survey};
use crate::coordinator::Coordinator;
use crate::coordinator::core::lock;
use crate::fence::fence;
use crate::message::{NodeReply, NodeRequest};

use gabion_layout::{
    ChunkId, ChunkIndex, Epoch, Generation, NodeId, Sequence, StaleChunk, StripeId,
};
use gabion_meta::{KeyValue, Meta, MetaError};
use gabion_plan::{Cost, Plan, check};
use gabion_planner::manager::Choice;
use gabion_planner::{placement, repair};
use rand::SeedableRng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A chunk and the node that is to hold it.
pub(in crate::coordinator) type Target = (ChunkIndex, NodeId);

/// One try to make a chunk, or all lost ones of a stripe together (`ECPipe` section 4.4).
pub(in crate::coordinator) struct Rebuild {
    /// At least one. More than one are all lost.
    pub(in crate::coordinator) made: Vec<Made>,
    /// The term under which it was planned.
    pub(in crate::coordinator) epoch: Epoch,
    /// The generation in which it is made.
    generation: Generation,
    /// The update as of which it is made.
    pub(in crate::coordinator) base: Sequence,
    pub(in crate::coordinator) plan: Plan,
    /// Chunks that could not be read when it was planned.
    pub(in crate::coordinator) lost: Vec<ChunkIndex>,
    pub(in crate::coordinator) cost: Cost,
    /// Whether the chunk is whole where it is, and is moved.
    pub(in crate::coordinator) is_move: bool,
    /// Over how long its reads are spread.
    pub(in crate::coordinator) spread_ms: u64,
    began_ms: u64,
}

impl Rebuild {
    fn targets(&self) -> Vec<Target> {
        let made = self.made.iter();
        made.map(|made| (made.chunk, made.requestor)).collect()
    }
}

/// A chunk that is being made, and may be done before others of its rebuild.
#[derive(Clone, Copy)]
pub(in crate::coordinator) struct Made {
    pub(in crate::coordinator) chunk: ChunkIndex,
    pub(in crate::coordinator) requestor: NodeId,
    /// How often the requestor had joined when the try began.
    joins: Option<u64>,
    /// Whether the requestor holds the chunk that is to be replaced.
    pub(in crate::coordinator) in_place: bool,
    /// Whether the requestor has said that it is whole.
    pub(in crate::coordinator) is_done: bool,
}

/// What has become of a chunk that was made.
enum Fate {
    /// It counts.
    Counts,
    /// The stripe has changed, or needs it no more.
    Moot,
    /// Updates have gone further than logs reach.
    Outrun,
}

impl<K: KeyValue + Send + Sync + 'static> Coordinator<K> {
    /// Who is to hold a lost chunk, or one that is to be moved: its own node if that is up and stays,
    /// or else one that keeps the rack limit, by preference the one with which the repair was
    /// scheduled. If there is none, a lost chunk on a node that leaves or in a crowded rack is better
    /// than none, but the latter only where one more loss would end the stripe: nothing moves the
    /// chunk out again, and the pool's promise about racks is weaker from then on.
    pub(in crate::coordinator) async fn choose_requestor(
        self: &Arc<Self>,
        survey: &Survey,
        chunk: ChunkIndex,
        progress: &Progress,
    ) -> Result<NodeId, Setback> {
        let stripe = &survey.stripe;
        let can_take = |node: NodeId| !progress.avoided.contains(&node);
        let candidates = survey.requestors(chunk, can_take);
        if let Some(scheduled) = progress.scheduled(chunk, &candidates) {
            return Ok(scheduled);
        }
        let mut rng = ChaCha8Rng::seed_from_u64(self.core.ports.random());
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
            .core
            .with_meta(move |meta| this.failures_left(meta, pool, &lost))
            .await?;
        let mut welcoming = survey.fleet.welcoming();
        welcoming.retain(|&node| can_take(node));
        let (topology, nodes) = (survey.topology(), &stripe.nodes);
        let crowded =
            placement::replacement(&topology, &welcoming, nodes, chunk, nodes.len(), &mut rng);
        crowded.ok().filter(|_| left <= 0).ok_or_else(no_place)
    }

    /// Who is to hold the other chunks of the stripe that are lost and can be made together with `first`:
    /// those for which there is a place beside it.
    pub(in crate::coordinator) fn companions(
        &self,
        survey: &Survey,
        first: Target,
        progress: &Progress,
    ) -> Vec<Target> {
        let mut targets = vec![first];
        let moved = survey.fleet.to_move(&survey.stripe);
        if moved.contains(&first.0) {
            return targets;
        }
        let can_take = |node: NodeId| !progress.avoided.contains(&node);
        let mut rng = ChaCha8Rng::seed_from_u64(self.core.ports.random());
        for chunk in survey.fleet.work(&survey.stripe) {
            let is_other = chunk != first.0 && !moved.contains(&chunk);
            if !is_other || !progress.is_to_be_made(survey, chunk) {
                continue;
            }
            let candidates = survey.requestors_beside(chunk, &targets, can_take);
            let scheduled = progress.scheduled(chunk, &candidates);
            let requestor = scheduled.or_else(|| candidates.choose(&mut rng).copied());
            targets.extend(requestor.map(|requestor| (chunk, requestor)));
        }
        targets
    }

    /// Plans to make chunks, the first of them by itself where making all together is no better, and makes
    /// their places ready.
    pub(in crate::coordinator) async fn prepare(
        self: &Arc<Self>,
        survey: &Survey,
        targets: &[Target],
        round: &Round,
        progress: &Progress,
    ) -> Result<Rebuild, Setback> {
        let began_ms = self.core.ports.now_ms();
        let lost = survey.unreadable(&round.absent);
        let (chunk, requestor) = targets[0];
        let is_move = survey.fleet.to_move(&survey.stripe).contains(&chunk);
        let (plan, targets) = if is_move {
            let stripe = survey.stripe_for_plans(&lost)?;
            let slice_bytes = self.core.options.slice_bytes;
            let plan = repair::move_chunk(&stripe, chunk, requestor, slice_bytes)?;
            (plan, &targets[..1])
        } else {
            self.plan_decoding(survey, &lost, targets, progress)?
        };
        let plan = plan.kept(survey.facts.keepings(survey.stripe.chunk_bytes));
        check(&plan, &survey.facts.code)?;
        let mut made = Vec::with_capacity(targets.len());
        for &(chunk, requestor) in targets {
            let in_place = survey.stripe.node_of(chunk) == Some(requestor);
            let joins = self.joins_of(requestor).await;
            if in_place {
                self.fence_in_place(survey, requestor, round).await?;
            }
            made.push(Made {
                chunk,
                requestor,
                joins,
                in_place,
                is_done: false,
            });
        }
        Ok(Rebuild {
            made,
            epoch: round.epoch,
            generation: survey.stripe.generation,
            base: round.outcome.mark,
            cost: Cost::of(&plan, &survey.topology()),
            plan,
            lost,
            is_move,
            spread_ms: 0,
            began_ms,
        })
    }

    /// A plan that decodes all targets together, or else the first of them. Helpers are the scheduled
    /// ones, or else those that have not failed before, or else any.
    fn plan_decoding<'t>(
        &self,
        survey: &Survey,
        lost: &[ChunkIndex],
        targets: &'t [Target],
        progress: &Progress,
    ) -> Result<(Plan, &'t [Target]), Setback> {
        let stripe = survey.stripe_for_plans(lost)?;
        let (chunk, requestor) = targets[0];
        let scheme = *lock(&self.scheme);
        let slice_bytes = self.core.options.slice_bytes;
        let nearest = repair::helpers_by_distance(&stripe, requestor, &survey.topology());
        let trusted = |helpers: &[ChunkIndex]| progress.trusted(&survey.stripe, helpers);
        let is_readable = |path: &Vec<ChunkIndex>| !path.iter().any(|c| lost.contains(c));
        let wishes = |targets: &[Target]| {
            let path = progress.path_for(targets).filter(is_readable);
            let path = path.map(|path| trusted(&path)).unwrap_or_default();
            [path, trusted(&nearest), nearest.clone()]
        };
        if targets.len() > 1 {
            let topology = survey.topology();
            let equal = (!progress.is_detour()).then_some(&topology);
            let plan = |helpers: &Vec<ChunkIndex>| {
                repair::repair_together(&stripe, targets, helpers, scheme, equal, slice_bytes)
            };
            let together = wishes(targets)
                .iter()
                .find_map(|helpers| plan(helpers).ok());
            if let Some(plan) = together.flatten() {
                return Ok((plan, targets));
            }
        }
        let first = &targets[..1];
        let plan = |helpers: &Vec<ChunkIndex>| {
            repair::repair(&stripe, chunk, requestor, helpers, scheme, slice_bytes)
        };
        let [path, others, all] = wishes(first);
        let plan = plan(&path)
            .or_else(|_| plan(&others))
            .or_else(|_| plan(&all))?;
        Ok((plan, first))
    }

    /// Takes a share of the budget for a chunk that is about to be made: the one with which the
    /// repair was scheduled, or, if it came out otherwise, another. Over how long it is to be spread;
    /// none when the budget has no share left for one more chunk of this stripe now.
    pub(in crate::coordinator) fn admit(
        &self,
        survey: &Survey,
        rebuild: &Rebuild,
        progress: &mut Progress,
    ) -> Option<u64> {
        let is_first = !std::mem::replace(&mut progress.has_begun, true);
        let admitted = progress.admitted.take();
        let as_planned = admitted.filter(|admitted| admitted.intent.targets == rebuild.targets());
        if let Some(admitted) = as_planned {
            return Some(admitted.spread_ms);
        }
        let may_go_on = || {
            let throttle = lock(&self.throttle);
            let links = [&rebuild.cost.links[..]];
            let now_ms = self.core.ports.now_ms();
            let choice = throttle.choose(&links, &survey.topology(), now_ms);
            !throttle.is_paused() && choice == Choice::Begin(0)
        };
        (is_first || may_go_on()).then(|| self.charge(survey, &rebuild.cost))
    }

    /// Takes from the budget what has to be sent in any case. Over how long it should be spread.
    pub(in crate::coordinator) fn charge(&self, survey: &Survey, cost: &Cost) -> u64 {
        let topology = survey.topology();
        lock(&self.throttle).take(&cost.links, &topology, self.core.ports.now_ms())
    }

    /// How often each of some nodes has joined; those that have not since the start are left out.
    pub(in crate::coordinator) async fn joins_of_all(
        &self,
        nodes: &BTreeSet<NodeId>,
    ) -> BTreeMap<NodeId, u64> {
        let joins = self.admission.lock().await;
        let known = nodes
            .iter()
            .filter_map(|node| Some((*node, *joins.get(node)?)));
        known.collect()
    }

    /// How often a node has joined.
    pub(in crate::coordinator) async fn joins_of(&self, node: NodeId) -> Option<u64> {
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
            NodeRequest::Fence {
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
            self.core
                .ports
                .call_node(requestor, request, SHORT_DEADLINE_MS)
                .await?;
        }
        Ok(())
    }

    /// Has a node read a chunk back. Whether it is whole.
    pub(in crate::coordinator) async fn read_back(
        &self,
        chunk: ChunkId,
        node: NodeId,
    ) -> Result<bool, Setback> {
        let request = NodeRequest::Scrub {
            chunks: vec![chunk],
        };
        let deadline_ms = self.core.options.repair_deadline_ms;
        let read_back = self
            .core
            .ports
            .call_node(node, request, deadline_ms)
            .await?;
        Ok(matches!(
            &read_back,
            NodeReply::Scrubbed { chunk_count: 1, damage, .. } if damage.is_empty()
        ))
    }

    /// Brings made chunks up to date and makes them count, under a lease. Those with which that does not
    /// succeed were made for nothing.
    pub(in crate::coordinator) async fn count_made(
        self: &Arc<Self>,
        id: StripeId,
        round: &Round,
        rebuild: &Rebuild,
        progress: &mut Progress,
    ) -> Result<(), Setback> {
        let (mut counts, mut is_outrun, mut setback) = (false, false, None);
        for made in &rebuild.made {
            let fate = self.try_count(id, round, rebuild, *made, progress).await;
            counts |= matches!(fate, Ok(Fate::Counts));
            is_outrun |= matches!(fate, Ok(Fate::Outrun));
            if !matches!(fate, Ok(Fate::Counts)) {
                self.give_up(id, made, round.epoch, progress).await;
            }
            setback = setback.or(fate.err());
        }
        progress.outrun_count += u32::from(is_outrun);
        if counts {
            let mut repaired = lock(&self.repaired);
            repaired.planned_cross_rack_bytes += rebuild.cost.cross_rack_bytes;
            repaired.busy_ms += self.core.ports.now_ms().saturating_sub(rebuild.began_ms);
        }
        setback.map_or(Ok(()), Err)
    }

    async fn try_count(
        self: &Arc<Self>,
        id: StripeId,
        round: &Round,
        rebuild: &Rebuild,
        made: Made,
        progress: &mut Progress,
    ) -> Result<Fate, Setback> {
        let (chunk, requestor) = (made.chunk, made.requestor);
        let Some(mut survey) = self.survey(id).await? else {
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
        let is_whole = !survey.stripe.is_stale(chunk);
        if rebuild.is_move && is_whole && !self.retire(&mut survey, chunk, round).await? {
            return Ok(Fate::Moot);
        }
        let place = (requestor, Some(rebuild.generation));
        if !self.relocate(&survey, chunk, place, made.joins).await? {
            return Ok(Fate::Moot);
        }
        self.count(&survey, rebuild);
        if !made.in_place {
            let holder = survey.stripe.nodes[chunk.at()];
            if !self.discard(holder, survey.id(chunk), round.epoch).await {
                progress.avoided.insert(holder);
            }
        }
        Ok(Fate::Counts)
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
        survey.stripe = self.core.with_meta(note).await?;
        if survey.stripe.generation.0 != expected {
            return Ok(false);
        }
        let holder = survey.stripe.nodes[chunk.at()];
        let term = (id, round.epoch, survey.stripe.generation);
        fence(&*self.core.ports, holder, term).await?;
        Ok(true)
    }

    /// Has a chunk removed that was made and will not count. One that was made in place is replaced
    /// by the next.
    pub(in crate::coordinator) async fn give_up(
        &self,
        stripe: StripeId,
        made: &Made,
        epoch: Epoch,
        progress: &mut Progress,
    ) {
        let index = made.chunk;
        if !made.in_place {
            let chunk = ChunkId { stripe, index };
            if !self.discard(made.requestor, chunk, epoch).await {
                progress.avoided.insert(made.requestor);
            }
        }
    }

    /// Makes a chunk count on a node, where it was made in this generation or has caught up. False when the
    /// stripe has changed since it was planned for.
    pub(in crate::coordinator) async fn relocate(
        &self,
        survey: &Survey,
        chunk: ChunkIndex,
        (node, made_in): (NodeId, Option<Generation>),
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
            .core
            .with_meta(move |meta| meta.relocate(id, generation, chunk, (node, made_in)))
            .await;
        match moved {
            Ok(_) => {
                lock(&self.sessions).note_change(&survey.stripe.nodes, id);
                Ok(true)
            }
            Err(MetaError::GenerationChanged { .. } | MetaError::UnknownStripe(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn count(&self, survey: &Survey, rebuild: &Rebuild) {
        let (now_ms, bytes) = (self.core.ports.now_ms(), survey.stripe.chunk_bytes);
        lock(&self.throttle).made().note(bytes, now_ms);
        let mut repaired = lock(&self.repaired);
        if rebuild.is_move {
            repaired.moved_chunk_count += 1;
            repaired.moved_bytes += bytes;
        } else {
            repaired.repaired_chunk_count += 1;
            repaired.repaired_bytes += bytes;
        }
    }
}
