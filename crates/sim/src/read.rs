//! How a client reads a stripe: from the chunks themselves while they agree on a cut, vouching for
//! the primary's mark where they cannot know, and through the code at one cut where a chunk cannot
//! be read.

use crate::cells::CELL_BYTES;
use crate::client::{Client, Memory, PLAN_DEADLINE_MS, SLICE_BYTES, byte_range, shape};
use crate::history::Observation;
use gabion_layout::{ChunkIndex, ChunkRange, Epoch, NodeId, Sequence, StripeRecord};
use gabion_planner::repair::{self, Scheme};
use gabion_planner::{PlanError, Stripe};
use gabion_protocol::initiate::{PartFailed, RunTerms};
use gabion_protocol::message::{Effect, FileLayout, Liveness, Purpose, ReadCut, Refusal, RunId};
use gabion_protocol::ports::Ports;
use gabion_protocol::quorum::{Agreement, agree, ask_quorum};
use std::ops::Range;
use std::sync::Arc;

/// How often a read is tried with a newer mark or without one more chunk.
const TRY_COUNT_MAX: u32 = 8;

/// One read in so many asks a quorum, whether it must or not.
const QUORUM_ONE_IN: u64 = 4;
/// How long the nodes of a quorum may take to answer.
const QUORUM_DEADLINE_MS: u64 = 500;

/// Why a read brought nothing.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum ReadFailed {
    /// The layout may be old.
    LookAgain(Refusal),
    /// Something that is needed is not there now.
    NotNow(Refusal),
    /// What is left does not determine what was asked for.
    TooFew(PlanError),
    /// It was tried too often.
    NoAgreement,
}

impl From<Refusal> for ReadFailed {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::StaleGeneration { .. } | Refusal::NoSuchChunk(_) => Self::LookAgain(refusal),
            other => Self::NotNow(other),
        }
    }
}

/// A read under way.
struct Attempt<'a> {
    record: &'a StripeRecord,
    file: &'a FileLayout,
    ranges: &'a [ChunkRange],
    /// Chunks that cannot be read.
    lost: Vec<ChunkIndex>,
    /// What the primary vouches for, once asked.
    mark: Option<(Epoch, Sequence)>,
    /// What a quorum agrees on instead, if it was asked.
    agreed: Option<Agreement>,
}

impl Attempt<'_> {
    /// Whether it goes through the code.
    fn is_degraded(&self) -> bool {
        let mut parts = self.ranges.iter();
        parts.any(|part| self.lost.contains(&part.chunk))
    }
}

/// Bytes as of a cut, range by range.
type Brought = (Sequence, Vec<Vec<u8>>);

impl Client {
    /// Reads cells of a stripe and has the history check them.
    pub(crate) async fn read(
        &self,
        file: &FileLayout,
        record: &StripeRecord,
        cells: Range<u64>,
    ) -> Result<Sequence, ReadFailed> {
        let world = self.ports.world();
        let began_us = world.now_us();
        let (_, geometry) = shape(file.pool_of(record), record);
        let ranges = geometry.split(byte_range(&cells));
        let ranges = ranges.expect("clients read within stripes");
        let (as_of, pieces) = self.gather(file, record, &ranges).await?;
        let first = |range: &ChunkRange| {
            let chunk_cells = geometry.chunk_bytes() / CELL_BYTES;
            range.chunk.at() as u64 * chunk_cells + range.range.offset / CELL_BYTES
        };
        let pieces: Vec<(u64, Vec<u8>)> = ranges.iter().map(first).zip(pieces).collect();
        let seen = Observation {
            stripe: record.id,
            as_of,
            pieces: &pieces,
            began_us,
            ended_us: world.now_us(),
        };
        self.ledger.read(&seen);
        Ok(as_of)
    }

    async fn gather(
        &self,
        file: &FileLayout,
        record: &StripeRecord,
        ranges: &[ChunkRange],
    ) -> Result<Brought, ReadFailed> {
        let is_up = |node: NodeId| {
            let mut statuses = file.nodes.iter();
            statuses.any(|status| status.node == node && status.liveness == Liveness::Up)
        };
        let lost = |chunk: &ChunkIndex| record.is_stale(*chunk) || !is_up(record.nodes[chunk.at()]);
        let mut attempt = Attempt {
            record,
            file,
            ranges,
            lost: record.chunks().filter(lost).collect(),
            mark: None,
            agreed: None,
        };
        if self.ports.world().roll(|dice| dice.below(QUORUM_ONE_IN)) == 0 {
            self.agree(&mut attempt).await;
        }
        for try_number in 0..TRY_COUNT_MAX {
            let is_degraded = attempt.is_degraded();
            if is_degraded && attempt.mark.is_none() && attempt.agreed.is_none() {
                attempt.mark = Some(self.mark(record, (false, true)).await?);
            }
            match self.try_once(&attempt, is_degraded).await? {
                Ok(brought) => return Ok(brought),
                Err(failed) => self.learn(&mut attempt, failed, try_number).await?,
            }
        }
        Err(ReadFailed::NoAgreement)
    }

