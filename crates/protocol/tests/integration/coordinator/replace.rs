//! Writes that span stripes: who may touch the old stripes meanwhile, and what is left of a
//! replacement however it ends.

use crate::coordinator::bed::{Bed, TIMING, chunk_on, gone, words};
use futures::FutureExt;
use futures::future::{pending, ready};
use gabion_layout::{
    ChunkId, ChunkIndex, Epoch, Generation, NodeId, Sequence, StripeId, StripeRecord,
};
use gabion_meta::{FencingToken, SizeChange};
use gabion_protocol::message::{
    CoordinatorReply, CoordinatorRequest, FileLayout, HeldChunk, Holding, NewExtent, NodeReply,
    NodeRequest, OpenPut, PendingRecord, Replacement, SettledStripe, ask,
};
use gabion_store::AppendedState;

/// Bytes of a stripe.
const STRIPE: u64 = 4 << 20;

fn look(bed: &mut Bed) -> FileLayout {
    let name = "f".to_owned();
    match bed.ask(ask::Lookup { name }) {
        CoordinatorReply::File(layout) => *layout,
        other => panic!("{other:?}"),
    }
}

fn ids(stripes: &[StripeRecord]) -> Vec<StripeId> {
    stripes.iter().map(|stripe| stripe.id).collect()
}

/// Asks for other stripes in the places of these.
fn ask(bed: &mut Bed, stripes: &[StripeRecord]) -> CoordinatorReply {
    let layout = look(bed);
    let offset = |stripe: &StripeRecord| {
        let at = layout.stripes.iter().position(|s| s.id == stripe.id);
        at.map_or(0, |at| layout.offsets[at])
    };
    let extent = |stripe: &StripeRecord| NewExtent {
        offset: offset(stripe),
        chunk_bytes: stripe.chunk_bytes,
    };
    bed.ask(ask::BeginReplace {
        file: layout.file.put,
        displaced: stripes.iter().map(|old| (offset(old), old.id)).collect(),
        extents: stripes.iter().map(extent).collect(),
        size: SizeChange::AtLeast(0),
        inline: None,
        token: FencingToken::default(),
    })
}

fn begin(bed: &mut Bed, old: &[StripeRecord]) -> (OpenPut, Vec<SettledStripe>, Vec<StripeRecord>) {
    match ask(bed, old) {
        CoordinatorReply::Replacement(begun) => (begun.put, begun.settled, begun.stripes),
        other => panic!("{other:?}"),
    }
}

fn commit(bed: &mut Bed, put: OpenPut, old: &[StripeRecord]) -> CoordinatorReply {
    let displaced = ids(old);
    bed.ask(ask::CommitReplace { put, displaced })
}

fn busy(reply: &CoordinatorReply, words: &str) {
    match reply {
        CoordinatorReply::Busy(sentence) => {
            assert!(sentence.sentence.contains(words), "{sentence}");
        }
        other => panic!("{other:?}"),
    }
}

fn epoch(reply: &CoordinatorReply) -> u64 {
    match reply {
        CoordinatorReply::Lease(lease) => lease.epoch.0,
        other => panic!("{other:?}"),
    }
}

