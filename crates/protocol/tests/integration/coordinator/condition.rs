//! Tests the coordinator's knowledge of nodes' disks, silence and addresses, and its log of them.

use crate::coordinator::bed::{Asked, Bed, TIMING, chunk_on, gone};
use futures::FutureExt;
use futures::future::ready;
use gabion_layout::{ByteRange, NodeId};
use gabion_meta::NewAttributes;
use gabion_planner::placement::Space;
use gabion_protocol::event::Event;
use gabion_protocol::message::{
    Applicant, Cause, CoordinatorReply, CoordinatorRequest, Damage, NewExtent, NodeHealth,
    NodeReply, NodeRequest, RepairOrder, Scrubbed, USAGE_AGE_MS, ask,
};

const MIB: u64 = 1 << 20;

fn space(free_mib: u64) -> Space {
    Space {
        capacity_bytes: 1_000 * MIB,
        free_bytes: free_mib * MIB,
    }
}

fn say(bed: &mut Bed, node: u32, space: Space) {
    let health = NodeHealth {
        space: Some(space),
        ..NodeHealth::default()
    };
    bed.heartbeat(NodeId(node), health);
}

#[test]
fn one_full_node_stops_no_put_and_gets_nothing() {
    let mut bed = Bed::three_racks();
    for node in 0..9 {
        say(&mut bed, node, space(if node == 4 { 40 } else { 900 }));
    }
    let stripes = bed.put("f", 50);
    let uses_it = stripes
        .iter()
        .any(|stripe| stripe.nodes.contains(&NodeId(4)));
    assert!(!uses_it, "node 4 is 96 % full");
    assert_eq!(bed.take_events(), [Event::DiskFull(NodeId(4), space(40))]);
    say(&mut bed, 4, space(900));
    assert_eq!(
        bed.take_events(),
        [Event::DiskHasRoom(NodeId(4), space(900))]
    );
    let stripes = bed.put("g", 50);
    assert!(
        stripes
            .iter()
            .any(|stripe| stripe.nodes.contains(&NodeId(4)))
    );
}

