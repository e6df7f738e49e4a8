//! Data grouping (CAU, section 3.3): after a commit, chunks of a stripe that were updated together change
//! places with others of the stripe, so that the next commit finds them in one rack. The planner decides;
//! this file executes the exchange while clients read and update.
//!
//! The coordinator holds the stripe's lease during the exchange, and settles the stripe, so that no chunk
//! changes. The chunks are copied to each other's nodes and read back. Then one transaction notes all new
//! places, at a new generation. A crash before it leaves copies that no layout names, and a crash after it
//! leaves the old chunks; their nodes are told to remove them, at once or when they join. Both nodes stay
//! in the stripe, so the next primary fences off the old layout on both before any update. Until then, the
//! chunks that they still serve under the old layout have not changed.

use crate::coordinator::core::{Core, lock};
use crate::coordinator::garbage::Garbage;
use crate::coordinator::leases::Leases;
use crate::coordinator::leases::occupied::Occupied;
use crate::coordinator::members::nodes::Nodes;
use crate::coordinator::repair::Repair;
use crate::coordinator::repair::survey::{Survey, TaskError};
use crate::coordinator::shared_state::SharedState;
use crate::initiate::{RunTerms, run_between_nodes};
use crate::message::{Effect, Purpose, ReadCut, RunId, ask};
use crate::wake_up::WakeUp;
use futures::TryFutureExt;
use gabion_layout::{ChunkIndex, Epoch, NodeId, Sequence, StripeId, StripeRecord};
use gabion_meta::{KeyValue, Meta};
use gabion_plan::{Cost, Plan, check};
use gabion_planner::update::cau::{self, Grouping};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Most stripes that wait. Further ones are dropped: their next commit requests the grouping again.
const WAITING_COUNT_MAX: usize = 4_096;

/// Moves chunks together that are updated together.
pub(in crate::coordinator) struct DataGrouping<K> {
    core: Arc<Core<K>>,
    nodes: Arc<Nodes<K>>,
    occupied: Occupied,
    leases: Arc<Leases<K>>,
    garbage: Arc<Garbage<K>>,
    repair: Arc<Repair<K>>,
    waiting: Mutex<Waiting>,
    wake_up: WakeUp,
}

/// The stripes to check, and the counts of earlier exchanges.
#[derive(Debug, Default)]
struct Waiting {
    /// The data chunks of each stripe that were committed together last.
    stripes: BTreeMap<StripeId, Vec<ChunkIndex>>,
    moved_count: u64,
}

/// Chunks that are to change places, under a lease.
struct Exchange {
    plan: Plan,
    /// The new place of each chunk of the stripe.
    placement: Vec<NodeId>,
    /// The chunks that move: the old node and the new node of each, and how often the new node had joined
    /// when the exchange began.
    moves: Vec<(ChunkIndex, NodeId, NodeId, Option<u64>)>,
}

