//! The right to be a stripe's primary, and the notes of primaries that count.

use crate::coordinator::bed::{Bed, TIMING, chunk_on};
use gabion_layout::{ChunkIndex, Epoch, Sequence, StaleChunk, StripeId, StripeRecord};
use gabion_meta::Exclusion;
use gabion_protocol::message::{CoordinatorReply, CoordinatorRequest, HeldChunk, ask};

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
        2,
        "each term settles the stripe anew"
    );
    assert_eq!(
        bed.acquire(stripe.id, second),
        CoordinatorReply::HeldBy(first)
    );
    bed.fail(&[first]);
    assert_eq!(epoch(&bed.acquire(stripe.id, second)), 3);
    let silent = bed.acquire(stripe.id, first);
    assert!(matches!(silent, CoordinatorReply::Busy(_)), "{silent:?}");
    let unknown = bed.acquire(StripeId(77), second);
    assert!(
        matches!(&unknown, CoordinatorReply::Busy(s) if s.sentence.contains("stripe 77")),
        "the node that asks has an old layout"
    );
}

#[test]
fn a_chunk_misses_updates_when_the_present_primary_says_so() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    let away = stripe.nodes[2];
    bed.fail(&[away]);
    assert_eq!(epoch(&bed.acquire(stripe.id, stripe.nodes[0])), 1);
    let since = bed.joins;
    let note = |epoch, chunk| {
        CoordinatorRequest::NoteDegraded(ask::NoteDegraded {
            stripe: stripe.id,
            epoch: Epoch(epoch),
            since,
            chunks: vec![(ChunkIndex(chunk), Sequence(7))],
        })
    };
    let other = bed.ask(note(2, 2));
    assert!(matches!(&other, CoordinatorReply::Refused(s) if s.sentence.contains("newer primary")));
    let counted = bed.ask(note(1, 3));
    assert!(
        matches!(&counted, CoordinatorReply::Refused(s) if s.sentence.contains("counts again")),
        "{counted:?}"
    );
    assert_eq!(bed.stripe("f"), stripe);
    assert_eq!(bed.ask(note(1, 2)), CoordinatorReply::Done);
    // Its return would help, so it is waited for.
    bed.pass(TIMING.grace_ms / 10);
    let behind = bed.stripe("f");
    assert_eq!(behind.nodes, stripe.nodes);
    assert_eq!(
        behind.stale,
        [StaleChunk {
            chunk: ChunkIndex(2),
            missed_after: Some(Sequence(7)),
        }]
    );
    assert!(behind.generation > stripe.generation);
    assert_eq!(
        bed.ask(note(1, 2)),
        CoordinatorReply::Done,
        "it may ask again"
    );
    bed.pass(TIMING.grace_ms);
    let repaired = bed.stripe("f");
    assert_ne!(repaired.nodes[2], away);
    assert_eq!(repaired.stale, []);
    assert!(
        matches!(bed.ask(note(1, 2)), CoordinatorReply::Refused(_)),
        "the repair has ended the term"
    );
}

/// A note that updates of this term leave out the stripe's third chunk.
fn leave_out(bed: &mut Bed, stripe: &StripeRecord, epoch: u64) -> CoordinatorReply {
    bed.ask(ask::NoteDegraded {
        stripe: stripe.id,
        epoch: Epoch(epoch),
        since: bed.joins,
        chunks: vec![(ChunkIndex(2), Sequence(7))],
    })
}

fn is_refused_for_a_join(reply: &CoordinatorReply) -> bool {
    matches!(reply, CoordinatorReply::Refused(why) if why.sentence.contains("has joined since"))
}

/// The primary has not seen it up: it came and went between two updates.
#[test]
fn a_node_that_has_joined_within_a_term_is_left_out_by_the_next_one() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    let (primary, away) = (stripe.nodes[0], stripe.nodes[2]);
    bed.fail(&[away]);
    assert_eq!(epoch(&bed.acquire(stripe.id, primary)), 1);
    let joined = bed.rejoin(away, vec![chunk_on(&stripe, away)]);
    assert!(
        matches!(joined, CoordinatorReply::Joined(_)),
        "it may be told of term 1: {joined:?}"
    );
    bed.fail(&[away]);
    let noted = leave_out(&mut bed, &stripe, 1);
    assert!(is_refused_for_a_join(&noted), "{noted:?}");
    assert_eq!(bed.stripe("f").stale, []);
    assert_eq!(epoch(&bed.acquire(stripe.id, primary)), 2);
    assert_eq!(leave_out(&mut bed, &stripe, 2), CoordinatorReply::Done);
}

#[test]
fn what_joining_nodes_were_told_by_an_earlier_run_of_the_coordinator_is_not_known() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    let (primary, away) = (stripe.nodes[0], stripe.nodes[2]);
    bed.fail(&[away]);
    assert_eq!(epoch(&bed.acquire(stripe.id, primary)), 1);
    bed.restart();
    bed.fail(&[away]);
    let noted = leave_out(&mut bed, &stripe, 1);
    assert!(is_refused_for_a_join(&noted), "{noted:?}");
    assert_eq!(epoch(&bed.acquire(stripe.id, primary)), 2);
    assert_eq!(leave_out(&mut bed, &stripe, 2), CoordinatorReply::Done);
}

