//! Nodes join, stay, fail and return.

use crate::coordinator::bed::{Bed, TIMING, all_with, chunk_on};
use futures::FutureExt;
use gabion_layout::{
    ChunkId, ChunkIndex, Epoch, Generation, NodeId, RackId, Sequence, StaleChunk, StripeId,
    StripeRecord,
};
use gabion_meta::{Exclusion, Listing, MetaError, StoodUpdate};
use gabion_protocol::message::{
    Applicant, ArrayMemory, ArrayStatus, Cause, CoordinatorReply, CoordinatorRequest, Decided,
    DeviceState, DeviceStatus, HeldChunk, Liveness, NodeHealth, RepairOrder, StoreFailure, ask,
};

fn heartbeat(bed: &mut Bed, node: u32, incarnation: u64) -> CoordinatorReply {
    bed.ask(ask::Heartbeat {
        node: NodeId(node),
        incarnation,
        heard: None,
        position: 0,
        health: NodeHealth::default(),
    })
}

fn liveness(bed: &mut Bed, node: NodeId) -> Liveness {
    let nodes = bed.status().nodes;
    nodes
        .iter()
        .find(|status| status.node == node)
        .unwrap()
        .liveness
}

/// A node's word that it lives.
pub(crate) fn beat(node: NodeId, incarnation: u64, health: NodeHealth) -> ask::Heartbeat {
    ask::Heartbeat {
        node,
        incarnation,
        heard: None,
        position: 0,
        health,
    }
}

#[test]
fn silence_makes_a_node_suspect_then_failed_and_only_joining_helps() {
    let mut bed = Bed::new(3, 3);
    let node = NodeId(4);
    bed.stop(node);
    bed.pass(TIMING.lease_ms - 100);
    assert_eq!(liveness(&mut bed, node), Liveness::Up);
    bed.pass(100);
    assert_eq!(liveness(&mut bed, node), Liveness::Suspect);
    assert!(
        matches!(
            heartbeat(&mut bed, 4, 1),
            CoordinatorReply::Alive {
                lease_ms: 1_000,
                ..
            }
        ),
        "a suspect is just late"
    );
    assert_eq!(liveness(&mut bed, node), Liveness::Up);
    bed.pass(TIMING.lease_ms + TIMING.margin_ms);
    assert_eq!(heartbeat(&mut bed, 4, 1), CoordinatorReply::Rejoin);
    bed.pass(200);
    assert_eq!(liveness(&mut bed, node), Liveness::Failed);
    assert_eq!(heartbeat(&mut bed, 4, 1), CoordinatorReply::Rejoin);
    assert_eq!(bed.rejoin_obsolete(node, vec![]), []);
    assert_eq!(liveness(&mut bed, node), Liveness::Up);
}

#[test]
fn a_node_whose_store_has_failed_counts_as_failed_at_once() {
    let mut bed = Bed::new(3, 3);
    let node = NodeId(4);
    let failed = |incarnation| {
        CoordinatorRequest::StoreFailed(StoreFailure {
            node,
            incarnation,
            reason: "cannot sync".to_owned(),
        })
    };
    bed.ask(failed(0));
    assert_eq!(
        liveness(&mut bed, node),
        Liveness::Up,
        "an earlier run says so"
    );
    assert_eq!(bed.ask(failed(1)), CoordinatorReply::Done);
    assert_eq!(liveness(&mut bed, node), Liveness::Failed);
    assert_eq!(heartbeat(&mut bed, 4, 1), CoordinatorReply::Rejoin);
    assert_eq!(bed.ask(failed(1)), CoordinatorReply::Done, "told twice");
    let told = bed.status().repair.last_error.unwrap();
    assert!(
        told.contains("store of node 4 has failed: cannot sync"),
        "{told}"
    );
    assert_eq!(bed.rejoin_obsolete(node, vec![]), []);
    assert_eq!(
        liveness(&mut bed, node),
        Liveness::Up,
        "it has another disk"
    );
}

