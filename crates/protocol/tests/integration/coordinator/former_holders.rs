//! Chunks that count elsewhere now, and whose old nodes have not confirmed that they are gone.

use crate::coordinator::bed::{Asked, Bed, chunk_on, gone, words};
use futures::FutureExt;
use futures::future::{pending, ready};
use gabion_layout::{ByteRange, Generation, NodeId, StripeRecord};
use gabion_meta::KeyValue;
use gabion_protocol::message::{
    CoordinatorReply, CoordinatorRequest, Damage, NodeReply, NodeRequest, Refusal, StripeLease, ask,
};

/// A stripe of which a chunk was damaged and rebuilt elsewhere, since its node's disk is full; the order
/// to discard the old chunk is lost. The layout before, and that node.
fn lose_a_discard(bed: &mut Bed) -> (StripeRecord, NodeId) {
    let before = bed.put("f", 1).remove(0);
    let full = before.nodes[3];
    bed.hook(move |node, request| match request {
        NodeRequest::RunPart(_) if node == full => {
            Some(ready(Ok(NodeReply::Refused(Refusal::NoSpace))).boxed())
        }
        NodeRequest::Discard { .. } => Some(ready(Err(gone(node))).boxed()),
        _ => None,
    });
    bed.report_damage(chunk_on(&before, full));
    bed.pass(100);
    let after = bed.stripe("f");
    assert_ne!(after.nodes[3], full, "the chunk is elsewhere");
    (before, full)
}

fn lease(bed: &mut Bed, stripe: &StripeRecord) -> StripeLease {
    match bed.acquire(stripe.id, stripe.nodes[0]) {
        CoordinatorReply::Lease(lease) => lease,
        other => panic!("{other:?}"),
    }
}

fn fenced(log: &[Asked]) -> Vec<u32> {
    let words = words(log).into_iter();
    let fences = words.filter(|&(_, word)| word == "fence");
    fences.map(|(node, _)| node).collect()
}

#[test]
fn a_lease_names_the_former_holder_until_it_confirms_that_the_chunk_is_gone() {
    let mut bed = Bed::three_racks();
    let (before, full) = lose_a_discard(&mut bed);
    assert_eq!(lease(&mut bed, &before).former, [full]);
    bed.restart();
    bed.pass(100);
    assert_eq!(lease(&mut bed, &before).former, [full]);
    bed.unhook();
    bed.pass(10_000);
    assert_eq!(lease(&mut bed, &before).former, []);
}

#[test]
fn the_coordinator_fences_the_former_holder_and_the_nodes_of_stale_chunks_when_it_settles() {
    let mut bed = Bed::three_racks();
    let (_, full) = lose_a_discard(&mut bed);
    let now = bed.stripe("f");
    bed.take_log();
    let damaged = now.nodes[0];
    bed.report_damage(chunk_on(&now, damaged));
    bed.pass(100);
    assert_eq!(bed.stripe("f").stale, [], "it is repaired in its place");
    let log = bed.take_log();
    let mut first = fenced(&log);
    first.truncate(2);
    first.sort_unstable();
    let mut expected = [full.0, damaged.0];
    expected.sort_unstable();
    assert_eq!(first, expected, "{:?}", words(&log));
}

#[test]
fn a_former_holder_that_is_silent_is_waited_for_until_it_is_declared_failed() {
    let mut bed = Bed::three_racks();
    let (before, full) = lose_a_discard(&mut bed);
    let now = bed.stripe("f");
    bed.stop(full);
    bed.report_damage(chunk_on(&now, now.nodes[0]));
    bed.pass(500);
    assert_eq!(bed.stripe("f").stale.len(), 1, "its repair waits");
    bed.pass(2_000);
    assert_eq!(bed.stripe("f").stale, []);
    assert_eq!(lease(&mut bed, &before).former, []);
    let obsolete = bed.rejoin_obsolete(full, vec![chunk_on(&before, full)]);
    assert_eq!(
        obsolete,
        [chunk_on(&before, full)],
        "it removes the chunk before it serves"
    );
}

#[test]
fn notes_about_chunks_that_a_failed_node_has_lost_go_after_it_has_joined() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let lost = before.nodes[3];
    bed.fail(&[lost]);
    bed.ask(ask::RepairNow { scheme: None });
    bed.pass(100);
    assert_ne!(bed.stripe("f").nodes[3], lost, "the chunk is elsewhere");
    // The rows of absent holders.
    let store = bed.store();
    let note_count = || store.read(|txn| Ok(txn.scan(&[39], &[40], 9)?.len()));
    assert_eq!(note_count(), Ok(1));
    let chunk = chunk_on(&before, lost);
    assert_eq!(bed.rejoin_obsolete(lost, vec![chunk]), [chunk]);
    bed.pass(100);
    assert_eq!(note_count(), Ok(0));
}

