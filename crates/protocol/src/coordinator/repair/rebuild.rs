//! Rebuilding lost chunks: the choice of requestors and helpers. `resume` runs the plan, and `count` makes
//! the chunks count.

use super::Repair;
use super::attempt::{Made, Progress, Rebuild, Round};
use super::survey::{Survey, Target, TaskError};
use crate::coordinator::core::{SHORT_DEADLINE_MS, answered, lock};
use crate::message::{NodeRequest, Scrubbed, ask};
use crate::ports::Ask as _;
use gabion_layout::{ChunkId, ChunkIndex, NodeId};
use gabion_meta::KeyValue;
use gabion_plan::{Cost, Plan, check};
use gabion_planner::{placement, repair};
use rand::SeedableRng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

impl<K: KeyValue + Send + Sync + 'static> Repair<K> {
    /// The node for a chunk that is lost or to be moved: its own node if that is up and stays. Otherwise a
    /// node that keeps the rack limit, preferably the one of the schedule. If there is none, a lost chunk
    /// may go to a leaving node, or to a crowded rack. A crowded rack is used only if one more loss would
    /// end the stripe: no later repair moves the chunk out again, and the pool's promise about racks is
    /// weaker from then on.
    pub(super) async fn choose_requestor(
        self: &Arc<Self>,
        survey: &Survey,
        chunk: ChunkIndex,
        progress: &Progress,
    ) -> Result<NodeId, TaskError> {
        let stripe = &survey.stripe;
        let can_take = |node: NodeId| progress.may_take(node);
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
            let needs = || {
                TaskError(format!(
                    "there is no place for {chunk}: it needs a node that is up, is not leaving, has no chunk of the \
                    stripe, and is in a rack with fewer than {per_rack} of its chunks; add nodes or restart failed \
                    ones"
                ))
            };
            progress.kept_away(survey, chunk).unwrap_or_else(needs)
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
            .with_meta(move |meta| this.pools.failures_left(meta, pool, &lost))
            .await?;
        let mut welcoming = survey.fleet.welcoming();
        welcoming.retain(|&node| can_take(node));
        let (topology, nodes) = (survey.topology(), &stripe.nodes);
        let crowded =
            placement::replacement(&topology, &welcoming, nodes, chunk, nodes.len(), &mut rng);
        crowded.ok().filter(|_| left <= 0).ok_or_else(no_place)
    }

    /// The nodes for the other lost chunks of the stripe that can be made together with `first`: those for
    /// which there is a place beside it.
    pub(super) fn companions(
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
        let can_take = |node: NodeId| progress.may_take(node);
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

    /// Plans to make chunks, and prepares their places. The first chunk is made alone if making all
    /// together is no better.
    pub(super) async fn prepare(
        self: &Arc<Self>,
        survey: &Survey,
        targets: &[Target],
        round: &Round,
        progress: &Progress,
    ) -> Result<Rebuild, TaskError> {
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
            let joins = self.nodes.joins_of(requestor).await;
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

    /// A plan that decodes all targets together, or else the first of them. Helpers are the scheduled ones,
    /// or else those that have not failed before, or else any.
    fn plan_decoding<'t>(
        &self,
        survey: &Survey,
        lost: &[ChunkIndex],
        targets: &'t [Target],
        progress: &Progress,
    ) -> Result<(Plan, &'t [Target]), TaskError> {
        let stripe = survey.stripe_for_plans(lost)?;
        let (chunk, requestor) = targets[0];
        let scheme = *lock(&self.scheme);
        let slice_bytes = self.core.options.slice_bytes;
        let nearest = repair::helpers_by_distance(&stripe, requestor, &survey.topology());
        let trusted = |helpers: &[ChunkIndex]| progress.trusted(&survey.stripe, helpers);
        let is_readable = |path: &Vec<ChunkIndex>| !path.iter().any(|c| lost.contains(c));
        let helper_choices = |targets: &[Target]| {
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
            let together = helper_choices(targets)
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
        let [path, others, all] = helper_choices(first);
        let plan = plan(&path)
            .or_else(|_| plan(&others))
            .or_else(|_| plan(&all))?;
        Ok((plan, first))
    }

    /// Takes a share of the budget for the next chunk: the scheduled one, or another one if the plan
    /// differs from the schedule. Returns the time over which to spread the transfer; none when the budget
    /// has no share left for one more chunk of this stripe now.
    pub(super) fn admit(
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
            let now_ms = self.core.ports.now_ms();
            let links = &rebuild.cost.links;
            self.throttle.may_begin(links, &survey.topology(), now_ms)
        };
        (is_first || may_go_on()).then(|| self.charge(survey, &rebuild.cost))
    }

    /// Takes the unavoidable transfer from the budget. Returns the time over which to spread it.
    pub(in crate::coordinator) fn charge(&self, survey: &Survey, cost: &Cost) -> u64 {
        let topology = survey.topology();
        self.throttle
            .take(&cost.links, &topology, self.core.ports.now_ms())
    }

    /// Makes a node that still has the old chunk refuse clients with old layouts, and drop records of old
    /// terms, which would conflict with the new chunk. The chunk is lost already, so settling it loses
    /// nothing. If the node refuses this, it will refuse its part too, so only a missing answer matters
    /// here.
    async fn fence_in_place(
        &self,
        survey: &Survey,
        requestor: NodeId,
        round: &Round,
    ) -> Result<(), TaskError> {
        let (stripe, epoch) = (survey.stripe.id, round.epoch);
        let generation = survey.stripe.generation;
        let requests: [NodeRequest; 2] = [
            ask::Fence {
                stripe,
                epoch,
                generation,
            }
            .into(),
            ask::Resolve {
                stripe,
                epoch,
                mark: round.outcome.mark,
                dropped: round.outcome.dropped.clone(),
            }
            .into(),
        ];
        for request in requests {
            self.core
                .ports
                .call_node(requestor, request, SHORT_DEADLINE_MS)
                .await?;
        }
        Ok(())
    }

    /// Has a node read a chunk back. Returns whether it is whole.
    pub(in crate::coordinator) async fn read_back(
        &self,
        chunk: ChunkId,
        node: NodeId,
    ) -> Result<bool, TaskError> {
        let request = ask::Scrub {
            chunks: vec![chunk],
        };
        let deadline_ms = self.core.options.repair_deadline_ms;
        let read_back = self.core.ports.ask_node(node, request, deadline_ms).await;
        let is_whole = |found: Scrubbed| found.chunk_count == 1 && found.damage.is_empty();
        Ok(answered(read_back)?.is_some_and(is_whole))
    }
}