#[test]
fn old_stripes_are_settled_and_not_updated_until_the_swap() {
    let mut bed = Bed::three_racks();
    let old = bed.put("f", 3);
    let primary = old[1].nodes[0];
    assert_eq!(epoch(&bed.acquire(old[1].id, primary)), 1);
    // Update 5 is on all participants, update 6 is not.
    let record = |sequence, participants: [u8; 2]| PendingRecord {
        epoch: Epoch(1),
        chunk: ChunkIndex(0),
        sequence: Sequence(sequence),
        participants: participants.map(ChunkIndex).to_vec(),
    };
    let (writer, records) = (old[1].nodes[0], vec![record(5, [0, 0]), record(6, [0, 1])]);
    let asked_id = old[1].id;
    bed.hook(move |node, request| match request {
        NodeRequest::Collect(ask::Collect { stripe, .. })
            if *stripe == asked_id && node == writer =>
        {
            let (mark, records) = (Sequence(4), records.clone());
            Some(
                ready(Ok(NodeReply::Holding(Holding {
                    mark,
                    records,
                    appended: AppendedState::default(),
                })))
                .boxed(),
            )
        }
        _ => None,
    });
    bed.take_log();
    let (put, settled, new) = begin(&mut bed, &old[1..]);
    let marks: Vec<_> = settled.iter().map(|s| (s.epoch, s.mark)).collect();
    assert_eq!(marks, [(Epoch(2), Sequence(5)), (Epoch(1), Sequence(0))]);
    assert_eq!(ids(&new).len(), 2);
    assert!(new.iter().all(|s| s.chunk_bytes == 1 << 20));
    let log = bed.take_log();
    let count = |word| words(&log).iter().filter(|(_, w)| *w == word).count();
    assert_eq!((count("collect"), count("resolve")), (12, 12));
    busy(&bed.acquire(old[1].id, primary), "rewritten");
    assert_eq!(epoch(&bed.acquire(old[0].id, old[0].nodes[0])), 1);
    assert_eq!(look(&mut bed).stripes, old, "nothing is seen yet");
    assert_eq!(commit(&mut bed, put, &old[1..]), CoordinatorReply::Done);
    let after = look(&mut bed);
    assert_eq!(after.stripes[0], old[0]);
    assert_eq!(after.stripes[1..], new);
    busy(&bed.acquire(old[1].id, primary), "read the file's record");
    assert_eq!(epoch(&bed.acquire(new[0].id, new[0].nodes[0])), 1);
    // All twelve old chunks are gone before the answer.
    let removed: Vec<ChunkId> = bed
        .take_log()
        .into_iter()
        .filter_map(|asked| match asked.request {
            NodeRequest::Remove(ask::Remove { chunks }) => Some(chunks),
            _ => None,
        })
        .flatten()
        .collect();
    for stripe in &old[1..] {
        for &node in &stripe.nodes {
            assert!(removed.contains(&chunk_on(stripe, node)), "{node}");
        }
    }
}

#[test]
fn a_write_is_not_acknowledged_while_a_node_serves_old_chunks() {
    let mut bed = Bed::three_racks();
    let old = bed.put("f", 2);
    let (put, _, new) = begin(&mut bed, &old);
    let slow = old[0].nodes[0];
    bed.hook(move |node, request| {
        let is_slow = node == slow && matches!(request, NodeRequest::Remove { .. });
        is_slow.then(|| ready(Err(gone(node))).boxed())
    });
    busy(&commit(&mut bed, put, &old), "not withdrawn");
    assert_eq!(look(&mut bed).stripes, new, "but it is done");
    busy(&commit(&mut bed, put, &old), "not withdrawn");
    // A reader with the old layout would not see what is written to the new stripe.
    busy(&bed.acquire(new[0].id, new[0].nodes[0]), "rewritten");
    busy(&ask(&mut bed, &new), "has the primary the coordinator");
    bed.unhook();
    assert_eq!(commit(&mut bed, put, &old), CoordinatorReply::Done);
    assert_eq!(epoch(&bed.acquire(new[0].id, new[0].nodes[0])), 2);
}

#[test]
fn a_write_is_not_acknowledged_while_failed_nodes_may_answer_quorum_reads() {
    let mut bed = Bed::three_racks();
    let old = bed.put("f", 1);
    let nodes = &old[0].nodes;
    let (put, _, new) = begin(&mut bed, &old);
    // Three of six are cut off from the coordinator. A reader on their side takes a cut of 6 - 4 + 1 nodes.
    let cut_off = [nodes[0], nodes[1], nodes[2]];
    bed.fail(&cut_off);
    for _ in 0..2 {
        busy(&commit(&mut bed, put, &old), "not withdrawn");
    }
    assert_eq!(look(&mut bed).stripes, new, "but it is done");
    // The end of the grace period does not prove that the nodes have stopped.
    bed.pass(2 * TIMING.grace_ms);
    busy(&commit(&mut bed, put, &old), "not withdrawn");
    let node = cut_off[0];
    let held = chunk_on(&old[0], node);
    assert_eq!(bed.rejoin_obsolete(node, vec![held]), [held]);
    bed.pass(1_000);
    assert_eq!(commit(&mut bed, put, &old), CoordinatorReply::Done);
}

