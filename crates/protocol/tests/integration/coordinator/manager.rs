//! The repair manager: limits, the foreground guard, pauses, departures, and what outlives the
//! coordinator's process.

use crate::coordinator::bed::{Asked, Bed, TIMING, chunk_on, gone, look_up};
use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::ready;
use gabion_layout::{NodeId, StripeId};
use gabion_meta::Departure;
use gabion_plan::Step;
use gabion_planner::manager::{FLOOR_BYTES_PER_S, Limits};
use gabion_protocol::message::{
    CoordinatorReply, CoordinatorRequest, Effect, NodeHealth, NodeReply, NodeRequest, RepairOrder,
    RunPart, ask,
};
use std::collections::BTreeSet;

const REPAIR_NOW: ask::RepairNow = ask::RepairNow { scheme: None };
const MIB: u64 = 1 << 20;

fn order(bed: &mut Bed, order: RepairOrder) {
    let reply = bed.ask(CoordinatorRequest::OrderRepair(order));
    assert_eq!(reply, CoordinatorReply::Done);
}

fn limit(bed: &mut Bed, limits: Limits, p99_target_ms: Option<u64>) {
    let limit = RepairOrder::Limit {
        limits,
        p99_target_ms,
    };
    order(bed, limit);
}

fn total(bytes_per_s: u64) -> Limits {
    Limits {
        total_bytes_per_s: Some(bytes_per_s),
        ..Limits::default()
    }
}

/// The parts that nodes were asked to do.
fn parts(log: &[Asked]) -> Vec<&RunPart> {
    let parts = log.iter().filter_map(|asked| match &asked.request {
        NodeRequest::RunPart(part) => Some(&**part),
        _ => None,
    });
    parts.collect()
}

/// The stripes of which chunks were made, in order.
fn made(log: &[Asked]) -> Vec<StripeId> {
    let writes = |part: &&&RunPart| {
        let mut steps = part.part.steps.iter();
        steps.any(|step| matches!(step.step, Step::Write { .. }))
    };
    let made = parts(log);
    let made = made.iter().filter(writes);
    made.map(|part| part.part.stripe).collect()
}

fn departure(bed: &mut Bed, node: NodeId) -> Departure {
    let nodes = bed.status().nodes;
    let of_node = nodes.iter().find(|status| status.node == node);
    of_node.unwrap().departure
}

#[test]
fn repairs_begin_as_the_limit_allows_and_spread_what_they_send() {
    let mut bed = Bed::new(3, 3);
    bed.create_pool("p", "1-rack", Some("rs(4,2)"), MIB);
    bed.put("f", 12);
    // Each repair sends four chunks of a mebibyte.
    limit(&mut bed, total(8 * MIB), None);
    bed.fail(&[NodeId(0)]);
    bed.take_log();
    let lost_count = bed.status().lost_chunk_count;
    assert!(lost_count >= 5, "the layout has {lost_count}");
    bed.ask(REPAIR_NOW);
    bed.pass(100);
    let log = bed.take_log();
    assert_eq!(made(&log).len(), 1);
    assert!(parts(&log).iter().all(|part| part.spread_ms == 500));
    bed.pass(900);
    // The first had saved a tenth of a second.
    assert_eq!(made(&bed.take_log()).len(), 2);
    let repair = bed.status().repair;
    assert!(
        (2 * MIB..=4 * MIB).contains(&repair.bytes_per_s),
        "{repair:?}"
    );
    assert_eq!(repair.left_bytes, (lost_count - 3) * MIB);
    assert!(repair.rest_ms.is_some());
    limit(&mut bed, Limits::default(), None);
    bed.pass(100);
    assert_eq!(bed.status().lost_chunk_count, 0);
    assert_eq!(bed.status().repair.rest_ms, Some(0));
    let log = bed.take_log();
    assert!(parts(&log).iter().all(|part| part.spread_ms == 0));
}

#[test]
fn a_limit_that_is_none_is_refused() {
    let mut bed = Bed::new(1, 1);
    let limit = RepairOrder::Limit {
        limits: total(999),
        p99_target_ms: None,
    };
    let reply = bed.ask(CoordinatorRequest::OrderRepair(limit));
    assert!(
        matches!(&reply, CoordinatorReply::Refused(why) if why.sentence.contains("at least 1000")),
        "{reply:?}"
    );
}

