//! The fate of a node that others report as silent.

use crate::coordinator::bed::{Bed, Reply, TIMING, gone};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use gabion_layout::{NodeId, Start};
use gabion_protocol::event::Event;
use gabion_protocol::message::{
    Applicant, CoordinatorReply, CoordinatorRequest, EndCause, JoinSession, Liveness, NodeHealth,
    NodeReply, NodeRequest, Refusal, ask,
};

const NODE: NodeId = NodeId(4);
/// The incarnation with which the bed lets a node in at first.
const FIRST_RUN: u64 = 1;

fn liveness(bed: &mut Bed) -> Liveness {
    let nodes = bed.status().nodes;
    let found = nodes.iter().find(|status| status.node == NODE);
    found.unwrap().liveness
}

fn suspect(bed: &mut Bed) {
    let told = bed.ask(ask::Suspect { node: NODE });
    assert_eq!(told, CoordinatorReply::Done);
}

/// From now on so many of the other nodes cannot reach the node; it answers the coordinator.
fn cut_off(bed: &mut Bed, cut_count: u32) {
    bed.hook(move |node, request| {
        let NodeRequest::Reach(ask::Reach { node: sought }) = request else {
            return None;
        };
        let said = if *sought == NODE && node.0 < cut_count {
            NodeReply::Refused(Refusal::Unavailable(NODE.to_string()))
        } else {
            NodeReply::Done
        };
        let reply: BoxFuture<'static, Reply> = ready(Ok(said)).boxed();
        Some(reply)
    });
}

#[test]
fn a_node_that_does_not_answer_is_suspect_at_once_and_failed_when_its_lease_is_over() {
    let mut bed = Bed::new(3, 3);
    bed.stop(NODE);
    assert_eq!(liveness(&mut bed), Liveness::Up);
    suspect(&mut bed);
    assert_eq!(liveness(&mut bed), Liveness::Suspect);
    bed.pass(TIMING.lease_ms - 100);
    assert_eq!(liveness(&mut bed), Liveness::Suspect, "its lease may run");
    bed.pass(TIMING.margin_ms + 500);
    assert_eq!(liveness(&mut bed), Liveness::Failed);
    bed.rejoin_obsolete(NODE, vec![]);
    assert_eq!(liveness(&mut bed), Liveness::Up);
}

#[test]
fn a_report_about_a_node_that_answers_changes_nothing() {
    let mut bed = Bed::new(3, 3);
    suspect(&mut bed);
    assert_eq!(liveness(&mut bed), Liveness::Up);
    bed.ask(ask::Suspect { node: NodeId(99) });
    bed.hook(|node, request| {
        let is_to_it = node == NODE && matches!(request, NodeRequest::Probe { .. });
        is_to_it.then(|| ready(Err(gone(node))).boxed())
    });
    suspect(&mut bed);
    assert_eq!(liveness(&mut bed), Liveness::Suspect);
    // It is looked at again without another report.
    bed.unhook();
    bed.pass(1_500);
    assert_eq!(liveness(&mut bed), Liveness::Up);
}

/// Has this run of the node ask to join.
fn join_as_run(bed: &mut Bed, incarnation: u64) -> CoordinatorReply {
    let applicant = bed.applicant(Some(NODE), NODE.0, NODE.0 / 3, incarnation);
    bed.let_in(applicant, vec![])
}

/// Has the node evicted, and lets its lease run out.
fn evict(bed: &mut Bed) {
    cut_off(bed, 6);
    suspect(bed);
    bed.pass(2_500 + TIMING.lease_ms + 2 * TIMING.margin_ms);
    assert_eq!(liveness(bed), Liveness::Failed);
    assert!(bed.take_events().contains(&Event::Evicted(NODE)));
}

