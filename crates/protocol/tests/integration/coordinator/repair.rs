//! Repair, from the loss of a chunk to its verified return.

use crate::coordinator::bed::{Asked, Bed, Reply, TIMING, chunk_on, gone, words};
use crate::coordinator::resume::{readers, runs};
use futures::FutureExt;
use futures::future::{BoxFuture, pending, ready};
use gabion_layout::{ChunkId, ChunkIndex, Generation, NodeId, StripeId, StripeRecord};
use gabion_protocol::message::{
    CoordinatorReply, CoordinatorRequest, Damage, Effect, NodeReply, NodeRequest, Purpose, ReadCut,
    Refusal, RepairOrder, RunPart, ScrubReport, Scrubbed, ask,
};
use std::collections::BTreeSet;

const REPAIR_NOW: ask::RepairNow = ask::RepairNow { scheme: None };

fn writes(request: &NodeRequest) -> Option<ChunkIndex> {
    let NodeRequest::RunPart(part) = request else {
        return None;
    };
    part.part.steps.iter().find_map(|step| match step.step {
        gabion_plan::Step::Write { chunk, .. } => Some(chunk),
        _ => None,
    })
}

/// Stripes in the order in which their repairs asked for anything.
fn order(log: &[Asked]) -> Vec<StripeId> {
    let mut order: Vec<StripeId> = log
        .iter()
        .filter_map(|asked| match asked.request {
            NodeRequest::Collect(ask::Collect { stripe, .. }) => Some(stripe),
            _ => None,
        })
        .collect();
    order.dedup();
    order
}

/// Returns the log of these requests, one after another, each to all nodes of a stripe but one.
fn asked_of_all_but(
    stripe: &StripeRecord,
    lost: NodeId,
    words: &[&'static str],
) -> Vec<(u32, &'static str)> {
    let survivors = || stripe.nodes.iter().filter(|&&node| node != lost);
    let of_all = |&word| survivors().map(move |node| (node.0, word));
    words.iter().flat_map(of_all).collect()
}

#[test]
fn a_dead_node_s_chunk_is_rebuilt_verified_and_only_then_counted() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let lost = before.nodes[1];
    bed.fail(&[lost]);
    assert_eq!(bed.failures_left(), [(1, 1)]);
    bed.pass(TIMING.grace_ms - 2_000);
    let mut log = bed.take_log();
    // All others hear at once that it has failed.
    log.retain(|asked| asked.request != NodeRequest::Renew);
    assert_eq!(log, [], "the node may yet return");
    bed.pass(2_000);
    let log = bed.take_log();

    let after = bed.stripe("f");
    let new = after.nodes[1];
    assert!(!before.nodes.contains(&new), "{new}");
    assert_eq!(
        new.0 / 3,
        lost.0 / 3,
        "the other racks have two chunks already"
    );
    assert_eq!(after.generation.0, before.generation.0 + 1);
    let asked = words(&log);
    let of_survivors = |words: &[&'static str]| asked_of_all_but(&before, lost, words);
    let (settling, rest) = asked.split_at(15);
    assert_eq!(settling, of_survivors(&["collect", "resolve", "pin"]));
    let parts: BTreeSet<(u32, &str)> = rest[..5].iter().copied().collect();
    assert_eq!(parts.len(), 5, "four helpers and the requestor: {rest:?}");
    assert!(parts.contains(&(new.0, "part")));
    assert!(
        parts
            .iter()
            .all(|(n, word)| *word == "part" && *n != lost.0)
    );
    // Updates go on from the pins to here; then they are caught up on, which are none.
    assert_eq!(rest[5], (new.0, "scrub"));
    assert_eq!(rest[6..16], of_survivors(&["collect", "resolve"]));
    assert_eq!(rest[16..18], [(new.0, "collect"), (new.0, "resolve")]);
    // No reader keeps the layout that the chunk leaves.
    // The first five nodes are asked in order, until k have answered: one of them is lost.
    let fences: Vec<_> = before.nodes[..5].iter().map(|n| (n.0, "fence")).collect();
    assert_eq!(rest[18..23], fences);
    assert_eq!(rest[23..], of_survivors(&["unpin"]));

    for asked in &log {
        if let NodeRequest::RunPart(part) = &asked.request {
            assert_eq!(part.cut, ReadCut::Settled(gabion_layout::Sequence(0)));
            let base = gabion_layout::Sequence(0);
            assert_eq!(part.effect, Effect::Install { base });
            assert_eq!((part.purpose, part.epoch.0), (Purpose::Repair, 1));
        }
    }
    let repair = bed.status().repair;
    assert_eq!(
        (repair.repaired_chunk_count, repair.repaired_bytes),
        (1, 1 << 20)
    );
    assert_eq!((repair.queued_chunk_count, repair.last_error), (0, None));
    assert_eq!(repair.scheme, "pipeline");
    // The chain passes each of the other two racks once and ends in the requestor's.
    assert_eq!(repair.planned_cross_rack_bytes, 2 << 20);
    assert_eq!(bed.failures_left(), [(2, 1)]);
    let lease = bed.acquire(before.id, before.nodes[0]);
    assert!(
        matches!(lease, CoordinatorReply::Lease(l) if l.epoch.0 == 3),
        "both rounds' leases were released"
    );
}

#[test]
fn a_user_may_end_the_time_of_grace_and_choose_the_scheme() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    bed.fail(&[before.nodes[0]]);
    let unknown = ask::RepairNow {
        scheme: Some("magic".to_owned()),
    };
    let CoordinatorReply::Refused(sentence) = bed.ask(unknown) else {
        panic!("there is no such scheme")
    };
    assert!(
        sentence.sentence.contains("conventional, pipeline, ppr"),
        "{sentence}"
    );
    assert_eq!(bed.stripe("f"), before);
    let scheme = Some("conventional".to_owned());
    assert_eq!(bed.ask(ask::RepairNow { scheme }), CoordinatorReply::Done);
    bed.pass(100);
    assert_eq!(bed.failures_left(), [(2, 1)]);
    assert_eq!(bed.status().repair.scheme, "conventional");
    assert_ne!(bed.stripe("f").nodes[0], before.nodes[0]);
}

