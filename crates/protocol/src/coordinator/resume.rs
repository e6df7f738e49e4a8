//! Going on with a repair after a helper has died or stalled: the requestor has kept what it has
//! written, and other helpers bring the rest, as of the same update. `ECPipe` leaves failures during
//! a repair open; here they cost no more than the slices under way.

use super::rebuild::Rebuild;
use super::rounds::{Progress, SHORT_DEADLINE_MS};
use super::survey::{Setback, Survey};
use super::{Coordinator, lock};
use crate::initiate::PartFailed;
use crate::message::{NodeReply, NodeRequest};
use gabion_layout::{ByteRange, ChunkIndex};
use gabion_meta::KeyValue;
use gabion_plan::{Plan, check};
use gabion_planner::repair;

impl<K: KeyValue + Send + Sync + 'static> Coordinator<K> {
    /// Plans the rest of a chunk without the helpers that are suspected. None when nobody new is, or
    /// when the requestor has kept nothing: then the repair has failed.
    pub(super) async fn rest(
        &self,
        survey: &Survey,
        rebuild: &Rebuild,
        failed: &PartFailed,
        progress: &mut Progress,
    ) -> Result<Option<Plan>, Setback> {
        let requestor = rebuild.requestor;
        if rebuild.is_move {
            // Nobody else has it.
            return Ok(None);
        }
        let suspects = failed.suspects.iter().copied();
        let helpers: Vec<_> = suspects.filter(|&node| node != requestor).collect();
        // Each turn distrusts one more node, so that there is a last one.
        let before_count = progress.distrusted.len();
        progress.distrusted.extend(helpers);
        if progress.distrusted.len() == before_count {
            return Ok(None);
        }
        let request = NodeRequest::Written {
            chunk: survey.id(rebuild.chunk),
            base: rebuild.base,
        };
        let asked = self.ports.call_node(requestor, request, SHORT_DEADLINE_MS);
        let Ok(NodeReply::Written(Some(written))) = asked.await else {
            return Ok(None);
        };
        let missing = complement(&written, survey.stripe.chunk_bytes);
        self.plan_rest(survey, rebuild, &missing, progress)
    }

    fn plan_rest(
        &self,
        survey: &Survey,
        rebuild: &Rebuild,
        missing: &[ByteRange],
        progress: &Progress,
    ) -> Result<Option<Plan>, Setback> {
        if missing.is_empty() {
            return Ok(None);
        }
        let stripe = survey.stripe_for_plans(&rebuild.lost)?;
        let (chunk, requestor) = (rebuild.chunk, rebuild.requestor);
        let helpers: Vec<ChunkIndex> =
            repair::helpers_by_distance(&stripe, requestor, &survey.topology());
        let helpers = progress.trusted(&survey.stripe, &helpers);
        let scheme = *lock(&self.scheme);
        let slice_bytes = self.options.slice_bytes;
        let planned = repair::catch_up(
            &stripe,
            chunk,
            requestor,
            missing,
            &helpers,
            scheme,
            slice_bytes,
        );
        let Ok(plan) = planned else {
            // Without the suspects there are too few.
            return Ok(None);
        };
        check(&plan, stripe.code)?;
        Ok(Some(plan))
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