#[test]
fn a_node_that_several_others_cannot_use_is_evicted_until_they_can() {
    let mut bed = Bed::three_racks();
    cut_off(&mut bed, 1);
    suspect(&mut bed);
    bed.pass(1_500);
    assert_eq!(liveness(&mut bed), Liveness::Up, "a link has two ends");
    cut_off(&mut bed, 3);
    suspect(&mut bed);
    bed.pass(1_000);
    assert_eq!(liveness(&mut bed), Liveness::Up, "not by one look");
    bed.pass(1_500 + TIMING.lease_ms + 2 * TIMING.margin_ms);
    assert_eq!(liveness(&mut bed), Liveness::Failed);
    let CoordinatorReply::Busy(why) = join_as_run(&mut bed, FIRST_RUN) else {
        panic!("it may not join yet")
    };
    assert!(
        why.sentence.contains("other nodes cannot reach node 4"),
        "{why}"
    );
    let said = bed.status().repair.last_error.unwrap();
    assert!(said.contains("evicted"), "{said}");
    bed.unhook();
    bed.pass(10_000);
    let reply = join_as_run(&mut bed, FIRST_RUN);
    assert!(matches!(reply, CoordinatorReply::Joined(_)), "{reply:?}");
    assert_eq!(liveness(&mut bed), Liveness::Up);
}

#[test]
fn an_evicted_node_is_failed_as_soon_as_it_says_that_it_serves_nothing_more() {
    let mut bed = Bed::three_racks();
    let session = bed.rejoin_in_session(NODE);
    let end = |bed: &mut Bed, session| {
        let cause = EndCause::Told;
        let told = bed.ask(ask::EndMembership { session, cause });
        assert_eq!(told, CoordinatorReply::Done);
        liveness(bed)
    };
    let asked_to_renew = |bed: &mut Bed| {
        let log = bed.take_log();
        let asked = log
            .iter()
            .filter(|asked| asked.request == NodeRequest::Renew);
        asked.map(|asked| asked.node).collect::<Vec<_>>()
    };
    cut_off(&mut bed, 6);
    suspect(&mut bed);
    bed.pass(1_500);
    assert!(bed.take_events().contains(&Event::Evicted(NODE)));
    assert_eq!(asked_to_renew(&mut bed), [NODE], "it need not wait");
    assert_eq!(liveness(&mut bed), Liveness::Suspect, "its lease may run");
    let number = session.number.wrapping_sub(1);
    let earlier = JoinSession { number, ..session };
    assert_eq!(end(&mut bed, earlier), Liveness::Suspect);
    assert_eq!(end(&mut bed, session), Liveness::Failed);
    let others: Vec<NodeId> = (0..9).map(NodeId).filter(|&node| node != NODE).collect();
    assert_eq!(asked_to_renew(&mut bed), others, "their updates wait");
    bed.unhook();
    let second = bed.rejoin_in_session(NODE);
    assert_eq!(end(&mut bed, session), Liveness::Up, "it has joined since");
    assert_eq!(end(&mut bed, second), Liveness::Failed);
}

#[test]
fn a_node_whose_disk_hangs_is_failed_as_soon_as_it_says_so_and_the_log_tells_why() {
    let mut bed = Bed::three_racks();
    let session = bed.rejoin_in_session(NODE);
    bed.take_events();
    let cause = EndCause::DiskHangs;
    let told = bed.ask(ask::EndMembership { session, cause });
    assert_eq!(told, CoordinatorReply::Done);
    assert_eq!(liveness(&mut bed), Liveness::Failed);
    let events = bed.take_events();
    assert!(events.contains(&Event::DiskHangs(NODE)), "{events:?}");
    bed.rejoin_in_session(NODE);
    assert_eq!(liveness(&mut bed), Liveness::Up);
}

#[test]
fn the_log_tells_that_the_metadata_hang_and_that_they_answer_again() {
    let mut bed = Bed::three_racks();
    bed.take_events();
    for (hangs, event) in [(true, Event::MetadataHang), (false, Event::MetadataAnswer)] {
        bed.hang_disk(hangs);
        bed.pass(5_000);
        assert_eq!(bed.take_events(), [event], "once");
    }
}