#[test]
fn a_stripe_that_an_update_waits_for_is_repaired_before_its_nodes_are_given_up() {
    let mut bed = Bed::three_racks();
    let (before, other) = (bed.put("f", 1).remove(0), bed.put("g", 1).remove(0));
    let hasten = |bed: &mut Bed, stripe| bed.ask(ask::Hasten { stripe });
    let (yes, no) = (
        CoordinatorReply::Hastened(true),
        CoordinatorReply::Hastened(false),
    );
    let first = before.nodes[0];
    bed.fail(&[first]);
    assert_eq!(hasten(&mut bed, before.id), yes);
    bed.pass(5_000);
    assert_eq!(bed.stripe("f").nodes, before.nodes, "it takes updates yet");
    let is_apart = |node: &&NodeId| node.0 / 3 != first.0 / 3;
    let second = *before.nodes.iter().find(is_apart).unwrap();
    bed.fail(&[second]);
    bed.ask(CoordinatorRequest::OrderRepair(RepairOrder::Pause));
    assert_eq!(hasten(&mut bed, before.id), no, "repairs are paused");
    bed.ask(CoordinatorRequest::OrderRepair(RepairOrder::Resume));
    assert_eq!(
        hasten(&mut bed, StripeId(99)),
        no,
        "there is no such stripe"
    );
    bed.pass(2_000);
    assert_eq!(bed.stripe("f").nodes, before.nodes, "nothing was begun");
    assert_eq!(hasten(&mut bed, before.id), yes);
    bed.pass(5_000);
    let after = bed.stripe("f").nodes;
    assert!(
        !after.contains(&first) && !after.contains(&second),
        "{after:?}"
    );
    assert_eq!(bed.stripe("g"), other, "that one awaits its nodes");
    // It awaits its nodes again, also when another chunk of it is repaired.
    let third = after[0];
    bed.fail(&[third]);
    let damaged = chunk_on(&bed.stripe("f"), after[1]);
    bed.report_damage(damaged);
    bed.pass(5_000);
    let at_last = bed.stripe("f");
    assert_eq!((at_last.nodes, at_last.stale), (after, vec![]));
}

/// From now on, the first part of a run on a node fails with damage to its chunk, which the node can read again or not.
fn fail_one_read(bed: &mut Bed, chunk: ChunkId, node: NodeId, is_whole_again: bool) {
    let damage = Damage {
        chunk,
        generation: Generation(1),
        range: gabion_layout::ByteRange::new(0, 4096),
    };
    let (mut told, mut is_damaged) = (false, !is_whole_again);
    bed.hook(move |asked, request| {
        let reply = match request {
            _ if asked != node => return None,
            NodeRequest::RunPart(_) if !told => {
                told = true;
                NodeReply::Refused(Refusal::Damaged(damage.clone()))
            }
            NodeRequest::Scrub(_) if is_damaged => {
                // The repaired chunk is whole.
                is_damaged = false;
                NodeReply::Scrubbed(Scrubbed {
                    chunk_count: 1,
                    bytes: 1,
                    damage: vec![damage.clone()],
                })
            }
            _ => return None,
        };
        Some(ready(Ok(reply)).boxed())
    });
}