#[test]
fn a_pause_holds_over_a_restart_and_so_do_limits_and_the_end_of_grace() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    order(&mut bed, RepairOrder::Pause);
    limit(&mut bed, total(64 * MIB), Some(20));
    bed.fail(&[before.nodes[2]]);
    let scheme = Some("conventional".to_owned());
    bed.ask(ask::RepairNow { scheme });
    bed.pass(1_000);
    assert_eq!(bed.stripe("f"), before);
    bed.restart();
    bed.pass(1_000);
    let repair = bed.status().repair;
    assert!(repair.is_paused);
    assert_eq!(repair.limits, total(64 * MIB));
    assert_eq!(repair.p99_target_ms, Some(20));
    assert_eq!(
        (&*repair.scheme, repair.queued_chunk_count),
        ("conventional", 1)
    );
    order(&mut bed, RepairOrder::Resume);
    bed.pass(100);
    assert_eq!(
        bed.failures_left(),
        [(2, 1)],
        "no repair waits for the node"
    );
}

#[test]
fn the_most_endangered_stripe_passes_those_that_wait() {
    let mut bed = Bed::three_racks();
    let stripes = bed.put("f", 5);
    order(&mut bed, RepairOrder::Pause);
    let common = stripes[0].nodes[0];
    for stripe in &stripes {
        let on_it = stripe.chunk_on(common);
        let index = on_it.map_or(stripe.nodes[0], |_| common);
        bed.report_damage(chunk_on(stripe, index));
    }
    // The last comes to have lost two.
    bed.report_damage(chunk_on(&stripes[4], stripes[4].nodes[5]));
    bed.take_log();
    order(&mut bed, RepairOrder::Resume);
    bed.pass(100);
    let made = made(&bed.take_log());
    assert_eq!(made[..2], [stripes[4].id; 2]);
    let rest: Vec<StripeId> = stripes[..4].iter().map(|stripe| stripe.id).collect();
    assert_eq!(made[2..], rest, "of equals the first comes first");
}

#[test]
fn repairs_make_way_while_clients_wait_too_long() {
    let mut bed = Bed::three_racks();
    bed.put("f", 2);
    limit(&mut bed, Limits::default(), Some(20));
    let mut slow = NodeHealth::default();
    for _ in 0..50 {
        slow.foreground.note(80);
    }
    bed.health = slow;
    bed.pass(3_000);
    let repair = bed.status().repair;
    assert_eq!(repair.p99_ms, Some(80));
    assert_eq!(repair.guard_bytes_per_s, Some(FLOOR_BYTES_PER_S));
    assert_eq!(
        repair.limits,
        Limits::default(),
        "what users have set stays"
    );
    bed.fail(&[NodeId(1)]);
    bed.take_log();
    bed.ask(REPAIR_NOW);
    bed.pass(100);
    let log = bed.take_log();
    assert!(!parts(&log).is_empty());
    // Four chunks of a mebibyte at the floor.
    assert!(parts(&log).iter().all(|part| part.spread_ms == 1_000));
    bed.health = NodeHealth::default();
    bed.pass(20_000);
    assert_eq!(bed.status().repair.guard_bytes_per_s, None);
}

#[test]
fn a_node_is_drained_by_copying_and_may_then_leave() {
    let mut bed = Bed::three_racks();
    let stripes = bed.put("f", 4);
    let node = stripes[0].nodes[0];
    let held = stripes
        .iter()
        .filter(|s| s.chunk_on(node).is_some())
        .count() as u64;
    bed.take_log();
    assert_eq!(
        bed.ask(CoordinatorRequest::Drain(node)),
        CoordinatorReply::Done
    );
    bed.pass(100);
    let log = bed.take_log();
    let copies = parts(&log);
    assert_eq!(copies.len() as u64, 2 * held, "one sends and one receives");
    assert!(
        copies.iter().all(|part| part
            .part
            .steps
            .iter()
            .all(|step| { !matches!(step.step, Step::Combine { .. }) })),
        "nothing is decoded"
    );
    let after = bed.stripe("f");
    assert_eq!(after.chunk_on(node), None);
    assert_eq!(after.stale, []);
    assert_eq!(
        after.generation.0, 2,
        "it is the one that nodes were told before the copy counted"
    );
    let repair = bed.status().repair;
    assert_eq!(
        (repair.moved_chunk_count, repair.repaired_chunk_count),
        (held, 0)
    );
    assert_eq!(repair.moving_chunk_count, 0);
    bed.pass(1_000);
    assert_eq!(departure(&mut bed, node), Departure::Drained);
    bed.stop(node);
    let CoordinatorReply::Scrubbed(scrub) = bed.ask(CoordinatorRequest::ScrubAll) else {
        panic!("a scrub does not fail")
    };
    assert_eq!(
        scrub.unreachable,
        [],
        "a drained node has nothing to verify"
    );
    let heartbeat = ask::Heartbeat {
        node,
        incarnation: u64::MAX,
        heard: None,
        position: 0,
        health: NodeHealth::default(),
    };
    assert_eq!(bed.ask(heartbeat), CoordinatorReply::Leave);
    for stripe in bed.put("g", 4) {
        assert_eq!(stripe.chunk_on(node), None, "it gets nothing new");
    }
}

