//! How a client of the simulated cluster updates a stripe, and how it tries again: an attempt whose
//! outcome it does not know it closes first, as the real client does, and the history is told.

use crate::cells::{UpdateId, fill};
use crate::client::{Client, byte_range, shape, substitutes_of};
use bytes::Bytes;
use futures::future::join_all;
use gabion_layout::{ChunkRange, NodeId, Sequence, StripeRecord};
use gabion_protocol::message::{FileLayout, NodeReply, NodeRequest, Refusal, RunId};
use gabion_protocol::ports::Ports;
use gabion_protocol::primary::failed_nodes;
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
    run: RunId,
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
    /// Updates cells of a stripe in one update. On an error it may have taken place, or may yet.
    pub(crate) async fn update(
        &self,
        file: &FileLayout,
        record: &StripeRecord,
        cells: &[Range<u64>],
    ) -> Result<Sequence, Failed> {
        let (_, geometry) = shape(file.pool_of(record), record);
        let (run, update) = (RunId(self.ports.random()), self.ledger.name());
        let split = cells.iter().flat_map(|part| {
            let parts = geometry.split(byte_range(part));
            parts.expect("clients write within stripes")
        });
        let ranges: Vec<ChunkRange> = split.collect();
        let mut written: Vec<_> = ranges.iter().map(|range| range.chunk).collect();
        written.sort_unstable();
        written.dedup();
        let concerned_count = written.len() + geometry.m();
        self.ledger
            .submitted(record.id, update, run, cells, concerned_count);
        // A primary that knows of other losses refuses; the next update has a newer layout.
        let substitutes = substitutes_of(file, record, &ranges)?;
        let (mut staged, mut staged_at) = (Vec::new(), Vec::new());
        for part in cells {
            let bytes = fill(record.id, update, part.start, part.end - part.start);
            let mut bytes = Bytes::from(bytes);
            let parts = geometry.split(byte_range(part));
            for range in parts.expect("clients write within stripes") {
                let bytes = bytes.split_to(range.range.length as usize);
                let substitute = substitutes.iter().find(|(lost, _)| *lost == range.chunk);
                let node = substitute.map_or(record.nodes[range.chunk.at()], |&(_, node)| node);
                staged.push(self.stage(run, node, range, bytes));
                staged_at.push(node);
            }
        }
        for done in join_all(staged).await {
            done?;
        }
        staged_at.sort_unstable();
        staged_at.dedup();
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
            Ok(other) => Refusal::Invalid(format!("{other:?}")),
            Err(refusal) => refusal,
        };
        // A primary that answers has no such update in its queue, unless it was asked twice.
        let is_unknown = self.expects_repeats || matches!(refusal, Refusal::Unavailable(_));
        let open = is_unknown.then_some(OpenRun {
            run,
            update,
            staged_at,
        });
        Err(Failed { refusal, open })
    }

    /// Sees to it that an attempt is over, whatever is still on its way to its primary. `file` was
    /// looked up after the attempt.
    pub(crate) async fn close(
        &self,
        file: &FileLayout,
        record: &StripeRecord,
        open: &OpenRun,
    ) -> Result<(), Refusal> {
        let tally = &self.ledger.tally;
        let ask = |&node: &NodeId| {
            let request = NodeRequest::Unstage { run: open.run };
            self.ports.call_node(node, request, WITHDRAW_DEADLINE_MS)
        };
        let answers = join_all(open.staged_at.iter().map(ask)).await;
        let said = |expected: bool| {
            let mut answers = answers.iter();
            answers.any(|answer| {
                matches!(answer, Ok(NodeReply::Unstaged { was_waiting }) if *was_waiting == expected)
            })
        };
        if said(true) {
            tally.add(|deeds| deeds.withdrawn_count += 1);
        } else {
            let failed = failed_nodes(&file.nodes);
            if !said(false) && !open.staged_at.iter().any(|node| failed.contains(node)) {
                return Err(Refusal::Unavailable("nodes that could close it".to_owned()));
            }
            // It may have begun: no participant takes part in it any more once the stripe is settled.
            self.mark(record, (true, false)).await?;
            tally.add(|deeds| deeds.settled_count += 1);
        }
        self.ledger.closed(record.id, open.update);
        Ok(())
    }
}