/// Its chunk may be the last one that the stripe can spare.
#[test]
fn a_helper_that_could_not_read_once_is_left_out_and_its_chunk_is_not_lost() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let (lost, helper) = (before.nodes[0], before.nodes[3]);
    fail_one_read(&mut bed, chunk_on(&before, helper), helper, true);
    bed.fail(&[lost]);
    bed.ask(REPAIR_NOW);
    bed.pass(100);
    let runs = runs(&bed.take_log());
    assert_eq!(runs.len(), 2);
    assert!(readers(&runs[0]).contains(&helper));
    assert!(!readers(&runs[1]).contains(&helper));
    let after = bed.stripe("f");
    assert_eq!((after.nodes[3], after.stale), (helper, vec![]));
    assert_eq!(bed.status().repair.repaired_chunk_count, 1);
    assert!(bed.status().damaged_chunk_counts.is_empty());
}

#[test]
fn a_damaged_helper_is_left_out_and_repaired_too() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let (lost, damaged) = (before.nodes[0], before.nodes[3]);
    fail_one_read(&mut bed, chunk_on(&before, damaged), damaged, false);
    bed.fail(&[lost]);
    bed.ask(REPAIR_NOW);
    bed.pass(100);

    let log = bed.take_log();
    let after = bed.stripe("f");
    assert_eq!(after.stale, []);
    assert_ne!(after.nodes[0], lost);
    assert_eq!(
        after.nodes[3], damaged,
        "its node is up, so it is repaired in place"
    );
    let runs = runs(&log);
    assert_eq!(runs.len(), 2);
    let chunks = |run: &[(NodeId, RunPart)]| -> BTreeSet<ChunkIndex> {
        let parts = run.iter().map(|(_, part)| part.clone());
        let requests = parts.map(|part| NodeRequest::RunPart(Box::new(part)));
        requests.filter_map(|request| writes(&request)).collect()
    };
    assert_eq!(chunks(&runs[0]), [0].map(ChunkIndex).into());
    assert_eq!(chunks(&runs[1]), [0, 3].map(ChunkIndex).into());
    assert!(readers(&runs[0]).contains(&damaged));
    assert!(
        !readers(&runs[1]).contains(&damaged),
        "the second plan leaves it out"
    );
    assert_eq!(bed.status().repair.repaired_chunk_count, 2);
    assert_eq!(bed.failures_left(), [(2, 1)]);
}

#[test]
fn a_requestor_that_crashes_changes_nothing_and_repair_is_tried_again() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let mut crashes = 2;
    bed.hook(move |node, request| {
        let crash = writes(request).is_some() && crashes > 0;
        crash.then(|| {
            crashes -= 1;
            ready(Err(gone(node))).boxed()
        })
    });
    bed.fail(&[before.nodes[2]]);
    bed.ask(REPAIR_NOW);
    bed.pass(100);
    assert_eq!(bed.stripe("f").nodes, before.nodes);
    let status = bed.status();
    let error = status.repair.last_error.unwrap();
    assert!(error.contains("does not answer"), "{error}");
    assert_eq!(status.repair.queued_chunk_count, 1);
    assert_eq!(status.repair.repaired_chunk_count, 0);
    let lease = bed.acquire(before.id, before.nodes[0]);
    assert!(
        matches!(lease, CoordinatorReply::Lease(_)),
        "updates go on between tries: {lease:?}"
    );

    bed.pass(500);
    assert_eq!(
        bed.stripe("f").nodes,
        before.nodes,
        "it failed a second time"
    );
    bed.pass(800);
    assert_eq!(
        bed.stripe("f").nodes,
        before.nodes,
        "the second wait is twice as long"
    );
    bed.pass(200);
    assert_ne!(bed.stripe("f").nodes[2], before.nodes[2]);
    assert_eq!(bed.failures_left(), [(2, 1)]);
}

