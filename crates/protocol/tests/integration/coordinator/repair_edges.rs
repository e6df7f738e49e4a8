//! Repair when something is in its way: updates under way, full disks, lost messages, other losses.

use crate::coordinator::bed::{Asked, Bed, chunk_on, gone, words};
use futures::FutureExt;
use futures::future::{pending, ready};
use gabion_layout::{ChunkId, ChunkIndex, Epoch, Generation, NodeId, Sequence, StripeId};
use gabion_protocol::event::Event;
use gabion_protocol::message::{
    Effect, Holding, NodeReply, NodeRequest, PendingRecord, ReadCut, Refusal, RunPart, ask,
};
use gabion_store::AppendedState;
use std::collections::BTreeSet;

const REPAIR_NOW: ask::RepairNow = ask::RepairNow { scheme: None };

/// Returns the number of times a node was given a chunk that it had been told to discard. Each time that is in a later
/// term: the order may still be on its way.
fn given_again_count(log: &[Asked]) -> usize {
    let mut given_count = 0;
    for (at, told) in log.iter().enumerate() {
        let NodeRequest::Discard(ask::Discard { chunk, epoch }) = told.request else {
            continue;
        };
        for later in log[at..].iter().filter(|later| later.node == told.node) {
            if let NodeRequest::RunPart(part) = &later.request
                && part.part.stripe == chunk.stripe
            {
                assert!(part.epoch > epoch, "{chunk} may be taken away by {told:?}");
                given_count += 1;
            }
        }
    }
    given_count
}

/// The node that was to write a chunk, of each run in order.
fn requestors(log: &[Asked]) -> Vec<NodeId> {
    let writes = |asked: &&Asked| {
        let NodeRequest::RunPart(part) = &asked.request else {
            return false;
        };
        let is_write =
            |step: &gabion_plan::PartStep| matches!(step.step, gabion_plan::Step::Write { .. });
        part.part.steps.iter().any(is_write)
    };
    log.iter().filter(writes).map(|asked| asked.node).collect()
}

#[test]
fn updates_under_way_are_decided_before_anything_is_read() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let (writer, lost) = (before.nodes[0], before.nodes[2]);
    // Update 5 was logged wherever a node is left: it stands. Update 6 is on one of two survivors
    // only.
    let record = |sequence, participants: [u8; 3]| PendingRecord {
        epoch: Epoch(1),
        chunk: ChunkIndex(0),
        sequence: Sequence(sequence),
        participants: participants.map(ChunkIndex).to_vec(),
    };
    let records = vec![record(5, [0, 2, 2]), record(6, [0, 1, 1])];
    bed.hook(move |node, request| {
        let asked = matches!(request, NodeRequest::Collect { .. });
        asked.then(|| {
            let records = if node == writer {
                records.clone()
            } else {
                Vec::new()
            };
            let mark = Sequence(4);
            ready(Ok(NodeReply::Holding(Holding {
                mark,
                records,
                appended: AppendedState::default(),
            })))
            .boxed()
        })
    });
    bed.fail(&[lost]);
    bed.ask(REPAIR_NOW);
    bed.pass(100);
    let log = bed.take_log();
    for asked in &log {
        match &asked.request {
            NodeRequest::Resolve(ask::Resolve { mark, dropped, .. })
                if before.nodes.contains(&asked.node) =>
            {
                assert_eq!(
                    (*mark, dropped.as_slice()),
                    (Sequence(5), &[Sequence(6)][..])
                );
            }
            NodeRequest::RunPart(part) => {
                assert_eq!(part.cut, ReadCut::Settled(Sequence(5)));
                let base = Sequence(5);
                assert_eq!(part.effect, Effect::Install { base });
                assert_eq!(part.generation, Generation(1));
            }
            _ => {}
        }
    }
    assert_eq!(requestors(&log).len(), 1);
    let after = bed.stripe("f");
    assert_eq!((after.generation, after.stale), (Generation(2), vec![]));
}

