//! The repair of one stripe: what is done while its updates wait, and what while they go on.
//!
//! In a *round* the coordinator has the stripe's lease, which fences its primary, and settles the
//! stripe. It brings chunks up to date that only missed some updates, and counts those that were made
//! since the last round. Then it pins the mark at the nodes that help to make the next one, and gives
//! the lease back: the chunk is made as of that mark while updates go on, and what they change
//! meanwhile is caught up on in the next round.
//!
//! A chunk counts again only when its node has read all of it back. Until then the record says
//! where it was, so that a crash of anybody at any point leaves the stripe as it was but for the
//! lease, which the next run of the coordinator supersedes.

use super::rebuild::{Rebuild, Target};
use super::schedule::Admitted;
use super::survey::{Setback, Survey};
use crate::commit::{Absent, Commit, CommitTerms};
use crate::coordinator::Coordinator;
use crate::coordinator::core::{Denied, lock};
use crate::message::{NodeRequest, Purpose, Refusal};
use crate::progress::Heard;
use crate::settle::{
    Outcome, check_copies, collect, exclusion, is_proof, recovery_rule, resolve,
    verify_irreplaceable, verify_survivors,
};
use futures::FutureExt;
use futures::future::join_all;
use gabion_layout::{ChunkIndex, Epoch, NodeId, Sequence, StripeId, StripeRecord};
use gabion_meta::{Holder, KeyValue, Meta, MetaError};
use gabion_planner::update;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How long a node may take for what needs no plan: the stripe's primary waits meanwhile.
pub(in crate::coordinator) const SHORT_DEADLINE_MS: u64 = 5_000;
/// How often a chunk may be made in vain because updates went further than the logs reach. After
/// that, updates wait until it is made.
pub(in crate::coordinator) const OUTRUN_COUNT_MAX: u32 = 2;

/// How a stripe's repair has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::coordinator) enum Ended {
    /// There is nothing left to do, or nothing that can be done now.
    Done,
    /// There is more to do when the budget allows it: the stripe goes back to the queue.
    Unfinished,
}

/// What has become of the stripe's repair so far.
#[derive(Default)]
pub(in crate::coordinator) struct Progress {
    /// The share of the budget with which it began, until it is used.
    pub(in crate::coordinator) admitted: Option<Admitted>,
    /// Whether a chunk has been begun.
    pub(in crate::coordinator) has_begun: bool,
    /// Whether something is left that the budget does not allow now.
    is_unfinished: bool,
    /// Nodes that could not take a chunk, or may yet carry out an order to remove one that they were
    /// given: a later term is safe from that, and the next round may not have one.
    pub(in crate::coordinator) avoided: BTreeSet<NodeId>,
    /// Nodes that have failed as helpers.
    pub(in crate::coordinator) distrusted: BTreeSet<NodeId>,
    /// How often a made chunk was too old to be brought up to date.
    pub(in crate::coordinator) outrun_count: u32,
    /// Chunks for which there is no place.
    homeless: BTreeSet<ChunkIndex>,
    /// Chunks that cannot be brought up to date by what they missed.
    beyond_logs: BTreeSet<ChunkIndex>,
    /// Why the last of the homeless is.
    no_place: Option<Setback>,
}

impl Progress {
    /// Those of the chunks whose nodes have not failed as helpers.
    pub(in crate::coordinator) fn trusted(
        &self,
        stripe: &StripeRecord,
        chunks: &[ChunkIndex],
    ) -> Vec<ChunkIndex> {
        let is_trusted = |chunk: &ChunkIndex| !self.distrusted.contains(&stripe.nodes[chunk.at()]);
        chunks.iter().copied().filter(is_trusted).collect()
    }

    /// The helpers that were chosen when the repair was admitted, if it is this one.
    pub(in crate::coordinator) fn path_for(&self, targets: &[Target]) -> Option<Vec<ChunkIndex>> {
        let intent = &self.admitted.as_ref()?.intent;
        let is_it = intent.targets == targets && !intent.path.is_empty();
        is_it.then(|| intent.path.clone())
    }