#[test]
fn a_new_chunk_that_reads_back_damaged_does_not_count() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let chunk = chunk_on(&before, before.nodes[2]);
    let mut bad = 1;
    bed.hook(move |_, request| {
        let hit = matches!(request, NodeRequest::Scrub { .. }) && bad > 0;
        hit.then(|| {
            bad -= 1;
            let range = gabion_layout::ByteRange::new(0, 1);
            ready(Ok(NodeReply::Scrubbed(Scrubbed {
                chunk_count: 1,
                bytes: 1 << 20,
                damage: vec![Damage {
                    chunk,
                    generation: Generation(1),
                    range,
                }],
            })))
            .boxed()
        })
    });
    bed.fail(&[before.nodes[2]]);
    bed.ask(REPAIR_NOW);
    bed.pass(100);
    assert_eq!(bed.stripe("f"), before);
    assert_eq!(bed.failures_left(), [(1, 1)]);
    let error = bed.status().repair.last_error.unwrap();
    assert!(
        error.contains("there is no place for"),
        "no other node fits: {error}"
    );
    let log = words(&bed.take_log());
    let removals: Vec<u32> = log
        .iter()
        .filter(|(_, word)| *word == "discard")
        .map(|(node, _)| *node)
        .collect();
    assert_eq!(removals.len(), 1, "no chunk of the stripe goes");
    assert!(!before.nodes.contains(&NodeId(removals[0])));
    bed.pass(1_000);
    assert_eq!(bed.failures_left(), [(2, 1)]);
}

#[test]
fn the_most_endangered_stripe_is_repaired_first() {
    let mut bed = Bed::three_racks();
    let stripes = bed.put("f", 12);
    // Two nodes of different racks, such that some stripes lose two chunks and some one.
    let both = |a: u32, b: u32| {
        let on = |n: u32| move |s: &&gabion_layout::StripeRecord| s.chunk_on(NodeId(n)).is_some();
        let two: BTreeSet<StripeId> = stripes
            .iter()
            .filter(on(a))
            .filter(on(b))
            .map(|s| s.id)
            .collect();
        let any: BTreeSet<StripeId> = stripes
            .iter()
            .filter(|s| on(a)(s) || on(b)(s))
            .map(|s| s.id)
            .collect();
        (two, any)
    };
    let pairs = (0..3).flat_map(|a| (3..6).map(move |b| (a, b)));
    let found = pairs.map(|(a, b)| (a, b, both(a, b)));
    let (a, b, (two, any)) = found
        .into_iter()
        .find(|(_, _, (two, any))| {
            // The endangered ones must not be first by id as well, or the test could not fail.
            !two.is_empty() && any.first() < two.first() && two.last() < any.last()
        })
        .expect("some pair of nodes does");
    bed.fail(&[NodeId(a), NodeId(b)]);
    bed.ask(REPAIR_NOW);
    bed.pass(1_000);
    let order = order(&bed.take_log());
    assert_eq!(order.len(), any.len());
    let first: BTreeSet<StripeId> = order[..two.len()].iter().copied().collect();
    assert_eq!(first, two);
    assert_eq!(bed.failures_left(), [(2, 12)]);
}

#[test]
fn a_crowded_rack_is_used_only_when_one_more_loss_would_be_the_end() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let rack: Vec<NodeId> = (0..3).map(NodeId).collect();
    bed.fail(&rack);
    assert_eq!(bed.failures_left(), [(0, 1)]);
    bed.ask(REPAIR_NOW);
    bed.pass(200);
    assert_eq!(bed.failures_left(), [(1, 1)]);
    let error = bed.status().repair.last_error.unwrap();
    assert!(error.contains("fewer than 2 of its chunks"), "{error}");
    let half = bed.stripe("f");
    let moved = |at: &usize| half.nodes[*at] != before.nodes[*at];
    let moved: Vec<usize> = (0..6).filter(moved).collect();
    assert_eq!(
        moved.len(),
        1,
        "one chunk is in a crowded rack, the other waits"
    );

    // The node of the chunk that waits comes back first, and nothing more is to be done; the chunk
    // that the other one still has is garbage.
    let of_rack = before.nodes.iter().filter(|node| rack.contains(node));
    let (waits, moved): (Vec<NodeId>, Vec<NodeId>) =
        of_rack.partition(|&&node| half.chunk_on(node).is_some());
    let chunk = chunk_on(&before, waits[0]);
    assert_eq!(bed.rejoin_obsolete(waits[0], vec![chunk]), []);
    assert_eq!(bed.failures_left(), [(2, 1)]);
    let chunk = chunk_on(&before, moved[0]);
    assert_eq!(bed.rejoin_obsolete(moved[0], vec![chunk]), [chunk]);
    assert_eq!(bed.stripe("f"), half);
}

