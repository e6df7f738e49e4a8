//! Running the plan that makes lost chunks, and going on after a helper has died or stalled: the
//! requestor has kept what it has written, and other helpers bring the rest, as of the same update.
//! `ECPipe` leaves failures during a repair open; here they cost no more than the slices under way.

use super::Repair;
use super::attempt::{Made, OUTRUN_COUNT_MAX, Progress, Rebuild};
use super::survey::{Setback, Survey};
use crate::coordinator::core::{SHORT_DEADLINE_MS, lock};
use crate::initiate::{PartFailed, RunTerms, run_plan};
use crate::message::{Effect, Purpose, ReadCut, Refusal, RunId, ask};
use crate::ports::Ask as _;
use gabion_layout::{ByteRange, ChunkIndex};
use gabion_meta::KeyValue;
use gabion_plan::{Cost, Plan, check};
use gabion_planner::repair;

/// What is left of a chunk that is being made.
enum Rest {
    /// This brings it.
    Plan(Plan),
    /// Its requestor has kept nothing of it, or nobody is left to help.
    Lost,
}

impl<K: KeyValue + Send + Sync + 'static> Repair<K> {
    /// Runs the plan and has the requestors read the new chunks back. When a helper fails, others go on
    /// from where it stopped; when one of several requestors does, the others' chunks are finished
    /// without it. False when there must be another plan for the whole; otherwise those chunks are left
    /// in `rebuild` that came out whole, one at least.
    pub(super) async fn make(
        &self,
        survey: &Survey,
        rebuild: &mut Rebuild,
        progress: &mut Progress,
    ) -> Result<bool, Setback> {
        let ended = self.bring_together(survey, rebuild, progress).await;
        if !matches!(ended, Ok(true)) {
            // Some of it may be whole all the same, and is nobody's.
            for made in &rebuild.made {
                self.leave_over(survey, made);
            }
            return ended;
        }
        let mut setback = None;
        for made in std::mem::take(&mut rebuild.made) {
            match self.read_back(survey.id(made.chunk), made.requestor).await {
                Ok(true) => {
                    rebuild.made.push(made);
                    continue;
                }
                Ok(false) => {
                    progress.avoided.insert(made.requestor);
                }
                Err(why) => setback = Some(why),
            }
            self.give_up(survey.stripe.id, &made, rebuild.epoch, progress)
                .await;
        }
        match setback {
            Some(setback) if rebuild.made.is_empty() => Err(setback),
            _ => Ok(!rebuild.made.is_empty()),
        }
    }

    /// Runs the plan, and plans for the rest as long as somebody fails. False when there must be another
    /// plan for the whole.
    async fn bring_together(
        &self,
        survey: &Survey,
        rebuild: &mut Rebuild,
        progress: &mut Progress,
    ) -> Result<bool, Setback> {
        let mut ran = self.execute(survey, rebuild, None).await;
        while let Err(failed) = ran {
            for made in &mut rebuild.made {
                made.is_done |= failed.done.contains(&made.requestor);
            }
            if self.judge(survey, rebuild, &failed, progress).await? {
                return Ok(false);
            }
            // Each turn distrusts one more helper or makes one chunk less, so that there is a last one.
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

    /// Brings the rest of each chunk, one after another. Chunks of which there is nothing to go on with
    /// are made no more.
    async fn go_on(
        &self,
        survey: &Survey,
        rebuild: &mut Rebuild,
        progress: &Progress,
    ) -> Result<Result<(), PartFailed>, Setback> {
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
        // Slices that are spread come one by one, and who waits for the next has not stalled.
        let slice_bytes = self.core.options.slice_bytes.min(survey.stripe.chunk_bytes);
        let slice_ms = u128::from(rebuild.spread_ms) * u128::from(slice_bytes)
            / u128::from(survey.stripe.chunk_bytes);
        let terms = RunTerms {
            run: RunId(self.core.ports.random()),
            epoch: rebuild.epoch,
            generation: survey.stripe.generation,
            cut: ReadCut::Settled(base),
            effect: match rest {
                None => Effect::Install { base },
                Some(_) => Effect::Resume { base },
            },
            purpose: Purpose::Repair,
            spread_ms,
            deadline_ms: (self.core.options.repair_deadline_ms).saturating_add(spread_ms),
            stall_ms: Some(self.core.options.repair_stall_ms + 2 * slice_ms as u64),
        };
        let ran = run_plan(&*self.core.ports, plan, &terms, |_| {
            unreachable!("a repair moves bytes between nodes alone")
        });
        ran.await.map(|_| ())
    }

    /// Draws the lessons of a failed run that ask for another plan for the whole. Whether there are any.
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
        let mut made = rebuild.made.iter();
        let made_there = made.find(|made| made.requestor == failed.node);
        let is_barred = failed.refusal == Refusal::Unsettled;
        if let Some(made) = made_there.filter(|made| is_barred && !made.in_place) {
            // An earlier run of the coordinator has made the chunk there and did not get as far as
            // counting it, so nobody settles the records that it has.
            self.give_up(survey.stripe.id, made, rebuild.epoch, progress)
                .await;
            return Ok(true);
        }
        let cannot_write = matches!(
            failed.refusal,
            Refusal::NoSpace | Refusal::Failed(_) | Refusal::StoreFailed(_)
        );
        if cannot_write && made_there.is_some() {
            progress.avoided.insert(failed.node);
            return Ok(true);
        }
        if matches!(failed.refusal, Refusal::StoreFailed(_)) {
            // What it holds does not help, declared failed or not yet.
            return Ok(progress.distrusted.insert(failed.node));
        }
        let is_outrun = matches!(failed.refusal, Refusal::CutPassed { .. });
        if is_outrun && progress.outrun_count < OUTRUN_COUNT_MAX {
            // A helper has forgotten the pin.
            progress.outrun_count += 1;
            return Ok(true);
        }
        Ok(false)
    }

    /// Distrusts the helpers that are suspected, and gives chunks up whose requestors are, if there are
    /// others. Whether that changes anything; a chunk that is moved has no other helper.
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

    /// Has what there may be of a chunk removed that was not finished.
    fn leave_over(&self, survey: &Survey, made: &Made) {
        if !made.in_place {
            self.leftovers.add(made.requestor, survey.id(made.chunk));
        }
    }

    /// Plans the rest of a chunk without the helpers that are distrusted.
    async fn rest(
        &self,
        survey: &Survey,
        rebuild: &Rebuild,
        made: &Made,
        progress: &Progress,
    ) -> Result<Rest, Setback> {
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
            // Without those that are distrusted there are too few.
            return Ok(Rest::Lost);
        };
        check(&plan, stripe.code)?;
        Ok(Rest::Plan(plan))
    }
}

/// What lies between ranges that are in order, of a chunk.
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
