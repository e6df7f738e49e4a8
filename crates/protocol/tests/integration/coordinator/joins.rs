//! Joins of a node in pages: the fate of sessions, and of changes during a session.

use crate::coordinator::bed::{Bed, TIMING, all_with, chunk_on, words};
use futures::FutureExt;
use futures::future::ready;
use gabion_layout::{
    ChunkId, ChunkIndex, Epoch, Generation, NodeId, Sequence, StaleChunk, Start, StripeId,
    StripeRecord,
};
use gabion_meta::{Exclusion, StoodUpdate};
use gabion_protocol::message::{
    Applicant, CoordinatorReply, CoordinatorRequest, Decided, HeldChunk, JoinSession, Liveness,
    NodeReply, NodeRequest, PAGE_CHUNK_COUNT_MAX, Refusal, ask,
};

fn held(chunk: ChunkId) -> HeldChunk {
    HeldChunk {
        chunk,
        generation: Generation(1),
        epoch: Epoch(0),
        mark: Sequence(0),
        undecided: vec![],
    }
}

/// The chunks of a file's stripes on one node that has some, in order.
fn chunks_of_one(stripes: &[StripeRecord]) -> (NodeId, Vec<HeldChunk>) {
    let node = stripes[0].nodes[5];
    let on_it = stripes.iter().filter(|stripe| stripe.nodes.contains(&node));
    let mut chunks: Vec<HeldChunk> = on_it.map(|stripe| held(chunk_on(stripe, node))).collect();
    chunks.sort_by_key(|held| held.chunk);
    (node, chunks)
}

fn returning(bed: &Bed, node: NodeId, number: u64) -> Applicant {
    bed.applicant(Some(node), node.0, node.0 / 3, number)
}

fn begin(bed: &mut Bed, node: NodeId, chunks: &[HeldChunk]) -> JoinSession {
    let applicant = returning(bed, node, 1 << 20);
    let begun = bed.begin_join(applicant, chunks.len() as u64);
    begun.expect("the node may join")
}

fn liveness(bed: &mut Bed, node: NodeId) -> Liveness {
    let nodes = bed.status().nodes;
    nodes
        .iter()
        .find(|status| status.node == node)
        .unwrap()
        .liveness
}

fn is_void(reply: &CoordinatorReply) -> bool {
    matches!(reply, CoordinatorReply::Busy(_))
}

/// A note that a settlement leaves `node` out, and lets update 5 stand.
fn settle_without(bed: &mut Bed, stripe: &StripeRecord, node: NodeId) {
    let primary = stripe.nodes[0];
    let CoordinatorReply::Lease(lease) = bed.acquire(stripe.id, primary) else {
        panic!("its primary is up");
    };
    let settled = bed.ask(ask::Settling {
        stripe: stripe.id,
        exclusion: Exclusion {
            epoch: lease.epoch,
            nodes: vec![node],
            known: Sequence(0),
            stood: vec![StoodUpdate {
                epoch: Epoch(0),
                sequence: Sequence(5),
                participants: stripe.chunks().collect(),
            }],
        },
    });
    assert_eq!(settled, CoordinatorReply::Done);
}

#[test]
fn a_node_tells_in_pages_and_is_no_member_before_the_end() {
    let mut bed = Bed::three_racks();
    let stripes = bed.put("f", 4);
    let (node, chunks) = chunks_of_one(&stripes);
    bed.fail(&[node]);
    let session = begin(&mut bed, node, &chunks);
    let middle = chunks[0].chunk.stripe;
    for (range, page) in [
        ((None, Some(middle)), &chunks[..1]),
        // Its answer was lost.
        ((None, Some(middle)), &chunks[..1]),
        ((Some(middle), None), &chunks[1..]),
    ] {
        let told = bed.tell_range(session, range, page);
        let CoordinatorReply::PageTold(answer) = told else {
            panic!("{told:?}");
        };
        assert_eq!(answer.upto, range.1);
        let progress = bed.status().joining[&node].clone();
        assert_eq!(progress.chunk_count, chunks.len() as u64);
        assert_eq!(liveness(&mut bed, node), Liveness::Failed);
    }
    let told = bed.status().joining[&node].told_chunk_count;
    assert_eq!(told, chunks.len() as u64, "no page counts twice");
    let joined = bed.end_join(session, &chunks);
    assert!(matches!(joined, CoordinatorReply::Joined(_)), "{joined:?}");
    assert_eq!(liveness(&mut bed, node), Liveness::Up);
    assert!(bed.status().joining.is_empty());
    assert_eq!(bed.status().lost_chunk_count, 0);
    assert!(is_void(&bed.end_join(session, &chunks)), "it has ended");
}

