//! When blocks are encoded, and what a coordinator looks at to find out.

use crate::coordinator::bed::Bed;
use futures::FutureExt;
use futures::future::ready;
use gabion_layout::{EncodeAfter, NodeId, ReplicaPlacement, Sequence, StripeRecord, UpdateScheme};
use gabion_planner::placement::Space;
use gabion_protocol::message::{
    CoordinatorReply, CoordinatorRequest, FormOrder, LifecycleRequest, NodeHealth, NodeReply,
    NodeRequest, PoolRequest, ask,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Files of the tests that are about how many there are.
const FILE_COUNT: usize = 200;
/// Operations of the metadata store that a coordinator may need in a minute in which nothing happens: fewer than
/// reading each of these files once takes.
const IDLE_OPERATION_COUNT: u64 = 100;

/// Four racks of three nodes with one pool, of blocks of 1 MiB that become stripes of `rs(4,2)`.
fn bed(after: EncodeAfter) -> Bed {
    let mut bed = Bed::new(4, 3);
    let reply = bed.ask(CoordinatorRequest::CreatePool(PoolRequest {
        name: "p".to_owned(),
        survive: "1-rack".parse().unwrap(),
        code: Some("rs(4,2)".to_owned()),
        chunk_bytes: 1 << 20,
        update: UpdateScheme::default(),
        reserve: None,
        append: None,
        inline_bytes: 0,
        lifecycle: Some(LifecycleRequest {
            replica_count: 3,
            after,
            placement: ReplicaPlacement::Ear,
        }),
    }));
    assert!(matches!(reply, CoordinatorReply::Pool(_)), "{reply:?}");
    bed
}

fn order(bed: &mut Bed, file: &str, is_encoded: bool) {
    let reply = bed.ask(CoordinatorRequest::OrderForm(FormOrder {
        pool: "p".to_owned(),
        file: Some(file.to_owned()),
        is_encoded,
    }));
    assert_eq!(reply, CoordinatorReply::Done);
}

/// Segments that were encoded, that were promoted, and that wait.
fn counts(bed: &mut Bed) -> (u64, u64, u64) {
    let status = bed.status().lifecycle;
    (
        status.encoded_count,
        status.promoted_count,
        status.waiting_count,
    )
}

#[test]
fn blocks_are_encoded_when_they_are_old_and_when_they_are_old_again() {
    let mut bed = bed(EncodeAfter::Age(10));
    bed.put("f", 2);
    bed.pass(9_000);
    assert_eq!(counts(&mut bed), (0, 0, 0));
    bed.pass(4_000);
    assert_eq!(counts(&mut bed), (2, 0, 0), "both segments");
    order(&mut bed, "f", false);
    bed.pass(9_000);
    assert_eq!(counts(&mut bed), (2, 2, 0));
    bed.pass(5_000);
    assert_eq!(counts(&mut bed), (4, 2, 0), "they have grown old again");
}

#[test]
fn replicas_keep_away_from_full_nodes_and_leave_out_those_of_failed_ones() {
    let mut bed = bed(EncodeAfter::Asked);
    let health = |free_bytes| NodeHealth {
        space: Some(Space {
            capacity_bytes: 1 << 30,
            free_bytes,
        }),
        ..NodeHealth::default()
    };
    bed.heartbeat(NodeId(4), health(8 << 20));
    let stripes = bed.put("f", 5);
    let uses_it = |stripe: &StripeRecord| stripe.nodes.contains(&NodeId(4));
    assert!(!stripes.iter().any(uses_it), "node 4 is full");
    bed.heartbeat(NodeId(4), health(1 << 30));
    // Two nodes are left.
    bed.fail(&[0, 1, 2, 3, 4, 5, 6, 7, 9, 10].map(NodeId));
    for stripe in bed.put("g", 5) {
        assert_eq!(stripe.stale.len(), 1, "one more may be lost: {stripe:?}");
    }
}

#[test]
fn files_of_which_nothing_is_due_are_not_read() {
    let mut bed = bed(EncodeAfter::Asked);
    for number in 0..FILE_COUNT {
        bed.put(&format!("f{number}"), 1);
    }
    bed.pass(5_000);
    bed.store().fail_after(IDLE_OPERATION_COUNT);
    bed.pass(60_000);
    bed.store().heal();
    // A coordinator whose store has failed refuses everything.
    assert_eq!(counts(&mut bed), (0, 0, 0));
    order(&mut bed, "f7", true);
    bed.pass(1_000);
    assert_eq!(counts(&mut bed), (1, 0, 0));
}

#[test]
fn a_restarted_coordinator_finds_what_is_due() {
    let mut bed = bed(EncodeAfter::Asked);
    for name in ["e", "f", "g"] {
        bed.put(name, 1);
    }
    bed.hook(|node, request| {
        // No node finishes anything.
        let is_part = matches!(request, NodeRequest::RunPart(_));
        is_part.then(|| ready(Err(crate::coordinator::bed::gone(node))).boxed())
    });
    order(&mut bed, "f", true);
    bed.pass(10_000);
    assert_eq!(counts(&mut bed), (0, 0, 1), "it waits, and is tried again");
    bed.unhook();
    bed.restart();
    bed.pass(10_000);
    assert_eq!(counts(&mut bed), (1, 0, 0));
}

#[test]
fn blocks_that_are_written_are_not_idle() {
    let mut bed = bed(EncodeAfter::Idle(8));
    let latest = Arc::new(AtomicU64::new(1));
    let known = Arc::clone(&latest);
    bed.hook(move |_, request| {
        let NodeRequest::Latest(ask::Latest { stripes }) = request else {
            return None;
        };
        let sequence = Sequence(known.load(Ordering::Relaxed));
        let latest = stripes.iter().map(|&stripe| (stripe, sequence));
        Some(ready(Ok(NodeReply::Latest(latest.collect()))).boxed())
    });
    bed.put("f", 1);
    for _ in 0..12 {
        bed.pass(5_000);
        latest.fetch_add(1, Ordering::Relaxed);
    }
    assert_eq!(counts(&mut bed), (0, 0, 0));
    bed.pass(7_000);
    assert_eq!(counts(&mut bed), (0, 0, 0), "not for long enough");
    // It is looked at every 2 s, here, so the last update may have been noticed so much later.
    bed.pass(5_000);
    assert_eq!(counts(&mut bed), (1, 0, 0));
}

/// The old blocks are remembered for the node that may return with one, and no client reads them.
#[test]
fn a_segment_is_written_though_a_failed_node_may_return_with_one_of_its_old_blocks() {
    let mut bed = bed(EncodeAfter::Asked);
    let block = bed.put("f", 1).remove(0);
    let away = block.nodes[2];
    bed.fail(&[away]);
    order(&mut bed, "f", true);
    bed.pass(5_000);
    assert_eq!(counts(&mut bed), (1, 0, 0));
    let stripe = bed.stripe("f");
    assert_ne!(stripe.id, block.id);
    let leased = bed.acquire(stripe.id, stripe.nodes[0]);
    assert!(matches!(leased, CoordinatorReply::Lease(_)), "{leased:?}");
}