#[test]
fn status_counts_what_is_lost_and_no_better() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    bed.hook(|_, request| {
        let refuse = matches!(request, NodeRequest::Collect { .. });
        refuse.then(|| ready(Ok(NodeReply::Refused(Refusal::Failed("no".to_owned())))).boxed())
    });
    assert_eq!(bed.failures_left(), [(2, 1)]);
    bed.report_damage(chunk_on(&before, before.nodes[0]));
    assert_eq!(bed.failures_left(), [(1, 1)]);
    bed.stop(before.nodes[1]);
    bed.pass(TIMING.lease_ms + 100);
    assert_eq!(bed.failures_left(), [(1, 1)], "a suspect may still serve");
    bed.pass(TIMING.margin_ms + 500);
    assert_eq!(bed.failures_left(), [(0, 1)]);
    assert_eq!(bed.status().lost_chunk_count, 2);
    assert_eq!(
        bed.status().repair.queued_chunk_count,
        1,
        "the failed node may return"
    );
    bed.report_damage(chunk_on(&before, before.nodes[1]));
    assert_eq!(
        bed.status().repair.queued_chunk_count,
        1,
        "it cannot confirm damage now"
    );
    assert_eq!(bed.status().lost_chunk_count, 2);
    bed.report_damage(chunk_on(&before, before.nodes[2]));
    assert_eq!(bed.failures_left(), [(-1, 1)]);
    bed.take_log();
    bed.unhook();
    bed.pass(60_000);
    assert_eq!(
        bed.take_log(),
        [],
        "a primary is not held up for what cannot succeed"
    );
    assert_eq!(bed.failures_left(), [(-1, 1)]);
}

#[test]
fn a_node_that_joins_while_it_gets_a_chunk_gets_it_again() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let (open, gate) = futures::channel::oneshot::channel();
    let mut gate = Some(gate);
    bed.hook(move |_, request| {
        writes(request)?;
        let gate = gate.take()?;
        let done = NodeReply::PartDone {
            as_of: gabion_layout::Sequence(0),
            progress: None,
        };
        Some(async move { gate.await.map(|()| done).map_err(|_| gone(NodeId(0))) }.boxed())
    });
    bed.fail(&[before.nodes[4]]);
    bed.ask(REPAIR_NOW);
    let log = bed.take_log();
    let requestor = log
        .iter()
        .find(|asked| writes(&asked.request).is_some())
        .unwrap()
        .node;
    let new = gabion_layout::ChunkId {
        stripe: before.id,
        index: ChunkIndex(4),
    };
    assert_eq!(
        bed.rejoin_obsolete(requestor, vec![new]),
        [new],
        "it is not the node's yet"
    );
    open.send(()).unwrap();
    bed.pass(100);
    let mut refused = before.clone();
    refused.generation.0 += 1;
    assert_eq!(bed.stripe("f"), refused, "nodes were told that generation");
    let error = bed.status().repair.last_error.unwrap();
    assert!(error.contains("joined again"), "{error}");
    bed.pass(1_000);
    assert_eq!(bed.stripe("f").nodes[4], requestor);
}

#[test]
fn a_coordinator_that_crashes_in_a_repair_does_it_again() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    bed.hook(|_, request| writes(request).map(|_| pending().boxed()));
    bed.fail(&[before.nodes[5]]);
    bed.ask(REPAIR_NOW);
    bed.pass(100);
    let lease = bed.acquire(before.id, before.nodes[0]);
    assert!(
        matches!(&lease, CoordinatorReply::Lease(l) if l.epoch.0 == 2 && l.stripe == before),
        "updates go on while the chunk is made: {lease:?}"
    );
    bed.unhook();
    bed.restart();
    bed.pass(100);
    assert_eq!(
        bed.failures_left(),
        [(2, 1)],
        "the failure is durable, and so is the end of the wait for the node"
    );
}

/// Returns the damage that a node reports of a chunk of the first generation.
fn damage(chunk: ChunkId) -> Damage {
    Damage {
        chunk,
        generation: Generation(1),
        range: gabion_layout::ByteRange::new(0, 4096),
    }
}