    /// Has the stripe's nodes say as of what to read. Without them it goes on as it would have.
    async fn agree(&self, attempt: &mut Attempt<'_>) {
        let record = attempt.record;
        let pool = attempt.file.pool_of(record);
        let (code, _) = shape(pool, record);
        let asked = ask_quorum(&*self.ports, record, code.k(), &[], QUORUM_DEADLINE_MS).await;
        let Ok(agreed) = agree(record, code.k(), &asked) else {
            return;
        };
        let others = record
            .chunks()
            .filter(|chunk| !agreed.readable.contains(chunk));
        let lost = attempt.lost.clone();
        attempt
            .lost
            .extend(others.filter(|chunk| !lost.contains(chunk)));
        attempt.lost.sort_unstable();
        if attempt.is_degraded() && pool.spec.append.is_some() {
            // Parity may lack what only the nodes with copies know of.
            attempt.lost = lost;
        } else {
            attempt.agreed = Some(agreed);
        }
    }

    /// Reads once. Chunks that disagree about the cut are as good as unsettled.
    async fn try_once(
        &self,
        attempt: &Attempt<'_>,
        is_degraded: bool,
    ) -> Result<Result<Brought, PartFailed>, ReadFailed> {
        let (code, geometry) = shape(attempt.file.pool_of(attempt.record), attempt.record);
        let stripe = Stripe {
            id: attempt.record.id,
            code: &code,
            geometry,
            placement: &attempt.record.nodes,
            lost: &attempt.lost,
        };
        let mut helpers: Vec<ChunkIndex> = stripe.available().collect();
        let (turn, scheme) = self.ports.world().roll(|dice| {
            let turn = dice.below(helpers.len().max(1) as u64) as usize;
            (turn, *dice.pick(&[Scheme::Conventional, Scheme::Pipeline]))
        });
        helpers.rotate_left(turn);
        let ranges = attempt.ranges;
        let plan = repair::read(
            &stripe,
            ranges,
            NodeId::CLIENT,
            &helpers,
            scheme,
            SLICE_BYTES,
        )
        .map_err(ReadFailed::TooFew)?;
        gabion_plan::check(&plan, &code).expect("planners make plans that check");
        let (epoch, mark) = attempt.mark.unwrap_or_default();
        let (epoch, cut) = match &attempt.agreed {
            Some(agreed) => (agreed.epoch, agreed.cut()),
            None if is_degraded => (epoch, ReadCut::Exactly(mark)),
            None => (Epoch(0), ReadCut::Committed(epoch, mark)),
        };
        let terms = RunTerms {
            run: RunId(self.ports.random()),
            epoch,
            generation: attempt.record.generation,
            cut,
            effect: Effect::None,
            purpose: Purpose::Client,
            spread_ms: 0,
            deadline_ms: PLAN_DEADLINE_MS,
            stall_ms: None,
        };
        let memory = Arc::new(Memory::default());
        let as_of = match self.run(&plan, &terms, Arc::clone(&memory)).await {
            Ok(as_of) => as_of,
            Err(failed) => return Ok(Err(failed)),
        };
        let mut cuts = as_of.into_iter();
        let (node, first) = cuts.next().expect("somebody was read from");
        if cuts.any(|(_, other)| other != first) {
            let refusal = Refusal::Unsettled;
            let suspects = Vec::new();
            return Ok(Err(PartFailed {
                node,
                refusal,
                suspects,
                done: Vec::new(),
            }));
        }
        let pieces = ranges.iter().map(|&range| {
            let bytes = memory.delivered(range);
            bytes.expect("a read that is done has delivered all")
        });
        Ok(Ok((first, pieces.collect())))
    }

    /// Makes the best of a failure.
    async fn learn(
        &self,
        attempt: &mut Attempt<'_>,
        failed: PartFailed,
        try_number: u32,
    ) -> Result<(), ReadFailed> {
        attempt.agreed = None;
        match failed.refusal {
            refusal @ (Refusal::StaleGeneration { .. } | Refusal::NoSuchChunk(_)) => {
                Err(ReadFailed::LookAgain(refusal))
            }
            Refusal::Unsettled | Refusal::CutPassed { .. } | Refusal::Fenced { .. } => {
                // A mark that did not help comes from a term that knows less than the nodes do.
                let settle = failed.refusal == Refusal::Unsettled
                    && attempt.mark.is_some()
                    && try_number > 1;
                let how = (settle, attempt.is_degraded());
                attempt.mark = Some(self.mark(attempt.record, how).await?);
                Ok(())
            }
            refusal => {
                let chunk = attempt.record.chunk_on(failed.node);
                match chunk.filter(|chunk| !attempt.lost.contains(chunk)) {
                    Some(chunk) => attempt.lost.push(chunk),
                    None if failed.node == NodeId::CLIENT => {}
                    None => return Err(ReadFailed::NotNow(refusal)),
                }
                attempt.mark = None;
                Ok(())
            }
        }
    }
}
