//! Settling a stripe under the coordinator's own lease: older terms are fenced, all updates under way are
//! decided, and appended updates are committed, so that parity covers the whole stripe.

use super::Repair;
use super::attempt::Round;
use super::survey::{Survey, TaskError};
use crate::commit::{Absent, Commit, CommitTerms};
use crate::message::{JoinCount, Purpose, Refusal};
use crate::progress::Heard;
use crate::settle::{
    Outcome, check_copies, collect, exclusion, is_proof, recovery_rule, resolve,
    verify_irreplaceable, verify_survivors,
};
use gabion_layout::{ChunkIndex, Epoch, NodeId, Sequence, StripeId};
use gabion_meta::{KeyValue, Meta, MetaError};
use gabion_planner::update;
use std::sync::Arc;

impl<K: KeyValue + Send + Sync + 'static> Repair<K> {
    /// Fences older terms and decides all updates under way, without the failed nodes, which it returns.
    /// None when the stripe is gone.
    pub(in crate::coordinator) async fn settle(
        self: &Arc<Self>,
        id: StripeId,
        epoch: Epoch,
    ) -> Result<Option<(Outcome, Vec<NodeId>)>, TaskError> {
        let joins = self.nodes.join_count();
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
                        self.blame(&survey, refusal).await?;
                        continue;
                    }
                };
            if !is_proof(&survey.facts.code, &holdings) {
                // This few nodes cannot prove which updates were committed.
                let (asked, all) = (holdings.len(), stripe.nodes.len());
                let sentence = format!("{id} is down to {asked} of {all} nodes");
                return Err(TaskError(sentence));
            }
            let outcome = recovery_rule(&holdings);
            let exclusion = exclusion(stripe, &failed, epoch, &outcome);
            let code = &survey.facts.code;
            let verified = verify_survivors(&*self.core.ports, code, stripe, &exclusion, &holdings);
            if let Err(refusal) = verified.await {
                self.blame(&survey, refusal).await?;
                continue;
            }
            // Durable before any node learns the outcome of the updates.
            self.leases.note_settlement(id, exclusion).await?;
            if let Err(refusal) = resolve(&*self.core.ports, stripe, epoch, &failed, &outcome).await
            {
                self.blame(&survey, refusal).await?;
                continue;
            }
            if survey.appends
                && let Some((chunk, from)) = unharmed(&survey, outcome.mark)
            {
                let round = Round {
                    epoch,
                    outcome,
                    absent: failed,
                };
                if !self.return_chunk(&survey, chunk, from, &round).await? {
                    return Err(TaskError(format!(
                        "{chunk} of {id} may have copies of updates and cannot be returned"
                    )));
                }
                continue;
            }
            if outcome.appended.is_empty() {
                return Ok(Some((outcome, failed)));
            }
            let term = (epoch, joins);
            match self.commit_settled(&survey, term, &failed, outcome).await {
                Ok(outcome) => return Ok(Some((outcome, failed))),
                Err(refusal) => self.blame(&survey, refusal).await?,
            }
        }
    }

    /// Commits appended updates of a stripe that has just been settled: a rebuild, catch-up or replacement
    /// decodes from parity, so parity has to cover all updates.
    async fn commit_settled(
        self: &Arc<Self>,
        survey: &Survey,
        (epoch, joins): (Epoch, JoinCount),
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
        let view = view.map_err(|TaskError(why)| says(why))?;
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
            Absent::Abandoned
        } else {
            Absent::MayReturn
        };
        Commit::check_left(&view, &fresh, absent)?;
        if !fresh.is_empty() {
            // The left-out chunks do not count any more, so damage must be found before.
            let left: Vec<ChunkIndex> = view.available().collect();
            verify_irreplaceable(&*self.core.ports, view.code, stripe, &left).await?;
            let fresh = fresh.iter().map(|&chunk| (chunk, outcome.mark)).collect();
            let term = (stripe.id, epoch, joins);
            let noted = self.leases.note_degraded(term, fresh).await;
            noted.map_err(|denial| says(denial.sentence))?;
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
        self.count_plan(&commit.plan, &survey.topology(), Purpose::Commit);
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
        let mark = committed.mark;
        let end = move |meta: &Meta<K>| meta.note_phase(id, epoch, mark, false);
        let ended = self.core.with_meta(end).await;
        ended.map_err(|error| says(error.to_string()))?;
        Ok(committed)
    }

    /// Marks the chunk lost that a refusal names as missing or corrupt.
    ///
    /// # Errors
    /// The refusal, if no chunk counts as lost because of it.
    async fn blame(self: &Arc<Self>, survey: &Survey, refusal: Refusal) -> Result<(), TaskError> {
        if self.mark_blamed(survey, &refusal).await? {
            return Ok(());
        }
        Err(refusal.into())
    }

    /// Marks the chunk lost that a refusal names as missing or corrupt, unless its node can read it now. Returns
    /// whether it counts as lost then.
    pub(in crate::coordinator) async fn mark_blamed(
        self: &Arc<Self>,
        survey: &Survey,
        refusal: &Refusal,
    ) -> Result<bool, MetaError> {
        let Some(chunk) = survey.blamed(refusal) else {
            return Ok(false);
        };
        let id = survey.stripe.id;
        match (refusal, survey.stripe.node_of(chunk)) {
            (Refusal::Damaged(damage), Some(node)) => {
                self.mark_damaged(node, vec![damage.clone()]).await?;
            }
            _ => self.mark(id, vec![chunk]).await?,
        }
        let look = move |meta: &Meta<K>| match meta.stripe(id) {
            Ok(stripe) => Ok(stripe.is_stale(chunk)),
            // The next survey finds that there is nothing to do.
            Err(MetaError::UnknownStripe(_)) => Ok(true),
            Err(error) => Err(error),
        };
        self.core.with_meta(look).await
    }

    /// Marks chunks as missing or corrupt.
    async fn mark(&self, id: StripeId, chunks: Vec<ChunkIndex>) -> Result<(), MetaError> {
        let pools = Arc::clone(&self.pools);
        let mark = move |meta: &Meta<K>| {
            let mut chunks = chunks.into_iter();
            chunks.try_for_each(|chunk| pools.note_stale(meta, &meta.mark_stale(id, chunk)?))
        };
        self.core.with_meta(mark).await
    }
}

/// Refuses to settle a stripe in its append phase that has lost all copies of the updates appended to some
/// chunk. A chunk that was left out of updates may still have them.
fn check_appended(survey: &Survey) -> Result<(), TaskError> {
    let mut lost = survey.fleet.lost(&survey.stripe);
    lost.retain(|chunk| !survey.keepers.iter().any(|(keeper, _)| keeper == chunk));
    let spec = &survey.facts.record.spec;
    let how = (update::scheme(spec.update), spec.append.as_ref());
    check_copies(&survey.stripe_for_plans(&lost)?, &survey.topology(), how)?;
    Ok(())
}

/// A chunk that was noted as left out by a commit that does not stand, so that it has missed no update as
/// of the settled mark. It may have the only copies of appended updates, so it has to count before any
/// commit. If a later update stands, parity covers it, and no appended update is older than it.
fn unharmed(survey: &Survey, mark: Sequence) -> Option<(ChunkIndex, Sequence)> {
    let mut keepers = survey.keepers.iter().copied();
    keepers.find(|&(_, last)| mark <= last)
}