#[test]
fn a_write_is_acknowledged_while_a_node_joins_that_was_told_to_keep_an_old_chunk() {
    let mut bed = Bed::three_racks();
    let old = bed.put("f", 1);
    let node = old[0].nodes[0];
    bed.fail(&[node]);
    let held = HeldChunk {
        chunk: chunk_on(&old[0], node),
        generation: Generation(1),
        mark: Sequence(0),
        epoch: Epoch(0),
        undecided: vec![],
    };
    let chunks = vec![held];
    let applicant = bed.applicant(Some(node), node.0, node.0 / 3, 1 << 20);
    let (session, answer) = bed.tell(applicant, &chunks).expect("it may join");
    assert_eq!((answer.obsolete, answer.unknown), (vec![], vec![]));
    let (put, _, _) = begin(&mut bed, &old);
    assert_eq!(commit(&mut bed, put, &old), CoordinatorReply::Done);
    // It does not become a member with that answer.
    let changed = bed.end_join(session, &chunks);
    assert!(
        matches!(changed, CoordinatorReply::Changed { .. }),
        "{changed:?}"
    );
    let joined = bed.end_join_again(session, &chunks, chunks.clone());
    let CoordinatorReply::Joined(joined) = joined else {
        panic!("{joined:?}");
    };
    assert_eq!(joined.answer.obsolete, [chunks[0].chunk]);
}

#[test]
fn a_commit_whose_answer_was_lost_is_known_after_others_have_replaced_the_stripes() {
    let mut bed = Bed::three_racks();
    let old = bed.put("f", 2);
    let (put, _, new) = begin(&mut bed, &old);
    // The answer is lost, and another client writes before the client asks again.
    assert_eq!(commit(&mut bed, put, &old), CoordinatorReply::Done);
    let (other, _, newest) = begin(&mut bed, &new);
    assert_eq!(commit(&mut bed, other, &new), CoordinatorReply::Done);
    assert_eq!(commit(&mut bed, put, &old), CoordinatorReply::Done);
    bed.restart();
    assert_eq!(commit(&mut bed, put, &old), CoordinatorReply::Done);
    assert_eq!(look(&mut bed).stripes, newest, "nothing is done twice");
    // One that was aborted never was committed, and that is another answer.
    let (put, ..) = begin(&mut bed, &newest);
    bed.ask(CoordinatorRequest::AbortPut(put));
    let late = commit(&mut bed, put, &newest);
    assert!(
        matches!(late, CoordinatorReply::NotCommitted(_)),
        "{late:?}"
    );
}

#[test]
fn of_writers_that_overlap_one_waits() {
    let mut bed = Bed::three_racks();
    let old = bed.put("f", 3);
    let (first, ..) = begin(&mut bed, &old[..2]);
    busy(&ask(&mut bed, &old[1..]), "rewritten");
    // The one that was refused has taken nothing.
    assert_eq!(epoch(&bed.acquire(old[2].id, old[2].nodes[0])), 1);
    let abandoned = bed.ask(CoordinatorRequest::AbortPut(first));
    assert_eq!(abandoned, CoordinatorReply::Done);
    let (second, _, new) = begin(&mut bed, &old[1..]);
    assert_eq!(commit(&mut bed, second, &old[1..]), CoordinatorReply::Done);
    assert_eq!(look(&mut bed).stripes[1..], new);
    let late = commit(&mut bed, first, &old[..2]);
    assert!(
        matches!(late, CoordinatorReply::NotCommitted(_)),
        "{late:?}"
    );
    busy(&ask(&mut bed, &old), "read the file's record");
}

#[test]
fn a_silent_writer_does_not_block_others_for_long() {
    let mut bed = Bed::three_racks();
    let old = bed.put("f", 2);
    let (put, ..) = begin(&mut bed, &old);
    let patience_ms = bed.options.replacement_timeout_ms;
    for _ in 0..4 {
        bed.pass(patience_ms / 2);
        let touched = bed.ask(CoordinatorRequest::TouchPut(put));
        assert_eq!(touched, CoordinatorReply::Done);
    }
    busy(&bed.acquire(old[0].id, old[0].nodes[0]), "rewritten");
    bed.pass(2 * patience_ms);
    assert_eq!(epoch(&bed.acquire(old[0].id, old[0].nodes[0])), 2);
    let late = commit(&mut bed, put, &old);
    assert!(
        matches!(&late, CoordinatorReply::NotCommitted(s) if s.contains("was aborted or has expired"))
    );
    assert_eq!(look(&mut bed).stripes, old);
}