#[test]
fn an_array_is_as_its_node_last_said_until_the_node_has_failed() {
    let mut bed = Bed::new(3, 3);
    let node = NodeId(4);
    let array = |state| ArrayStatus {
        devices: vec![DeviceStatus {
            path: "/dev/nvme0n1".to_owned(),
            state,
        }],
        parity_device_count: 1,
        memory: ArrayMemory::Dax,
        stripe_count: 9,
        degraded_stripe_count: 0,
    };
    assert!(bed.status().arrays.is_empty());
    for (state, is_degraded) in [(DeviceState::Absent, true), (DeviceState::Whole, false)] {
        let health = NodeHealth {
            array: Some(array(state)),
            ..NodeHealth::default()
        };
        bed.heartbeat(node, health);
        let arrays = bed.status().arrays;
        assert_eq!(arrays.get(&node), Some(&array(state)));
        assert_eq!(arrays[&node].is_degraded(), is_degraded);
    }
    bed.fail(&[node]);
    assert!(bed.status().arrays.is_empty(), "its health is unknown");
}

#[test]
fn strangers_and_earlier_runs_are_turned_away() {
    let mut bed = Bed::new(3, 3);
    assert_eq!(heartbeat(&mut bed, 99, 1), CoordinatorReply::Rejoin);
    bed.pass(1_000);
    bed.rejoin_obsolete(NodeId(3), vec![]);
    assert_eq!(
        heartbeat(&mut bed, 3, 1),
        CoordinatorReply::Rejoin,
        "a later run has joined"
    );
    let first = bed.applicant(Some(NodeId(3)), 3, 1, 1);
    let early = bed.let_in(first.clone(), vec![]);
    assert!(
        matches!(early, CoordinatorReply::StartAbove(number) if number > 1),
        "{early:?}"
    );
    let chunk = ChunkId {
        stripe: StripeId(1),
        index: ChunkIndex(0),
    };
    let held = HeldChunk {
        chunk,
        generation: Generation(1),
        epoch: Epoch(0),
        mark: Sequence(0),
        undecided: vec![],
    };
    let nameless = Applicant {
        node: None,
        ..first.clone()
    };
    let forgetful = bed.let_in(nameless, vec![held]);
    assert!(
        matches!(&forgetful, CoordinatorReply::Refused(s) if s.sentence.contains("forgotten its id")),
        "{forgetful:?}"
    );
    let elsewhere = Applicant {
        rack: RackId(2),
        ..bed.applicant(Some(NodeId(3)), 3, 1, u64::MAX)
    };
    let moved = bed.let_in(elsewhere, vec![]);
    assert!(
        matches!(&moved, CoordinatorReply::Refused(s) if s.sentence.contains("rack")),
        "{moved:?}"
    );
}

#[test]
fn a_join_tells_what_to_delete_and_finds_what_is_lost() {
    let mut bed = Bed::three_racks();
    let kept = bed.put("kept", 1).remove(0);
    let node = kept.nodes[0];
    // A stripe that was never of a file and is forgotten by now.
    let (abandoned, reclaimed) = bed.begin_put("abandoned", 4 << 20);
    let unknown = ChunkId {
        stripe: reclaimed[0].id,
        index: ChunkIndex(1),
    };
    bed.ask(CoordinatorRequest::AbortPut(abandoned));
    bed.pass(1_000);
    let (put, pending) = bed.begin_put("pending", 4 << 20);
    let pending_chunk = ChunkId {
        stripe: pending[0].id,
        index: ChunkIndex(0),
    };
    let wrong_index = ChunkId {
        stripe: kept.id,
        index: ChunkIndex(1),
    };
    let own = chunk_on(&kept, node);
    let obsolete = bed.rejoin_obsolete(node, vec![own, unknown, pending_chunk, wrong_index]);
    assert_eq!(obsolete, [wrong_index, unknown]);
    assert_eq!(bed.stripe("kept"), kept, "nothing is lost");

    let aborted = bed.ask(CoordinatorRequest::AbortPut(put));
    assert_eq!(aborted, CoordinatorReply::Done);
    assert_eq!(
        bed.rejoin_obsolete(node, vec![own, pending_chunk]),
        [pending_chunk]
    );

    // An empty disk: the chunk is lost, and made anew where it was.
    bed.take_log();
    assert_eq!(bed.rejoin_obsolete(node, vec![]), []);
    bed.pass(100);
    let repaired = bed.stripe("kept");
    assert_eq!((repaired.nodes, repaired.stale), (kept.nodes, vec![]));
    assert_eq!(
        repaired.generation.0,
        kept.generation.0 + 2,
        "it was stale in between"
    );
    assert_eq!(bed.status().repair.repaired_chunk_count, 1);
}

