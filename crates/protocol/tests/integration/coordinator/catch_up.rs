//! Chunks that only missed some updates get no more than these.

use crate::coordinator::bed::{Asked, Bed, chunk_on, words};
use futures::FutureExt;
use futures::future::ready;
use gabion_layout::{ByteRange, ChunkIndex, Epoch, NodeId, Sequence, StripeRecord};
use gabion_protocol::message::{
    CoordinatorReply, Decided, Effect, HeldChunk, Holding, NodeReply, NodeRequest, ReadCut, ask,
};
use gabion_store::AppendedState;

/// The range that an update of data chunk 0 has touched, in its own chunk and in every parity chunk.
const TOUCHED: (ChunkIndex, ByteRange) = (ChunkIndex(0), ByteRange::new(512, 100));

/// The ranges that a part writes into its chunk as what it had missed, and the record's number.
fn caught_up(asked: &Asked) -> Option<(Vec<ByteRange>, Sequence)> {
    let NodeRequest::RunPart(part) = &asked.request else {
        return None;
    };
    let Effect::CatchUp { sequence } = part.effect else {
        return None;
    };
    assert_eq!(part.cut, ReadCut::Exactly(sequence));
    let writes = part.part.steps.iter().filter_map(|step| match step.step {
        gabion_plan::Step::Write { slices, .. } => Some(slices.span()),
        _ => None,
    });
    let writes: Vec<ByteRange> = writes.collect();
    (!writes.is_empty()).then_some((writes, sequence))
}

/// Answers as nodes of a stripe whose mark is 7, but for `behind`, which knows of 5, and whose logs
/// reach back to 5 if `tell`.
fn answer_as_of_7(bed: &mut Bed, behind: NodeId, tell: bool) {
    bed.hook(move |node, request| {
        let reply = match request {
            NodeRequest::Collect { .. } => NodeReply::Holding(Holding {
                mark: Sequence(if node == behind { 5 } else { 7 }),
                records: Vec::new(),
                appended: AppendedState::default(),
            }),
            NodeRequest::Missed(ask::Missed { after, .. }) => {
                assert_eq!(*after, Sequence(5));
                NodeReply::Missed(tell.then(|| vec![TOUCHED]))
            }
            _ => return None,
        };
        Some(ready(Ok(reply)).boxed())
    });
}

/// A stripe of which chunk 0 was left out of updates after 5, and what happens when its node
/// returns.
fn return_behind(bed: &mut Bed, tell: bool) -> (StripeRecord, Vec<Asked>) {
    let stripe = bed.put("f", 1).remove(0);
    let away = stripe.nodes[0];
    bed.fail(&[away]);
    bed.acquire(stripe.id, stripe.nodes[1]);
    let noted = bed.ask(ask::NoteDegraded {
        stripe: stripe.id,
        epoch: Epoch(1),
        since: bed.joins,
        chunks: vec![(ChunkIndex(0), Sequence(5))],
    });
    assert_eq!(noted, CoordinatorReply::Done);
    let noted = bed.stripe("f");
    answer_as_of_7(bed, away, tell);
    bed.take_log();
    let held = HeldChunk {
        chunk: chunk_on(&stripe, away),
        generation: stripe.generation,
        epoch: Epoch(1),
        mark: Sequence(4),
        undecided: vec![(Epoch(1), Sequence(5)), (Epoch(1), Sequence(6))],
    };
    let joined = bed.join_holding(Some(away), away.0, away.0 / 3, vec![held]);
    let CoordinatorReply::Joined(joined) = joined else {
        panic!("{joined:?}");
    };
    let (obsolete, decided) = (joined.answer.obsolete, joined.answer.decided);
    assert_eq!(obsolete, []);
    let kept = Decided {
        stripe: stripe.id,
        epoch: Epoch(1),
        generation: noted.generation,
        stands: vec![(Epoch(1), Sequence(5))],
    };
    assert_eq!(decided, [kept], "what it had when it was left out is good");
    bed.pass(100);
    let log = bed.take_log();
    let after = bed.stripe("f");
    assert_eq!((&after.stale[..], &after.nodes), (&[][..], &stripe.nodes));
    (stripe, log)
}