#[test]
fn after_a_restart_the_first_to_take_a_lease_decides() {
    let mut bed = Bed::three_racks();
    let old = bed.put("f", 2);
    let (put, _, new) = begin(&mut bed, &old);
    bed.restart();
    assert_eq!(commit(&mut bed, put, &old), CoordinatorReply::Done);
    assert_eq!(look(&mut bed).stripes, new);
    let (put, ..) = begin(&mut bed, &new);
    bed.restart();
    assert_eq!(epoch(&bed.acquire(new[0].id, new[0].nodes[0])), 2);
    let late = commit(&mut bed, put, &new);
    assert!(matches!(&late, CoordinatorReply::NotCommitted(s) if s.contains("is over")));
    assert_eq!(look(&mut bed).stripes, new);
    // Nor does another writer wait for the one whose replacement is lost.
    let (put, ..) = begin(&mut bed, &new);
    assert_eq!(commit(&mut bed, put, &new), CoordinatorReply::Done);
}

#[test]
fn repairs_and_replacements_leave_each_other_alone() {
    let mut bed = Bed::three_racks();
    let old = bed.put("f", 2);
    let (put, ..) = begin(&mut bed, &old);
    bed.report_damage(chunk_on(&old[0], old[0].nodes[2]));
    bed.pass(3_000);
    let parts = |bed: &mut Bed| {
        let log = bed.take_log();
        words(&log)
            .iter()
            .filter(|(_, word)| *word == "part")
            .count()
    };
    assert_eq!(parts(&mut bed), 0, "the repair waits");
    // A repair that hangs, and a write that comes meanwhile.
    bed.hook(move |_, request| {
        matches!(request, NodeRequest::RunPart(_)).then(|| pending().boxed())
    });
    bed.ask(CoordinatorRequest::AbortPut(put));
    assert!(parts(&mut bed) > 0, "the repair is tried again at once");
    busy(&ask(&mut bed, &old), "repaired");
}

#[test]
fn a_stripe_that_cannot_be_settled_stays_as_it_is() {
    let mut bed = Bed::three_racks();
    let old = bed.put("f", 2);
    bed.stop(old[0].nodes[0]);
    bed.pass(1_100);
    let waits = ask(&mut bed, &old);
    assert!(matches!(waits, CoordinatorReply::Busy(_)), "{waits:?}");
    let leader = |stripe: &StripeRecord| -> NodeId {
        let mut others = stripe.nodes.iter().copied();
        others.rfind(|&node| node != old[0].nodes[0]).unwrap()
    };
    assert_eq!(
        epoch(&bed.acquire(old[0].id, leader(&old[0]))),
        2,
        "the lease is given back"
    );
    assert_eq!(look(&mut bed).stripes, old);
}

#[test]
fn whose_chunks_counted_is_known_while_one_of_them_may_return() {
    let mut bed = Bed::three_racks();
    let old = bed.put("f", 1);
    let id = old[0].id;
    let ended = |bed: &mut Bed| match bed.ask(CoordinatorRequest::Ended(id)) {
        CoordinatorReply::Ended { stripe, .. } => stripe,
        other => panic!("{other:?}"),
    };
    busy(&bed.ask(CoordinatorRequest::Ended(id)), "has not ended");
    // The settlement of the old stripe leaves this node out, and it may miss what that decides.
    let away = old[0].nodes[4];
    bed.fail(&[away]);
    let (put, ..) = begin(&mut bed, &old);
    assert_eq!(commit(&mut bed, put, &old), CoordinatorReply::Done);
    let last = ended(&mut bed).expect("its node may return");
    assert_eq!(last.nodes, old[0].nodes);
    let stale: Vec<ChunkIndex> = last.chunks().filter(|&c| last.is_stale(c)).collect();
    assert_eq!(stale, [ChunkIndex(4)]);
}

/// Begins a change that drops stripes of the file, and brings full ones at these offsets.
fn begin_change(
    bed: &mut Bed,
    dropped: &[usize],
    offsets: &[u64],
    size: SizeChange,
) -> CoordinatorReply {
    let layout = look(bed);
    let displaced = dropped
        .iter()
        .map(|&at| (layout.offsets[at], layout.stripes[at].id));
    let extents = offsets.iter().map(|&offset| NewExtent {
        offset,
        chunk_bytes: 1 << 20,
    });
    bed.ask(ask::BeginReplace {
        file: layout.file.put,
        displaced: displaced.collect(),
        extents: extents.collect(),
        size,
        inline: None,
        token: FencingToken::default(),
    })
}

