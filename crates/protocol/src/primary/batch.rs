//! Requests for updates that wait for the turn of their stripe, and batches of those that are made together.

use crate::locks::lock;
use crate::message::{NodeReply, Refusal, RunId, ask};
use futures::channel::oneshot::{Receiver, Sender, channel};
use gabion_layout::{ChunkRange, Sequence};
use gabion_store::RECORD_RUN_COUNT_MAX;
use std::collections::VecDeque;
use std::sync::Mutex;

/// The reason why a request of a node is not carried out.
#[derive(Debug)]
pub(crate) enum NotDone {
    /// Only of an update: it was refused before it got a sequence. No part of it has begun, and none will.
    NotBegun(Refusal),
    /// The node refuses. Of an update: a part of it failed, and others may have succeeded. The recovery rule decides.
    Refused(Refusal),
}

impl NotDone {
    /// The node's refusal.
    pub(crate) fn refusal(&self) -> &Refusal {
        let (Self::NotBegun(refusal) | Self::Refused(refusal)) = self;
        refusal
    }
}

impl From<Refusal> for NotDone {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<NotDone> for NodeReply {
    fn from(not_done: NotDone) -> Self {
        match not_done {
            NotDone::NotBegun(refusal) => Self::NotBegun(refusal),
            NotDone::Refused(refusal) => Self::Refused(refusal),
        }
    }
}

/// Most bytes that the requests of a batch change. Larger ones gain nothing from a common plan.
const BATCH_BYTES_MAX: u64 = 1 << 20;

/// The requests that wait for the turn of their stripe, in the order of their arrival.
#[derive(Default)]
pub(super) struct Line(Mutex<VecDeque<Asked>>);

/// A request that waits.
pub(super) struct Asked {
    pub(super) update: ask::Update,
    /// The request arrived.
    pub(super) began_us: u64,
    /// Append phases that held it up have ended.
    pub(super) ended_us: u64,
    answer: Sender<Result<Sequence, NotDone>>,
}

/// Requests that are made together. Invariant: not empty; they change different bytes of one stripe.
pub(super) struct Batch(pub(super) Vec<Asked>);

impl Line {
    /// Adds a request; returns where its answer arrives.
    pub(super) fn join(
        &self,
        update: ask::Update,
        began_us: u64,
        ended_us: u64,
    ) -> Receiver<Result<Sequence, NotDone>> {
        let (answer, receiver) = channel();
        lock(&self.0).push_back(Asked {
            update,
            began_us,
            ended_us,
            answer,
        });
        receiver
    }

    /// Takes the first request and all others that may be made with it. Requests whose clients do not wait any
    /// more leave the line.
    pub(super) fn take(&self) -> Option<Batch> {
        let mut line = lock(&self.0);
        line.retain(|asked| !asked.answer.is_canceled());
        let mut batch = Batch(vec![line.pop_front()?]);
        let mut rest = VecDeque::new();
        for asked in line.drain(..) {
            if batch.admits(&asked.update) {
                batch.0.push(asked);
            } else {
                rest.push_back(asked);
            }
        }
        *line = rest;
        Some(batch)
    }

    /// Puts all requests of a batch but the first back to the front.
    pub(super) fn put_back_others(&self, batch: &mut Batch) {
        let mut line = lock(&self.0);
        for asked in batch.0.drain(1..).rev() {
            line.push_front(asked);
        }
    }
}

impl Batch {
    /// Whether a request may be made with those of the batch.
    fn admits(&self, update: &ask::Update) -> bool {
        let first = &self.0[0].update;
        let is_alike = |update: &ask::Update| {
            update.substitutes.is_empty()
                && !update.ranges.is_empty()
                && (update.generation, update.file, update.token)
                    == (first.generation, first.file, first.token)
        };
        let bytes = self.changed_bytes().saturating_add(changed_bytes(update));
        self.0.len() < RECORD_RUN_COUNT_MAX
            && bytes <= BATCH_BYTES_MAX
            && is_alike(first)
            && is_alike(update)
            && !self.0.iter().any(|asked| overlap(&asked.update, update))
    }

    pub(super) fn changed_bytes(&self) -> u64 {
        let bytes = self.0.iter().map(|asked| changed_bytes(&asked.update));
        bytes.fold(0, u64::saturating_add)
    }

    /// The changed ranges of all requests, in the order of their chunks and offsets.
    pub(super) fn ranges(&self) -> Vec<ChunkRange> {
        let ranges = self.0.iter().flat_map(|asked| &asked.update.ranges);
        let mut ranges: Vec<ChunkRange> = ranges.copied().collect();
        ranges.sort_unstable_by_key(|part| (part.chunk, part.range.offset));
        ranges
    }

    pub(super) fn runs(&self) -> Vec<RunId> {
        self.0.iter().map(|asked| asked.update.run).collect()
    }