#[test]
fn survivors_read_their_chunks_before_an_update_stands() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let all = (0..6).map(ChunkIndex).collect();
    let record = PendingRecord {
        epoch: Epoch(1),
        chunk: ChunkIndex(0),
        sequence: Sequence(5),
        participants: all,
    };
    bed.hook(move |_, request| {
        let asked = matches!(request, NodeRequest::Collect { .. });
        asked.then(|| {
            let holding = Holding {
                mark: Sequence(4),
                records: vec![record.clone()],
                appended: AppendedState::default(),
            };
            ready(Ok(NodeReply::Holding(holding))).boxed()
        })
    });
    // Four are left, as many as the code needs: none of them has another that could stand in for it.
    bed.fail(&before.nodes[..2]);
    bed.ask(REPAIR_NOW);
    bed.pass(100);
    let log = words(&bed.take_log());
    let of_survivors = log.iter().filter(|(node, _)| {
        let node = NodeId(*node);
        before.nodes[2..].contains(&node)
    });
    let first: Vec<&str> = of_survivors.map(|&(_, word)| word).take(12).collect();
    assert_eq!(first[..4], ["collect"; 4], "{log:?}");
    assert_eq!(first[4..8], ["scrub"; 4], "{log:?}");
    assert_eq!(first[8..], ["resolve"; 4], "{log:?}");
}

#[test]
fn a_chunk_repaired_in_place_is_fenced_first() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let node = before.nodes[3];
    bed.report_damage(chunk_on(&before, node));
    bed.pass(100);
    let log = bed.take_log();
    let of_node: Vec<&NodeRequest> = log
        .iter()
        .filter(|asked| asked.node == node)
        .map(|asked| &asked.request)
        .collect();
    assert!(
        matches!(
            of_node.as_slice(),
            [
                NodeRequest::Scrub { .. },
                NodeRequest::Fence(ask::Fence {
                    generation: Generation(2),
                    ..
                }),
                NodeRequest::Fence { .. },
                NodeRequest::Resolve { .. },
                NodeRequest::RunPart(_),
                NodeRequest::Scrub { .. },
                NodeRequest::Fence { .. },
                NodeRequest::Collect { .. },
                NodeRequest::Resolve { .. },
            ]
        ),
        "it is no survivor: each term fences it, and only the repair resolves it: {of_node:?}"
    );
    assert_eq!(bed.stripe("f").nodes, before.nodes);
}

#[test]
fn a_coordinator_whose_commit_is_in_doubt_has_no_chunk_taken_away() {
    // The metadata fail at any operation after the new chunk is whole; at one of them it is not known
    // whether the chunk counts.
    for operations in 0..40 {
        let mut bed = Bed::three_racks();
        let before = bed.put("f", 1).remove(0);
        let (lost, store) = (before.nodes[3], bed.store());
        bed.hook(move |_, request| {
            if matches!(request, NodeRequest::Scrub { .. }) {
                store.fail_after(operations);
            }
            None
        });
        bed.fail(&[lost]);
        bed.ask(REPAIR_NOW);
        let log = bed.take_log();
        assert_eq!(requestors(&log).len(), 1, "{log:?}");
        let takes_away = log.iter().any(|asked| {
            let request = &asked.request;
            matches!(
                request,
                NodeRequest::Discard { .. } | NodeRequest::Remove { .. }
            )
        });
        assert!(!takes_away, "after {operations} operations: {log:?}");
    }
}

#[test]
fn a_full_disk_sends_the_chunk_elsewhere_and_the_old_one_is_removed() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let full = before.nodes[3];
    bed.hook(move |node, request| {
        let refuse = node == full && matches!(request, NodeRequest::RunPart(_));
        refuse.then(|| ready(Ok(NodeReply::Refused(Refusal::NoSpace))).boxed())
    });
    let chunk = chunk_on(&before, full);
    bed.report_damage(chunk);
    bed.pass(100);
    let log = bed.take_log();
    let after = bed.stripe("f");
    assert_eq!(requestors(&log), [full, after.nodes[3]]);
    assert_ne!(after.nodes[3], full);
    let epoch = Epoch(3);
    let removal = Asked {
        node: full,
        request: ask::Discard { chunk, epoch }.into(),
    };
    assert!(log.contains(&removal), "{log:?}");
}

#[test]
fn a_repair_whose_only_places_have_full_disks_says_so() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let lost = before.nodes[2];
    bed.hook(|_, request| {
        let NodeRequest::RunPart(part) = request else {
            return None;
        };
        let mut steps = part.part.steps.iter();
        let writes = steps.any(|step| matches!(step.step, gabion_plan::Step::Write { .. }));
        writes.then(|| ready(Ok(NodeReply::Refused(Refusal::NoSpace))).boxed())
    });
    bed.fail(&[lost]);
    bed.take_events();
    bed.ask(REPAIR_NOW);
    bed.pass(100);
    let rack = (0..3).map(|at| NodeId(lost.0 / 3 * 3 + at));
    let mut free = rack.filter(|node| !before.nodes.contains(node));
    let full = free.next().expect("a rack has two chunks");
    let expected = format!("the disk is full of {full}; delete files or add nodes");
    let error = bed.status().repair.last_error.unwrap();
    assert!(error.contains(&expected), "{error}");
    let events = bed.take_events();
    let is_told = events
        .iter()
        .any(|event| matches!(event, Event::RepairFailed(_, why) if why.contains(&expected)));
    assert!(is_told, "{events:?}");
}

