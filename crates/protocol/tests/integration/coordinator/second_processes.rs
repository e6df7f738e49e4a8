//! Processes of a node that have another address than its last one.

use crate::coordinator::bed::{Bed, TIMING};
use crate::coordinator::identity::{assert_busy, assert_refused};
use gabion_layout::NodeId;
use gabion_protocol::message::{
    Applicant, CoordinatorReply, CoordinatorRequest, EndCause, NodeHealth, ask,
};

/// The address of node 3, as other nodes are told.
fn address_of_3(bed: &mut Bed) -> String {
    match bed.ask(CoordinatorRequest::Nodes) {
        CoordinatorReply::Nodes(nodes) => nodes[3].address.clone(),
        other => panic!("{other:?}"),
    }
}

/// Lets a process of node 3 join that has another address than the last one.
fn join_elsewhere(bed: &mut Bed) -> CoordinatorReply {
    let twin = Applicant {
        address: "127.0.0.1:65000".to_owned(),
        ..bed.applicant(Some(NodeId(3)), 3, 1, 1 << 20)
    };
    bed.let_in(twin, vec![])
}

/// The coordinator may be cut off from a process that serves until its lease ends.
#[test]
fn a_process_at_another_address_waits_for_the_lease_of_a_first_one_that_does_not_answer() {
    let mut bed = Bed::three_racks();
    let first = address_of_3(&mut bed);
    bed.stop(NodeId(3));
    for _ in 0..TIMING.lease_ms / 500 {
        assert_busy(&join_elsewhere(&mut bed), "may still run at");
        assert_eq!(address_of_3(&mut bed), first);
        bed.pass(500);
    }
    // By its own clock, its lease may run a little longer.
    assert_busy(&join_elsewhere(&mut bed), "may still run at");
    bed.pass(TIMING.margin_ms + 200);
    let joined = join_elsewhere(&mut bed);
    assert!(matches!(joined, CoordinatorReply::Joined(_)), "{joined:?}");
    assert_eq!(address_of_3(&mut bed), "127.0.0.1:65000");
}

#[test]
fn a_coordinator_that_starts_anew_awaits_the_leases_of_first_processes() {
    let mut bed = Bed::three_racks();
    bed.stop(NodeId(3));
    bed.restart();
    for node in (0..9).map(NodeId).filter(|node| *node != NodeId(3)) {
        bed.heartbeat(node, NodeHealth::default());
    }
    assert_busy(&join_elsewhere(&mut bed), "may still run at");
    bed.pass(TIMING.lease_ms + TIMING.margin_ms + 200);
    let joined = join_elsewhere(&mut bed);
    assert!(matches!(joined, CoordinatorReply::Joined(_)), "{joined:?}");
}

#[test]
fn a_process_at_another_address_joins_when_the_first_one_has_ended_its_membership() {
    let mut bed = Bed::three_racks();
    let session = bed.rejoin_in_session(NodeId(3));
    bed.stop(NodeId(3));
    assert_busy(&join_elsewhere(&mut bed), "may still run at");
    let cause = EndCause::Told;
    let ended = bed.ask(ask::EndMembership { session, cause });
    assert_eq!(ended, CoordinatorReply::Done);
    let joined = join_elsewhere(&mut bed);
    assert!(matches!(joined, CoordinatorReply::Joined(_)), "{joined:?}");
}

/// It has the port, so the first process has ended.
#[test]
fn a_process_at_the_same_address_joins_at_once() {
    let mut bed = Bed::three_racks();
    bed.stop(NodeId(3));
    let next = bed.applicant(Some(NodeId(3)), 3, 1, 1 << 20);
    let joined = bed.let_in(next, vec![]);
    assert!(matches!(joined, CoordinatorReply::Joined(_)), "{joined:?}");
}

#[test]
fn a_process_that_is_refused_leaves_the_address_of_the_one_that_joins() {
    let mut bed = Bed::three_racks();
    bed.fail(&[NodeId(3)]);
    let process = |bed: &Bed, port: u32, number| Applicant {
        address: format!("10.0.0.9:{port}"),
        ..bed.applicant(Some(NodeId(3)), 3, 1, number)
    };
    let (later, earlier) = (process(&bed, 1, 1 << 21), process(&bed, 2, 1 << 20));
    let session = bed.begin_join(later, 0).expect("it may join");
    let refused = bed.begin_join(earlier, 0).expect_err("a later run joins");
    assert_refused(&refused, "a later run");
    bed.tell_range(session, (None, None), &[]);
    let joined = bed.end_join(session, &[]);
    assert!(matches!(joined, CoordinatorReply::Joined(_)), "{joined:?}");
    assert_eq!(address_of_3(&mut bed), "10.0.0.9:1");
}