#[test]
fn the_old_chunk_is_out_of_service_before_the_copy_counts() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let node = before.nodes[3];
    // It does not answer when it is to refuse readers with the old layout.
    let mut silent = 1;
    bed.hook(move |asked, request| {
        let retires = asked == node
            && silent > 0
            && matches!(request, NodeRequest::Fence(ask::Fence { generation, .. }) if generation.0 == 2);
        retires.then(|| {
            silent -= 1;
            ready(Err(gone(node))).boxed()
        })
    });
    bed.ask(CoordinatorRequest::Drain(node));
    let during = bed.stripe("f");
    assert_eq!(during.nodes, before.nodes, "the copy does not count");
    assert_eq!(during.stale, [], "and the old one still does");
    bed.pass(5_000);
    let after = bed.stripe("f");
    assert_eq!((after.chunk_on(node), after.stale.len()), (None, 0));
}

#[test]
fn a_drain_that_fails_leaves_a_stripe_all_chunks_that_count() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    // They may return. Until then the stripe needs each of its other four chunks.
    bed.fail(&before.nodes[..2]);
    let (node, other) = (before.nodes[5], before.nodes[4]);
    // Another node does not answer when it is to refuse the layout, after the leaving one has.
    bed.hook(move |asked, request| {
        let refuses = asked == other && matches!(request, NodeRequest::Fence { .. });
        refuses.then(|| ready(Err(gone(asked))).boxed())
    });
    bed.ask(CoordinatorRequest::Drain(node));
    bed.pass(100);
    let during = bed.stripe("f");
    assert!(
        during.generation > before.generation,
        "the copy was about to count"
    );
    assert_eq!((during.nodes, during.stale), (before.nodes, vec![]));
    bed.restart();
    bed.pass(2_000);
    assert_eq!(bed.stripe("f").stale, [], "the next run fails likewise");
    bed.unhook();
    bed.pass(10_000);
    let after = bed.stripe("f");
    assert_eq!((after.chunk_on(node), after.stale.len()), (None, 0));
}

#[test]
fn a_node_that_stays_after_all_keeps_what_it_has() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let node = before.nodes[1];
    let (open, mut opened) = oneshot::channel::<()>();
    let mut waits = Some(async move {
        let _ = (&mut opened).await;
        Ok(NodeReply::PartDone {
            as_of: gabion_layout::Sequence(0),
            progress: None,
        })
    });
    bed.hook(move |_, request| match request {
        NodeRequest::RunPart(part) if matches!(part.effect, Effect::Install { .. }) => {
            waits.take().map(FutureExt::boxed)
        }
        _ => None,
    });
    bed.ask(CoordinatorRequest::Drain(node));
    assert_eq!(departure(&mut bed, node), Departure::Draining);
    assert_eq!(
        bed.ask(CoordinatorRequest::Keep(node)),
        CoordinatorReply::Done
    );
    open.send(()).unwrap();
    bed.pass(1_000);
    assert_eq!(bed.stripe("f"), before);
    assert_eq!(departure(&mut bed, node), Departure::None);
    assert_eq!(bed.status().repair.moving_chunk_count, 0);
}

#[test]
fn a_node_without_others_to_take_over_stays_until_there_are() {
    let mut bed = Bed::new(3, 2);
    bed.create_pool("p", "1-rack", Some("rs(4,2)"), MIB);
    let before = bed.put("f", 1).remove(0);
    let node = before.nodes[0];
    bed.ask(CoordinatorRequest::Drain(node));
    bed.pass(2_000);
    assert_eq!(bed.stripe("f"), before, "its rack limit holds");
    let error = bed.status().repair.last_error.unwrap();
    assert!(error.contains("there is no place for"), "{error}");
    let rack = node.0 / 2;
    bed.join_holding(None, 6, rack, vec![]);
    bed.pass(1_000);
    assert_eq!(bed.stripe("f").nodes[0], NodeId(6));
    assert_eq!(departure(&mut bed, node), Departure::Drained);
}

