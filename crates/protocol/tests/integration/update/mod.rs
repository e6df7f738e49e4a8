//! Updates on real nodes: what a late message can do, and what happens where chunks are lost.

mod append;
mod batch;
mod bed;
mod discard;
mod left_out;
mod ports;
mod quorum;
mod retry;
mod tickets;
mod tokens;

use bed::Bed;
use gabion_codec::gf;
use gabion_layout::{ChunkIndex, Epoch, NodeId, Sequence};
use gabion_protocol::message::{NodeReply, Refusal, ask};

const OLD: &[u8] = b"what the client tried first";
const NEW: &[u8] = b"what it wrote in the end...";

fn committed(sequence: u64) -> NodeReply {
    let sequence = Sequence(sequence);
    NodeReply::Updated { sequence }
}

fn is_staged(reply: &NodeReply) -> bool {
    matches!(reply, NodeReply::Staged { .. })
}

#[test]
fn a_withdrawn_update_changes_nothing_however_late_it_comes() {
    let bed = Bed::new(&[]);
    assert!(is_staged(&bed.stage(1, 7, 1, OLD)));
    // Its Update is on its way when the client gives up waiting.
    let was_waiting = true;
    assert_eq!(bed.unstage(1, 7), NodeReply::Unstaged { was_waiting });
    assert!(is_staged(&bed.stage(1, 8, 1, NEW)));
    assert_eq!(bed.update(8, 1, NEW.len(), &[]), committed(1));
    assert_eq!(bed.read(1, NEW.len(), 1), NEW);
    let late = bed.update(7, 1, OLD.len(), &[]);
    assert!(
        matches!(&late, NodeReply::Refused(Refusal::Unavailable(why)) if why.contains("dropped run")),
        "{late:?}"
    );
    // The attempt cost its primary the term and a number, and no byte.
    assert!(is_staged(&bed.stage(1, 9, 1, b"next")));
    let NodeReply::Updated { sequence } = bed.update(9, 1, 4, &[]) else {
        panic!("the stripe goes on")
    };
    assert!(sequence > Sequence(1));
    assert_eq!(bed.read(1, NEW.len(), sequence.0)[4..], NEW[4..]);
}

#[test]
fn an_update_that_was_made_says_that_it_may_have_begun() {
    let bed = Bed::new(&[]);
    bed.stage(1, 7, 1, NEW);
    assert_eq!(bed.update(7, 1, NEW.len(), &[]), committed(1));
    let was_waiting = false;
    assert_eq!(bed.unstage(1, 7), NodeReply::Unstaged { was_waiting });
    assert_eq!(bed.read(1, NEW.len(), 1), NEW);
}

#[test]
fn participants_of_the_next_update_hear_the_mark_with_it() {
    let bed = Bed::new(&[]);
    for run in 1..=3 {
        bed.stage(1, run, 1, NEW);
        assert_eq!(bed.update(run, 1, NEW.len(), &[]), committed(run));
    }
    // All were told of the first update, and no time has passed since.
    assert_eq!(bed.marks(), [1, 2, 2, 2]);
}

#[test]
fn a_node_whose_disk_dies_refuses_everything_and_tells_the_coordinator() {
    let bed = Bed::new(&[]);
    bed.stage(1, 7, 1, NEW);
    bed.kill_disk(1);
    // A read of old bytes cannot tell a dead disk from a bad page; the report of it does.
    let refused = bed.update(7, 1, NEW.len(), &[]);
    assert!(
        matches!(&refused, NodeReply::NotBegun(Refusal::StoreFailed(_))),
        "its first settlement has failed: {refused:?}"
    );
    let marks = bed.ask(
        1,
        ask::Committed {
            marks: Vec::new(),
            from: None,
        },
    );
    assert!(
        matches!(&marks, NodeReply::Refused(Refusal::StoreFailed(_))),
        "{marks:?}"
    );
    assert_eq!(bed.store_failures(), [NodeId(1)], "once");
}