/// A node that finds this damage in its scrub of all chunks, and again when it reads these; then they are
/// repaired.
fn finds_twice(
    damaged: NodeId,
    damage: Vec<Damage>,
) -> impl FnMut(NodeId, &NodeRequest) -> Option<BoxFuture<'static, Reply>> {
    let mut asked_count = 0;
    move |node, request| {
        let NodeRequest::Scrub(ask::Scrub { chunks }) = request else {
            return None;
        };
        if node != damaged {
            return None;
        }
        asked_count += 1;
        let is_all = chunks.is_empty();
        let (first, again) = (asked_count == 1 && is_all, asked_count == 2 && !is_all);
        (first || again).then(|| {
            let scrubbed = Scrubbed {
                chunk_count: 5,
                bytes: 5000,
                damage: damage.clone(),
            };
            ready(Ok(NodeReply::Scrubbed(scrubbed))).boxed()
        })
    }
}

#[test]
fn damage_is_not_forgotten_when_its_node_cannot_read_it_again_at_once() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let node = before.nodes[0];
    let own = chunk_on(&before, node);
    let mut refusal_count = 0;
    bed.hook(move |asked, request| {
        let is_again = matches!(request, NodeRequest::Scrub(scrub) if !scrub.chunks.is_empty());
        let refuses = asked == node && is_again && refusal_count < 2;
        refusal_count += u32::from(refuses);
        refuses.then(|| {
            let busy = Refusal::Busy("it has no descriptor left".to_owned());
            ready(Ok(NodeReply::Refused(busy))).boxed()
        })
    });
    bed.report_damage(own);
    bed.pass(10_000);
    assert_ne!(
        bed.stripe("f").generation,
        before.generation,
        "it is repaired"
    );
}

#[test]
fn a_scrub_asks_a_node_again_whose_connection_is_lost() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    let lost = stripe.nodes[1];
    let mut losses = 2;
    bed.hook(move |node, request| {
        let is_lost = node == lost && matches!(request, NodeRequest::Scrub(_)) && losses > 0;
        is_lost.then(|| {
            losses -= 1;
            ready(Err(gone(node))).boxed()
        })
    });
    let CoordinatorReply::Scrubbed(scrub) = bed.ask(CoordinatorRequest::ScrubAll) else {
        panic!("a scrub does not fail")
    };
    assert_eq!(scrub.unreachable, []);
}

#[test]
fn a_scrub_finds_damage_and_has_it_repaired() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let (damaged, silent) = (before.nodes[0], before.nodes[1]);
    let own = chunk_on(&before, damaged);
    let foreign = chunk_on(&before, before.nodes[2]);
    // Of a stripe that was abandoned before it was made.
    let (abandoned, _) = bed.begin_put("g", 1);
    bed.ask(CoordinatorRequest::AbortPut(abandoned));
    let unknown = ChunkId {
        stripe: StripeId(before.id.0 + 1),
        ..own
    };
    bed.pass(10_000);
    bed.take_log();
    bed.hook(finds_twice(
        damaged,
        [own, foreign, unknown].map(damage).to_vec(),
    ));
    bed.stop(silent);
    let CoordinatorReply::Scrubbed(ScrubReport {
        chunk_count,
        bytes,
        damage,
        unreachable,
    }) = bed.ask(CoordinatorRequest::ScrubAll)
    else {
        panic!("a scrub does not fail")
    };
    assert_eq!((chunk_count, bytes), (5 + 7, 5000 + 7 * 1000));
    assert_eq!(damage.len(), 3);
    assert_eq!(unreachable, [silent]);
    let stale = bed.stripe("f").stale;
    assert_eq!(
        stale.iter().map(|stale| stale.chunk).collect::<Vec<_>>(),
        [own.index],
        "the other is not that node's"
    );
    bed.pass(TIMING.lease_ms + TIMING.margin_ms + 10_000);
    let after = bed.stripe("f");
    assert_eq!((after.stale, after.nodes), (vec![], before.nodes));
    let log = bed.take_log();
    let removed: BTreeSet<(ChunkId, bool)> = log
        .into_iter()
        .filter(|asked| asked.node == damaged)
        .filter_map(|asked| match asked.request {
            NodeRequest::Remove(ask::Remove { chunks }) => Some((chunks[0], false)),
            NodeRequest::Discard(ask::Discard { chunk, .. }) => Some((chunk, true)),
            _ => None,
        })
        .collect();
    let leftovers = [(foreign, true), (unknown, false)];
    assert_eq!(
        removed,
        BTreeSet::from(leftovers),
        "leftovers go, in a term where there are terms"
    );
}