    /// Answers all requests.
    pub(super) fn answer(self, made: impl Fn() -> Result<Sequence, NotDone>) {
        for asked in self.0 {
            // A client that does not wait any more asks for the fate of its run.
            let _ = asked.answer.send(made());
        }
    }
}

/// Bytes that a request changes.
pub(super) fn changed_bytes(update: &ask::Update) -> u64 {
    let lengths = update.ranges.iter().map(|part| part.range.length);
    // The planner refuses lengths that leave their chunk.
    lengths.fold(0, u64::saturating_add)
}

/// Whether two requests change a byte in common.
fn overlap(one: &ask::Update, other: &ask::Update) -> bool {
    let meets = |part: &ChunkRange| {
        let mut others = other.ranges.iter();
        others.any(|other| part.chunk == other.chunk && part.range.intersect(other.range).is_some())
    };
    one.ranges.iter().any(meets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_layout::{ByteRange, ChunkIndex, Generation, NodeId, StripeId};
    use gabion_meta::{FencingToken, PutId};

    fn update(run: u64, ranges: &[(u8, u64, u64)]) -> ask::Update {
        let range = |&(chunk, offset, length): &(u8, u64, u64)| ChunkRange {
            chunk: ChunkIndex(chunk),
            range: ByteRange::new(offset, length),
        };
        ask::Update {
            run: RunId(run),
            stripe: StripeId(1),
            generation: Generation(1),
            ranges: ranges.iter().map(range).collect(),
            substitutes: Vec::new(),
            file: PutId(1),
            token: FencingToken(1),
            ticket: None,
        }
    }

    /// The runs of the batches that a line gives, for requests that come in this order.
    fn batches(updates: Vec<ask::Update>) -> Vec<Vec<u64>> {
        let line = Line::default();
        let answers: Vec<_> = updates.into_iter().map(|u| line.join(u, 0, 0)).collect();
        let taken = std::iter::from_fn(|| line.take());
        let runs = taken.map(|batch| batch.runs().iter().map(|run| run.0).collect());
        let runs = runs.collect();
        drop(answers);
        runs
    }

    #[test]
    fn requests_that_change_different_bytes_are_made_together() {
        let found = batches(vec![
            update(1, &[(0, 0, 4096)]),
            update(2, &[(0, 4096, 4096), (1, 0, 10)]),
            update(3, &[(1, 9, 10)]),
            update(4, &[(2, 0, 4096)]),
        ]);
        // The third changes a byte of the second.
        assert_eq!(found, [vec![1, 2, 4], vec![3]]);
    }

    #[test]
    fn requests_of_another_layout_token_or_place_are_made_apart() {
        let newer = ask::Update {
            generation: Generation(2),
            ..update(2, &[(1, 0, 1)])
        };
        let fenced = ask::Update {
            token: FencingToken(2),
            ..update(3, &[(2, 0, 1)])
        };
        let staged_elsewhere = ask::Update {
            substitutes: vec![(ChunkIndex(3), NodeId(9))],
            ..update(4, &[(3, 0, 1)])
        };
        let first = update(1, &[(0, 0, 1)]);
        let found = batches(vec![first, newer, fenced, staged_elsewhere]);
        assert_eq!(found, [[1], [2], [3], [4]]);
    }

    #[test]
    fn requests_that_cannot_be_made_are_refused_alone() {
        let endless = update(1, &[(0, 0, u64::MAX)]);
        let endless_too = update(2, &[(1, 0, u64::MAX)]);
        let empty = update(3, &[]);
        let found = batches(vec![endless, endless_too, empty, update(4, &[(2, 0, 1)])]);
        assert_eq!(found, [[1], [2], [3], [4]]);
    }

    #[test]
    fn a_batch_has_limits() {
        let many = (0..100).map(|run| update(run, &[(0, run * 10, 10)]));
        let sizes = batches(many.collect());
        let sizes: Vec<usize> = sizes.iter().map(Vec::len).collect();
        assert_eq!(sizes, [64, 36]);
        let half = BATCH_BYTES_MAX / 2;
        let large = (0..3).map(|run| update(run, &[(run as u8, 0, half)]));
        assert_eq!(batches(large.collect()), [vec![0, 1], vec![2]]);
        let alone = update(1, &[(0, 0, 2 * BATCH_BYTES_MAX)]);
        assert_eq!(batches(vec![alone]), [[1]]);
    }

    #[test]
    fn a_request_without_a_client_leaves_the_line() {
        let line = Line::default();
        drop(line.join(update(1, &[(0, 0, 1)]), 0, 0));
        let _answer = line.join(update(2, &[(0, 0, 1)]), 0, 0);
        let batch = line.take().expect("one still waits");
        assert_eq!(batch.runs(), [RunId(2)]);
        assert!(line.take().is_none());
    }

    #[test]
    fn those_that_are_put_back_keep_their_order() {
        let line = Line::default();
        let join = |run: u64| line.join(update(run, &[(0, run, 1)]), 0, 0);
        let _answers: Vec<_> = (0..4).map(join).collect();
        let mut batch = line.take().expect("all wait");
        line.put_back_others(&mut batch);
        assert_eq!(batch.runs(), [RunId(0)]);
        let rest = line.take().expect("the others wait");
        assert_eq!(rest.runs(), [1, 2, 3].map(RunId));
    }
}
