//! The repair of one stripe: fence its primary, settle its updates, and rebuild its lost chunks one
//! by one from a cut that all helpers agree on.
//!
//! A chunk counts again only when its node has read all of it back. Until then the record says
//! where it was, so that a crash of anybody at any point leaves the stripe as it was but for the
//! lease, which the next run of the coordinator supersedes. The primary is held up for as long as
//! this takes, which is the time of the lost chunks of one stripe.

use super::survey::{Setback, Survey};
use super::{Coordinator, Denied, lock};
use crate::initiate::{RunTerms, run_plan};
use crate::message::{Effect, NodeReply, NodeRequest, Purpose, ReadCut, Refusal, RunId};
use crate::settle::{Outcome, collect, exclusion, is_proof, recovery_rule, resolve};
use gabion_layout::{ChunkIndex, Epoch, NodeId, StripeId};
use gabion_meta::{Holder, KeyValue, Meta, MetaError};
use gabion_plan::{Cost, Plan, check};
use gabion_planner::{Stripe, placement, repair};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How long a node may take for what needs no plan: the stripe's primary waits meanwhile.
const SHORT_DEADLINE_MS: u64 = 5_000;

/// What has become of the stripe's repair so far.
struct Progress {
    epoch: Epoch,
    outcome: Outcome,
    /// Nodes that were failed when updates were settled. One that returns meanwhile may hold records
    /// of updates that nobody has told it about, so it helps only after the next settling.
    absent: Vec<NodeId>,
    /// Nodes that could not take a chunk.
    avoided: BTreeSet<NodeId>,
    /// Chunks for which there is no place.
    homeless: BTreeSet<ChunkIndex>,
}

/// One try to rebuild a chunk.
struct Rebuild {
    chunk: ChunkIndex,
    requestor: NodeId,
    plan: Plan,
    cost: Cost,
    /// How often the requestor had joined when the try began.
    joins: Option<u64>,
}