#[test]
fn a_session_that_lost_a_page_or_counts_one_twice_is_void() {
    let mut bed = Bed::three_racks();
    let stripes = bed.put("f", 4);
    let (node, chunks) = chunks_of_one(&stripes);
    bed.fail(&[node]);
    let middle = chunks[0].chunk.stripe;
    let session = begin(&mut bed, node, &chunks);
    let told = bed.tell_range(session, (Some(middle), None), &chunks[1..]);
    assert!(is_void(&told), "the first page is missing: {told:?}");
    let session = begin(&mut bed, node, &chunks);
    assert!(is_void(&bed.end_join(session, &chunks)), "nothing was told");
    let session = begin(&mut bed, node, &chunks);
    bed.tell_range(session, (None, None), &chunks);
    let ended = bed.end_join(session, &chunks[1..]);
    assert!(is_void(&ended), "the digests differ: {ended:?}");
    assert_eq!(liveness(&mut bed, node), Liveness::Failed);
}

#[test]
fn a_settlement_between_a_page_and_the_end_is_told_before_the_node_counts() {
    let mut bed = Bed::three_racks();
    let stripes = bed.put("f", 1);
    let (node, chunks) = chunks_of_one(&stripes);
    bed.fail(&[node]);
    let session = begin(&mut bed, node, &chunks);
    bed.tell_range(session, (None, None), &chunks);
    settle_without(&mut bed, &stripes[0], node);
    let ended = bed.end_join(session, &chunks);
    let CoordinatorReply::Changed { stripes: again, .. } = ended else {
        panic!("{ended:?}");
    };
    assert_eq!(again, [stripes[0].id]);
    assert_eq!(liveness(&mut bed, node), Liveness::Failed);
    let joined = bed.end_join_again(session, &chunks, chunks.clone());
    let CoordinatorReply::Joined(joined) = joined else {
        panic!("{joined:?}");
    };
    let after = bed.stripe("f");
    let stale = StaleChunk {
        chunk: chunks[0].chunk.index,
        missed_after: Some(Sequence(4)),
    };
    assert_eq!(after.stale, [stale], "it has missed update 5");
    let fenced = Decided {
        stripe: after.id,
        epoch: Epoch(1),
        generation: after.generation,
        stands: vec![],
    };
    assert_eq!(joined.answer.decided, [fenced]);
}

#[test]
fn garbage_waits_for_a_node_that_joins() {
    let mut bed = Bed::three_racks();
    let stripes = bed.put("f", 1);
    let stripe = stripes[0].id;
    let (node, chunks) = chunks_of_one(&stripes);
    bed.fail(&[node]);
    // It is given up, and no repair puts others into its place meanwhile.
    bed.hook(|_, request| {
        let refuse = matches!(request, NodeRequest::RunPart(_));
        let why = "no".to_owned();
        refuse.then(|| ready(Ok(NodeReply::Refused(Refusal::Failed(why)))).boxed())
    });
    bed.pass(TIMING.grace_ms + 1_000);
    let session = begin(&mut bed, node, &chunks);
    bed.tell_range(session, (None, None), &chunks);
    let CoordinatorReply::File(layout) = bed.ask(ask::Lookup {
        name: "f".to_owned(),
    }) else {
        panic!("it is there");
    };
    let removed = bed.ask(ask::RemoveFile {
        at: "f".into(),
        file: layout.file.put,
        generation: 0,
        number: 213,
    });
    assert_eq!(removed, CoordinatorReply::Done);
    bed.pass(2_000);
    bed.take_log();
    let changed = bed.end_join(session, &chunks);
    assert!(
        matches!(&changed, CoordinatorReply::Changed { stripes, .. } if stripes[..] == [stripe]),
        "what it was told to keep is garbage by now: {changed:?}"
    );
    let joined = bed.end_join_again(session, &chunks, chunks.clone());
    let CoordinatorReply::Joined(joined) = joined else {
        panic!("{joined:?}");
    };
    assert_eq!(joined.answer.obsolete, [chunks[0].chunk]);
    bed.revive(node, 1 << 20);
    bed.pass(10_000);
    let asked = bed.take_log();
    assert!(
        words(&asked).contains(&(node.0, "remove")),
        "the stripe is known until the node has removed its chunk: {asked:?}"
    );
}