impl<K: KeyValue + Send + Sync + 'static> DataGrouping<K> {
    /// An empty queue.
    pub(in crate::coordinator) fn new(
        shared: &SharedState<K>,
        leases: &Arc<Leases<K>>,
        garbage: &Arc<Garbage<K>>,
        repair: &Arc<Repair<K>>,
    ) -> Self {
        Self {
            core: Arc::clone(&shared.core),
            nodes: Arc::clone(&shared.nodes),
            occupied: shared.occupied.clone(),
            leases: Arc::clone(leases),
            garbage: Arc::clone(garbage),
            repair: Arc::clone(repair),
            waiting: Mutex::default(),
            wake_up: WakeUp::default(),
        }
    }

    /// Chunks that were moved since the start.
    pub(in crate::coordinator) fn moved_count(&self) -> u64 {
        lock(&self.waiting).moved_count
    }

    /// Notes that chunks of a stripe were committed together.
    pub(in crate::coordinator) fn note(&self, told: ask::Group) {
        let ask::Group { stripe, updated } = told;
        let waiting = &mut lock(&self.waiting).stripes;
        if waiting.len() < WAITING_COUNT_MAX || waiting.contains_key(&stripe) {
            waiting.insert(stripe, updated);
            self.wake_up.wake();
        }
    }

    /// Groups one stripe after another.
    pub(in crate::coordinator) async fn run(self: Arc<Self>) {
        while !self.core.is_broken() {
            let next = lock(&self.waiting).stripes.pop_first();
            let Some((stripe, updated)) = next else {
                self.wake_up.woken().await;
                continue;
            };
            // The next commit of the same chunks requests the grouping again.
            if let Err(TaskError(sentence)) = self.group(stripe, &updated).await {
                self.core
                    .note_error(format!("chunks of {stripe} are not grouped: {sentence}"));
            }
        }
    }

    /// Exchanges the places of a stripe's chunks, if the pool's rule requires it.
    async fn group(
        self: &Arc<Self>,
        id: StripeId,
        updated: &[ChunkIndex],
    ) -> Result<(), TaskError> {
        let Some(survey) = self.repair.survey(id).await? else {
            return Ok(());
        };
        // Checked before the lease makes updates wait.
        if grouping(&survey, updated)?.is_none() {
            return Ok(());
        }
        let Ok(_occupation) = self.occupied.occupy(vec![id]) else {
            return Ok(());
        };
        let Some(epoch) = self.leases.take_lease(id).await? else {
            return Ok(());
        };
        let ended = self.exchange(id, epoch, updated).await;
        let released = self.leases.release_lease(id, epoch, false).await;
        ended?;
        released?;
        Ok(())
    }

    /// Settles the stripe, copies chunks to their new places, and makes these count.
    async fn exchange(
        self: &Arc<Self>,
        id: StripeId,
        epoch: Epoch,
        updated: &[ChunkIndex],
    ) -> Result<(), TaskError> {
        let Some((outcome, absent)) = self.repair.settle(id, epoch).await? else {
            return Ok(());
        };
        let Some(survey) = self.repair.survey(id).await? else {
            return Ok(());
        };
        let grouping = grouping(&survey, updated)?;
        let Some(grouping) = grouping.filter(|_| absent.is_empty()) else {
            return Ok(());
        };
        let exchange = self.plan_exchange(&survey, grouping).await?;
        let mut counted = self.copy(&survey, &exchange, epoch, outcome.mark).await;
        if counted.is_ok() {
            let noted = self.count_exchange(&survey, &exchange).map_ok(|()| true);
            let moved = self.repair.count_as_move(&survey, epoch, None, noted).await;
            counted = moved.map(|_| ());
        }
        if self.core.is_broken() {
            // The transaction's outcome is unknown. The next run reads it, and tells the nodes when they
            // join.
            return counted;
        }
        for &(chunk, from, to, _) in &exchange.moves {
            let obsolete = if counted.is_ok() { from } else { to };
            self.garbage
                .discard(obsolete, survey.id(chunk), epoch)
                .await;
        }
        counted
    }

    async fn plan_exchange(
        self: &Arc<Self>,
        survey: &Survey,
        grouping: Grouping,
    ) -> Result<Exchange, TaskError> {
        let stripe = survey.stripe_for_plans(&[])?;
        let plan = cau::relocate(&stripe, &grouping, self.core.options.slice_bytes)?;
        let plan = plan.kept(survey.facts.keepings(survey.stripe.chunk_bytes));
        check(&plan, stripe.code)?;
        let placement = grouping.placement;
        let mut joined = Vec::new();
        for (chunk, from, to) in moves(&survey.stripe, &placement) {
            joined.push((chunk, from, to, self.nodes.joins_of(to).await));
        }
        Ok(Exchange {
            plan,
            placement,
            moves: joined,
        })
    }

    /// Copies the chunks as of the settled mark, and has their new nodes read them back.
    async fn copy(
        self: &Arc<Self>,
        survey: &Survey,
        exchange: &Exchange,
        epoch: Epoch,
        mark: Sequence,
    ) -> Result<(), TaskError> {
        self.repair
            .charge(survey, &Cost::of(&exchange.plan, &survey.topology()));
        let terms = RunTerms {
            stall_ms: Some(self.core.options.repair_stall_ms),
            ..RunTerms::new(
                RunId(self.core.ports.random()),
                (epoch, survey.stripe.generation),
                ReadCut::Settled(mark),
                Effect::Install { base: mark },
                Purpose::Grouping,
                self.core.options.repair_deadline_ms,
            )
        };
        let ran = run_between_nodes(&*self.core.ports, &exchange.plan, &terms);
        if let Err(failed) = ran.await {
            let blamed = survey.blamed(&failed.refusal);
            if blamed.is_some_and(|c| survey.stripe.node_of(c) == Some(failed.node)) {
                self.repair.mark_blamed(survey, &failed.refusal).await?;
            }
            return Err(failed.into());
        }
        for &(chunk, _, to, _) in &exchange.moves {
            if !self.repair.read_back(survey.id(chunk), to).await? {
                return Err(TaskError(format!("{to} has not got {chunk} whole")));
            }
        }
        Ok(())
    }

    /// Makes the new places count, unless a node has joined again: it may have reported its chunks before
    /// the new one was whole, and been told to remove it.
    async fn count_exchange(
        self: &Arc<Self>,
        survey: &Survey,
        exchange: &Exchange,
    ) -> Result<(), TaskError> {
        let joins = self.nodes.hold_joins().await;
        for &(_, _, to, before) in &exchange.moves {
            if joins.get(&to).copied() != before {
                return Err(TaskError(format!("{to} has joined again")));
            }
        }
        let (id, generation) = (survey.stripe.id, survey.stripe.generation);
        let placement = exchange.placement.clone();
        let exchanged = move |meta: &Meta<K>| meta.exchange(id, generation, &placement);
        self.core.with_meta(exchanged).await?;
        self.nodes.note_change(&exchange.placement, id);
        lock(&self.waiting).moved_count += exchange.moves.len() as u64;
        let topology = survey.topology();
        self.repair
            .count_plan(&exchange.plan, &topology, Purpose::Grouping);
        Ok(())
    }
}