#[test]
fn a_node_that_leaves_an_order_unanswered_gets_the_chunk_in_a_later_term() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let mut bad = 1;
    bed.hook(move |node, request| match request {
        NodeRequest::Scrub { .. } if bad > 0 => {
            bad -= 1;
            Some(ready(Err(gone(node))).boxed())
        }
        NodeRequest::Discard { .. } => Some(pending().boxed()),
        _ => None,
    });
    bed.fail(&[before.nodes[2]]);
    bed.ask(REPAIR_NOW);
    bed.pass(20_000);
    let log = bed.take_log();
    let only = bed.stripe("f").nodes[2];
    assert_eq!(requestors(&log), [only, only], "no other node fits");
    assert!(given_again_count(&log) >= 1, "{log:?}");
    assert_eq!(bed.failures_left(), [(2, 1)], "and no node had to join");
}

/// Has the first new chunk discarded because updates went further than the logs reach, and counts how often its node
/// gets it again. The node confirms the order to discard it, or does not answer.
fn given_again_after(has_answers: bool) -> usize {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let members = before.nodes.clone();
    let mut is_outrun = true;
    bed.hook(move |node, request| match request {
        // The new chunk cannot be brought to the round's mark, so the same round begins it again.
        NodeRequest::Collect { .. } if !members.contains(&node) && is_outrun => {
            is_outrun = false;
            let holding = Holding {
                mark: Sequence(9),
                records: Vec::new(),
                appended: AppendedState::default(),
            };
            Some(ready(Ok(NodeReply::Holding(holding))).boxed())
        }
        NodeRequest::Discard { .. } if !has_answers => Some(pending().boxed()),
        _ => None,
    });
    bed.fail(&[before.nodes[2]]);
    bed.ask(REPAIR_NOW);
    bed.pass(20_000);
    let after = bed.stripe("f");
    assert_ne!(after.nodes[2], before.nodes[2]);
    assert_eq!(after.stale, []);
    given_again_count(&bed.take_log())
}

#[test]
fn a_chunk_is_not_given_again_in_the_term_in_which_it_was_to_be_discarded() {
    assert!(given_again_after(false) >= 1);
}

#[test]
fn a_chunk_is_not_given_again_in_the_term_in_which_it_was_discarded() {
    assert!(
        given_again_after(true) >= 1,
        "a copy of the order may arrive late"
    );
}

#[test]
fn a_survivor_that_has_lost_its_chunk_is_no_survivor() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let (lost, empty) = (before.nodes[0], before.nodes[5]);
    let missing = chunk_on(&before, empty);
    let mut told = false;
    bed.hook(move |node, request| {
        let asked = node == empty && matches!(request, NodeRequest::Collect { .. }) && !told;
        asked.then(|| {
            told = true;
            ready(Ok(NodeReply::Refused(Refusal::NoSuchChunk(missing)))).boxed()
        })
    });
    bed.fail(&[lost]);
    bed.ask(REPAIR_NOW);
    bed.pass(100);
    assert_eq!(bed.failures_left(), [(2, 1)]);
    assert_eq!(bed.status().repair.repaired_chunk_count, 2);
    assert_eq!(bed.stripe("f").nodes[5], empty);
}

#[test]
fn a_silent_survivor_is_waited_for_without_holding_up_the_primary() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    bed.stop(before.nodes[1]);
    bed.pass(1_000);
    bed.report_damage(chunk_on(&before, before.nodes[0]));
    let log = bed.take_log();
    assert_eq!(
        words(&log),
        [(before.nodes[0].0, "scrub")],
        "no node is fenced while one node's word is missing"
    );
    let error = bed.status().repair.last_error.unwrap();
    assert!(error.contains("silent but not declared failed"), "{error}");
    // Declared failed, it is not needed any more, and no timer need run out first.
    bed.pass(400);
    assert_eq!(bed.status().repair.repaired_chunk_count, 1);
    assert_eq!(bed.stripe("f").stale, []);
}