#[test]
fn a_node_that_leaves_has_no_free_space() {
    let mut bed = Bed::three_racks();
    bed.health.space = Some(space(900));
    bed.pass(100);
    let told = |bed: &mut Bed| match (bed.ask(ask::Usage), bed.ask(ask::Space)) {
        (CoordinatorReply::Usage(usage), CoordinatorReply::Space(space)) => {
            let free = usage.spaces.values().map(|space| space.free_bytes / MIB);
            let present = space.spaces.values().map(|space| space.free_bytes / MIB);
            (usage.spaces.len(), free.sum::<u64>(), present.sum::<u64>())
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(told(&mut bed), (9, 8_100, 8_100));
    let leaving = NodeId(3);
    let drained = bed.ask(CoordinatorRequest::Drain(leaving));
    assert_eq!(drained, CoordinatorReply::Done);
    assert_eq!(told(&mut bed), (9, 7_200, 7_200), "its disk is shown still");
    let CoordinatorReply::Space(space) = bed.ask(ask::Space) else {
        panic!("the space is known")
    };
    assert!(!space.spaces.contains_key(&leaving));
    let kept = bed.ask(CoordinatorRequest::Keep(leaving));
    assert_eq!(kept, CoordinatorReply::Done);
    assert_eq!(told(&mut bed), (9, 8_100, 8_100));
}

#[test]
fn the_recent_usage_counts_files_at_most_once_in_a_while_and_quotas_each_time() {
    let mut bed = Bed::three_racks();
    let told = |bed: &mut Bed, request: CoordinatorRequest| match bed.ask(request) {
        CoordinatorReply::Usage(usage) => {
            let pool = usage.pools.into_values().next().expect("a pool");
            assert_eq!(pool.name, "p");
            (pool.file_count, pool.raw_bytes / (6 * MIB), pool.used.files)
        }
        other => panic!("{other:?}"),
    };
    let recent = || ask::RecentUsage.into();
    bed.put("f", 1);
    assert_eq!(told(&mut bed, recent()), (1, 1, 1));
    bed.put("g", 1);
    assert_eq!(told(&mut bed, recent()), (1, 1, 2), "of the last count");
    assert_eq!(told(&mut bed, ask::Usage.into()), (2, 2, 2));
    assert_eq!(told(&mut bed, recent()), (2, 2, 2), "that was the last one");
    bed.put("h", 1);
    bed.pass(USAGE_AGE_MS);
    assert_eq!(told(&mut bed, recent()), (2, 2, 3));
    bed.pass(100);
    assert_eq!(told(&mut bed, recent()), (3, 3, 3));
}

#[test]
fn a_put_that_has_no_room_is_refused_before_anything_is_written() {
    let mut bed = Bed::three_racks();
    // Rack 1 cannot take its two chunks of a stripe.
    for node in 3..6 {
        say(&mut bed, node, space(0));
    }
    let refused = bed.ask(ask::BeginPut {
        at: "f".into(),
        existing: gabion_meta::Existing::Stays,
        pool: None,
        size_bytes: 4 * MIB,
        attributes: NewAttributes::FILE,
        whole: None,
        opener: None,
    });
    let CoordinatorReply::Refused(why) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(why.cause, Cause::NoSpace);
    assert!(
        why.sentence
            .contains("disk is full of node 3, node 4, node 5"),
        "{why}"
    );
}

#[test]
fn a_write_into_a_hole_that_has_no_room_is_refused_because_of_the_disks() {
    let mut bed = Bed::three_racks();
    bed.put("f", 1);
    for node in 3..6 {
        say(&mut bed, node, space(0));
    }
    let name = "f".to_owned();
    let CoordinatorReply::File(layout) = bed.ask(ask::Lookup { name }) else {
        panic!("the file is there")
    };
    let hole = NewExtent {
        offset: 40 * MIB,
        chunk_bytes: MIB,
    };
    let refused = bed.ask(ask::BeginReplace {
        file: layout.file.put,
        displaced: Vec::new(),
        extents: vec![hole],
        size: gabion_meta::SizeChange::AtLeast(44 * MIB),
        inline: None,
        token: gabion_meta::FencingToken::default(),
    });
    let CoordinatorReply::Refused(why) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(why.cause, Cause::NoSpace);
    assert!(
        why.sentence
            .contains("disk is full of node 3, node 4, node 5"),
        "{why}"
    );
}

#[test]
fn a_put_of_more_than_there_is_room_for_is_refused_because_of_the_disks() {
    let mut bed = Bed::three_racks();
    // Each stripe takes two chunks of a rack, and this one has room for those of a few.
    for node in 3..6 {
        say(&mut bed, node, space(5));
    }
    let put = |bed: &mut Bed, stripe_count: u64| {
        bed.ask(ask::BeginPut {
            at: format!("f{stripe_count}").into(),
            existing: gabion_meta::Existing::Stays,
            pool: None,
            size_bytes: stripe_count * 4 * MIB,
            attributes: NewAttributes::FILE,
            whole: None,
            opener: None,
        })
    };
    let refused = put(&mut bed, 8);
    let CoordinatorReply::Refused(why) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(why.cause, Cause::NoSpace);
    assert!(why.sentence.contains("before all is stored"), "{why}");
    assert!(
        why.sentence
            .contains("disk is full of node 3, node 4, node 5"),
        "{why}"
    );
    assert!(matches!(put(&mut bed, 1), CoordinatorReply::Put { .. }));
}

#[test]
fn silence_is_told_before_a_node_has_failed_and_its_chunks_are_out_of_reach() {
    let mut bed = Bed::three_racks();
    let stripes = bed.put("f", 20);
    let node = NodeId(4);
    let held = stripes.iter().filter(|stripe| stripe.nodes.contains(&node));
    let held_count = held.count() as u64;
    bed.pass(200);
    let status = bed.status();
    assert_eq!(status.silence_ms.len(), 9);
    assert!(
        status.silence_ms.values().all(|&ms| ms <= 200),
        "{status:?}"
    );
    bed.take_events();
    bed.stop(node);
    bed.pass(TIMING.lease_ms);
    let status = bed.status();
    assert_eq!(status.unreachable_chunk_count, held_count);
    assert_eq!(status.lost_chunk_count, 0);
    assert!(status.silence_ms[&node] >= TIMING.lease_ms);
    assert_eq!(bed.take_events(), [Event::Suspect(node)]);
    bed.pass(TIMING.margin_ms + 400);
    assert_eq!(bed.take_events(), [Event::Failed(node)]);
    let status = bed.status();
    assert_eq!(
        (status.unreachable_chunk_count, status.lost_chunk_count),
        (0, held_count)
    );
    assert!(!status.silence_ms.contains_key(&node));
}

#[test]
fn repairs_and_nodes_that_do_not_return_are_told() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1)[0].clone();
    let node = stripe.nodes[0];
    bed.fail(&[node]);
    bed.take_events();
    bed.pass(TIMING.grace_ms + 5_000);
    let events = bed.take_events();
    for wanted in [
        Event::Abandoned(node),
        Event::RepairBegan(stripe.id),
        Event::RepairEnded(stripe.id),
    ] {
        assert!(events.contains(&wanted), "{wanted:?} is not in {events:?}");
    }
}