impl<K: KeyValue + Send + Sync + 'static> Coordinator<K> {
    /// Rebuilds all chunks of a stripe that are to be repaired. A stripe that is gone, or needs
    /// nothing any more, is left in peace.
    pub(super) async fn repair_stripe(self: Arc<Self>, id: StripeId) -> Result<(), Setback> {
        let Some(survey) = self.survey(id).await? else {
            return Ok(());
        };
        if survey.fleet.due(&survey.stripe).is_empty() {
            return Ok(());
        }
        survey.check_hope()?;
        let Ok(_occupation) = self.occupied.occupy(vec![id]) else {
            return Err(Setback(
                "it is being rewritten; its repair waits".to_owned(),
            ));
        };
        let holder = Holder::Coordinator {
            incarnation: self.meta.incarnation(),
        };
        let membership = lock(&self.roster).membership();
        let now_ms = self.ports.now_ms();
        let acquire = move |meta: &Meta<K>| meta.acquire(id, holder, &membership, now_ms);
        let epoch = match self.with_meta(acquire).await {
            Ok(lease) => lease.epoch,
            Err(MetaError::UnknownStripe(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let repaired = self.repair_leased(id, epoch).await;
        let released = self.with_meta(move |meta| meta.release(id, epoch)).await;
        repaired?;
        released?;
        Ok(())
    }

    /// Repairs under the lease.
    async fn repair_leased(self: &Arc<Self>, id: StripeId, epoch: Epoch) -> Result<(), Setback> {
        let Some((outcome, absent)) = self.settle(id, epoch).await? else {
            return Ok(());
        };
        let mut progress = Progress {
            epoch,
            outcome,
            absent,
            avoided: BTreeSet::new(),
            homeless: BTreeSet::new(),
        };
        let mut no_place = None;
        // Each round rebuilds a chunk, learns of a lost one, avoids one more node or finds a chunk
        // homeless, so that there is a last one.
        while let Some(survey) = self.survey(id).await? {
            let mut due = survey.fleet.due(&survey.stripe).into_iter();
            let Some(chunk) = due.find(|chunk| !progress.homeless.contains(chunk)) else {
                break;
            };
            match self.choose_requestor(&survey, chunk, &progress).await {
                Ok(requestor) => {
                    self.rebuild(&survey, chunk, requestor, &mut progress)
                        .await?;
                }
                Err(setback) => {
                    progress.homeless.insert(chunk);
                    no_place = Some(setback);
                }
            }
        }
        no_place.map_or(Ok(()), Err)
    }

    /// Fences off older terms and decides about all updates under way, without the failed nodes,
    /// which it names. None when the stripe is gone.
    pub(super) async fn settle(
        self: &Arc<Self>,
        id: StripeId,
        epoch: Epoch,
    ) -> Result<Option<(Outcome, Vec<NodeId>)>, Setback> {
        loop {
            let Some(survey) = self.survey(id).await? else {
                return Ok(None);
            };
            survey.check_hope()?;
            let failed = survey.failed();
            let stripe = &survey.stripe;
            let holdings = match collect(&*self.ports, stripe, epoch, &failed).await {
                Ok(holdings) => holdings,
                Err(refusal) => {
                    let blamed = survey.blamed(&refusal).ok_or(refusal)?;
                    self.mark(id, vec![blamed]).await?;
                    continue;
                }
            };
            if !is_proof(&survey.facts.code, &holdings) {
                // So few prove nothing about what was committed.
                let (asked, all) = (holdings.len(), stripe.nodes.len());
                let sentence = format!("{id} is down to {asked} of {all} nodes");
                return Err(Denied(sentence).into());
            }
            let outcome = recovery_rule(&holdings);
            // Durable before anybody is told how the updates ended.
            let exclusion = exclusion(stripe, &failed, epoch, &outcome);
            self.note_settlement(id, exclusion).await?;
            resolve(&*self.ports, stripe, epoch, &failed, &outcome).await?;
            return Ok(Some((outcome, failed)));
        }
    }

    async fn mark(&self, id: StripeId, chunks: Vec<ChunkIndex>) -> Result<(), MetaError> {
        let mark = move |meta: &Meta<K>| {
            let mut chunks = chunks.into_iter();
            chunks.try_for_each(|chunk| meta.mark_stale(id, chunk).map(|_| ()))
        };
        self.with_meta(mark).await
    }

    /// Who is to hold a lost chunk: its own node if that is up, or else one that keeps the rack
    /// limit. If there is none, a chunk in a crowded rack is better than none, but only where one
    /// more loss would end the stripe: nothing moves the chunk out again, and the pool's promise
    /// about racks is weaker from then on.
    async fn choose_requestor(
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

    /// Rebuilds a chunk, or notes in `progress` or in the metadata what must be done otherwise next
    /// time.
    async fn rebuild(
        self: &Arc<Self>,
        survey: &Survey,
        chunk: ChunkIndex,
        requestor: NodeId,
        progress: &mut Progress,
    ) -> Result<(), Setback> {
        let began_ms = self.ports.now_ms();
        let joins = self.admission.lock().await.get(&requestor).copied();
        let (plan, cost) = self.plan(survey, chunk, requestor, &progress.absent)?;
        let rebuild = Rebuild {
            chunk,
            requestor,
            plan,
            cost,
            joins,
        };
        let in_place = survey.stripe.node_of(chunk) == Some(requestor);
        if in_place {
            self.fence_in_place(survey, requestor, progress).await?;
        }
        if !self.make(survey, &rebuild, progress).await? {
            return Ok(());
        }
        let moved = match self.read_back(survey, &rebuild, progress).await {
            Ok(true) => self.relocate(survey, &rebuild).await,
            other => other,
        };
        let is_moved = matches!(moved, Ok(true));
        if is_moved {
            self.count(survey, &rebuild, began_ms);
        }
        if !in_place {
            // Either the old chunk is nobody's now, or the new one is.
            let holder = survey.stripe.nodes[chunk.at()];
            let loser = if is_moved { holder } else { requestor };
            self.discard(survey, chunk, loser).await;
        }
        moved.map(|_| ())
    }

    fn plan(
        &self,
        survey: &Survey,
        chunk: ChunkIndex,
        requestor: NodeId,
        absent: &[NodeId],
    ) -> Result<(Plan, Cost), Setback> {
        let mut unreadable = survey.fleet.unreadable(&survey.stripe);
        let absent = absent
            .iter()
            .filter_map(|&node| survey.stripe.chunk_on(node));
        unreadable.extend(absent);
        unreadable.sort_unstable();
        unreadable.dedup();
        let stripe = Stripe {
            id: survey.stripe.id,
            code: &survey.facts.code,
            geometry: survey.facts.geometry(survey.stripe.chunk_bytes)?,
            placement: &survey.stripe.nodes,
            lost: &unreadable,
        };
        let topology = survey.topology();
        let helpers = repair::helpers_by_distance(&stripe, requestor, &topology);
        let scheme = *lock(&self.scheme);
        let slice_bytes = self.options.slice_bytes;
        let plan = repair::repair(&stripe, chunk, requestor, &helpers, scheme, slice_bytes)?
            .kept(survey.facts.keepings(survey.stripe.chunk_bytes));
        check(&plan, stripe.code)?;
        let cost = Cost::of(&plan, &topology);
        Ok((plan, cost))
    }

    /// Makes a node that still has the old chunk refuse clients with old layouts, and forget
    /// records of old terms, which would bar the way of the new chunk. The chunk is lost already,
    /// so nothing is lost by settling it. What the node refuses here it refuses again when it is to
    /// do its part, so only its silence matters.
    async fn fence_in_place(
        &self,
        survey: &Survey,
        requestor: NodeId,
        progress: &Progress,
    ) -> Result<(), Setback> {
        let (stripe, epoch) = (survey.stripe.id, progress.epoch);
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
                mark: progress.outcome.mark,
                dropped: progress.outcome.dropped.clone(),
            },
        ];
        for request in requests {
            self.ports
                .call_node(requestor, request, SHORT_DEADLINE_MS)
                .await?;
        }
        Ok(())
    }

    /// Runs the plan. False when there must be another.
    async fn make(
        &self,
        survey: &Survey,
        rebuild: &Rebuild,
        progress: &mut Progress,
    ) -> Result<bool, Setback> {
        let mark = progress.outcome.mark;
        let terms = RunTerms {
            run: RunId(self.ports.random()),
            epoch: progress.epoch,
            generation: survey.stripe.generation,
            cut: ReadCut::Exactly(mark),
            effect: Effect::Install { base: mark },
            purpose: Purpose::Repair,
            deadline_ms: self.options.repair_deadline_ms,
        };
        let ran = run_plan(&*self.ports, &rebuild.plan, &terms, |_| {
            unreachable!("a repair moves bytes between nodes alone")
        });
        if let Err(failed) = ran.await {
            let blamed = survey.blamed(&failed.refusal);
            if let Some(chunk) = blamed.filter(|&c| survey.stripe.node_of(c) == Some(failed.node)) {
                self.mark(survey.stripe.id, vec![chunk]).await?;
                return Ok(false);
            }
            let cannot_write = matches!(failed.refusal, Refusal::NoSpace | Refusal::Failed(_));
            if failed.node == rebuild.requestor && cannot_write {
                progress.avoided.insert(failed.node);
                return Ok(false);
            }
            return Err(failed.into());
        }
        Ok(true)
    }

    /// Has the requestor read the new chunk back. Whether it is whole.
    async fn read_back(
        &self,
        survey: &Survey,
        rebuild: &Rebuild,
        progress: &mut Progress,
    ) -> Result<bool, Setback> {
        let chunks = vec![survey.id(rebuild.chunk)];
        let request = NodeRequest::Scrub { chunks };
        let deadline_ms = self.options.repair_deadline_ms;
        let read_back = self
            .ports
            .call_node(rebuild.requestor, request, deadline_ms)
            .await?;
        if let NodeReply::Scrubbed {
            chunk_count: 1,
            damage,
            ..
        } = &read_back
            && damage.is_empty()
        {
            return Ok(true);
        }
        progress.avoided.insert(rebuild.requestor);
        Ok(false)
    }

    /// Makes the new chunk count. False when the stripe has changed since it was planned for.
    async fn relocate(&self, survey: &Survey, rebuild: &Rebuild) -> Result<bool, Setback> {
        let Rebuild {
            chunk, requestor, ..
        } = *rebuild;
        let (id, generation) = (survey.stripe.id, survey.stripe.generation);
        let joins = self.admission.lock().await;
        if joins.get(&requestor).copied() != rebuild.joins {
            // It may have told its chunks before this one was whole, and been told to delete it.
            return Err(Setback(format!(
                "{requestor} has joined anew while it was given {chunk}"
            )));
        }
        let moved = self
            .with_meta(move |meta| meta.relocate(id, generation, chunk, requestor))
            .await;
        match moved {
            Ok(_) => Ok(true),
            Err(MetaError::GenerationChanged { .. } | MetaError::UnknownStripe(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Has a node remove a chunk that is not its any more. A node that does not say that it has
    /// may yet do so, and gets that chunk no more until it joins anew; it is told then, too.
    async fn discard(&self, survey: &Survey, chunk: ChunkIndex, node: NodeId) {
        let id = survey.id(chunk);
        if survey.fleet.is_up(node) && !self.remove(node, vec![id], SHORT_DEADLINE_MS).await {
            lock(&self.shunned).insert((node, id));
        }
    }

    fn count(&self, survey: &Survey, rebuild: &Rebuild, began_ms: u64) {
        let mut repaired = lock(&self.repaired);
        repaired.repaired_chunk_count += 1;
        repaired.repaired_bytes += survey.stripe.chunk_bytes;
        repaired.planned_cross_rack_bytes += rebuild.cost.cross_rack_bytes;
        repaired.busy_ms += self.ports.now_ms().saturating_sub(began_ms);
    }
}