    /// Whether the scheduled path goes around slow links.
    pub(in crate::coordinator) fn is_detour(&self) -> bool {
        let admitted = self.admitted.as_ref();
        admitted.is_some_and(|admitted| admitted.intent.is_detour)
    }

    /// The node that was to have a chunk when the repair was admitted, if it still may.
    pub(in crate::coordinator) fn scheduled(
        &self,
        chunk: ChunkIndex,
        candidates: &[NodeId],
    ) -> Option<NodeId> {
        let targets = &self.admitted.as_ref()?.intent.targets;
        let (_, node) = targets.iter().find(|target| target.0 == chunk)?;
        candidates.contains(node).then_some(*node)
    }

    /// Whether a chunk that has to be repaired is to be made, and not brought up to date or left.
    pub(in crate::coordinator) fn is_to_be_made(&self, survey: &Survey, chunk: ChunkIndex) -> bool {
        let catches_up = survey.behind(chunk).is_some() && !self.beyond_logs.contains(&chunk);
        !catches_up && !self.homeless.contains(&chunk)
    }
}

/// A term of the coordinator's, under which the stripe is settled and nothing changes.
pub(in crate::coordinator) struct Round {
    pub(in crate::coordinator) epoch: Epoch,
    pub(in crate::coordinator) outcome: Outcome,
    /// Nodes that were failed when updates were settled. One that returns meanwhile may hold records
    /// of updates that nobody has told it about, so it helps only after the next settling.
    pub(in crate::coordinator) absent: Vec<NodeId>,
}

/// A chunk to make while updates go on.
struct Next {
    survey: Survey,
    rebuild: Rebuild,
    pins: Pins,
}

/// A mark that nodes keep readable.
pub(in crate::coordinator) struct Pins {
    stripe: StripeId,
    cut: Sequence,
    nodes: Vec<NodeId>,
}