#[test]
fn a_new_start_of_an_evicted_node_joins_at_once_and_stays() {
    let mut bed = Bed::three_racks();
    evict(&mut bed);
    // No node reaches the process that has ended, and the new one answers only when it has joined.
    bed.stop(NODE);
    bed.pass(10_000);
    bed.unhook();
    bed.rejoin_obsolete(NODE, vec![]);
    assert_eq!(liveness(&mut bed), Liveness::Up);
    bed.pass(10_000);
    assert_eq!(liveness(&mut bed), Liveness::Up);
    assert_eq!(bed.take_events(), []);
}

#[test]
fn a_process_on_a_copy_from_before_an_evicted_run_gets_a_number_above_it() {
    let mut bed = Bed::three_racks();
    evict(&mut bed);
    for number in [FIRST_RUN, FIRST_RUN - 1] {
        let start = Start { number, nonce: 77 };
        let applicant = Applicant {
            start,
            ..bed.applicant(Some(NODE), NODE.0, NODE.0 / 3, number)
        };
        let refused = bed.begin_join(applicant, 0);
        let above = CoordinatorReply::StartAbove(FIRST_RUN);
        assert_eq!(refused, Err(above), "no node can reach it before it joins");
    }
}

#[test]
fn a_new_start_of_a_node_that_is_still_cut_off_is_evicted_by_as_many_looks() {
    let mut bed = Bed::three_racks();
    evict(&mut bed);
    let second_run = bed.ports().now_ms() + 1;
    bed.rejoin_obsolete(NODE, vec![]);
    assert_eq!(liveness(&mut bed), Liveness::Up);
    bed.pass(1_000);
    assert_eq!(liveness(&mut bed), Liveness::Up, "not by one look");
    evict(&mut bed);
    let reply = join_as_run(&mut bed, second_run);
    assert!(matches!(reply, CoordinatorReply::Busy(_)), "{reply:?}");
}

#[test]
fn a_process_that_has_died_is_never_evicted() {
    let mut bed = Bed::three_racks();
    bed.stop(NODE);
    cut_off(&mut bed, 9);
    suspect(&mut bed);
    bed.pass(10_000);
    assert_eq!(liveness(&mut bed), Liveness::Failed);
    let events = bed.take_events();
    assert!(!events.contains(&Event::Evicted(NODE)), "{events:?}");
    bed.rejoin_obsolete(NODE, vec![]);
    assert_eq!(liveness(&mut bed), Liveness::Up);
}

#[test]
fn no_more_nodes_are_evicted_than_all_pools_survive() {
    let mut bed = Bed::three_racks();
    bed.fail(&[NodeId(7), NodeId(8)]);
    cut_off(&mut bed, 7);
    suspect(&mut bed);
    bed.pass(10_000);
    assert_eq!(liveness(&mut bed), Liveness::Up);
}

/// They have no chunks that could be lost.
#[test]
fn drained_nodes_do_not_keep_others_from_being_evicted() {
    let mut bed = Bed::three_racks();
    let drained = [NodeId(7), NodeId(8)];
    for node in drained {
        bed.ask(CoordinatorRequest::Drain(node));
    }
    bed.pass(10_000);
    bed.fail(&drained);
    cut_off(&mut bed, 7);
    suspect(&mut bed);
    bed.pass(10_000);
    assert_eq!(liveness(&mut bed), Liveness::Failed);
    let events = bed.take_events();
    assert!(events.contains(&Event::Evicted(NODE)), "{events:?}");
}

/// From now on two nodes cannot reach each other; all else is well.
fn break_link(bed: &mut Bed, ends: [NodeId; 2]) {
    bed.hook(move |node, request| {
        let NodeRequest::Reach(ask::Reach { node: sought }) = request else {
            return None;
        };
        let is_cut = ends == [node, *sought] || ends == [*sought, node];
        let said = if is_cut {
            NodeReply::Refused(Refusal::Unavailable(sought.to_string()))
        } else {
            NodeReply::Done
        };
        let reply: BoxFuture<'static, Reply> = ready(Ok(said)).boxed();
        Some(reply)
    });
}

