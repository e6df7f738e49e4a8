//! How a client of the simulated cluster updates a stripe, and how it tries again: an attempt whose
//! outcome it does not know it closes first, as the real client does, and the history is told.

use crate::cells::{UpdateId, fill, first_cell};
use crate::client::{Client, byte_range, shape, substitutes_of};
use bytes::Bytes;
use futures::future::join_all;
use gabion_layout::{ChunkRange, NodeId, Sequence, StripeRecord};
use gabion_protocol::message::{
    FileLayout, NodeReply, NodeRequest, Refusal, RunFate, RunId, RunQuestion,
};
use gabion_protocol::ports::Ports;
use gabion_protocol::primary::failed_nodes;
use std::collections::BTreeSet;
use std::ops::Range;

/// How long a node may take to withdraw a run.
const WITHDRAW_DEADLINE_MS: u64 = 2_000;

/// An attempt that failed.
pub(crate) struct Failed {
    pub(crate) refusal: Refusal,
    /// What is to be closed before the next attempt.
    pub(crate) open: Option<OpenRun>,
}

/// A run of which it is not known whether its update was, is or will be made.
pub(crate) struct OpenRun {
    question: RunQuestion,
    update: UpdateId,
    /// Where its bytes were staged.
    staged_at: Vec<NodeId>,
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        let open = None;
        Self { refusal, open }
    }
}

impl Client {
    /// Tries to make a write of cells of a stripe, in one update. On an error it may have taken place, or may yet.
    pub(crate) async fn update(
        &self,
        file: &FileLayout,
        record: &StripeRecord,
        (update, cells): (UpdateId, &[Range<u64>]),
    ) -> Result<Sequence, Failed> {
        let (_, geometry) = shape(file.pool_of(record), record);
        let run = RunId(self.ports.random());
        let split = cells.iter().flat_map(|part| {
            let parts = geometry.split(byte_range(part));
            parts.expect("clients write within stripes")
        });
        let ranges: Vec<ChunkRange> = split.collect();
        let written: BTreeSet<_> = ranges.iter().map(|range| range.chunk).collect();
        let concerned_count = written.len() + geometry.m();
        self.ledger
            .submitted(record.id, update, run, cells, concerned_count);
        // A primary that knows of other losses refuses; the next update has a newer layout.
        let substitutes = substitutes_of(file, record, &ranges)?;
        let start = first_cell(file, record);
        let (mut staged, mut staged_at) = (Vec::new(), Vec::new());
        for part in cells {
            let bytes = fill(update, start + part.start, part.end - part.start);
            let mut bytes = Bytes::from(bytes);
            let parts = geometry.split(byte_range(part));
            for range in parts.expect("clients write within stripes") {
                let bytes = bytes.split_to(range.range.length as usize);
                let substitute = substitutes.iter().find(|(lost, _)| *lost == range.chunk);
                let node = substitute.map_or(record.nodes[range.chunk.at()], |&(_, node)| node);
                staged.push(self.stage((run, record.id), node, range, bytes));
                staged_at.push(node);
            }
        }
        let after = newest_of(join_all(staged).await)?;
        staged_at.sort_unstable();
        staged_at.dedup();
        let question = RunQuestion {
            stripe: record.id,
            generation: record.generation,
            run,
            after,
            chunks: written.into_iter().collect(),
        };
        let request = NodeRequest::Update {
            run,
            stripe: record.id,
            generation: record.generation,
            ranges,
            substitutes,
        };
        let refusal = match self.ask_primary(record, request).await {
            Ok(NodeReply::Updated { sequence }) => {
                self.ledger.acknowledged(record.id, update, sequence);
                return Ok(sequence);
            }
            // A copy of the request may still come, where messages are repeated.
            Ok(NodeReply::NotBegun(refusal)) if !self.expects_repeats => {
                self.ledger.closed(record.id, update, run, RunFate::Never);
                return Err(refusal.into());
            }
            Ok(NodeReply::NotBegun(refusal)) | Err(refusal) => refusal,
            Ok(other) => Refusal::Invalid(format!("{other:?}")),
        };
        let open = Some(OpenRun {
            question,
            update,
            staged_at,
        });
        Err(Failed { refusal, open })
    }

    /// Sees to it that an attempt is over, whatever is still on its way to its primary, and says what became of it.
    /// `file` was looked up after the attempt.
    pub(crate) async fn close(
        &self,
        file: &FileLayout,
        record: &StripeRecord,
        open: &OpenRun,
    ) -> Result<RunFate, Refusal> {
        let tally = &self.ledger.tally;
        let ask = |&node: &NodeId| {
            let run = open.question.run;
            let request = NodeRequest::Unstage { run };
            self.ports.call_node(node, request, WITHDRAW_DEADLINE_MS)
        };
        let answers = join_all(open.staged_at.iter().map(ask)).await;
        let said = |expected: bool| {
            let mut answers = answers.iter();
            answers.any(|answer| {
                matches!(answer, Ok(NodeReply::Unstaged { was_waiting }) if *was_waiting == expected)
            })
        };
        let fate = if said(true) {
            tally.add(|deeds| deeds.withdrawn_count += 1);
            RunFate::Never
        } else {
            let failed = failed_nodes(&file.nodes);
            if !said(false) && !open.staged_at.iter().any(|node| failed.contains(node)) {
                return Err(Refusal::Unavailable("nodes that could close it".to_owned()));
            }
            // It may have begun, or be over: the stripe's nodes know.
            let question = NodeRequest::Fate(open.question.clone());
            let fate = match self.ask_primary(record, question).await? {
                NodeReply::Fate(fate) => fate,
                other => return Err(Refusal::Invalid(format!("{other:?}"))),
            };
            tally.add(|deeds| match fate {
                RunFate::Stood(_) => deeds.stood_count += 1,
                RunFate::Never => deeds.settled_count += 1,
                RunFate::Forgotten => deeds.forgotten_count += 1,
            });
            fate
        };
        self.ledger
            .closed(record.id, open.update, open.question.run, fate);
        Ok(fate)
    }
}

/// The last update of which any of the nodes knew that keep an attempt's bytes.
fn newest_of(staged: Vec<Result<Sequence, Refusal>>) -> Result<Sequence, Refusal> {
    let mut staged = staged.into_iter();
    staged.try_fold(Sequence(0), |newest, known| Ok(newest.max(known?)))
}
