//! Catching up: a chunk that only missed some updates gets the ranges that they changed, and no more.

use super::Repair;
use super::attempt::Round;
use super::survey::{Survey, TaskError};
use crate::coordinator::core::{SHORT_DEADLINE_MS, answered, lock};
use crate::initiate::{RunTerms, run_between_nodes};
use crate::message::{Effect, Purpose, ReadCut, RunId, ask};
use crate::ports::Ask as _;
use futures::future::join_all;
use gabion_layout::{ByteRange, ChunkIndex, NodeId, Sequence};
use gabion_meta::KeyValue;
use gabion_plan::{Cost, check};
use gabion_planner::repair::{self, Touched};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes and ranges of the record by which a chunk catches up, at most.
const RECORD_BYTES: u64 = 1 << 20;
const RECORD_PIECE_COUNT: usize = 1_024;

impl<K: KeyValue + Send + Sync + 'static> Repair<K> {
    /// Makes a returned node's chunk count again that has all updates up to `from`. False when the missed
    /// updates do not suffice for that.
    pub(super) async fn return_chunk(
        self: &Arc<Self>,
        survey: &Survey,
        chunk: ChunkIndex,
        from: Sequence,
        round: &Round,
    ) -> Result<bool, TaskError> {
        let node = survey.stripe.nodes[chunk.at()];
        let joins = self.nodes.joins_of(node).await;
        if !self.bring_up(survey, chunk, node, from, round).await?
            || !self.read_back(survey.id(chunk), node).await?
        {
            return Ok(false);
        }
        if self.relocate(survey, chunk, (node, None), joins).await? {
            lock(&self.counts).caught_up_chunk_count += 1;
        }
        Ok(true)
    }

    /// Brings a chunk on `node` that has all updates up to `from`, and none after it that counts, to the
    /// round's mark, durably. False when the missed ranges are not known any more, when a rebuild costs
    /// less, or when the node cannot take them.
    pub(super) async fn bring_up(
        self: &Arc<Self>,
        survey: &Survey,
        chunk: ChunkIndex,
        node: NodeId,
        from: Sequence,
        round: &Round,
    ) -> Result<bool, TaskError> {
        let mark = round.outcome.mark;
        if !self.rewind(survey, node, from, round).await? {
            return Ok(false);
        }
        if mark <= from {
            return Ok(true);
        }
        let Some(ranges) = self.missed(survey, chunk, from, round).await? else {
            return Ok(false);
        };
        if !ranges.is_empty() {
            // The record needs a number of its own: it takes that of the last missed update. A chunk that catches up by
            // it later gets at least the ranges that it has missed itself. Several records, each with a part of them
            // under the number of another update, could not promise that.
            let ran = self.write_missed(survey, chunk, node, &ranges, mark, round);
            if !ran.await? {
                return Ok(false);
            }
        }
        self.resolve_at(survey, node, mark, round).await
    }

    /// Makes the chunk's node drop all updates after `from`. False when some of them are already merged
    /// into the chunk.
    async fn rewind(
        &self,
        survey: &Survey,
        node: NodeId,
        from: Sequence,
        round: &Round,
    ) -> Result<bool, TaskError> {
        let request = ask::Collect {
            stripe: survey.stripe.id,
            epoch: round.epoch,
            generation: survey.stripe.generation,
        };
        let held = self
            .core
            .ports
            .ask_node(node, request, SHORT_DEADLINE_MS)
            .await;
        let is_behind = answered(held)?.is_some_and(|holding| holding.mark <= from);
        Ok(is_behind && self.resolve_at(survey, node, from, round).await?)
    }

    /// Makes it durable on one node that updates up to the mark stand and all later records of earlier
    /// terms are dropped.
    async fn resolve_at(
        &self,
        survey: &Survey,
        node: NodeId,
        mark: Sequence,
        round: &Round,
    ) -> Result<bool, TaskError> {
        let request = ask::Resolve {
            stripe: survey.stripe.id,
            epoch: round.epoch,
            mark,
            dropped: Vec::new(),
        };
        let answer = self
            .core
            .ports
            .ask_node(node, request, SHORT_DEADLINE_MS)
            .await;
        Ok(answered(answer)?.is_some())
    }

    /// The ranges that a chunk has missed since `from`, from the logs of the others. None when the logs do not reach
    /// back to `from`, and when the ranges are half of the chunk or more, or more than one record can have.
    async fn missed(
        &self,
        survey: &Survey,
        chunk: ChunkIndex,
        from: Sequence,
        round: &Round,
    ) -> Result<Option<Vec<ByteRange>>, TaskError> {
        let mut lost = survey.unreadable(&round.absent);
        lost.push(chunk);
        let witnesses = survey.stripe.chunks().filter(|c| !lost.contains(c));
        let asked = witnesses.map(|witness| {
            let request = ask::Missed {
                chunk: survey.id(witness),
                after: from,
            };
            let node = survey.stripe.nodes[witness.at()];
            let call = self.core.ports.ask_node(node, request, SHORT_DEADLINE_MS);
            async move { Some((witness, call.await.ok()??)) }
        });
        let told = join_all(asked).await.into_iter().flatten();
        let logs: BTreeMap<ChunkIndex, Touched> = told.collect();
        let stripe = survey.stripe_for_plans(&lost)?;
        let Some(ranges) = repair::missed(&stripe, chunk, &logs) else {
            return Ok(None);
        };
        let bytes: u64 = ranges.iter().map(|range| range.length).sum();
        let is_little = bytes <= survey.stripe.chunk_bytes / 2 && fit_one_record(&ranges);
        Ok(is_little.then_some(ranges))
    }

    /// Reconstructs ranges of a chunk as of the round's mark, and stores them as a record on its node.
    async fn write_missed(
        self: &Arc<Self>,
        survey: &Survey,
        chunk: ChunkIndex,
        node: NodeId,
        ranges: &[ByteRange],
        sequence: Sequence,
        round: &Round,
    ) -> Result<bool, TaskError> {
        let mut lost = survey.unreadable(&round.absent);
        lost.push(chunk);
        lost.sort_unstable();
        lost.dedup();
        let stripe = survey.stripe_for_plans(&lost)?;
        let topology = survey.topology();
        let helpers = repair::helpers_by_distance(&stripe, node, &topology);
        let scheme = *lock(&self.scheme);
        let slice_bytes = self.core.options.slice_bytes;
        let plan = repair::catch_up(&stripe, chunk, node, ranges, &helpers, scheme, slice_bytes)?;
        check(&plan, stripe.code)?;
        let terms = RunTerms::new(
            RunId(self.core.ports.random()),
            (round.epoch, survey.stripe.generation),
            ReadCut::Exactly(round.outcome.mark),
            Effect::CatchUp { sequence },
            Purpose::Repair,
            self.core.options.repair_deadline_ms,
        );
        if let Err(failed) = run_between_nodes(&*self.core.ports, &plan, &terms).await {
            self.mark_blamed(survey, &failed.refusal).await?;
            return Ok(false);
        }
        let cost = Cost::of(&plan, &topology);
        self.charge(survey, &cost);
        let mut repaired = lock(&self.counts);
        repaired.caught_up_bytes += ranges.iter().map(|range| range.length).sum::<u64>();
        repaired.planned_cross_rack_bytes += cost.cross_rack_bytes;
        Ok(true)
    }
}

/// Whether one record can have these ranges.
fn fit_one_record(ranges: &[ByteRange]) -> bool {
    let bytes: u64 = ranges.iter().map(|range| range.length).sum();
    bytes <= RECORD_BYTES && ranges.len() <= RECORD_PIECE_COUNT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_so_many_bytes_and_ranges_at_most() {
        let whole = ByteRange::new(100, RECORD_BYTES);
        assert!(fit_one_record(&[]) && fit_one_record(&[whole]));
        assert!(!fit_one_record(&[whole, ByteRange::new(0, 1)]));
        let bits = |count: u64| {
            (0..count)
                .map(|at| ByteRange::new(at * 9, 1))
                .collect::<Vec<_>>()
        };
        assert!(fit_one_record(&bits(RECORD_PIECE_COUNT as u64)));
        assert!(!fit_one_record(&bits(RECORD_PIECE_COUNT as u64 + 1)));
    }
}