#[test]
fn a_silent_session_is_dropped_and_a_later_run_takes_over() {
    let mut bed = Bed::three_racks();
    let stripes = bed.put("f", 1);
    let (node, chunks) = chunks_of_one(&stripes);
    bed.fail(&[node]);
    let session = begin(&mut bed, node, &chunks);
    bed.pass(11_000);
    assert!(bed.status().joining.is_empty());
    assert!(is_void(&bed.tell_range(session, (None, None), &chunks)));

    let session = begin(&mut bed, node, &chunks);
    let earlier = returning(&bed, node, (1 << 20) - 1);
    let refused = bed.begin_join(earlier, 1).expect_err("a later run joins");
    assert!(
        matches!(&refused, CoordinatorReply::Refused(why) if why.sentence.contains("a later run"))
    );
    let later = returning(&bed, node, (1 << 20) + 1);
    bed.begin_join(later, 1).expect("it takes over");
    assert!(is_void(&bed.tell_range(session, (None, None), &chunks)));

    bed.restart();
    assert!(is_void(&bed.tell_range(session, (None, None), &chunks)));
}

#[test]
fn a_run_on_an_earlier_copy_numbers_itself_above_the_runs_that_were_members() {
    let mut bed = Bed::three_racks();
    let stripes = bed.put("f", 1);
    let (node, chunks) = chunks_of_one(&stripes);
    bed.fail(&[node]);
    let held: Vec<ChunkId> = chunks.iter().map(|held| held.chunk).collect();
    let joined = bed.rejoin(node, held);
    assert!(matches!(joined, CoordinatorReply::Joined(_)), "{joined:?}");
    let member = bed.admitted[&node];
    let of_number = |number, nonce| Applicant {
        start: Start { number, nonce },
        ..returning(&bed, node, number)
    };
    let [earlier, other, later] = [
        of_number(member.number - 1, 77),
        of_number(member.number, 77),
        of_number(member.number + 1, 77),
    ];
    for restarts in [false, true] {
        if restarts {
            // State that is in memory only is forgotten.
            bed.restart();
        }
        for applicant in [&earlier, &other] {
            let refused = bed.begin_join(applicant.clone(), 1);
            let above = CoordinatorReply::StartAbove(member.number);
            assert_eq!(refused, Err(above), "restarts: {restarts}");
        }
    }
    bed.begin_join(later, 1).expect("its number is the highest");
}

#[test]
fn a_failed_node_is_not_abandoned_while_it_joins() {
    let mut bed = Bed::three_racks();
    let stripes = bed.put("f", 1);
    let (node, chunks) = chunks_of_one(&stripes);
    bed.fail(&[node]);
    let session = begin(&mut bed, node, &chunks);
    for _ in 0..2 * TIMING.grace_ms / 5_000 {
        bed.pass(5_000);
        bed.tell_range(session, (None, None), &chunks);
    }
    assert_eq!(bed.status().repair.queued_chunk_count, 0);
    assert_eq!(bed.status().repair.repaired_chunk_count, 0);
}

#[test]
fn a_failed_node_is_not_given_up_while_it_waits_for_the_operator() {
    let mut bed = Bed::three_racks();
    let gone = bed.put("g", 30);
    let CoordinatorReply::File(layout) = bed.ask(ask::Lookup {
        name: "g".to_owned(),
    }) else {
        panic!("it is there");
    };
    bed.ask(ask::RemoveFile {
        at: "g".into(),
        file: layout.file.put,
        generation: 0,
        number: 215,
    });
    let stripes = bed.put("f", 1);
    let (node, mut chunks) = chunks_of_one(&stripes);
    bed.pass(1_000);
    bed.fail(&[node]);
    let unknown = gone.iter().map(|stripe| {
        held(ChunkId {
            stripe: stripe.id,
            index: ChunkIndex(0),
        })
    });
    chunks.extend(unknown);
    chunks.sort_unstable_by_key(|held| held.chunk);
    let applicant = returning(&bed, node, 1 << 20);
    let (session, _) = bed.tell(applicant, &chunks).expect("it may join");
    for _ in 0..2 * TIMING.grace_ms / 5_000 {
        bed.pass(5_000);
        let may = bed.ask(CoordinatorRequest::SetAside(session));
        assert!(matches!(may, CoordinatorReply::JoinHeld(_)), "{may:?}");
    }
    assert_eq!(bed.status().repair.queued_chunk_count, 0);
    assert_eq!(bed.status().repair.repaired_chunk_count, 0);
}

