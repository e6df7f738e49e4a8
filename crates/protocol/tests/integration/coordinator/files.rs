//! Pools, puts, files and what is left of them.

use crate::coordinator::bed::{Asked, Bed, TIMING, cause, look_up, refused, words};
use futures::FutureExt;
use futures::future::ready;
use gabion_layout::{ByteRange, ChunkId, NodeId, StripeId, StripeRecord};
use gabion_meta::{Existing, NewAttributes, PutId};
use gabion_protocol::message::{
    Cause, CoordinatorReply, CoordinatorRequest, NodeReply, NodeRequest, OpenPut, Refusal, ask,
};
use std::collections::BTreeSet;

#[test]
fn a_refusal_names_its_cause_for_programs() {
    let mut bed = Bed::three_racks();
    bed.put("f", 1);
    bed.put("g", 1);
    let name = |name: &str| name.to_owned();
    let unknown = bed.ask(ask::Lookup { name: name("h") });
    assert_eq!(cause(unknown), Cause::NotFound);
    let mut put = |name: &str, pool: Option<&str>, size_bytes| {
        cause(bed.ask(ask::BeginPut {
            at: name.into(),
            existing: Existing::Stays,
            pool: pool.map(str::to_owned),
            size_bytes,
            attributes: NewAttributes::FILE,
            whole: None,
            opener: None,
        }))
    };
    assert_eq!(put("f", None, 1), Cause::Exists);
    assert_eq!(put("h", Some("no-such-pool"), 1), Cause::NotFound);
    assert_eq!(put("", None, 1), Cause::Invalid);
    assert_eq!(put("h", None, u64::MAX / 2), Cause::TooLarge);
    let pool = |bed: &mut Bed, name: &str, code| {
        cause(bed.create_pool(name, "1-rack", Some(code), 1 << 20))
    };
    assert_eq!(pool(&mut bed, "p", "rs(4,2)"), Cause::Exists);
    assert_eq!(pool(&mut bed, "P", "rs(4,2)"), Cause::Invalid);
    assert_eq!(pool(&mut bed, "q", "rs(0,2)"), Cause::Invalid);
    assert_eq!(pool(&mut bed, "q", "rs(8,1)"), Cause::Invalid);
}

#[test]
fn a_placement_seed_gives_files_of_the_same_size_the_same_places() {
    let places = |placement_seed| {
        let mut bed = Bed::placed(3, 3, placement_seed);
        bed.create_pool("p", "1-rack", Some("rs(4,2)"), 1 << 20);
        ["a", "b"].map(|file| {
            let stripes = bed.put(file, 5).into_iter();
            stripes.map(|stripe| stripe.nodes).collect::<Vec<_>>()
        })
    };
    let [a, b] = places(Some(7));
    assert_eq!(a, b);
    assert_eq!(places(Some(7))[0], a);
    assert_ne!(places(Some(8))[0], a);
    let distinct: BTreeSet<_> = a.iter().collect();
    assert!(distinct.len() > 1, "the stripes of a file differ: {a:?}");
    let [a, b] = places(None);
    assert_ne!(a, b);
}

#[test]
fn pools_are_made_to_keep_their_promise_or_not_at_all() {
    let mut bed = Bed::new(3, 3);
    let CoordinatorReply::Pool(chosen) = bed.create_pool("auto", "1-rack", None, 1 << 20) else {
        panic!("a code is chosen")
    };
    assert_eq!(
        (chosen.spec.code.as_str(), chosen.spec.chunks_per_rack),
        ("rs(4,2)", 2)
    );
    let racks = bed.create_pool("a", "2-racks", Some("rs(8,1)"), 1 << 20);
    refused(&racks, "too few for 2-racks");
    let wide = bed.create_pool("a", "1-rack", Some("rs(8,2)"), 1 << 20);
    refused(&wide, "does not fit");
    refused(
        &bed.create_pool("a", "3-racks", None, 1 << 20),
        "no code survives 3-racks",
    );
    refused(
        &bed.create_pool("a", "1-rack", Some("rs(4"), 1 << 20),
        "is not a code",
    );
    refused(
        &bed.create_pool("a", "1-rack", None, 1 << 11),
        "4 KiB to 1 GiB",
    );
    refused(
        &bed.create_pool("a", "1-rack", None, 1 << 31),
        "4 KiB to 1 GiB",
    );
    let rows = bed.create_pool("a", "2-nodes", Some("rdp(6)"), 4099);
    refused(&rows, "use 4104 bytes");
    refused(
        &bed.create_pool("auto", "1-rack", None, 1 << 20),
        "choose another name",
    );
    let CoordinatorReply::Pools(pools) = bed.ask(CoordinatorRequest::Pools) else {
        panic!("pools are listed")
    };
    assert_eq!(pools, [chosen]);
    bed.fail(&[NodeId(0), NodeId(1), NodeId(2)]);
    let fewer = bed.create_pool("b", "1-rack", Some("rs(4,2)"), 1 << 20);
    refused(&fewer, "does not fit");
}