#[test]
fn an_address_is_taken_from_a_node_that_is_not_there_any_more() {
    let mut bed = Bed::new(3, 1);
    let join = |bed: &mut Bed, node: Option<u32>, address: &str| {
        // A new one is the fourth.
        let number = node.unwrap_or(3);
        let applicant = Applicant {
            address: address.to_owned(),
            ..bed.applicant(node.map(NodeId), number, number % 3, 1_000_000)
        };
        bed.let_in(applicant, Vec::new())
    };
    let address_of = |bed: &mut Bed, node: usize| bed.status().nodes[node].address.clone();
    let [own, others] = [0, 1].map(|node| address_of(&mut bed, node));
    let busy = join(&mut bed, None, &others);
    assert!(matches!(busy, CoordinatorReply::Busy(_)), "{busy:?}");
    // After a restart of all, a port of one may have gone to another.
    for node in 0..3 {
        bed.stop(NodeId(node));
    }
    bed.restart();
    // One of three does not show that the metadata is the newest.
    let busy = join(&mut bed, Some(0), &own);
    assert!(matches!(busy, CoordinatorReply::Busy(_)), "{busy:?}");
    let address = address_of(&mut bed, 2);
    for (node, address) in [(2, &address), (0, &own)] {
        let joined = join(&mut bed, Some(node), address);
        assert!(matches!(joined, CoordinatorReply::Joined(_)), "{joined:?}");
    }
    let joined = join(&mut bed, None, &others);
    assert!(matches!(joined, CoordinatorReply::Joined(_)), "{joined:?}");
    assert_eq!(address_of(&mut bed, 3), others);
    assert_eq!(address_of(&mut bed, 1), "", "until it joins");
    // Another process has its port, so its last one has ended.
    let joined = join(&mut bed, Some(1), "10.0.0.1:7");
    assert!(matches!(joined, CoordinatorReply::Joined(_)), "{joined:?}");
    assert_eq!(address_of(&mut bed, 1), "10.0.0.1:7");
}

#[test]
fn damaged_chunks_are_counted_once_and_the_log_tells_of_them() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    bed.ask(RepairOrder::Pause);
    let (node, healthy) = (stripe.nodes[0], stripe.nodes[1]);
    assert!(bed.status().damaged_chunk_counts.is_empty());
    for _ in 0..2 {
        // It finds the same again until the chunk is repaired.
        bed.report_damage(chunk_on(&stripe, node));
    }
    // That chunk is not its own.
    bed.report_damage_of(healthy, chunk_on(&stripe, node), u64::MAX);
    let counts = bed.status().damaged_chunk_counts;
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), [(node, 1)]);
    assert_eq!(bed.take_events(), [Event::Damaged(node, 1)]);
}

#[test]
fn a_chunk_that_its_node_can_read_again_is_not_lost() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    let damage = Damage {
        chunk: chunk_on(&stripe, stripe.nodes[0]),
        generation: stripe.generation,
        range: ByteRange::new(0, 4096),
    };
    bed.report_once(stripe.nodes[0], damage.clone());
    assert_eq!(bed.stripe("f").stale, []);
    assert!(bed.status().damaged_chunk_counts.is_empty());
}