impl<K: KeyValue + Send + Sync + 'static> Coordinator<K> {
    /// Makes all chunks of a stripe whole that are to be repaired. A stripe that is gone, or needs
    /// nothing any more, is left in peace.
    pub(in crate::coordinator) async fn repair_stripe(
        self: Arc<Self>,
        id: StripeId,
        admitted: Option<Admitted>,
    ) -> Result<Ended, Setback> {
        let Some(survey) = self.survey(id).await? else {
            return Ok(Ended::Done);
        };
        if survey.fleet.work(&survey.stripe).is_empty() {
            return Ok(Ended::Done);
        }
        survey.check_hope()?;
        let Ok(_occupation) = self.occupied.occupy(vec![id]) else {
            return Err(Setback(
                "it is being rewritten; its repair waits".to_owned(),
            ));
        };
        let mut progress = Progress {
            admitted,
            ..Progress::default()
        };
        let mut made = None;
        let mut patient_until_ms = 0;
        loop {
            let ended = self.leased_round(id, &mut progress, &mut made).await;
            if ended.is_err() && made.is_some() && self.core.ports.now_ms() < patient_until_ms {
                // A node that has gone silent answers again or is declared failed before long: what was
                // made need not be made again for it.
                self.core.ports.sleep_ms(self.core.options.retry_ms).await;
                continue;
            }
            if let Some((rebuild, pins)) = made.take() {
                // The round did not get as far as counting it.
                for made in &rebuild.made {
                    self.give_up(id, made, rebuild.epoch, &mut progress).await;
                }
                self.unpin(pins);
            }
            let Some(next) = ended? else {
                return match progress.no_place {
                    Some(setback) => Err(setback),
                    None if progress.is_unfinished => Ok(Ended::Unfinished),
                    None => Ok(Ended::Done),
                };
            };
            let Next {
                survey,
                mut rebuild,
                pins,
            } = next;
            match self.make(&survey, &mut rebuild, &mut progress).await {
                Ok(true) => {
                    made = Some((rebuild, pins));
                    let timing = self.core.options.timing;
                    let patience_ms = 2 * (timing.lease_ms + timing.margin_ms);
                    patient_until_ms = self.core.ports.now_ms().saturating_add(patience_ms);
                }
                not_made => {
                    self.unpin(pins);
                    not_made?;
                }
            }
        }
    }

    /// One round under the lease: counts what was made, and says what to make next, if anything.
    async fn leased_round(
        self: &Arc<Self>,
        id: StripeId,
        progress: &mut Progress,
        made: &mut Option<(Rebuild, Pins)>,
    ) -> Result<Option<Next>, Setback> {
        let Some(epoch) = self.take_lease(id).await? else {
            return Ok(None);
        };
        let ended = self.round(id, epoch, progress, made).await;
        let released = self
            .core
            .with_meta(move |meta| meta.release(id, epoch))
            .await;
        let next = ended?;
        released?;
        Ok(next)
    }

    /// The lease's term. None when the stripe is gone.
    pub(in crate::coordinator) async fn take_lease(
        self: &Arc<Self>,
        id: StripeId,
    ) -> Result<Option<Epoch>, Setback> {
        let holder = Holder::Coordinator {
            incarnation: self.core.meta.incarnation(),
        };
        let membership = lock(&self.roster).membership();
        let now_ms = self.core.ports.now_ms();
        let acquire = move |meta: &Meta<K>| meta.acquire(id, holder, &membership, now_ms);
        match self.core.with_meta(acquire).await {
            Ok(lease) => Ok(Some(lease.epoch)),
            Err(MetaError::UnknownStripe(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn round(
        self: &Arc<Self>,
        id: StripeId,
        epoch: Epoch,
        progress: &mut Progress,
        made: &mut Option<(Rebuild, Pins)>,
    ) -> Result<Option<Next>, Setback> {
        let Some((outcome, absent)) = self.settle(id, epoch).await? else {
            return Ok(None);
        };
        let round = Round {
            epoch,
            outcome,
            absent,
        };
        if let Some((rebuild, pins)) = made.take() {
            let counted = self.count_made(id, &round, &rebuild, progress).await;
            self.unpin(pins);
            counted?;
        }
        // Each turn makes a chunk whole, learns of a lost one, avoids one more node, or finds a
        // chunk homeless or beyond the logs, so that there is a last one.
        while let Some(survey) = self.survey(id).await? {
            let mut work = survey.fleet.work(&survey.stripe).into_iter();
            let Some(chunk) = work.find(|chunk| !progress.homeless.contains(chunk)) else {
                break;
            };
            let behind = survey.behind(chunk);
            if let Some(from) = behind.filter(|_| !progress.beyond_logs.contains(&chunk)) {
                if !self.return_chunk(&survey, chunk, from, &round).await? {
                    progress.beyond_logs.insert(chunk);
                }
                continue;
            }
            let requestor = match self.choose_requestor(&survey, chunk, progress).await {
                Ok(requestor) => requestor,
                Err(setback) => {
                    progress.homeless.insert(chunk);
                    progress.no_place = Some(setback);
                    continue;
                }
            };
            let targets = self.companions(&survey, (chunk, requestor), progress);
            let mut rebuild = self.prepare(&survey, &targets, &round, progress).await?;
            if progress.outrun_count < OUTRUN_COUNT_MAX {
                let Some(spread_ms) = self.admit(&survey, &rebuild, progress) else {
                    progress.is_unfinished = true;
                    return Ok(None);
                };
                rebuild.spread_ms = spread_ms;
                let pins = self.pin(&survey, &round, spread_ms).await;
                return Ok(Some(Next {
                    survey,
                    rebuild,
                    pins,
                }));
            }
            // Updates wait for it, so it is not slowed down.
            self.charge(&survey, &rebuild.cost);
            if self.make(&survey, &mut rebuild, progress).await? {
                self.count_made(id, &round, &rebuild, progress).await?;
            }
        }
        Ok(None)
    }

    /// Has the nodes that may help keep the mark readable. One that does not may merge later updates
    /// into its chunk, and then the chunk that is being made has to be begun again.
    async fn pin(&self, survey: &Survey, round: &Round, spread_ms: u64) -> Pins {
        let (stripe, cut) = (survey.stripe.id, round.outcome.mark);
        let unreadable = survey.unreadable(&round.absent);
        let helpers = survey.stripe.chunks().filter(|c| !unreadable.contains(c));
        let nodes: Vec<NodeId> = helpers.filter_map(|c| survey.stripe.node_of(c)).collect();
        let hold_ms = 2 * self
            .core
            .options
            .repair_deadline_ms
            .saturating_add(spread_ms);
        self.pin_nodes(stripe, cut, nodes, hold_ms).await
    }

    /// Has nodes keep a mark readable.
    pub(in crate::coordinator) async fn pin_nodes(
        &self,
        stripe: StripeId,
        cut: Sequence,
        nodes: Vec<NodeId>,
        hold_ms: u64,
    ) -> Pins {
        let request = NodeRequest::Pin {
            stripe,
            cut,
            hold_ms,
        };
        let calls = nodes.iter().map(|&node| {
            self.core
                .ports
                .call_node(node, request.clone(), SHORT_DEADLINE_MS)
        });
        join_all(calls).await;
        Pins { stripe, cut, nodes }
    }

    /// Tells nodes that a mark need not stay readable. One that does not hear it forgets the pin in
    /// time.
    pub(in crate::coordinator) fn unpin(&self, pins: Pins) {
        let Pins { stripe, cut, nodes } = pins;
        for node in nodes {
            let request = NodeRequest::Unpin { stripe, cut };
            let told = self.core.ports.call_node(node, request, SHORT_DEADLINE_MS);
            self.core.ports.spawn(told.map(|_| ()).boxed());
        }
    }

    /// Fences off older terms and decides about all updates under way, without the failed nodes,
    /// which it names. None when the stripe is gone.
    pub(in crate::coordinator) async fn settle(
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
            if survey.appends {
                check_appended(&survey)?;
            }
            let holdings =
                match collect(&*self.core.ports, stripe, &survey.former, epoch, &failed).await {
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
            let exclusion = exclusion(stripe, &failed, epoch, &outcome);
            let code = &survey.facts.code;
            let verified = verify_survivors(&*self.core.ports, code, stripe, &exclusion, &holdings);
            if let Err(refusal) = verified.await {
                let blamed = survey.blamed(&refusal).ok_or(refusal)?;
                self.mark(id, vec![blamed]).await?;
                continue;
            }
            // Durable before anybody is told how the updates ended.
            self.note_settlement(id, exclusion).await?;
            resolve(&*self.core.ports, stripe, epoch, &failed, &outcome).await?;
            if survey.appends
                && let Some((chunk, from)) = unharmed(&survey, outcome.mark)
            {
                let round = Round {
                    epoch,
                    outcome,
                    absent: failed,
                };
                if !self.return_chunk(&survey, chunk, from, &round).await? {
                    return Err(Setback(format!(
                        "{chunk} of {id} may have copies of updates and cannot be returned"
                    )));
                }
                continue;
            }
            if outcome.appended.is_empty() {
                return Ok(Some((outcome, failed)));
            }
            match self.commit_settled(&survey, epoch, &failed, outcome).await {
                Ok(outcome) => return Ok(Some((outcome, failed))),
                Err(refusal) => {
                    let blamed = survey.blamed(&refusal).ok_or(refusal)?;
                    self.mark(id, vec![blamed]).await?;
                }
            }
        }
    }

    /// Commits what waits on a stripe that has just been settled: a chunk is made, caught up or replaced
    /// as the code knows it, so the code has to know everything.
    async fn commit_settled(
        self: &Arc<Self>,
        survey: &Survey,
        epoch: Epoch,
        failed: &[NodeId],
        outcome: Outcome,
    ) -> Result<Outcome, Refusal> {
        let stripe = &survey.stripe;
        let is_lost = |chunk: &ChunkIndex| {
            let node = stripe.node_of(*chunk);
            stripe.is_stale(*chunk) || node.is_some_and(|node| failed.contains(&node))
        };
        let lost: Vec<ChunkIndex> = stripe.chunks().filter(is_lost).collect();
        let says = |why: String| Refusal::Failed(why);
        let view = survey.stripe_for_plans(&lost);
        let view = view.map_err(|Setback(why)| says(why))?;
        let facts = &survey.facts;
        let scheme = update::scheme(facts.record.spec.update);
        let how = (scheme, facts.keepings(stripe.chunk_bytes));
        let waiting = outcome.waiting(stripe);
        let commit = Commit::plan(&view, &survey.topology(), how, &waiting)?;
        let fresh = commit
            .missed
            .iter()
            .filter(|chunk| !stripe.is_stale(**chunk));
        let fresh: Vec<ChunkIndex> = fresh.copied().collect();
        let due = survey.fleet.due(stripe);
        let absent = if fresh.iter().all(|chunk| due.contains(chunk)) {
            Absent::GivenUp
        } else {
            Absent::MayReturn
        };
        Commit::check_left(&view, &fresh, absent)?;
        if !fresh.is_empty() {
            // Those that are left out count no more, so damage must come out before.
            let left: Vec<ChunkIndex> = view.available().collect();
            verify_irreplaceable(&*self.core.ports, view.code, stripe, &left).await?;
            let noted = fresh.iter().map(|&chunk| (chunk, outcome.mark)).collect();
            let noted = self.note_degraded(stripe.id, epoch, noted).await;
            noted.map_err(|Denied(why)| says(why))?;
        }
        let terms = CommitTerms {
            epoch,
            generation: stripe.generation,
            mark: outcome.mark,
            sequence: outcome.next,
        };
        let ran = commit
            .run(&*self.core.ports, terms, &Heard::default())
            .await;
        ran.map_err(|failed| failed.refusal)?;
        lock(&self.planned).count_plan(&commit.plan, &survey.topology(), Purpose::Commit);
        let committed = Outcome {
            known: outcome.next,
            mark: outcome.next,
            stood: outcome.stood,
            dropped: Vec::new(),
            next: outcome.next.next(),
            appended: Vec::new(),
        };
        resolve(&*self.core.ports, stripe, epoch, failed, &committed).await?;
        let id = stripe.id;
        let ended = self
            .core
            .with_meta(move |meta| meta.note_phase(id, epoch, false))
            .await;
        ended.map_err(|error| says(error.to_string()))?;
        Ok(committed)
    }

    /// Notes that chunks are gone or corrupt.
    pub(in crate::coordinator) async fn mark(
        &self,
        id: StripeId,
        chunks: Vec<ChunkIndex>,
    ) -> Result<(), MetaError> {
        let mark = move |meta: &Meta<K>| {
            let mut chunks = chunks.into_iter();
            chunks.try_for_each(|chunk| meta.mark_stale(id, chunk).map(|_| ()))
        };
        self.core.with_meta(mark).await
    }
}

/// Refuses to settle a stripe in its append phase that has lost all copies of what was appended to some
/// chunk. A chunk that was left out of updates may still have them.
fn check_appended(survey: &Survey) -> Result<(), Setback> {
    let mut lost = survey.fleet.lost(&survey.stripe);
    lost.retain(|chunk| !survey.keepers.iter().any(|(keeper, _)| keeper == chunk));
    let spec = &survey.facts.record.spec;
    let how = (update::scheme(spec.update), spec.append.as_ref());
    check_copies(&survey.stripe_for_plans(&lost)?, &survey.topology(), how)?;
    Ok(())
}

/// A chunk that was noted as left out by a commit that does not stand, so that it has missed nothing as
/// of the settled mark. It may have the only copies of what waits, so it has to count before anything is
/// committed. If something after that stands it is one that the code knows, and nothing waits from
/// before it.
fn unharmed(survey: &Survey, mark: Sequence) -> Option<(ChunkIndex, Sequence)> {
    let mut keepers = survey.keepers.iter().copied();
    keepers.find(|&(_, last)| mark <= last)
}