#[test]
fn as_many_stripes_are_repaired_at_once_as_it_says() {
    let mut bed = Bed::three_racks();
    bed.options.repair_parallel = 3;
    bed.restart();
    let stripes = bed.put("f", 6);
    bed.hook(|_, request| matches!(request, NodeRequest::RunPart(_)).then(|| pending().boxed()));
    let damaged = stripes[..5].iter();
    let chunks: Vec<ChunkId> = damaged
        .map(|stripe| chunk_on(stripe, stripe.nodes[0]))
        .collect();
    for chunk in chunks {
        bed.report_damage(chunk);
    }
    bed.pass(1_000);
    let running: BTreeSet<StripeId> = bed
        .take_log()
        .into_iter()
        .filter_map(|asked| match asked.request {
            NodeRequest::RunPart(part) => Some(part.part.stripe),
            _ => None,
        })
        .collect();
    assert_eq!(running.len(), 3);
    assert_eq!(bed.status().repair.queued_chunk_count, 5);
}

#[test]
fn a_node_that_returns_after_the_settling_helps_only_after_the_next() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let (dead, late, damaged) = (before.nodes[0], before.nodes[1], before.nodes[2]);
    let (open, gate) = futures::channel::oneshot::channel();
    let mut gate = Some(gate);
    bed.hook(move |_, request| {
        let gate = matches!(request, NodeRequest::RunPart(_)).then(|| gate.take())??;
        let as_of = Sequence(0);
        Some(
            gate.map(move |_| {
                Ok(NodeReply::PartDone {
                    as_of,
                    progress: None,
                })
            })
            .boxed(),
        )
    });
    bed.fail(&[dead, late]);
    bed.ask(REPAIR_NOW);
    assert_eq!(bed.rejoin_obsolete(late, vec![chunk_on(&before, late)]), []);
    bed.report_damage(chunk_on(&before, damaged));
    open.send(()).unwrap();
    bed.pass(2_000);
    assert_eq!(bed.failures_left(), [(2, 1)]);
    let log = bed.take_log();
    let epochs = log
        .iter()
        .filter(|asked| asked.node == late)
        .filter_map(|asked| match &asked.request {
            NodeRequest::RunPart(part) => Some(part.epoch.0),
            _ => None,
        });
    let epochs: BTreeSet<u64> = epochs.collect();
    assert!(!epochs.is_empty() && !epochs.contains(&1), "{epochs:?}");
}

#[test]
fn a_node_that_stays_unsettled_after_a_removal_is_avoided() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let is_write = |part: &RunPart| {
        let mut steps = part.part.steps.iter();
        steps.any(|step| matches!(step.step, gabion_plan::Step::Write { .. }))
    };
    bed.hook(move |_, request| match request {
        NodeRequest::RunPart(part) if is_write(part) => {
            Some(ready(Ok(NodeReply::Refused(Refusal::Unsettled))).boxed())
        }
        _ => None,
    });
    bed.fail(&[before.nodes[2]]);
    bed.take_log();
    bed.ask(REPAIR_NOW);
    bed.pass(100);
    let error = bed.status().repair.last_error;
    assert!(error.is_some(), "the repair ends");
    let log = bed.take_log();
    let written = log
        .iter()
        .filter(|asked| matches!(&asked.request, NodeRequest::RunPart(part) if is_write(part)));
    assert!(written.count() < 40, "it does not try one node for ever");
    bed.unhook();
    bed.pass(20_000);
    assert_ne!(bed.stripe("f").nodes[2], before.nodes[2]);
}

#[test]
fn what_an_earlier_run_left_at_the_new_place_is_removed() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let mut cleared = BTreeSet::new();
    bed.hook(move |node, request| {
        match request {
            NodeRequest::Discard { .. } => drop(cleared.insert(node)),
            NodeRequest::RunPart(part) => {
                let is_write = |step: &gabion_plan::PartStep| {
                    matches!(step.step, gabion_plan::Step::Write { .. })
                };
                if part.part.steps.iter().any(is_write) && !cleared.contains(&node) {
                    let refusal = NodeReply::Refused(Refusal::Unsettled);
                    return Some(ready(Ok(refusal)).boxed());
                }
            }
            _ => {}
        }
        None
    });
    bed.fail(&[before.nodes[2]]);
    bed.ask(REPAIR_NOW);
    bed.pass(10_000);
    let after = bed.stripe("f");
    assert_eq!(after.stale, []);
    assert_ne!(after.nodes[2], before.nodes[2]);
    let (chunk, log) = (chunk_on(&after, after.nodes[2]), bed.take_log());
    let is_it = |asked: &Asked| matches!(asked.request, NodeRequest::Discard(ask::Discard { chunk: it, .. }) if it == chunk);
    assert!(log.iter().any(is_it), "{log:?}");
    assert_eq!(given_again_count(&log), 1);
}