#[test]
fn those_who_hear_that_a_record_is_durable_remember_how_far_its_node_has_come() {
    let bed = Bed::new(&[]);
    bed.stage(1, 7, 1, NEW);
    assert_eq!(bed.update(7, 1, NEW.len(), &[]), committed(1));
    bed.pass(100);
    let known = |asked, node| match bed.ask(asked, ask::Progress { node: NodeId(node) }) {
        NodeReply::Progress(progress) => progress.map(|progress| progress.position),
        other => panic!("{other:?}"),
    };
    // The primary has heard it from the participants, and told it with the mark.
    for participant in [1, 2, 3] {
        assert_eq!(known(0, participant), Some(bed.position(participant)));
    }
    assert_eq!(known(1, 0), Some(bed.position(0)));
    assert_eq!(known(1, 2), None);
}

#[test]
fn a_request_for_the_mark_waits_for_no_update() {
    let bed = Bed::new(&[]);
    bed.stage(1, 7, 1, NEW);
    assert_eq!(bed.update(7, 1, NEW.len(), &[]), committed(1));
    bed.stage(1, 8, 1, NEW);
    let mark = NodeReply::Mark {
        epoch: Epoch(1),
        sequence: Sequence(1),
        appended: Vec::new(),
    };
    assert_eq!(bed.mark_beside_stuck_update(8, 1, NEW.len()), mark);
}

#[test]
fn bytes_of_a_lost_chunk_reach_its_parity_chunks_and_no_record_waits_for_it() {
    let bed = Bed::new(&[1]);
    // A client that does not know of the loss is told where the bytes belong, and nothing is begun.
    let told = bed.update(7, 1, NEW.len(), &[]);
    let NodeReply::NotBegun(Refusal::StageAt(places)) = told else {
        panic!("{told:?}")
    };
    let [(ChunkIndex(1), substitute)] = places[..] else {
        panic!("{places:?}")
    };
    assert!(bed.records().is_empty() && bed.notes().is_empty());
    for (run, bytes, sequence) in [(8, OLD, 1), (9, NEW, 2)] {
        assert!(is_staged(&bed.stage(substitute.0, run, 1, bytes)));
        assert_eq!(
            bed.update(run, 1, bytes.len(), &places),
            committed(sequence)
        );
    }
    // Data chunk 0 is zeros, so each parity chunk is a multiple of the new bytes.
    let code: gabion_codec::Code = "rs(2,2)".parse().unwrap();
    for parity in [2, 3] {
        let factor = code.coefficient(parity, 0, 1, 0);
        let expected: Vec<u8> = NEW.iter().map(|&byte| gf::multiply(factor, byte)).collect();
        assert_eq!(bed.read(parity as u8, NEW.len(), 2), expected);
    }
    let live = vec![ChunkIndex(2), ChunkIndex(3)];
    assert!(bed.records().iter().all(|(_, holders)| *holders == live));
    let noted = (Epoch(1), vec![(ChunkIndex(1), Sequence(0))]);
    assert_eq!(bed.notes(), [noted], "once a term, before the first update");
}

#[test]
fn no_update_leaves_a_chunk_out_before_that_is_noted() {
    let bed = Bed::new(&[3]);
    bed.refuse_notes();
    bed.stage(0, 7, 0, NEW);
    let refused = bed.update(7, 0, NEW.len(), &[]);
    assert!(
        matches!(&refused, NodeReply::NotBegun(Refusal::Interrupted(_))),
        "{refused:?}"
    );
    assert_eq!(bed.records(), []);
    bed.update(7, 0, NEW.len(), &[]);
    assert_eq!(
        bed.epoch(),
        2,
        "the note may have been made: a new term finds out"
    );
}

#[test]
fn a_chunk_that_an_update_does_not_change_is_not_noted() {
    let bed = Bed::new(&[1]);
    bed.stage(0, 7, 0, NEW);
    assert_eq!(bed.update(7, 0, NEW.len(), &[]), committed(1));
    assert_eq!(bed.notes(), []);
    let live = [0, 2, 3].map(ChunkIndex).to_vec();
    assert!(bed.records().iter().all(|(_, holders)| *holders == live));
}

#[test]
fn a_stripe_with_k_chunks_left_takes_no_updates() {
    let bed = Bed::new(&[1, 3]);
    bed.stage(0, 7, 0, NEW);
    let (left_count, chunk_count) = (2, 4);
    let short = Refusal::TooFewLeft {
        left_count,
        chunk_count,
    };
    let refused = bed.update(7, 0, NEW.len(), &[(ChunkIndex(1), NodeId(2))]);
    assert_eq!(refused, NodeReply::NotBegun(short));
}