#[test]
fn a_returned_chunk_gets_what_it_has_missed_and_no_more() {
    let mut bed = Bed::three_racks();
    let (stripe, log) = return_behind(&mut bed, true);
    let away = stripe.nodes[0];
    let written: Vec<_> = log.iter().filter_map(caught_up).collect();
    assert_eq!(written, [(vec![TOUCHED.1], Sequence(7))]);
    let of_node: Vec<_> = words(&log)
        .into_iter()
        .filter(|&(node, _)| node == away.0)
        .map(|(_, word)| word)
        .collect();
    assert_eq!(
        of_node,
        ["fence", "collect", "resolve", "part", "resolve", "scrub"],
        "it is rewound to 5, brought to 7, and read"
    );
    let repair = bed.status().repair;
    assert_eq!(
        (repair.caught_up_chunk_count, repair.caught_up_bytes),
        (1, 100)
    );
    assert_eq!((repair.repaired_chunk_count, repair.repaired_bytes), (0, 0));
}

#[test]
fn a_returned_chunk_is_made_anew_when_the_logs_do_not_reach_back() {
    let mut bed = Bed::three_racks();
    let (_, log) = return_behind(&mut bed, false);
    assert_eq!(log.iter().filter_map(caught_up).count(), 0);
    let repair = bed.status().repair;
    assert_eq!(
        (repair.caught_up_chunk_count, repair.caught_up_bytes),
        (0, 0)
    );
    assert_eq!(repair.repaired_chunk_count, 1);
}

#[test]
fn a_chunk_made_while_updates_went_on_catches_up_on_them() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let lost = before.nodes[0];
    bed.fail(&[lost]);
    let old = before.nodes.clone();
    bed.hook(move |node, request| {
        let reply = match request {
            // The first round's term is 1.
            NodeRequest::Collect(ask::Collect { epoch, .. }) => NodeReply::Holding(Holding {
                mark: Sequence(if epoch.0 == 1 || !old.contains(&node) {
                    5
                } else {
                    7
                }),
                records: Vec::new(),
                appended: AppendedState::default(),
            }),
            NodeRequest::Missed { .. } => NodeReply::Missed(Some(vec![TOUCHED])),
            _ => return None,
        };
        Some(ready(Ok(reply)).boxed())
    });
    bed.ask(ask::RepairNow { scheme: None });
    bed.pass(100);
    let log = bed.take_log();
    let after = bed.stripe("f");
    let new = after.nodes[0];
    assert_ne!(new, lost);
    let installed = |asked: &&Asked| {
        matches!(
            &asked.request,
            NodeRequest::RunPart(part)
                if part.effect == Effect::Install { base: Sequence(5) }
                    && part.cut == ReadCut::Settled(Sequence(5))
        )
    };
    assert!(
        log.iter()
            .any(|asked| asked.node == new && installed(&asked))
    );
    let written: Vec<_> = log.iter().filter_map(caught_up).collect();
    assert_eq!(written, [(vec![TOUCHED.1], Sequence(7))]);
    let pins = log.iter().filter(|asked| {
        matches!(
            asked.request,
            NodeRequest::Pin(ask::Pin {
                cut: Sequence(5),
                ..
            })
        )
    });
    assert_eq!(pins.count(), 5);
    let repair = bed.status().repair;
    assert_eq!(
        (repair.repaired_chunk_count, repair.caught_up_bytes),
        (1, 100)
    );
}

#[test]
fn a_chunk_that_updates_outrun_is_made_at_last_while_they_wait() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    bed.fail(&[before.nodes[0]]);
    let old = before.nodes.clone();
    // Each term finds one more update, and no log reaches back to the last.
    bed.hook(move |node, request| {
        let NodeRequest::Collect(ask::Collect { epoch, .. }) = request else {
            return None;
        };
        let mark = Sequence(if old.contains(&node) { epoch.0 } else { 0 });
        let records = Vec::new();
        Some(
            ready(Ok(NodeReply::Holding(Holding {
                mark,
                records,
                appended: AppendedState::default(),
            })))
            .boxed(),
        )
    });
    bed.ask(ask::RepairNow { scheme: None });
    bed.pass(100);
    let cuts: Vec<u64> = bed
        .take_log()
        .iter()
        .filter_map(|asked| match &asked.request {
            NodeRequest::RunPart(part) => match (part.cut, part.effect.clone()) {
                (ReadCut::Settled(cut), Effect::Install { base }) if cut == base => Some(cut.0),
                _ => None,
            },
            _ => None,
        })
        .collect();
    let mut bases = cuts;
    bases.dedup();
    assert_eq!(
        bases,
        [1, 3, 5],
        "it is discarded in terms 2 and 4, and made at last within term 5"
    );
    assert_eq!(bed.status().repair.repaired_chunk_count, 1);
    assert_eq!(bed.failures_left(), [(2, 1)]);
}