#[test]
fn a_draining_node_that_fails_is_repaired_like_any_other() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let node = before.nodes[5];
    order(&mut bed, RepairOrder::Pause);
    bed.ask(CoordinatorRequest::Drain(node));
    bed.fail(&[node]);
    order(&mut bed, RepairOrder::Resume);
    bed.pass(1_000);
    assert_eq!(bed.stripe("f"), before, "it may yet return");
    bed.restart();
    bed.pass(TIMING.grace_ms + 1_000);
    let repair = bed.status().repair;
    assert_eq!(
        (repair.repaired_chunk_count, repair.moved_chunk_count),
        (1, 0)
    );
    let nodes: BTreeSet<NodeId> = bed.stripe("f").nodes.into_iter().collect();
    assert!(!nodes.contains(&node));
    bed.pass(1_000);
    assert_eq!(departure(&mut bed, node), Departure::Drained);
}

#[test]
fn a_chain_goes_around_a_slow_link_that_nodes_have_measured() {
    let mut bed = Bed::new(3, 3);
    bed.create_pool("p", "1-rack", Some("rs(4,2)"), MIB);
    let before = bed.put("f", 1).remove(0);
    let lost = before.nodes[5];
    bed.fail(&[lost]);
    order(&mut bed, RepairOrder::Pause);
    // Node 0 of the stripe sends slowly to all; all other links are fast.
    let slow = before.nodes[0];
    for from in (0..9).map(NodeId).filter(|&node| node != lost) {
        let to = (0..9).map(NodeId).filter(|&to| to != from);
        let rate = if from == slow { 1_000_000 } else { 100_000_000 };
        let health = NodeHealth {
            links: to.map(|to| (to, rate)).collect(),
            ..NodeHealth::default()
        };
        bed.heartbeat(from, health);
    }
    let CoordinatorReply::Links(links) = bed.ask(CoordinatorRequest::Links) else {
        panic!("it tells the links")
    };
    assert_eq!(links.len(), 8 * 8);
    assert!(
        links
            .iter()
            .all(|link| (link.bytes_per_s == 1_000_000) == (link.from == slow))
    );
    bed.take_log();
    bed.ask(REPAIR_NOW);
    order(&mut bed, RepairOrder::Resume);
    bed.pass(100);
    assert_eq!(bed.failures_left(), [(2, 1)]);
    let log = bed.take_log();
    let asked: BTreeSet<NodeId> = log
        .iter()
        .filter(|asked| matches!(asked.request, NodeRequest::RunPart(_)))
        .map(|asked| asked.node)
        .collect();
    assert_eq!(asked.len(), 5);
    assert!(!asked.contains(&slow), "{asked:?}");
}

#[test]
fn a_draining_node_that_was_silent_for_a_moment_is_looked_at_again() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let node = before.nodes[2];
    order(&mut bed, RepairOrder::Pause);
    bed.ask(CoordinatorRequest::Drain(node));
    bed.stop(node);
    bed.pass(TIMING.lease_ms);
    order(&mut bed, RepairOrder::Resume);
    assert_eq!(bed.stripe("f"), before, "nothing is known of it");
    bed.rejoin(node, vec![chunk_on(&before, node)]);
    bed.pass(2_000);
    assert_eq!(bed.stripe("f").chunk_on(node), None);
    assert_eq!(departure(&mut bed, node), Departure::Drained);
}

#[test]
fn a_drain_goes_on_after_a_silence_while_another_repair_fails() {
    let mut bed = Bed::three_racks();
    let stripes = bed.put("f", 12);
    let node = stripes[0].nodes[2];
    let mut others = stripes.iter().filter(|s| s.chunk_on(node).is_none());
    let other = others
        .next()
        .expect("it has not all chunks of twelve stripes")
        .clone();
    let lost = chunk_on(&other, other.nodes[0]);
    bed.hook(move |asked, request| {
        let fails =
            matches!(request, NodeRequest::RunPart(part) if part.part.stripe == lost.stripe);
        fails.then(|| ready(Err(gone(asked))).boxed())
    });
    order(&mut bed, RepairOrder::Pause);
    bed.report_damage(lost);
    bed.ask(CoordinatorRequest::Drain(node));
    let incarnation = bed.incarnation(node);
    bed.stop(node);
    // Its lease ends, and it is not declared failed yet.
    bed.pass(TIMING.lease_ms);
    order(&mut bed, RepairOrder::Resume);
    bed.revive(node, incarnation);
    bed.pass(20_000);
    assert_eq!(departure(&mut bed, node), Departure::Drained);
    let CoordinatorReply::File(layout) = look_up(&mut bed, "f") else {
        panic!("it is there");
    };
    let other = layout.stripes.iter().find(|s| s.id == lost.stripe);
    assert_eq!(
        other.expect("it is there").stale.len(),
        1,
        "its repair fails"
    );
}
