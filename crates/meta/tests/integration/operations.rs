//! Guarantees of each operation, one scenario a test.

use crate::fixture::{cluster, discard_all, membership, one_stripe, place, segments, spec};
use gabion_layout::{
    ChunkIndex, Epoch, Generation, NodeId, RackId, ReserveSpec, Sequence, StaleChunk, Start,
    StripeId, Survive, UpdateScheme,
};
use gabion_meta::{
    Existing, Holder, KeyValue, Meta, MetaError, NewAttributes, Placement, PoolSpec, StripeStatus,
    WallClock, WallTime,
};

#[test]
fn a_file_is_seen_once_it_is_committed() {
    let (meta, pool) = cluster();
    let put = meta
        .begin_put(
            ("a", Existing::Stays, NewAttributes::FILE),
            pool.id,
            5000,
            &[place(0), place(1)],
            10,
        )
        .unwrap();
    let ids: Vec<_> = put.stripes.iter().map(|stripe| stripe.id).collect();
    assert_eq!(meta.file("a"), Err(MetaError::UnknownFile("a".to_owned())));
    assert_eq!(
        meta.stripe(ids[0]),
        Err(MetaError::UnknownStripe(ids[0])),
        "a repair must not find a stripe that is being written"
    );
    assert_eq!(meta.stripe_status(ids[1]), Ok(StripeStatus::Pending));
    let file = meta.commit_put(put.id, 20).unwrap();
    assert_eq!(
        (file.size_bytes, file.put, &segments(&meta, &file)),
        (5000, put.id, &ids)
    );
    assert_eq!(meta.file("a"), Ok(file.clone()));
    assert_eq!(
        meta.layout("a"),
        Ok((file, (0..).step_by(4096).zip(put.stripes).collect()))
    );
    assert_eq!(meta.stripe_status(ids[1]), Ok(StripeStatus::Live));
    assert_eq!(
        meta.commit_put(put.id, 30),
        Err(MetaError::CommittedBefore(put.id))
    );
    assert_eq!(meta.abort_put(put.id), Ok(false));
}

#[test]
fn of_two_puts_of_one_name_the_first_to_commit_wins() {
    let (meta, pool) = cluster();
    let begin = || {
        meta.begin_put(
            ("a", Existing::Stays, NewAttributes::FILE),
            pool.id,
            4096,
            &[place(0)],
            0,
        )
        .unwrap()
    };
    let (slow, fast) = (begin(), begin());
    let file = meta.commit_put(fast.id, 1).unwrap();
    assert_eq!(
        meta.commit_put(slow.id, 2),
        Err(MetaError::FileExists("a".to_owned()))
    );
    assert_eq!(meta.file("a"), Ok(file));
    assert_eq!(meta.abort_put(slow.id), Ok(true));
    assert_eq!(meta.garbage(None, 9), Ok(slow.stripes));
    let late = meta.begin_put(
        ("a", Existing::Stays, NewAttributes::FILE),
        pool.id,
        0,
        &[],
        3,
    );
    assert_eq!(late, Err(MetaError::FileExists("a".to_owned())));
}

#[test]
fn garbage_stays_until_it_is_reclaimed() {
    let (meta, pool) = cluster();
    let ids: Vec<_> = ["a", "b", "c"]
        .iter()
        .map(|name| one_stripe(&meta, &pool, name))
        .collect();
    for name in ["a", "b", "c"] {
        let put = meta.file(name).unwrap().put;
        meta.remove_file(name, put, (0, put.0)).unwrap();
    }
    discard_all(&meta);
    let page = |after, limit| {
        let page = meta.garbage(after, limit).unwrap();
        page.into_iter().map(|stripe| stripe.id).collect::<Vec<_>>()
    };
    assert_eq!(page(None, 2), ids[..2]);
    assert_eq!(page(Some(ids[0]), 9), ids[1..]);
    assert_eq!(meta.stripe_count(), Ok(0));
    assert_eq!(meta.stripe_status(ids[1]), Ok(StripeStatus::Garbage));
    assert_eq!(meta.reclaimed(ids[1]), Ok(true));
    assert_eq!(meta.reclaimed(ids[1]), Ok(false));
    assert_eq!(meta.stripe_status(ids[1]), Ok(StripeStatus::Unknown));
    assert_eq!(page(None, 9), [ids[0], ids[2]]);
    let next = one_stripe(&meta, &pool, "a");
    assert!(next > ids[2], "a stripe id is never used again");
}