#[test]
fn no_hole_is_filled_while_a_node_serves_what_was_there() {
    let mut bed = Bed::three_racks();
    let old = bed.put("f", 3);
    let cut = begin_change(&mut bed, &[1, 2], &[], SizeChange::Exactly(STRIPE));
    let CoordinatorReply::Replacement(cut) = cut else {
        panic!("{cut:?}")
    };
    assert_eq!((cut.settled.len(), cut.stripes.len()), (2, 0));
    let slow = old[2].nodes[0];
    bed.hook(move |node, request| {
        let is_slow = node == slow && matches!(request, NodeRequest::Remove { .. });
        is_slow.then(|| ready(Err(gone(node))).boxed())
    });
    busy(&commit(&mut bed, cut.put, &old[1..]), "not withdrawn");
    let layout = look(&mut bed);
    assert_eq!(
        (layout.file.size_bytes, &layout.stripes[..]),
        (STRIPE, &old[..1])
    );
    // Another client truncates to the same size, or punches the same hole. Its own change is to do nothing.
    let wait = |bed: &mut Bed, size_bytes, from| {
        bed.ask(ask::Grow {
            file: layout.file.put,
            size_bytes,
            truncation_count: layout.file.truncation_count,
            from,
            token: FencingToken::default(),
        })
    };
    // An append waits too.
    for (size_bytes, from) in [(0, None), (STRIPE, None), (STRIPE + 1, Some((STRIPE, 7)))] {
        busy(
            &wait(&mut bed, size_bytes, from),
            "nodes may still serve it",
        );
    }
    // The client of the truncation dies here. Another one writes where the stripes were.
    let fill =
        |bed: &mut Bed| begin_change(bed, &[], &[2 * STRIPE], SizeChange::AtLeast(3 * STRIPE));
    busy(&fill(&mut bed), "nodes may still serve it");
    bed.unhook();
    assert_eq!(commit(&mut bed, cut.put, &old[1..]), CoordinatorReply::Done);
    for size_bytes in [0, STRIPE] {
        let grown = wait(&mut bed, size_bytes, None);
        assert!(matches!(grown, CoordinatorReply::Grown(_)), "{grown:?}");
    }
    let CoordinatorReply::Replacement(filled) = fill(&mut bed) else {
        panic!("no node serves the old stripe")
    };
    assert_eq!(commit(&mut bed, filled.put, &[]), CoordinatorReply::Done);
    let layout = look(&mut bed);
    assert_eq!(
        (layout.offsets, layout.file.size_bytes),
        (vec![0, 2 * STRIPE], 3 * STRIPE)
    );
    // A second fill of the same hole is told that it comes too late.
    let late = begin_change(&mut bed, &[], &[2 * STRIPE], SizeChange::AtLeast(0));
    let CoordinatorReply::Replacement(late) = late else {
        panic!("{late:?}")
    };
    let refused = commit(&mut bed, late.put, &[]);
    assert!(
        matches!(&refused, CoordinatorReply::NotCommitted(why) if why.contains("filled")),
        "{refused:?}"
    );
}

