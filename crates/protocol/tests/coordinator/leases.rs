//! Who may be a stripe's primary, and whose word counts.

use crate::bed::{Bed, TIMING};
use gabion_layout::{ChunkIndex, Epoch, NodeId, Sequence, StripeId};
use gabion_protocol::message::{CoordinatorReply, CoordinatorRequest};

fn epoch(reply: &CoordinatorReply) -> u64 {
    match reply {
        CoordinatorReply::Lease(lease) => lease.epoch.0,
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_node_at_a_time_is_primary() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    let (first, second) = (stripe.nodes[0], stripe.nodes[1]);
    let lease = bed.acquire(stripe.id, first);
    let CoordinatorReply::Lease(granted) = &lease else {
        panic!("{lease:?}")
    };
    assert_eq!((granted.epoch, &granted.stripe), (Epoch(1), &stripe));
    assert_eq!(
        (granted.pool.spec.name.as_str(), granted.nodes.len()),
        ("p", 9)
    );
    assert_eq!(
        epoch(&bed.acquire(stripe.id, first)),
        1,
        "it has it already"
    );
    assert_eq!(
        bed.acquire(stripe.id, second),
        CoordinatorReply::HeldBy(first)
    );
    bed.fail(&[first]);
    assert_eq!(epoch(&bed.acquire(stripe.id, second)), 2);
    let silent = bed.acquire(stripe.id, first);
    assert!(matches!(silent, CoordinatorReply::Busy(_)), "{silent:?}");
    let unknown = bed.acquire(StripeId(77), second);
    assert!(
        matches!(&unknown, CoordinatorReply::Busy(s) if s.contains("stripe 77")),
        "whoever asks has an old layout"
    );
}

#[test]
fn a_renounced_term_ends_and_only_its_own_node_s() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    let (first, second) = (stripe.nodes[0], stripe.nodes[1]);
    assert_eq!(epoch(&bed.acquire(stripe.id, first)), 1);
    let mut renounce = |node, epoch| {
        bed.ask(CoordinatorRequest::Acquire {
            stripe: stripe.id,
            node,
            incarnation: u64::MAX,
            renounced: Some(Epoch(epoch)),
        })
    };
    assert_eq!(
        renounce(second, 1),
        CoordinatorReply::HeldBy(first),
        "it is not the second's"
    );
    assert_eq!(epoch(&renounce(first, 1)), 2);
    assert_eq!(epoch(&renounce(first, 1)), 2, "an old term is over already");
}

#[test]
fn a_chunk_is_stale_when_the_present_primary_says_so() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    bed.fail(&[stripe.nodes[2]]);
    assert_eq!(epoch(&bed.acquire(stripe.id, stripe.nodes[0])), 1);
    let report = |epoch, chunk| CoordinatorRequest::Settling {
        stripe: stripe.id,
        epoch: Epoch(epoch),
        excluded: vec![stripe.nodes[2]],
        mark: Sequence(0),
        dropped: vec![],
        stale: vec![ChunkIndex(chunk)],
    };
    let other = bed.ask(report(2, 2));
    assert!(matches!(&other, CoordinatorReply::Refused(s) if s.contains("newer primary")));
    assert_eq!(bed.stripe("f"), stripe);
    let no_such = bed.ask(report(1, 6));
    assert!(matches!(&no_such, CoordinatorReply::Refused(s) if s.contains("chunk 6")));
    assert_eq!(bed.ask(report(1, 2)), CoordinatorReply::Done);
    // Its return would not help, so the time of grace does not matter.
    bed.pass(TIMING.grace_ms / 10);
    let repaired = bed.stripe("f");
    assert_ne!(repaired.nodes[2], stripe.nodes[2]);
    assert_eq!(repaired.stale, []);
    let fenced = bed.ask(report(1, 3));
    assert!(
        matches!(fenced, CoordinatorReply::Refused(_)),
        "the repair has ended the term"
    );
    let taken: Vec<NodeId> = bed.stripe("f").nodes;
    assert_eq!(epoch(&bed.acquire(stripe.id, taken[1])), 3);
}

#[test]
fn nobody_settles_without_a_node_that_has_returned() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    assert_eq!(epoch(&bed.acquire(stripe.id, stripe.nodes[0])), 1);
    let settling = bed.ask(CoordinatorRequest::Settling {
        stripe: stripe.id,
        epoch: Epoch(1),
        excluded: vec![stripe.nodes[4]],
        mark: Sequence(0),
        dropped: vec![],
        stale: vec![],
    });
    assert!(
        matches!(&settling, CoordinatorReply::Refused(s) if s.contains("has returned meanwhile")),
        "{settling:?}"
    );
}
