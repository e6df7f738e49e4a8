//! Running the plan that rebuilds lost chunks, and resuming it after a helper has died or stalled: the
//! requestor keeps the slices that it has written, and other helpers send the rest, as of the same update.
//! `ECPipe` leaves failures during a repair open; here a failure costs only the slices in flight.

use super::Repair;
use super::attempt::{Avoidance, Made, OUTRUN_COUNT_MAX, Progress, Rebuild};
use super::survey::{Survey, TaskError};
use crate::coordinator::core::{SHORT_DEADLINE_MS, lock};
use crate::initiate::{PartFailed, RunTerms, run_between_nodes};
use crate::message::{Effect, Purpose, ReadCut, Refusal, RunId, ask};
use crate::ports::Ask as _;
use gabion_layout::{ByteRange, ChunkIndex};
use gabion_meta::KeyValue;
use gabion_plan::{Cost, Plan, check};
use gabion_planner::repair;
use std::sync::Arc;

/// The rest of a chunk that is being made.
enum Rest {
    /// A plan for the rest.
    Plan(Plan),
    /// Its requestor has kept none of it, or too few helpers are left.
    Lost,
}

impl<K: KeyValue + Send + Sync + 'static> Repair<K> {
    /// Runs the plan and has the requestors read the new chunks back. If a helper fails, others resume
    /// where it stopped; if one of several requestors fails, the others finish their chunks. False when a
    /// new plan for the whole is needed; otherwise `rebuild` keeps the chunks that are whole, at least one.
    pub(super) async fn make(
        self: &Arc<Self>,
        survey: &Survey,
        rebuild: &mut Rebuild,
        progress: &mut Progress,
    ) -> Result<bool, TaskError> {
        let ended = self.bring_together(survey, rebuild, progress).await;
        if !matches!(ended, Ok(true)) {
            // Some of these chunks may still be whole, and belong to no layout.
            for made in &rebuild.made {
                self.leave_over(survey, made);
            }
            return ended;
        }
        let mut error = None;
        for made in std::mem::take(&mut rebuild.made) {
            match self.read_back(survey.id(made.chunk), made.requestor).await {
                Ok(true) => {
                    rebuild.made.push(made);
                    continue;
                }
                Ok(false) => {
                    let why = "it could not read the new chunk back".to_owned();
                    progress.avoid(made.requestor, Avoidance::Other(why));
                }
                Err(why) => error = Some(why),
            }
            self.abandon(survey.stripe.id, &made, rebuild.epoch, progress)
                .await;
        }
        match error {
            Some(error) if rebuild.made.is_empty() => Err(error),
            _ => Ok(!rebuild.made.is_empty()),
        }
    }

    /// Runs the plan, and plans the rest after each failure. False when a new plan for the whole is needed.
    async fn bring_together(
        self: &Arc<Self>,
        survey: &Survey,
        rebuild: &mut Rebuild,
        progress: &mut Progress,
    ) -> Result<bool, TaskError> {
        let mut ran = self.execute(survey, rebuild, None).await;
        while let Err(failed) = ran {
            for made in &mut rebuild.made {
                made.is_done |= failed.done.contains(&made.requestor);
            }
            if self.judge(survey, rebuild, &failed, progress).await? {
                return Ok(false);
            }
            // Each iteration excludes one more helper or drops one chunk, so the loop ends.
            if !self.learn(survey, rebuild, &failed, progress) {
                return Err(failed.into());
            }
            ran = self.go_on(survey, rebuild, progress).await?;
            if rebuild.made.is_empty() {
                return Err(failed.into());
            }
        }
        Ok(true)
    }

    /// Brings the rest of each chunk, one after another. A chunk that cannot be resumed is dropped.
    async fn go_on(
        &self,
        survey: &Survey,
        rebuild: &mut Rebuild,
        progress: &Progress,
    ) -> Result<Result<(), PartFailed>, TaskError> {
        let mut at = 0;
        while at < rebuild.made.len() {
            let made = rebuild.made[at];
            if made.is_done {
                at += 1;
                continue;
            }
            let Rest::Plan(rest) = self.rest(survey, rebuild, &made, progress).await? else {
                self.leave_over(survey, &made);
                rebuild.made.remove(at);
                continue;
            };
            lock(&self.counts).resumed_count += 1;
            if let Err(failed) = self.execute(survey, rebuild, Some(&rest)).await {
                return Ok(Err(failed));
            }
            rebuild.made[at].is_done = true;
        }
        Ok(Ok(()))
    }

    /// Runs the rebuild's plan, or one for the rest of a chunk.
    async fn execute(
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
        // Throttled slices arrive one by one, and a node that waits for the next one has not stalled.
        let slice_bytes = self.core.options.slice_bytes.min(survey.stripe.chunk_bytes);
        let slice_ms = u128::from(rebuild.spread_ms) * u128::from(slice_bytes)
            / u128::from(survey.stripe.chunk_bytes);
        let effect = match rest {
            None => Effect::Install { base },
            Some(_) => Effect::Resume { base },
        };
        let terms = RunTerms {
            spread_ms,
            stall_ms: Some(self.core.options.repair_stall_ms + 2 * slice_ms as u64),
            ..RunTerms::new(
                RunId(self.core.ports.random()),
                (rebuild.epoch, survey.stripe.generation),
                ReadCut::Settled(base),
                effect,
                Purpose::Repair,
                (self.core.options.repair_deadline_ms).saturating_add(spread_ms),
            )
        };
        run_between_nodes(&*self.core.ports, plan, &terms).await
    }

    /// Handles the failures of a run that need a new plan for the whole. Returns whether there are any.
    async fn judge(
        self: &Arc<Self>,
        survey: &Survey,
        rebuild: &Rebuild,
        failed: &PartFailed,
        progress: &mut Progress,
    ) -> Result<bool, TaskError> {
        let blamed = survey.blamed(&failed.refusal);
        if blamed.is_some_and(|c| survey.stripe.node_of(c) == Some(failed.node)) {
            // The node may read this chunk at the next attempt, and the other helpers may suffice.
            let is_lost = self.mark_blamed(survey, &failed.refusal).await?;
            return Ok(is_lost || progress.distrusted.insert(failed.node));
        }
        let mut made = rebuild.made.iter();
        let made_there = made.find(|made| made.requestor == failed.node);
        let is_barred = failed.refusal == Refusal::Unsettled;
        if let Some(made) = made_there.filter(|made| is_barred && !made.in_place) {
            // An earlier run of the coordinator has made the chunk there and did not count it, so its
            // records are not settled.
            self.abandon(survey.stripe.id, made, rebuild.epoch, progress)
                .await;
            if !progress.barred.insert(failed.node) {
                // The removal has not helped.
                progress.avoid(failed.node, Avoidance::of(&failed.refusal));
            }
            return Ok(true);
        }
        let cannot_write = matches!(
            failed.refusal,
            Refusal::NoSpace | Refusal::Failed(_) | Refusal::StoreFailed(_)
        );
        if cannot_write && made_there.is_some() {
            progress.avoid(failed.node, Avoidance::of(&failed.refusal));
            return Ok(true);
        }
        if matches!(failed.refusal, Refusal::StoreFailed(_)) {
            // Its chunk does not help, whether the node is already declared failed or not.
            return Ok(progress.distrusted.insert(failed.node));
        }
        let is_outrun = matches!(failed.refusal, Refusal::CutPassed { .. });
        if is_outrun && progress.outrun_count < OUTRUN_COUNT_MAX {
            // The helper has dropped the pin.
            progress.outrun_count += 1;
            return Ok(true);
        }
        Ok(false)
    }

    /// Excludes suspected helpers, and drops chunks whose requestors are suspected, if there are others.
    /// Returns whether that changes the plan; a chunk that is moved has no other helper.
    fn learn(
        &self,
        survey: &Survey,
        rebuild: &mut Rebuild,
        failed: &PartFailed,
        progress: &mut Progress,
    ) -> bool {
        if rebuild.is_move {
            return false;
        }
        let before = (progress.distrusted.len(), rebuild.made.len());
        for &suspect in &failed.suspects {
            let is_made_there = |made: &Made| made.requestor == suspect && !made.is_done;
            match rebuild.made.iter().position(is_made_there) {
                Some(at) if rebuild.made.len() > 1 => {
                    self.leave_over(survey, &rebuild.made.remove(at));
                }
                Some(_) => {}
                None => {
                    progress.distrusted.insert(suspect);
                }
            }
        }
        (progress.distrusted.len(), rebuild.made.len()) != before
    }

    /// Removes an unfinished chunk.
    fn leave_over(&self, survey: &Survey, made: &Made) {
        if !made.in_place {
            self.leftovers.add(made.requestor, survey.id(made.chunk));
        }
    }

    /// Plans the rest of a chunk without the excluded helpers.
    async fn rest(
        &self,
        survey: &Survey,
        rebuild: &Rebuild,
        made: &Made,
        progress: &Progress,
    ) -> Result<Rest, TaskError> {
        let request = ask::Written {
            chunk: survey.id(made.chunk),
            base: rebuild.base,
        };
        let requestor = made.requestor;
        let asked = self
            .core
            .ports
            .ask_node(requestor, request, SHORT_DEADLINE_MS);
        let Ok(Some(written)) = asked.await else {
            return Ok(Rest::Lost);
        };
        let missing = complement(&written, survey.stripe.chunk_bytes);
        if missing.is_empty() {
            return Ok(Rest::Lost);
        }
        let stripe = survey.stripe_for_plans(&rebuild.lost)?;
        let helpers: Vec<ChunkIndex> =
            repair::helpers_by_distance(&stripe, requestor, &survey.topology());
        let helpers = progress.trusted(&survey.stripe, &helpers);
        let scheme = *lock(&self.scheme);
        let slice_bytes = self.core.options.slice_bytes;
        let planned = repair::catch_up(
            &stripe,
            made.chunk,
            requestor,
            &missing,
            &helpers,
            scheme,
            slice_bytes,
        );
        let Ok(plan) = planned else {
            // Without the excluded helpers there are too few.
            return Ok(Rest::Lost);
        };
        check(&plan, stripe.code)?;
        Ok(Rest::Plan(plan))
    }
}

/// The gaps of a chunk between ranges in ascending order.
fn complement(written: &[ByteRange], chunk_bytes: u64) -> Vec<ByteRange> {
    let starts = [0].into_iter().chain(written.iter().map(|r| r.end()));
    let ends = written.iter().map(|r| r.offset).chain([chunk_bytes]);
    let gaps = starts.zip(ends).filter(|(start, end)| start < end);
    gaps.map(|(start, end)| ByteRange::new(start, end - start))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_complement_is_what_is_not_written() {
        let check = |written: &[(u64, u64)], expected: &[(u64, u64)]| {
            let ranges = |of: &[(u64, u64)]| -> Vec<ByteRange> {
                of.iter().map(|&(at, n)| ByteRange::new(at, n)).collect()
            };
            assert_eq!(complement(&ranges(written), 100), ranges(expected));
        };
        check(&[], &[(0, 100)]);
        check(&[(0, 100)], &[]);
        check(&[(0, 10), (40, 10)], &[(10, 30), (50, 50)]);
        check(&[(5, 10), (90, 10)], &[(0, 5), (15, 75)]);
    }
}