/// The rule's decision for a stripe whose data chunks `updated` were committed together. None unless all of
/// its chunks are whole, on nodes that are up and stay.
fn grouping(survey: &Survey, updated: &[ChunkIndex]) -> Result<Option<Grouping>, TaskError> {
    let (stripe, fleet) = (&survey.stripe, &survey.fleet);
    let stays = |&node: &NodeId| fleet.is_up(node) && !fleet.is_leaving(node);
    let spec = survey.facts.record.spec.append;
    let Some(rule) = spec.and_then(|spec| spec.grouping) else {
        return Ok(None);
    };
    if !stripe.stale.is_empty() || !stripe.nodes.iter().all(stays) {
        return Ok(None);
    }
    let view = survey.stripe_for_plans(&[])?;
    let is_data = |chunk: &ChunkIndex| chunk.at() < view.geometry.k();
    if !updated.iter().all(is_data) {
        return Ok(None);
    }
    Ok(cau::group(&view, &survey.topology(), updated, rule))
}

/// The chunks that are elsewhere in `placement`: where each is, and where it will be.
fn moves<'a>(
    stripe: &'a StripeRecord,
    placement: &'a [NodeId],
) -> impl Iterator<Item = (ChunkIndex, NodeId, NodeId)> + 'a {
    let places = stripe.nodes.iter().zip(placement);
    let all = stripe.chunks().zip(places);
    all.filter(|(_, (from, to))| from != to)
        .map(|(chunk, (&from, &to))| (chunk, from, to))
}