/// The evictions for single links that the log tells of.
fn link_evictions(bed: &mut Bed) -> Vec<(NodeId, NodeId)> {
    let events = bed.take_events().into_iter();
    let evictions = events.filter_map(|event| match event {
        Event::EvictedForLink(node, other) => Some((node, other)),
        _ => None,
    });
    evictions.collect()
}

/// The time after which an end of a broken link is evicted, and some looks more.
fn pass_patience(bed: &mut Bed) {
    let patience_ms = bed.options.link_patience_ms();
    bed.pass(patience_ms + 2_000);
}

#[test]
fn one_end_of_a_link_that_stays_broken_is_evicted_until_it_is_mended() {
    let other = NodeId(2);
    let mut bed = Bed::three_racks();
    bed.put("f", 3);
    // Whichever end tells of it first.
    break_link(&mut bed, [NODE, other]);
    let told = bed.ask(ask::Suspect { node: other });
    assert_eq!(told, CoordinatorReply::Done);
    let patience_ms = bed.options.link_patience_ms();
    assert_eq!(patience_ms, 2_000);
    bed.pass(patience_ms - 500);
    assert_eq!(link_evictions(&mut bed), [], "it may mend");
    bed.pass(2_500);
    assert_eq!(link_evictions(&mut bed), [(NODE, other)]);
    let status = bed.status();
    assert_eq!(
        status.eviction_counts.into_iter().collect::<Vec<_>>(),
        [(NODE, 1)]
    );
    let said = status.repair.last_error.unwrap();
    assert!(
        said.contains("node 4 is evicted until node 2 can reach it"),
        "{said}"
    );
    bed.pass(20_000);
    assert_eq!(liveness(&mut bed), Liveness::Failed);
    let CoordinatorReply::Busy(why) = join_as_run(&mut bed, FIRST_RUN) else {
        panic!("it may not join yet")
    };
    assert!(why.sentence.contains("node 2 cannot reach node 4"), "{why}");
    bed.unhook();
    bed.pass(10_000);
    let reply = join_as_run(&mut bed, FIRST_RUN);
    assert!(matches!(reply, CoordinatorReply::Joined(_)), "{reply:?}");
    assert_eq!(link_evictions(&mut bed), []);
}

#[test]
fn no_end_of_a_broken_link_is_evicted_that_stripes_need_for_updates() {
    // A stripe of this pool takes updates while it survives one more loss: one loss is one too many.
    let mut bed = Bed::new(3, 3);
    let reply = bed.create_pool("p", "1-node", Some("rs(4,1)"), 1 << 20);
    assert!(matches!(reply, CoordinatorReply::Pool(_)), "{reply:?}");
    let stripes = bed.put("f", 9);
    assert!(stripes.iter().any(|stripe| stripe.nodes.contains(&NODE)));
    break_link(&mut bed, [NODE, NodeId(2)]);
    suspect(&mut bed);
    pass_patience(&mut bed);
    pass_patience(&mut bed);
    let told = [NODE, NodeId(2)].map(Event::NotSpared);
    let events = bed.take_events();
    let count = events.iter().filter(|event| told.contains(event)).count();
    assert!((1..=2).contains(&count), "once a node: {events:?}");
    let is_eviction = |event: &Event| matches!(event, Event::EvictedForLink(..));
    assert!(!events.iter().any(is_eviction), "{events:?}");
    assert_eq!(liveness(&mut bed), Liveness::Up);
}

#[test]
fn a_coordinator_whose_metadata_have_failed_grants_no_leases_and_says_so() {
    let mut bed = Bed::three_racks();
    let coordinator = bed.coordinator.clone();
    assert!(coordinator.broken().now_or_never().is_none());
    bed.store().fail_after(0);
    bed.ask(CoordinatorRequest::Pools);
    let beat = bed.ask(ask::Heartbeat {
        node: NODE,
        incarnation: u64::MAX,
        heard: None,
        position: 0,
        health: NodeHealth::default(),
    });
    assert!(matches!(&beat, CoordinatorReply::Refused(_)), "{beat:?}");
    assert!(coordinator.broken().now_or_never().is_some());
}