#[test]
fn a_file_committed_on_a_dead_node_is_repaired() {
    let mut bed = Bed::three_racks();
    let (put, stripes) = bed.begin_put("f", 4 << 20);
    bed.fail(&[stripes[0].nodes[0]]);
    for _ in 0..16 {
        bed.pass(TIMING.grace_ms / 12);
        bed.ask(CoordinatorRequest::TouchPut(put));
    }
    assert_eq!(
        bed.ask(CoordinatorRequest::CommitPut(put)),
        CoordinatorReply::Done
    );
    bed.pass(100);
    assert_eq!(bed.failures_left(), [(2, 1)]);
    assert_eq!(bed.status().repair.repaired_chunk_count, 1);
}

#[test]
fn an_order_to_delete_a_file_that_comes_again_spares_the_next_one_of_its_name() {
    let mut bed = Bed::three_racks();
    let remove = |bed: &mut Bed, file| {
        let name = "f";
        bed.ask(ask::RemoveFile {
            at: name.into(),
            file,
            generation: 0,
            number: 208,
        })
    };
    bed.put("f", 1);
    let first = look(&mut bed);
    assert_eq!(remove(&mut bed, first), CoordinatorReply::Done);
    assert_eq!(
        remove(&mut bed, first),
        CoordinatorReply::Done,
        "it is gone"
    );
    bed.put("f", 1);
    assert_eq!(remove(&mut bed, first), CoordinatorReply::Done);
    let next = look(&mut bed);
    assert_ne!(next, first);
    assert_eq!(remove(&mut bed, next), CoordinatorReply::Done);
}

/// The put that brought the file.
fn look(bed: &mut Bed) -> PutId {
    let name = "f".to_owned();
    match bed.ask(ask::Lookup { name }) {
        CoordinatorReply::File(layout) => layout.file.put,
        other => panic!("{other:?}"),
    }
}

#[test]
fn garbage_is_forgotten_when_no_node_has_it_that_lives_or_may_return() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    let (failed, busy) = (stripe.nodes[0], stripe.nodes[1]);
    bed.fail(&[failed]);
    let mut refusals = 2;
    bed.hook(move |node, request| {
        let refuse = node == busy && refusals > 0 && matches!(request, NodeRequest::Remove { .. });
        refuse.then(|| {
            refusals -= 1;
            ready(Ok(NodeReply::Refused(Refusal::Failed("no".to_owned())))).boxed()
        })
    });
    let (name, file) = ("f", look(&mut bed));
    let removed = bed.ask(ask::RemoveFile {
        at: name.into(),
        file,
        generation: 0,
        number: 209,
    });
    assert_eq!(removed, CoordinatorReply::Done);
    bed.pass(100);
    let asked = |bed: &mut Bed| -> BTreeSet<u32> {
        let words = words(&bed.take_log());
        assert!(words.iter().all(|(_, word)| *word == "remove"), "{words:?}");
        words.into_iter().map(|(node, _)| node).collect()
    };
    let alive: BTreeSet<u32> = stripe.nodes[1..].iter().map(|node| node.0).collect();
    assert_eq!(asked(&mut bed), alive);
    bed.pass(30_000);
    assert_eq!(
        asked(&mut bed),
        alive,
        "once more, for the one that could not"
    );
    bed.restart();
    bed.pass(30_000);
    assert_eq!(
        asked(&mut bed),
        alive,
        "it is known as long as the failed node may return with it"
    );
    bed.pass(TIMING.grace_ms);
    bed.take_log();
    bed.restart();
    bed.pass(30_000);
    assert_eq!(asked(&mut bed), BTreeSet::new(), "it is forgotten");
    let chunk = ChunkId {
        stripe: stripe.id,
        index: stripe.chunk_on(failed).unwrap(),
    };
    assert_eq!(bed.rejoin_obsolete(failed, vec![chunk]), [chunk]);
}