/// It knows what pages have told it, though it may never end its join.
#[test]
fn a_node_that_is_told_of_a_term_while_it_joins_is_left_out_by_the_next_one() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    let (primary, away) = (stripe.nodes[0], stripe.nodes[2]);
    let held = HeldChunk {
        chunk: chunk_on(&stripe, away),
        generation: stripe.generation,
        epoch: Epoch(0),
        mark: Sequence(0),
        undecided: Vec::new(),
    };
    bed.fail(&[away]);
    let applicant = bed.applicant(Some(away), away.0, away.0 / 3, 1 << 20);
    let session = bed.begin_join(applicant, 1).expect("the node may join");
    assert_eq!(epoch(&bed.acquire(stripe.id, primary)), 1);
    let told = bed.tell_range(session, (None, None), &[held]);
    assert!(matches!(told, CoordinatorReply::PageTold(_)), "{told:?}");
    let noted = leave_out(&mut bed, &stripe, 1);
    assert!(is_refused_for_a_join(&noted), "{noted:?}");
    assert_eq!(epoch(&bed.acquire(stripe.id, primary)), 2);
    let settled = bed.ask(ask::Settling {
        stripe: stripe.id,
        exclusion: Exclusion {
            epoch: Epoch(2),
            nodes: vec![away],
            known: Sequence(0),
            stood: Vec::new(),
        },
    });
    assert_eq!(settled, CoordinatorReply::Done);
    assert_eq!(
        leave_out(&mut bed, &stripe, 2),
        CoordinatorReply::Done,
        "it is still to be told of term 2"
    );
}

#[test]
fn no_settlement_leaves_out_a_node_that_has_returned() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    assert_eq!(epoch(&bed.acquire(stripe.id, stripe.nodes[0])), 1);
    let settling = |epoch| {
        CoordinatorRequest::Settling(ask::Settling {
            stripe: stripe.id,
            exclusion: Exclusion {
                epoch: Epoch(epoch),
                nodes: vec![stripe.nodes[4]],
                known: Sequence(0),
                stood: vec![],
            },
        })
    };
    let returned = bed.ask(settling(1));
    assert!(
        matches!(&returned, CoordinatorReply::Refused(s) if s.sentence.contains("has returned;")),
        "{returned:?}"
    );
    bed.fail(&[stripe.nodes[4]]);
    let past = bed.ask(settling(2));
    assert!(
        matches!(&past, CoordinatorReply::Refused(s) if s.sentence.contains("newer primary")),
        "{past:?}"
    );
    assert_eq!(bed.ask(settling(1)), CoordinatorReply::Done);
}

#[test]
fn only_the_present_primary_says_whether_updates_are_appended() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    assert_eq!(epoch(&bed.acquire(stripe.id, stripe.nodes[0])), 1);
    let mut note = |epoch, appends| {
        bed.ask(ask::NotePhase {
            stripe: stripe.id,
            epoch: Epoch(epoch),
            mark: Sequence(9),
            appends,
        })
    };
    assert_eq!(note(1, true), CoordinatorReply::Done);
    for past in [0, 2] {
        let refused = note(past, false);
        assert!(
            matches!(&refused, CoordinatorReply::Refused(s) if s.sentence.contains("newer primary")),
            "{refused:?}"
        );
    }
    assert!(appends(&mut bed, &stripe));
}

/// Whether a stripe's next term is told that there may be updates which parity does not cover.
fn appends(bed: &mut Bed, stripe: &StripeRecord) -> bool {
    let CoordinatorReply::Lease(lease) = bed.acquire(stripe.id, stripe.nodes[0]) else {
        panic!("it has the lease")
    };
    lease.appends
}

#[test]
fn a_note_of_an_ended_phase_that_arrives_again_ends_no_later_phase() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    let epoch = epoch(&bed.acquire(stripe.id, stripe.nodes[0]));
    let note = |mark, appends| ask::NotePhase {
        stripe: stripe.id,
        epoch: Epoch(epoch),
        mark: Sequence(mark),
        appends,
    };
    // Update 1 is appended, 2 commits it, and 3 is appended.
    let notes = [note(0, true), note(2, false), note(2, true)];
    for told in &notes {
        assert_eq!(bed.ask(told.clone()), CoordinatorReply::Done);
    }
    // The connection that carried the first ones was slow to die.
    for late in &notes[..2] {
        assert_eq!(bed.ask(late.clone()), CoordinatorReply::Done);
    }
    assert!(appends(&mut bed, &stripe), "update 3 waits for its commit");
}

#[test]
fn a_note_of_an_ended_phase_that_arrives_again_begins_none() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    let epoch = epoch(&bed.acquire(stripe.id, stripe.nodes[0]));
    let mut note = |mark, appends| {
        let told = bed.ask(ask::NotePhase {
            stripe: stripe.id,
            epoch: Epoch(epoch),
            mark: Sequence(mark),
            appends,
        });
        assert_eq!(told, CoordinatorReply::Done);
    };
    note(0, true);
    note(2, false);
    note(0, true);
    assert!(!appends(&mut bed, &stripe), "parity covers all updates");
}

#[test]
fn a_phase_ends_with_its_commit_and_with_any_commit_of_a_later_term() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    let first = epoch(&bed.acquire(stripe.id, stripe.nodes[0]));
    let note = |epoch, mark, appends| ask::NotePhase {
        stripe: stripe.id,
        epoch: Epoch(epoch),
        mark: Sequence(mark),
        appends,
    };
    bed.ask(note(first, 4, true));
    assert_eq!(bed.ask(note(first, 6, false)), CoordinatorReply::Done);
    assert!(!appends(&mut bed, &stripe));
    // The first update of a phase is dropped, so its mark is that of the phase before it and of its end.
    let second = epoch(&bed.acquire(stripe.id, stripe.nodes[0]));
    bed.ask(note(second, 6, true));
    let third = epoch(&bed.acquire(stripe.id, stripe.nodes[0]));
    assert_eq!(bed.ask(note(third, 6, false)), CoordinatorReply::Done);
    assert!(!appends(&mut bed, &stripe));
}