#[test]
fn damage_that_a_primary_has_found_in_the_chunk_of_another_is_repaired() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    let (primary, holder) = (stripe.nodes[0], stripe.nodes[4]);
    let damage = Damage {
        chunk: chunk_on(&stripe, holder),
        generation: stripe.generation,
        range: ByteRange::new(0, 4096),
    };
    bed.ask(RepairOrder::Pause);
    bed.report_once(primary, damage.clone());
    assert_eq!(bed.stripe("f").stale, [], "its node finds it intact");
    bed.find_damage(vec![damage.clone()]);
    bed.report_once(primary, damage.clone());
    let stale: Vec<_> = bed.stripe("f").stale.iter().map(|s| s.chunk).collect();
    assert_eq!(stale, [damage.chunk.index]);
    assert_eq!(bed.take_events(), [Event::Damaged(holder, 1)]);
}

#[test]
fn a_damaged_chunk_counts_as_lost_before_the_next_one_is_read_again() {
    let mut bed = Bed::three_racks();
    let stripes = bed.put("f", 9);
    let node = stripes[0].nodes[0];
    let own = stripes.iter().filter(|stripe| stripe.nodes.contains(&node));
    let damage: Vec<Damage> = own
        .map(|stripe| Damage {
            chunk: chunk_on(stripe, node),
            generation: stripe.generation,
            range: ByteRange::new(0, 4096),
        })
        .collect();
    assert!(damage.len() > 1);
    bed.ask(RepairOrder::Pause);
    // The node reads the first chunk and hangs at the second one. A settlement of the first one's stripe in this time
    // must not count on the chunk.
    let (mut count, found) = (0, damage.clone());
    bed.hook(move |node, request| {
        let NodeRequest::Scrub(scrub) = request else {
            return None;
        };
        count += 1;
        if count > 1 {
            return Some(ready(Err(gone(node))).boxed());
        }
        let again = found
            .iter()
            .filter(|found| scrub.chunks.contains(&found.chunk));
        let scrubbed = Scrubbed {
            chunk_count: scrub.chunks.len() as u64,
            bytes: 0,
            damage: again.cloned().collect(),
        };
        Some(ready(Ok(NodeReply::Scrubbed(scrubbed))).boxed())
    });
    bed.ask(ask::ReportDamage {
        node,
        damage: damage.clone(),
    });
    bed.pass(100);
    let status = bed.status();
    assert_eq!(status.lost_chunk_count, 1, "and the others are in doubt");
    let doubtful = Event::DamageInDoubt(node, damage.len() as u64 - 1);
    assert!(bed.take_events().contains(&doubtful));
}

#[test]
fn damage_that_its_node_cannot_confirm_is_asked_for_until_it_can() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    let (node, own) = (stripe.nodes[0], chunk_on(&stripe, stripe.nodes[0]));
    let damage = Damage {
        chunk: own,
        generation: stripe.generation,
        range: ByteRange::new(0, 4096),
    };
    bed.ask(RepairOrder::Pause);
    bed.hook(|node, request| {
        let is_scrub = matches!(request, NodeRequest::Scrub(_));
        is_scrub.then(|| ready(Err(gone(node))).boxed())
    });
    bed.report_once(node, damage.clone());
    bed.pass(20_000);
    assert_eq!(bed.stripe("f").stale, [], "the chunk may be intact");
    assert!(bed.take_events().contains(&Event::DamageInDoubt(node, 1)));
    bed.fail(&[node]);
    bed.unhook();
    bed.take_log();
    bed.pass(20_000);
    let is_scrub = |asked: &Asked| matches!(asked.request, NodeRequest::Scrub(_));
    assert!(
        !bed.take_log().iter().any(is_scrub),
        "the node is not there"
    );
    bed.rejoin(node, vec![own]);
    bed.find_damage(vec![damage]);
    bed.pass(10_000);
    assert_eq!(bed.stripe("f").stale.len(), 1);
    bed.take_log();
    bed.pass(20_000);
    assert!(!bed.take_log().iter().any(is_scrub), "once is enough");
}