/// A stripe whose first primary and another node have failed. The second primary has settled it
/// without them under term 2: updates up to 6 stood already, and 8 stands in all chunks. The other
/// node returns with records of these updates of term 1 above its mark, which is 5. What the node
/// is told, and the stripe's record after.
fn return_after_settling(undecided: &[u64]) -> (Vec<Decided>, StripeRecord) {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    let (first, second, away) = (stripe.nodes[0], stripe.nodes[1], stripe.nodes[5]);
    bed.acquire(stripe.id, first);
    bed.fail(&[away, first]);
    let CoordinatorReply::Lease(lease) = bed.acquire(stripe.id, second) else {
        panic!("the first primary has failed");
    };
    bed.hook(|_, _| Some(Box::pin(futures::future::pending())));
    let settled = bed.ask(ask::Settling {
        stripe: stripe.id,
        exclusion: Exclusion {
            epoch: lease.epoch,
            nodes: vec![away, first],
            known: Sequence(6),
            stood: vec![StoodUpdate {
                epoch: Epoch(1),
                sequence: Sequence(8),
                participants: stripe.chunks().collect(),
            }],
        },
    });
    assert_eq!(settled, CoordinatorReply::Done);
    let held = HeldChunk {
        chunk: chunk_on(&stripe, away),
        generation: stripe.generation,
        epoch: Epoch(1),
        mark: Sequence(5),
        undecided: undecided.iter().map(|&s| (Epoch(1), Sequence(s))).collect(),
    };
    let reply = bed.join_holding(Some(away), away.0, away.0 / 3, vec![held]);
    let CoordinatorReply::Joined(joined) = reply else {
        panic!("{reply:?}");
    };
    assert_eq!(joined.answer.obsolete, [], "what it has is of use");
    (joined.answer.decided, bed.stripe("f"))
}

#[test]
fn a_returning_node_is_told_what_stands_and_its_chunk_counts() {
    let (told, after) = return_after_settling(&[6, 7, 8]);
    let stands = vec![(Epoch(1), Sequence(6)), (Epoch(1), Sequence(8))];
    assert_eq!(
        told,
        [Decided {
            stripe: after.id,
            epoch: Epoch(2),
            generation: after.generation,
            stands,
        }]
    );
    assert_eq!(
        (&after.stale[..], after.generation),
        (&[][..], Generation(1))
    );
}

#[test]
fn a_returning_chunk_that_missed_what_stands_does_not_count() {
    let (told, after) = return_after_settling(&[6, 7]);
    assert_eq!(told[0].stands, [(Epoch(1), Sequence(6))]);
    assert_eq!(
        (told[0].generation, after.generation),
        (Generation(2), Generation(2)),
        "it serves no reader with an old layout"
    );
    assert_eq!(
        after.stale,
        [StaleChunk {
            chunk: ChunkIndex(5),
            missed_after: Some(Sequence(7)),
        }]
    );
}

#[test]
fn a_lease_alone_decides_nothing() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    let (first, second, away) = (stripe.nodes[0], stripe.nodes[1], stripe.nodes[5]);
    bed.acquire(stripe.id, first);
    bed.fail(&[away, first]);
    bed.acquire(stripe.id, second);
    let held = HeldChunk {
        chunk: chunk_on(&stripe, away),
        generation: stripe.generation,
        epoch: Epoch(1),
        mark: Sequence(5),
        undecided: vec![(Epoch(1), Sequence(7))],
    };
    let reply = bed.join_holding(Some(away), away.0, away.0 / 3, vec![held]);
    assert!(
        matches!(&reply, CoordinatorReply::Joined(joined) if joined.answer.decided.is_empty()),
        "{reply:?}"
    );
    assert_eq!(bed.stripe("f").stale, []);
}

#[test]
fn a_node_that_returns_late_is_told_that_its_chunks_have_moved() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let late = before.nodes[3];
    bed.fail(&[late]);
    bed.pass(TIMING.grace_ms + 1_000);
    assert!(bed.stripe("f").chunk_on(late).is_none());
    let old = chunk_on(&before, late);
    assert_eq!(bed.rejoin_obsolete(late, vec![old]), [old]);
}