#[test]
fn a_stripe_is_stored_without_a_failed_node_where_the_others_are_too_few() {
    let mut bed = Bed::new(3, 2);
    let reply = bed.create_pool("p", "1-rack", Some("rs(4,2)"), 1 << 20);
    assert!(matches!(reply, CoordinatorReply::Pool(_)), "{reply:?}");
    bed.fail(&[NodeId(4)]);
    let before = bed.put("f", 1).remove(0);
    let lost = before.chunk_on(NodeId(4)).unwrap();
    let stale: Vec<_> = before.stale.iter().map(|stale| stale.chunk).collect();
    assert_eq!(stale, [lost], "each other chunk is stored");
    assert_eq!(bed.failures_left(), [(1, 1)], "and the status says so");
    bed.take_log();
    // Its node returns with nothing, and gets the chunk.
    let joined = bed.join_holding(Some(NodeId(4)), 4, 2, vec![]);
    assert!(
        matches!(joined, CoordinatorReply::Joined { .. }),
        "{joined:?}"
    );
    bed.pass(1_000);
    assert_eq!(bed.stripe("f").stale, []);
    assert_eq!(bed.failures_left(), [(2, 1)]);
    // With two it would not survive a third.
    bed.fail(&[NodeId(4), NodeId(0)]);
    let refusal = bed.ask(ask::BeginPut {
        at: "g".into(),
        existing: Existing::Stays,
        pool: None,
        size_bytes: 1,
        attributes: NewAttributes::FILE,
        whole: None,
        opener: None,
    });
    refused(&refusal, "does not fit");
}

#[test]
fn no_chunk_is_left_out_while_nodes_that_are_up_suffice() {
    let mut bed = Bed::three_racks();
    bed.fail(&[NodeId(4)]);
    for stripe in bed.put("f", 20) {
        assert_eq!(stripe.stale, []);
    }
}

fn place_anew(
    bed: &mut Bed,
    put: OpenPut,
    (first, failed): (StripeId, StripeId),
    avoid: &[u32],
) -> CoordinatorReply {
    bed.ask(ask::PlaceAnew {
        put,
        first,
        failed: Some(failed),
        avoid: avoid.iter().map(|&node| NodeId(node)).collect(),
    })
}