#[test]
fn segments_must_fill_in_order_and_suit_the_pool() {
    let (meta, pool) = cluster();
    let begin = |size_bytes, placements: &[Placement]| {
        let put = meta.begin_put(
            ("a", Existing::Stays, NewAttributes::FILE),
            pool.id,
            size_bytes,
            placements,
            0,
        );
        put.map(|put| meta.abort_put(put.id))
    };
    let sized = |chunk_bytes| Placement {
        chunk_bytes,
        ..place(0)
    };
    for (size_bytes, places) in [
        (0, vec![]),
        (1, vec![sized(1)]),
        (1, vec![sized(1024)]),
        (4096, vec![sized(1024)]),
        (4097, vec![sized(1024), sized(1)]),
    ] {
        assert!(begin(size_bytes, &places).is_ok(), "{size_bytes}");
    }
    for (size_bytes, places, segment) in [
        (0, vec![sized(1)], 1),
        (1, vec![], 0),
        (4097, vec![sized(1024)], 1),
        (4096, vec![sized(1023)], 0),
        (4097, vec![sized(1023), sized(1024)], 0),
        (4097, vec![sized(1024), sized(0)], 1),
        (1, vec![sized(1025)], 0),
        (u64::MAX, vec![sized(1024)], 1),
    ] {
        let error = begin(size_bytes, &places).unwrap_err();
        assert!(
            matches!(error, MetaError::Placement { segment: s, .. } if s == segment),
            "{size_bytes}: {error}"
        );
    }
}

#[test]
fn chunks_go_to_different_nodes_that_have_not_failed() {
    let (meta, pool) = cluster();
    let begin = |change: &dyn Fn(&mut Vec<NodeId>)| {
        let mut placement = place(0);
        change(&mut placement.nodes);
        let put = meta.begin_put(
            ("a", Existing::Stays, NewAttributes::FILE),
            pool.id,
            1,
            &[placement],
            0,
        );
        put.map(|put| put.id).unwrap_err()
    };
    let placement = |error| matches!(error, MetaError::Placement { segment: 0, .. });
    assert!(placement(begin(&|nodes| nodes[0] = nodes[1])));
    assert!(placement(begin(&|nodes| nodes.truncate(5))));
    assert!(placement(begin(&|nodes| nodes.push(NodeId(11)))));
    let crowded = begin(&|nodes| nodes[0] = NodeId(3));
    assert!(
        crowded.to_string().contains("rack 1 would hold 2"),
        "{crowded}"
    );
    assert_eq!(
        begin(&|nodes| nodes[0] = NodeId(12)),
        MetaError::UnknownNode(NodeId(12))
    );
    meta.declare_failed(place(0).nodes[0]).unwrap();
    meta.declare_failed(place(0).nodes[1]).unwrap();
    assert_eq!(
        begin(&|_| {}),
        MetaError::NodeFailed(place(0).nodes[1]),
        "a stripe must survive one more loss when it is written"
    );
    assert_eq!(meta.puts(), Ok(vec![]), "a refused put reserves nothing");
}

#[test]
fn the_chunks_of_failed_nodes_are_left_out_of_new_stripes() {
    let (meta, pool) = cluster();
    let failed = place(0).nodes[3];
    meta.declare_failed(failed).unwrap();
    let put = meta
        .begin_put(
            ("a", Existing::Stays, NewAttributes::FILE),
            pool.id,
            1,
            &[place(0)],
            0,
        )
        .unwrap();
    let left_out = StaleChunk {
        chunk: ChunkIndex(3),
        missed_after: None,
    };
    assert_eq!(put.stripes[0].stale, [left_out]);
    let file = meta.commit_put(put.id, 0).unwrap();
    let stripe = meta.stripe(segments(&meta, &file)[0]).unwrap();
    assert_eq!(
        (stripe.stale, stripe.nodes),
        (vec![left_out], place(0).nodes)
    );
}