#[test]
fn many_unknown_chunks_wait_for_the_operator() {
    let mut bed = Bed::three_racks();
    let node = NodeId(3);
    let ids: Vec<StripeId> = bed.put("f", 17).iter().map(|stripe| stripe.id).collect();
    let CoordinatorReply::File(layout) = bed.ask(ask::Lookup {
        name: "f".to_owned(),
    }) else {
        panic!("it is there");
    };
    bed.ask(ask::RemoveFile {
        at: "f".into(),
        file: layout.file.put,
        generation: 0,
        number: 214,
    });
    bed.pass(1_000);
    let unknown: Vec<HeldChunk> = ids
        .into_iter()
        .map(|stripe| {
            held(ChunkId {
                stripe,
                index: ChunkIndex(0),
            })
        })
        .collect();
    bed.fail(&[node]);
    for (count, is_held) in [(16, false), (17, true)] {
        let chunks = &unknown[..count];
        let applicant = returning(&bed, node, 1 << 20);
        let (session, answer) = bed.tell(applicant, chunks).expect("it may join");
        assert_eq!(answer.unknown.len(), count);
        assert_eq!(answer.obsolete, []);
        let may = bed.ask(CoordinatorRequest::SetAside(session));
        assert_eq!(may != CoordinatorReply::Done, is_held, "{may:?}");
        let accepted = bed.ask(CoordinatorRequest::Accept(node));
        assert_eq!(accepted == CoordinatorReply::Done, is_held, "{accepted:?}");
        if !is_held {
            continue;
        }
        let CoordinatorReply::JoinHeld(why) = may else {
            panic!("{may:?}");
        };
        assert!(why.contains("gabion node accept 3"), "{why}");
        assert_eq!(bed.status().joining[&node].waits_with_unknown, Some(17));
        let may = bed.ask(CoordinatorRequest::SetAside(session));
        assert_eq!(may, CoordinatorReply::Done, "the operator has spoken");
        assert_eq!(bed.status().joining[&node].waits_with_unknown, None);
    }
    // The word was for that one join.
    let applicant = returning(&bed, node, 1 << 20);
    let (session, _) = bed.tell(applicant, &unknown).expect("it may join");
    let may = bed.ask(CoordinatorRequest::SetAside(session));
    assert!(matches!(may, CoordinatorReply::JoinHeld(_)), "{may:?}");
    let ended = bed.end_join(session, &unknown);
    assert!(
        !matches!(ended, CoordinatorReply::Joined(_)),
        "it has to wait: {ended:?}"
    );
}

#[test]
fn a_new_node_whose_first_word_arrives_twice_is_one_node() {
    let mut bed = Bed::new(3, 3);
    let applicant = bed.applicant(None, 20, 0, 5);
    let first = bed.begin_join(applicant.clone(), 0).expect("it is welcome");
    let again = bed.begin_join(applicant.clone(), 0).expect("it is welcome");
    assert_eq!(first.node, again.node);
    assert!(is_void(&bed.tell_range(first, (None, None), &[])));
    bed.tell_range(again, (None, None), &[]);
    let joined = bed.end_join(again, &[]);
    assert!(matches!(joined, CoordinatorReply::Joined(_)), "{joined:?}");
    let late = bed.begin_join(applicant, 0);
    assert!(matches!(late, Err(CoordinatorReply::Busy(_))), "{late:?}");
    let nodes = bed.status().nodes;
    assert_eq!(nodes.len(), 10);
    assert!(nodes.iter().all(|status| !status.address.is_empty()));
}

#[test]
fn a_node_that_never_joined_to_the_end_is_no_member_when_its_address_is_taken() {
    let mut bed = Bed::three_racks();
    for address in [20, 21] {
        let applicant = bed.applicant(None, address, 0, 5);
        bed.begin_join(applicant, 0).expect("it is welcome");
    }
    bed.pass(20_000);
    let applicant = bed.applicant(None, 20, 0, 6);
    let session = bed.begin_join(applicant, 0).expect("it is welcome");
    bed.tell_range(session, (None, None), &[]);
    let joined = bed.end_join(session, &[]);
    assert!(matches!(joined, CoordinatorReply::Joined(_)), "{joined:?}");
    let liveness: Vec<Liveness> = bed.status().nodes.iter().map(|n| n.liveness).collect();
    assert_eq!(liveness, [Liveness::Up; 10]);
    // Nor does a coordinator wait for it that is started again.
    for node in [NodeId(6), NodeId(7), NodeId(8), session.node] {
        bed.stop(node);
    }
    bed.restart();
    for node in 0..6 {
        bed.rejoin(NodeId(node), Vec::new());
    }
    let listed = bed.ask(all_with(""));
    assert!(
        !matches!(listed, CoordinatorReply::Busy(_)),
        "6 of 10 nodes are there: {listed:?}"
    );
}

#[test]
fn a_page_that_says_too_much_is_refused() {
    let mut bed = Bed::three_racks();
    let chunk = ChunkId {
        stripe: StripeId(1),
        index: ChunkIndex(0),
    };
    let chunks = vec![held(chunk); PAGE_CHUNK_COUNT_MAX + 1];
    let session = begin(&mut bed, NodeId(3), &chunks);
    let told = bed.tell_range(session, (None, None), &chunks);
    assert!(matches!(told, CoordinatorReply::Refused(_)), "{told:?}");
}