#[test]
fn a_late_report_of_damage_does_not_condemn_the_chunk_that_was_made_since() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let chunk = chunk_on(&before, before.nodes[0]);
    bed.report_damage_of(before.nodes[0], chunk, 1);
    bed.pass(100);
    let mended = bed.stripe("f");
    assert_eq!((&mended.nodes, &mended.stale[..]), (&before.nodes, &[][..]));
    bed.report_damage_of(before.nodes[0], chunk, 1);
    assert_eq!(bed.stripe("f"), mended);
    let damage = Damage {
        chunk,
        generation: Generation(9),
        range: ByteRange::new(0, 1),
    };
    bed.report_once(before.nodes[1], damage);
    assert_eq!(bed.stripe("f"), mended, "its own node finds it intact");
}

#[test]
fn a_stale_chunk_whose_node_has_returned_is_left_out_only_by_the_next_term() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    bed.ask(CoordinatorRequest::OrderRepair(
        gabion_protocol::message::RepairOrder::Pause,
    ));
    let epoch = lease(&mut bed, &before).epoch;
    let damaged = before.nodes[1];
    bed.report_damage(chunk_on(&before, damaged));
    let chunk = chunk_on(&before, damaged).index;
    let note = ask::NoteDegraded {
        stripe: before.id,
        epoch,
        since: bed.joins,
        chunks: vec![(chunk, gabion_layout::Sequence(0))],
    };
    let answer = bed.ask(note.clone());
    assert!(
        matches!(&answer, CoordinatorReply::Refused(why) if why.sentence.contains("has returned")),
        "its node was never told of the new layout: {answer:?}"
    );
    bed.fail(&[damaged]);
    assert_eq!(bed.ask(note), CoordinatorReply::Done);
}

/// Has the chunk on the stripe's last node rebuilt elsewhere while only `count` nodes take the generation
/// that the stripe will have then. The layout before.
fn move_with_nodes_that_refuse(bed: &mut Bed, count: usize) -> StripeRecord {
    let before = bed.put("f", 1).remove(0);
    let full = before.nodes[3];
    let taking = before.nodes[..count].to_vec();
    // The damage raises the generation once.
    let told = Generation(before.generation.0 + 2);
    bed.hook(move |node, request| match request {
        NodeRequest::RunPart(_) if node == full => {
            Some(ready(Ok(NodeReply::Refused(Refusal::NoSpace))).boxed())
        }
        NodeRequest::Fence(fence) if fence.generation >= told && !taking.contains(&node) => {
            Some(ready(Err(gone(node))).boxed())
        }
        _ => None,
    });
    bed.report_damage(chunk_on(&before, full));
    bed.pass(100);
    before
}

#[test]
fn no_chunk_counts_elsewhere_before_k_nodes_of_the_layout_refuse_it() {
    let mut bed = Bed::three_racks();
    let before = move_with_nodes_that_refuse(&mut bed, 3);
    let after = bed.stripe("f");
    assert_eq!(after.nodes, before.nodes, "3 of the 4 nodes are not enough");
    assert!(
        after.generation.0 >= before.generation.0 + 2,
        "the 3 nodes serve the layout as it is now: {after:?}"
    );
    bed.unhook();
    bed.pass(10_000);
    assert_eq!(bed.stripe("f").stale, [], "it is repaired once they answer");

    let mut bed = Bed::three_racks();
    let before = move_with_nodes_that_refuse(&mut bed, 4);
    let after = bed.stripe("f");
    assert_ne!(after.nodes, before.nodes);
    assert_eq!(after.stale, []);
}

#[test]
fn a_coordinator_that_stops_between_the_fences_and_the_move_gives_the_layout_a_new_generation() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let full = before.nodes[3];
    let told = Generation(before.generation.0 + 2);
    bed.hook(move |node, request| match request {
        NodeRequest::RunPart(_) if node == full => {
            Some(ready(Ok(NodeReply::Refused(Refusal::NoSpace))).boxed())
        }
        NodeRequest::Fence(fence) if fence.generation >= told => Some(pending().boxed()),
        _ => None,
    });
    bed.report_damage(chunk_on(&before, full));
    bed.pass(100);
    assert!(
        bed.stripe("f").generation < told,
        "the move does not count yet"
    );
    bed.restart();
    let after = bed.stripe("f");
    assert_eq!((after.generation, after.nodes), (told, before.nodes));
}