fn placed(reply: CoordinatorReply) -> StripeRecord {
    match reply {
        CoordinatorReply::Put(mut places) => places.stripes.remove(0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stripe_that_a_node_does_not_take_is_placed_anew_under_another_id() {
    let mut bed = Bed::three_racks();
    let (put, stripes) = bed.begin_put("f", 3 * (4 << 20));
    let first = stripes[1].id;
    let avoid = stripes[1].nodes[0].0;
    let anew = placed(place_anew(&mut bed, put, (first, first), &[avoid]));
    assert!(anew.id > stripes[2].id && !anew.nodes.contains(&NodeId(avoid)));
    // The answer may have been lost, and the question may come late.
    for _ in 0..2 {
        let again = place_anew(&mut bed, put, (first, first), &[]);
        assert_eq!(placed(again), anew);
    }
    let last = placed(place_anew(&mut bed, put, (first, anew.id), &[avoid]));
    assert!(last.id > anew.id);
    let stranger = stripes[2].id.0 + 1;
    let none = place_anew(&mut bed, put, (StripeId(stranger), first), &[]);
    assert!(!matches!(none, CoordinatorReply::Put { .. }), "{none:?}");
    bed.pass(1_000);
    let removed = bed
        .take_log()
        .into_iter()
        .flat_map(|asked| match asked.request {
            NodeRequest::Remove(ask::Remove { chunks }) => chunks,
            other => panic!("{other:?}"),
        });
    let removed: BTreeSet<StripeId> = removed.map(|chunk| chunk.stripe).collect();
    assert_eq!(removed, [first, anew.id].into(), "what is not used");
    assert_eq!(
        bed.ask(CoordinatorRequest::CommitPut(put)),
        CoordinatorReply::Done
    );
    let name = "f".to_owned();
    let CoordinatorReply::File(layout) = bed.ask(ask::Lookup { name }) else {
        panic!("it is committed")
    };
    let expected = [stripes[0].clone(), last.clone(), stripes[2].clone()];
    assert_eq!(layout.stripes, expected, "in the order of the file");
    let late = place_anew(&mut bed, put, (first, last.id), &[]);
    refused(&late, "put");
}

#[test]
fn a_node_that_a_stripe_needs_is_left_out_once_it_is_declared_failed() {
    let mut bed = Bed::new(3, 2);
    bed.create_pool("p", "1-rack", Some("rs(4,2)"), 1 << 20);
    let (put, stripes) = bed.begin_put("f", 1);
    let first = stripes[0].id;
    let reply = place_anew(&mut bed, put, (first, first), &[4]);
    assert!(matches!(reply, CoordinatorReply::Busy(_)), "{reply:?}");
    bed.fail(&[NodeId(4)]);
    let anew = placed(place_anew(&mut bed, put, (first, first), &[4]));
    let left_out: Vec<_> = anew.stale.iter().map(|stale| stale.chunk).collect();
    assert_eq!(left_out, [anew.chunk_on(NodeId(4)).unwrap()]);
}

#[test]
fn a_look_up_returns_a_window_and_the_stripes_around_it() {
    let mut bed = Bed::three_racks();
    bed.options.window_stripe_count = 2;
    bed.restart();
    // A segment has 4 MiB.
    let segment_bytes = 4 << 20;
    let stripes = bed.put("f", 5);
    let CoordinatorReply::File(first) = look_up(&mut bed, "f") else {
        panic!("it was stored")
    };
    assert_eq!(first.window, ByteRange::new(0, 2 * segment_bytes));
    assert_eq!(first.stripes, stripes[..2]);
    assert_eq!(
        (first.before, first.behind),
        (None, Some(2 * segment_bytes))
    );
    let file = first.file.put;
    let mut at = |offset| match bed.ask(ask::LookupFile { file, offset }) {
        CoordinatorReply::File(layout) => layout,
        other => panic!("{other:?}"),
    };
    let third = at(4 * segment_bytes - 1);
    assert_eq!(third.window.offset, 2 * segment_bytes);
    assert_eq!(third.offsets, [2 * segment_bytes, 3 * segment_bytes]);
    assert_eq!(third.stripes, stripes[2..4]);
    let around = (Some(segment_bytes), Some(4 * segment_bytes));
    assert_eq!((third.before, third.behind), around);
    for far in [100 * segment_bytes, u64::MAX] {
        let far = at(far);
        assert_eq!((far.stripes, far.behind), (vec![], None));
        assert_eq!(far.before, Some(4 * segment_bytes));
        assert_eq!(far.window.offset % (2 * segment_bytes), 0);
    }
}

#[test]
fn a_rename_and_a_put_over_a_file_remove_its_chunks() {
    let mut bed = Bed::three_racks();
    let (first, second) = (bed.put("f", 1).remove(0), bed.put("g", 1).remove(0));
    let CoordinatorReply::File(layout) = look_up(&mut bed, "g") else {
        panic!("it was stored")
    };
    let renamed = bed.ask(ask::Rename {
        file: layout.file.put,
        from: "g".into(),
        generation: 0,
        number: 211,
        to: "f".into(),
        existing: Existing::IsReplaced,
    });
    assert_eq!(renamed, CoordinatorReply::Done);
    bed.pass(10_000);
    assert_eq!(removed_of(&bed.take_log(), first.id), first.nodes.len());
    let CoordinatorReply::Put(places) = bed.ask(ask::BeginPut {
        at: "f".into(),
        existing: Existing::IsReplacedIf(layout.file.put),
        pool: None,
        size_bytes: 1 << 20,
        attributes: NewAttributes::FILE,
        whole: None,
        opener: None,
    }) else {
        panic!("the file may be replaced")
    };
    let committed = bed.ask(CoordinatorRequest::CommitPut(places.put));
    assert_eq!(committed, CoordinatorReply::Done);
    bed.pass(10_000);
    assert_eq!(removed_of(&bed.take_log(), second.id), second.nodes.len());
    let gone = bed.ask(ask::LookupFile {
        file: layout.file.put,
        offset: 0,
    });
    assert_eq!(gone, CoordinatorReply::Gone);
}

/// Returns the number of nodes that were told to remove chunks of a stripe.
fn removed_of(log: &[Asked], stripe: StripeId) -> usize {
    let mut nodes: Vec<_> = log
        .iter()
        .filter(|asked| match &asked.request {
            NodeRequest::Remove(ask::Remove { chunks }) => {
                chunks.iter().any(|chunk| chunk.stripe == stripe)
            }
            _ => false,
        })
        .map(|asked| asked.node)
        .collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes.len()
}