#[test]
fn a_node_that_returns_in_time_keeps_all_but_stale_chunks() {
    let mut bed = Bed::three_racks();
    let stripes = bed.put("f", 8);
    let late = stripes[0].nodes[0];
    let on_node = stripes
        .iter()
        .filter(|stripe| stripe.chunk_on(late).is_some());
    let held: Vec<ChunkId> = on_node.map(|stripe| chunk_on(stripe, late)).collect();
    assert!(held.len() > 1, "{held:?}");
    let stale = held[0];
    bed.ask(RepairOrder::Pause);
    bed.report_damage(stale);
    bed.fail(&[late]);
    assert_eq!(bed.status().lost_chunk_count, held.len() as u64);
    let obsolete = bed.rejoin_obsolete(late, held.clone());
    assert_eq!(
        obsolete,
        [stale],
        "no client may read it, and repair makes it anew"
    );
    assert_eq!(bed.status().lost_chunk_count, 1);
}

#[test]
fn a_stale_chunk_that_may_be_the_last_resort_is_kept() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    bed.ask(RepairOrder::Pause);
    for at in 0..3 {
        bed.report_damage(chunk_on(&stripe, stripe.nodes[at]));
    }
    for at in 0..3 {
        bed.stop(stripe.nodes[at]);
    }
    assert_eq!(bed.failures_left(), [(-1, 1)]);
    let held = chunk_on(&stripe, stripe.nodes[0]);
    assert_eq!(bed.rejoin_obsolete(stripe.nodes[0], vec![held]), []);
}

#[test]
fn a_store_that_fails_ends_all_decisions() {
    let mut bed = Bed::three_racks();
    bed.store().fail_after(0);
    let names = all_with("");
    let first = bed.ask(names.clone());
    assert!(matches!(&first, CoordinatorReply::Refused(s) if s.sentence.contains("then restart")));
    bed.store().heal();
    assert_eq!(
        bed.ask(names.clone()),
        first,
        "what its last write did is not known"
    );
    bed.restart();
    assert_eq!(
        bed.ask(names),
        CoordinatorReply::Listing(Listing::default())
    );
}

fn away() -> MetaError {
    MetaError::Away {
        reason: "test".to_owned(),
    }
}

#[test]
fn a_coordinator_that_may_have_been_deposed_grants_no_leases_and_counts_no_node_as_silent() {
    let mut bed = Bed::three_racks();
    bed.store().depose(Some(away()));
    // Longer than a node may be silent.
    for _ in 0..5 {
        for node in 0..9 {
            let incarnation = bed.incarnation(NodeId(node));
            let reply = heartbeat(&mut bed, node, incarnation);
            assert!(matches!(reply, CoordinatorReply::Busy(_)), "{reply:?}");
        }
        bed.pass_in_silence(TIMING.lease_ms / 2);
    }
    for request in [CoordinatorRequest::Nodes, all_with("").into()] {
        let reply = bed.ask(request);
        assert!(matches!(reply, CoordinatorReply::Busy(_)), "{reply:?}");
    }
    assert!(bed.coordinator.broken().now_or_never().is_none());
    bed.store().depose(None);
    for node in 0..9 {
        assert_eq!(liveness(&mut bed, NodeId(node)), Liveness::Up);
        bed.heartbeat(NodeId(node), NodeHealth::default());
    }
}

#[test]
fn a_coordinator_that_was_deposed_stops_although_it_is_asked_for_nothing() {
    let mut bed = Bed::three_racks();
    let reason = "test".to_owned();
    let deposed = MetaError::Deposed { reason };
    bed.store().depose(Some(deposed.clone()));
    bed.pass_in_silence(TIMING.lease_ms / 2);
    let stopped = bed.coordinator.broken().now_or_never();
    assert_eq!(stopped, Some(deposed));
    bed.store().depose(None);
    let incarnation = bed.incarnation(NodeId(0));
    let reply = heartbeat(&mut bed, 0, incarnation);
    let is_elsewhere =
        matches!(&reply, CoordinatorReply::Busy(why) if why.cause == Cause::NotLeading);
    assert!(is_elsewhere, "{reply:?}");
}