/// Begins to fill the hole behind a file of one stripe.
fn begin_fill(bed: &mut Bed) -> Replacement {
    match begin_change(bed, &[], &[STRIPE], SizeChange::AtLeast(2 * STRIPE)) {
        CoordinatorReply::Replacement(filled) => filled,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_hole_that_was_emptied_anew_is_filled_when_no_node_serves_what_was_there() {
    let mut bed = Bed::three_racks();
    bed.put("f", 1);
    let late = begin_fill(&mut bed);
    // Another client fills the hole, and a third one empties it.
    let between = begin_fill(&mut bed);
    assert_eq!(commit(&mut bed, between.put, &[]), CoordinatorReply::Done);
    let cut = begin_change(&mut bed, &[1], &[], SizeChange::Exactly(STRIPE));
    let CoordinatorReply::Replacement(cut) = cut else {
        panic!("{cut:?}")
    };
    let slow = between.stripes[0].nodes[0];
    bed.hook(move |node, request| {
        let is_slow = node == slow && matches!(request, NodeRequest::Remove { .. });
        is_slow.then(|| ready(Err(gone(node))).boxed())
    });
    busy(
        &commit(&mut bed, cut.put, &between.stripes),
        "not withdrawn",
    );
    let refused = commit(&mut bed, late.put, &[]);
    busy(&refused, "nodes may still serve it");
    bed.unhook();
    let withdrawn = commit(&mut bed, cut.put, &between.stripes);
    assert_eq!(withdrawn, CoordinatorReply::Done);
    assert_eq!(commit(&mut bed, late.put, &[]), CoordinatorReply::Done);
    assert_eq!(look(&mut bed).offsets, [0, STRIPE]);
}

/// Its client takes the answer as final and tells its user that nothing was written. A delayed copy of the request must
/// not undo the later punch.
#[test]
fn a_fill_that_came_too_late_stays_so_when_the_hole_is_emptied_again() {
    let mut bed = Bed::three_racks();
    bed.put("f", 1);
    let late = begin_fill(&mut bed);
    let between = begin_fill(&mut bed);
    assert_eq!(commit(&mut bed, between.put, &[]), CoordinatorReply::Done);
    let is_too_late = |reply: &CoordinatorReply| matches!(reply, CoordinatorReply::NotCommitted(_));
    let refused = commit(&mut bed, late.put, &[]);
    assert!(is_too_late(&refused), "{refused:?}");
    let cut = begin_change(&mut bed, &[1], &[], SizeChange::Exactly(STRIPE));
    let CoordinatorReply::Replacement(cut) = cut else {
        panic!("{cut:?}")
    };
    let emptied = commit(&mut bed, cut.put, &between.stripes);
    assert_eq!(emptied, CoordinatorReply::Done);
    let again = commit(&mut bed, late.put, &[]);
    assert!(is_too_late(&again), "{again:?}");
    assert_eq!(look(&mut bed).offsets, [0]);
    // What is committed stays so, whatever is asked again.
    assert_eq!(commit(&mut bed, between.put, &[]), CoordinatorReply::Done);
}

#[test]
fn a_put_of_unknown_size_gets_places_step_by_step() {
    let mut bed = Bed::three_racks();
    let (put, first) = bed.begin_put("f", 4 << 20);
    let extend = |bed: &mut Bed, step, kept_count, size_bytes| {
        let reply = bed.ask(ask::ExtendPut {
            put,
            step,
            stored_count: 0,
            kept_count,
            size_bytes,
        });
        match reply {
            CoordinatorReply::Put(places) => places.stripes,
            other => panic!("{other:?}"),
        }
    };
    let more = extend(&mut bed, 0, 1, 12 << 20);
    assert_eq!(more.len(), 2);
    assert_eq!(extend(&mut bed, 0, 1, 12 << 20), more, "an answer was lost");
    let last = extend(&mut bed, 1, 2, (8 << 20) + 5);
    assert_eq!(last[0].chunk_bytes, 4096);
    let committed = bed.ask(CoordinatorRequest::CommitPut(put));
    assert_eq!(committed, CoordinatorReply::Done);
    let layout = look(&mut bed);
    assert_eq!(layout.file.size_bytes, (8 << 20) + 5);
    assert_eq!(
        layout.stripes,
        [first[0].clone(), more[0].clone(), last[0].clone()]
    );
}

#[test]
fn a_file_grows_for_one_append_at_a_time() {
    let mut bed = Bed::three_racks();
    bed.put("f", 1);
    let file = look(&mut bed).file.put;
    let mut grow = |size_bytes, from| match bed.ask(ask::Grow {
        file,
        size_bytes,
        truncation_count: 0,
        from,
        token: FencingToken::default(),
    }) {
        CoordinatorReply::Grown(growth) => (growth.size_bytes, growth.is_done),
        other => panic!("{other:?}"),
    };
    let size = 4 << 20;
    assert_eq!(grow(size + 10, Some((size, 1))), (size + 10, true));
    assert_eq!(grow(size + 10, Some((size, 2))), (size + 10, false));
    assert_eq!(
        grow(size + 10, Some((size, 1))),
        (size + 10, true),
        "repeated"
    );
    assert_eq!(grow(size, None), (size + 10, true), "it never shrinks");
}