#[test]
fn a_move_that_has_begun_ends_with_the_generation_that_nodes_were_told() {
    let (meta, pool) = cluster();
    let id = one_stripe(&meta, &pool, "a");
    let chunk = ChunkIndex(2);
    let generation = || meta.stripe(id).unwrap().generation;
    meta.mark_stale(id, chunk).unwrap();
    assert_eq!(
        meta.begin_move(id, Generation(1)),
        Err(MetaError::GenerationChanged {
            stripe: id,
            expected: Generation(1),
            current: Generation(2),
        })
    );
    assert_eq!(meta.begin_move(id, Generation(2)), Ok(Generation(3)));
    assert_eq!(
        generation(),
        Generation(2),
        "readers still get the present layout"
    );
    let place = (NodeId(5), None);
    let moved = meta.relocate(id, Generation(2), chunk, place).unwrap();
    assert_eq!(moved.generation, Generation(3));
    meta.abandon_move(id).unwrap();
    assert_eq!(generation(), Generation(3), "it has ended");

    meta.begin_move(id, Generation(3)).unwrap();
    meta.abandon_move(id).unwrap();
    assert_eq!(meta.stripe(id).unwrap().nodes, moved.nodes);
    assert_eq!(generation(), Generation(4), "nodes were told that one");

    meta.begin_move(id, Generation(4)).unwrap();
    let coordinator = Holder::Coordinator {
        incarnation: meta.incarnation(),
    };
    let lease = meta.acquire(id, coordinator, &membership(), 1000);
    assert_eq!(lease.unwrap().generation, Generation(5), "another term");
    assert_eq!(meta.check(), Ok(vec![]));

    meta.begin_move(id, Generation(5)).unwrap();
    let meta = Meta::open(meta.into_store(), WallClock::stopped(WallTime::default())).unwrap();
    let opened = meta.stripe(id).unwrap().generation;
    assert_eq!(opened, Generation(6), "the coordinator has stopped");

    meta.begin_move(id, Generation(6)).unwrap();
    let record = meta.stripe(id).unwrap();
    let put = meta.file("a").unwrap().put;
    meta.remove_file("a", put, (0, 140)).unwrap();
    discard_all(&meta);
    assert_eq!(meta.ended_stripe(id), Ok(Some(record)));
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn relocation_needs_the_generation_that_it_was_planned_for() {
    let (meta, pool) = cluster();
    let id = one_stripe(&meta, &pool, "a");
    let chunk = ChunkIndex(2);
    let stale = meta.mark_stale(id, chunk).unwrap();
    let gone = StaleChunk {
        chunk,
        missed_after: None,
    };
    assert_eq!(
        (stale.generation, &*stale.stale),
        (Generation(2), &[gone][..])
    );
    assert_eq!(
        meta.mark_stale(id, chunk),
        Ok(stale.clone()),
        "once is enough"
    );
    let missed_after = Some(Sequence(7));
    let behind = [StaleChunk {
        chunk,
        missed_after,
    }];
    assert_eq!(
        meta.note_stale(id, &behind),
        Ok(stale),
        "it is gone already"
    );
    assert_eq!(
        meta.relocate(id, Generation(1), chunk, (NodeId(5), None)),
        Err(MetaError::GenerationChanged {
            stripe: id,
            expected: Generation(1),
            current: Generation(2),
        })
    );
    let moved = meta
        .relocate(id, Generation(2), chunk, (NodeId(5), None))
        .unwrap();
    assert_eq!(moved.node_of(chunk), Some(NodeId(5)));
    assert_eq!((moved.generation, moved.stale.len()), (Generation(3), 0));
    assert_eq!(meta.stripes_on(NodeId(4), None, 9), Ok(vec![]));
    assert_eq!(meta.stripes_on(NodeId(5), None, 9), Ok(vec![moved.clone()]));
    meta.mark_stale(id, chunk).unwrap();
    let mended = meta
        .relocate(id, Generation(4), chunk, (NodeId(5), None))
        .unwrap();
    assert_eq!(mended.nodes, moved.nodes, "repaired in place");
    assert_eq!((mended.generation, mended.stale.len()), (Generation(5), 0));
    let ninth = gabion_layout::ChunkId {
        stripe: id,
        index: ChunkIndex(9),
    };
    assert_eq!(
        meta.mark_stale(id, ninth.index),
        Err(MetaError::UnknownChunk(ninth))
    );
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn a_node_is_a_former_holder_from_the_move_until_its_chunk_is_gone() {
    let (meta, pool) = cluster();
    let id = one_stripe(&meta, &pool, "a");
    let index = ChunkIndex(2);
    let chunk = gabion_layout::ChunkId { stripe: id, index };
    let (old, new) = (meta.stripe(id).unwrap().nodes[2], NodeId(5));
    let move_to = |node| {
        let generation = meta.stripe(id).unwrap().generation;
        meta.relocate(id, generation, index, (node, None)).unwrap();
        assert_eq!(meta.check(), Ok(vec![]));
        meta.former_holders(id).unwrap()
    };
    assert_eq!(move_to(new), [old]);
    assert_eq!(meta.all_former_holders(), Ok(vec![(old, chunk)]));
    assert_eq!(move_to(old), [new], "it has the chunk again");
    meta.forget_former_holder(old, chunk).unwrap();
    assert_eq!(meta.former_holders(id), Ok(vec![new]), "only the named one");
    meta.forget_former_holder(new, chunk).unwrap();
    assert_eq!(meta.former_holders(id), Ok(vec![]));
    assert_eq!(move_to(new), [old]);
    meta.declare_failed(old).unwrap();
    assert_eq!(
        meta.former_holders(id),
        Ok(vec![]),
        "it joins before it serves"
    );
    meta.declare_failed(new).unwrap();
    meta.declare_returned(old, Start::default(), 0).unwrap();
    assert_eq!(move_to(old), [], "the node that had it is failed");
}

#[test]
fn a_report_marks_the_chunk_that_it_is_about_and_no_later_one() {
    let (meta, pool) = cluster();
    let id = one_stripe(&meta, &pool, "a");
    let index = ChunkIndex(2);
    let chunk = gabion_layout::ChunkId { stripe: id, index };
    let (old, new) = (meta.stripe(id).unwrap().nodes[2], NodeId(5));
    let marks = |node, generation| {
        let record = meta
            .mark_damaged(chunk, node, Generation(generation))
            .unwrap();
        record.is_some_and(|stripe| stripe.is_stale(index))
    };
    let make = |node| {
        let generation = meta.stripe(id).unwrap().generation;
        let place = (node, Some(generation));
        meta.relocate(id, generation, index, place).unwrap();
        generation.0
    };
    assert!(!marks(new, 1), "another node holds it");
    assert!(marks(old, 1));
    let made_in = make(old);
    assert!(!marks(old, made_in - 1), "it was rebuilt since");
    assert!(marks(old, made_in));
    let made_in = make(new);
    assert!(!marks(old, made_in), "it has moved");
    assert_eq!(meta.stripe(id).unwrap().stale, []);
    assert!(marks(new, made_in));
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn stripes_come_in_pages() {
    let (meta, pool) = cluster();
    let name = |i: u32| format!("dir/{i}");
    let ids: Vec<StripeId> = (0..7).map(|i| one_stripe(&meta, &pool, &name(i))).collect();
    let pages = |next: &dyn Fn(Option<StripeId>) -> Vec<StripeId>| {
        let mut all = Vec::new();
        loop {
            let page = next(all.last().copied());
            assert!(page.len() <= 3);
            if page.is_empty() {
                return all;
            }
            all.extend(page);
        }
    };
    let id = |stripe: gabion_layout::StripeRecord| stripe.id;
    let everywhere = |after| {
        meta.stripes(after, 3)
            .unwrap()
            .into_iter()
            .map(id)
            .collect()
    };
    assert_eq!(pages(&everywhere), ids);
    let on = |after| {
        let page = meta.stripes_on(NodeId(2), after, 3).unwrap();
        page.into_iter().map(id).collect()
    };
    assert_eq!(pages(&on), ids);
    let files = meta.files("dir/", Some("dir/4"), 9).unwrap();
    let names: Vec<_> = files.into_iter().map(|file| file.name).collect();
    assert_eq!(names, [name(5), name(6)]);
}

#[test]
fn a_returning_node_keeps_its_rack_and_its_failure() {
    let (meta, _) = cluster();
    let again = |rack, address| meta.join(Some(NodeId(3)), RackId(rack), address, 7, 99);
    meta.declare_failed(NodeId(3)).unwrap();
    assert_eq!(again(1, "10.0.0.99:7000"), Ok(NodeId(3)));
    let record = meta.node(NodeId(3)).unwrap();
    assert_eq!((record.capacity_bytes, record.joined_ms), (7, 99));
    assert!(record.failed);
    assert_eq!(
        again(2, "10.0.0.99:7000"),
        Err(MetaError::RackChanged {
            node: NodeId(3),
            recorded: RackId(1),
            given: RackId(2),
        })
    );
    assert_eq!(
        again(1, "10.0.0.4:7000"),
        Err(MetaError::AddressInUse {
            address: "10.0.0.4:7000".to_owned(),
            node: NodeId(4),
        })
    );
    let unknown = meta.join(Some(NodeId(77)), RackId(0), "h:1", 1, 0);
    assert_eq!(unknown, Err(MetaError::UnknownNode(NodeId(77))));
    let replaced = meta.join(None, RackId(1), "10.0.0.99:7000", 1, 0);
    assert_eq!(replaced, Ok(NodeId(12)), "a failed node has no claim");
    assert_eq!(meta.node(NodeId(3)).unwrap().admitted, None);
    let start = Start {
        number: 2,
        nonce: 9,
    };
    let record = meta.declare_returned(NodeId(3), start, 0).unwrap();
    assert_eq!((record.failed, record.admitted), (false, Some(start)));
    assert_eq!(again(1, "10.0.0.98:7000"), Ok(NodeId(3)));
    let record = meta.node(NodeId(3)).unwrap();
    assert_eq!(record.admitted, Some(start), "until the next one is let in");
    let topology = meta.topology().unwrap();
    assert_eq!(topology.rack_of(NodeId(12)), Some(RackId(1)));
    assert_eq!(topology.nodes().len(), 13);
}

#[test]
fn pools_hold_their_promise_or_are_refused() {
    let (meta, pool) = cluster();
    assert_eq!(meta.pool_named("main"), Ok(pool.clone()));
    assert_eq!(meta.pool(pool.id), Ok(pool.clone()));
    assert_eq!(meta.pools(), Ok(vec![pool]));
    let taken = meta.create_pool(&spec());
    assert_eq!(taken, Err(MetaError::PoolExists("main".to_owned())));
    let with = |change: &dyn Fn(&mut PoolSpec)| {
        let mut spec = PoolSpec {
            name: "other".to_owned(),
            ..spec()
        };
        change(&mut spec);
        meta.create_pool(&spec).map(|_| ())
    };
    let impossible = |change: &dyn Fn(&mut PoolSpec)| {
        assert!(matches!(with(change), Err(MetaError::Pool(_))));
    };
    impossible(&|spec| spec.survive = Survive::Nodes(3));
    impossible(&|spec| spec.survive = Survive::Racks(0));
    impossible(&|spec| spec.survive = Survive::Racks(u32::MAX));
    impossible(&|spec| spec.chunks_per_rack = 2);
    impossible(&|spec| spec.chunks_per_rack = 0);
    impossible(&|spec| spec.m = 0);
    impossible(&|spec| spec.chunk_bytes = 0);
    impossible(&|spec| spec.sub_chunks = 3);
    impossible(&|spec| spec.code = "rs (4,2)".to_owned());
    let reserved = |initial_chunks, period_s| {
        with(&|spec| {
            spec.name = "reserved".to_owned();
            spec.update = UpdateScheme::Plr;
            spec.reserve = Some(ReserveSpec {
                initial_chunks,
                period_s,
                ..ReserveSpec::default()
            });
        })
    };
    assert!(matches!(reserved(65, 60), Err(MetaError::Pool(_))));
    assert!(matches!(reserved(1, 0), Err(MetaError::Pool(_))));
    assert_eq!(reserved(0, 60), Ok(()));
    let named = with(&|spec| spec.name = "Other".to_owned());
    assert_eq!(named, Err(MetaError::PoolName("Other".to_owned())));
    assert_eq!(with(&|spec| spec.survive = Survive::Nodes(2)), Ok(()));
}

fn node(node: u32, incarnation: u64) -> Holder {
    Holder::Node {
        node: NodeId(node),
        incarnation,
    }
}

#[test]
fn a_lease_is_held_until_its_holder_can_no_longer_serve() {
    let (meta, pool) = cluster();
    let id = one_stripe(&meta, &pool, "a");
    let mut membership = membership();
    let first = meta.acquire(id, node(0, 1), &membership, 1000).unwrap();
    assert_eq!((first.epoch, first.generation), (Epoch(1), Generation(1)));
    let again = meta.acquire(id, node(0, 1), &membership, 1050).unwrap();
    assert_eq!(again.epoch, Epoch(2), "an epoch is never handed out twice");
    membership.heartbeat(NodeId(1), 1, 1099);
    let held = MetaError::Held {
        stripe: id,
        holder: node(0, 1),
        epoch: Epoch(2),
    };
    let asked = meta.acquire(id, node(1, 1), &membership, 1109);
    assert_eq!(asked, Err(held), "it may still serve by its own clock");
    let second = meta.acquire(id, node(1, 1), &membership, 1110).unwrap();
    assert_eq!(second.epoch, Epoch(3));
    assert_eq!(
        meta.acquire(id, node(0, 1), &membership, 1110),
        Err(MetaError::NodeNotLive(NodeId(0)))
    );
    assert_eq!(meta.release(id, Epoch(2)), Ok(false), "a former holder");
    assert_eq!(meta.lease(id), Ok(Some(second)));
    assert_eq!(meta.release(id, Epoch(3)), Ok(true));
    assert_eq!(meta.release(id, Epoch(3)), Ok(false));
    assert_eq!(meta.lease(id), Ok(None));
    assert_eq!(meta.last_epoch(id), Ok(Epoch(3)));
    let third = meta.acquire(id, node(1, 1), &membership, 1111).unwrap();
    assert_eq!(third.epoch, Epoch(4), "not even after a release");
}

#[test]
fn many_leases_are_granted_at_once_and_one_refusal_stops_none() {
    let (meta, pool) = cluster();
    let ids = ["a", "b", "c"].map(|name| one_stripe(&meta, &pool, name));
    let membership = membership();
    let held = meta.acquire(ids[1], node(0, 1), &membership, 1000).unwrap();
    let asked = [ids[2], ids[1], StripeId(99), ids[0]];
    let answers = meta
        .acquire_all(&asked, node(1, 1), &membership, 1000)
        .unwrap();
    let epochs = answers.into_iter().map(|answer| answer.map(|l| l.epoch));
    assert_eq!(
        epochs.collect::<Vec<_>>(),
        [
            Ok(Epoch(1)),
            Err(MetaError::Held {
                stripe: ids[1],
                holder: node(0, 1),
                epoch: held.epoch,
            }),
            Err(MetaError::UnknownStripe(StripeId(99))),
            Ok(Epoch(1)),
        ]
    );
    assert_eq!(meta.lease(ids[0]).unwrap().unwrap().holder, node(1, 1));
    let refused = meta.acquire_all(&asked, node(9, 1), &membership, 1000);
    assert_eq!(refused, Err(MetaError::NodeNotLive(NodeId(9))));
}

#[test]
fn a_new_run_of_a_node_gets_a_new_epoch_and_the_old_run_none() {
    let (meta, pool) = cluster();
    let id = one_stripe(&meta, &pool, "a");
    let mut membership = membership();
    meta.acquire(id, node(0, 1), &membership, 1000).unwrap();
    membership.heartbeat(NodeId(0), 2, 1001);
    let lease = meta.acquire(id, node(0, 2), &membership, 1001).unwrap();
    assert_eq!(lease.epoch, Epoch(2));
    assert_eq!(
        meta.acquire(id, node(0, 1), &membership, 1001),
        Err(MetaError::NodeNotLive(NodeId(0)))
    );
}

#[test]
fn the_coordinator_takes_leases_from_nodes_and_from_its_own_past() {
    let (meta, pool) = cluster();
    let id = one_stripe(&meta, &pool, "a");
    let membership = membership();
    let coordinator = |incarnation| Holder::Coordinator { incarnation };
    meta.acquire(id, node(0, 1), &membership, 1000).unwrap();
    let old = coordinator(meta.incarnation());
    let taken = meta.acquire(id, old, &membership, 1000).unwrap();
    assert_eq!(taken.epoch, Epoch(2));
    let refused = meta.acquire(id, node(0, 1), &membership, 1000);
    assert!(matches!(refused, Err(MetaError::Held { .. })));
    let meta = Meta::open(meta.into_store(), WallClock::stopped(WallTime::default())).unwrap();
    let new = coordinator(meta.incarnation());
    let taken = meta.acquire(id, new, &membership, 1000).unwrap();
    assert_eq!(taken.epoch, Epoch(3), "its past run's orders are fenced");
    let refused = meta.acquire(id, old, &membership, 1000);
    assert!(matches!(refused, Err(MetaError::Held { .. })));
    let meta = Meta::open(meta.into_store(), WallClock::stopped(WallTime::default())).unwrap();
    let lease = meta.acquire(id, node(0, 1), &membership, 1000).unwrap();
    assert_eq!(lease.epoch, Epoch(4), "a run that is over holds nothing");
    let put = meta.file("a").unwrap().put;
    meta.remove_file("a", put, (0, 141)).unwrap();
    discard_all(&meta);
    assert_eq!(
        meta.acquire(id, new, &membership, 1000),
        Err(MetaError::UnknownStripe(id))
    );
}

#[test]
fn chunks_change_places_at_a_new_generation_or_not_at_all() {
    let (meta, pool) = cluster();
    let id = one_stripe(&meta, &pool, "a");
    let before = meta.stripe(id).unwrap();
    let mut nodes = before.nodes.clone();
    nodes.swap(0, 3);
    let old = Generation(before.generation.0 + 1);
    assert!(matches!(
        meta.exchange(id, old, &nodes),
        Err(MetaError::GenerationChanged { .. })
    ));
    meta.declare_failed(nodes[3]).unwrap();
    assert_eq!(
        meta.exchange(id, before.generation, &nodes),
        Err(MetaError::NodeFailed(nodes[3]))
    );
    assert_eq!(meta.stripe(id), Ok(before.clone()));
    nodes.swap(0, 3);
    nodes.swap(1, 2);
    let after = meta.exchange(id, before.generation, &nodes).unwrap();
    assert_eq!(meta.stripe(id), Ok(after.clone()));
    assert_eq!((after.nodes, after.generation), (nodes.clone(), old));
    let on_first = meta.stripes_on(nodes[1], None, 9).unwrap();
    assert_eq!(on_first.len(), 1, "no node has left");
}

#[test]
fn it_is_known_which_failed_nodes_have_chunks_that_have_moved() {
    let (meta, pool) = cluster();
    let id = one_stripe(&meta, &pool, "a");
    let stripe = meta.stripe(id).unwrap();
    let (first, second) = (stripe.nodes[0], stripe.nodes[1]);
    let free: Vec<NodeId> = (0..12)
        .map(NodeId)
        .filter(|node| !stripe.nodes.contains(node))
        .collect();
    let move_to = |chunk, node| {
        let generation = meta.stripe(id).unwrap().generation;
        meta.relocate(id, generation, ChunkIndex(chunk), (node, None))
    };
    meta.declare_failed(first).unwrap();
    move_to(0, free[0]).unwrap();
    move_to(1, free[1]).unwrap();
    assert_eq!(meta.absent_holders(id), Ok(vec![first]));
    // A former holder that fails is absent from then on.
    assert_eq!(meta.former_holders(id), Ok(vec![second]));
    meta.declare_failed(second).unwrap();
    assert_eq!(meta.absent_holders(id), Ok(vec![first, second]));
    assert_eq!(
        (meta.former_holders(id), meta.check()),
        (Ok(vec![]), Ok(vec![]))
    );
    meta.declare_returned(first, gabion_layout::Start::default(), 0)
        .unwrap();
    assert_eq!(meta.absent_holders(id), Ok(vec![second]));
    let put = meta.file("a").unwrap().put;
    meta.remove_file("a", put, (0, 142)).unwrap();
    discard_all(&meta);
    assert_eq!(
        (meta.absent_holders(id), meta.check()),
        (Ok(vec![second]), Ok(vec![]))
    );
    meta.reclaimed(id).unwrap();
    assert_eq!(
        (meta.absent_holders(id), meta.check()),
        (Ok(vec![]), Ok(vec![]))
    );
}

#[test]
fn a_join_leaves_the_notes_about_chunks_that_have_moved_and_they_go_some_at_a_time() {
    let (meta, pool) = cluster();
    let stripes = ["a", "b", "c"].map(|name| one_stripe(&meta, &pool, name));
    let first = meta.stripe(stripes[0]).unwrap();
    let (gone, other) = (first.nodes[0], first.nodes[1]);
    for node in [gone, other] {
        meta.declare_failed(node).unwrap();
    }
    for id in stripes {
        // Each goes to the other node of its rack.
        for chunk in [0, 1] {
            let stripe = meta.stripe(id).unwrap();
            let to = (NodeId(stripe.nodes[chunk].0 + 1), None);
            let index = ChunkIndex(chunk as u8);
            meta.relocate(id, stripe.generation, index, to).unwrap();
        }
        assert_eq!(meta.absent_holders(id), Ok(vec![gone, other]));
    }
    // Those by node.
    let row_count = || {
        assert_eq!(meta.check(), Ok(vec![]));
        let rows = meta.store().read(|txn| txn.scan(&[60], &[61], 99));
        rows.unwrap().len()
    };
    assert_eq!(meta.forget_absences(2), Ok(false), "no node has joined");
    assert_eq!(row_count(), 6);
    meta.declare_returned(gone, Start::default(), 0).unwrap();
    assert_eq!(row_count(), 6, "no join is longer because of them");
    for id in stripes {
        assert_eq!(meta.absent_holders(id), Ok(vec![other]));
    }
    meta.declare_failed(gone).unwrap();
    assert_eq!(meta.forget_absences(2), Ok(false), "it has failed again");
    meta.declare_returned(gone, Start::default(), 0).unwrap();
    assert_eq!((meta.forget_absences(2), row_count()), (Ok(true), 4));
    assert_eq!((meta.forget_absences(2), row_count()), (Ok(true), 3));
    assert_eq!((meta.forget_absences(2), row_count()), (Ok(false), 3));
    meta.declare_failed(gone).unwrap();
    for id in stripes {
        assert_eq!(meta.absent_holders(id), Ok(vec![other]));
    }
}
