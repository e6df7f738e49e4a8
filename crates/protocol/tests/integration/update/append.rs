//! Append phases on real nodes: what readers and the code see of them, how commits end, and what is left
//! when a node is gone.

use crate::update::bed::Bed;
use crate::update::{NEW, OLD, committed, is_staged};
use gabion_layout::{ByteRange, ChunkIndex, ChunkRange, Epoch, Sequence, UpdateScheme};
use gabion_protocol::message::{NodeReply, Refusal};

const SCHEMES: [UpdateScheme; 2] = [UpdateScheme::Parix, UpdateScheme::Cau];

fn append(bed: &Bed, run: u64, chunk: u8, bytes: &'static [u8]) -> NodeReply {
    let node = u32::from(chunk);
    assert!(is_staged(&bed.stage(node, run, chunk, bytes)));
    bed.update(run, chunk, bytes.len(), &[])
}

/// A bed of each scheme on which chunk 0 has been appended to twice and chunk 1 once.
fn appended() -> impl Iterator<Item = Bed> {
    SCHEMES.into_iter().map(|scheme| {
        let bed = Bed::with_scheme(scheme, &[]);
        assert_eq!(append(&bed, 1, 0, OLD), committed(1));
        assert_eq!(append(&bed, 2, 1, b"other"), committed(2));
        assert_eq!(append(&bed, 3, 0, b"WHAT"), committed(3));
        bed
    })
}

const MIXED: &[u8] = b"WHAT the client tried first";

#[test]
fn appended_bytes_are_read_at_once_and_the_code_has_them_after_a_commit() {
    for bed in appended() {
        assert!(bed.appends(), "the coordinator knows");
        assert_eq!(bed.newest(0, OLD.len(), 3), MIXED);
        assert_eq!(bed.read(0, 4, 3), [0; 4], "parity does not follow yet");
        assert!(bed.parity_agrees(OLD.len(), 3));
        assert_eq!(bed.commit(), NodeReply::Done);
        assert!(!bed.appends());
        assert_eq!(bed.read(0, OLD.len(), 4), MIXED);
        assert_eq!(bed.read(1, 5, 4), b"other");
        assert!(bed.parity_agrees(OLD.len(), 4));
        assert_eq!(bed.commit(), NodeReply::Done);
        assert_eq!(
            append(&bed, 4, 0, b"next"),
            committed(5),
            "nothing to commit takes no number"
        );
        assert_eq!(bed.commit(), NodeReply::Done);
        assert!(bed.parity_agrees(OLD.len(), 6));
        assert_eq!(bed.read(0, OLD.len(), 6), b"next the client tried first");
    }
}

#[test]
fn participants_of_an_append_are_the_data_node_and_those_with_copies() {
    let [parix, cau] = SCHEMES.map(|scheme| {
        let bed = Bed::with_scheme(scheme, &[]);
        assert_eq!(append(&bed, 1, 0, NEW), committed(1));
        bed.records()
    });
    let all = [0, 2, 3].map(ChunkIndex).to_vec();
    assert!(parix.iter().all(|(_, holders)| *holders == all));
    // Node 3 is the parity node in the other rack.
    let two = [0, 3].map(ChunkIndex).to_vec();
    assert!(cau.iter().all(|(_, holders)| *holders == two), "{cau:?}");
}

#[test]
fn whoever_reconstructs_gets_a_cut_that_parity_has() {
    for bed in appended() {
        let mark = |sequence| NodeReply::Mark {
            epoch: Epoch(1),
            sequence: Sequence(sequence),
            appended: Vec::new(),
        };
        let decode = ChunkRange {
            chunk: ChunkIndex(0),
            range: ByteRange::new(0, OLD.len() as u64),
        };
        assert_eq!(bed.mark(false, &[]), mark(3));
        assert_eq!(bed.mark(false, &[decode]), mark(4));
        assert_eq!(bed.read(0, OLD.len(), 4), MIXED);
        assert!(bed.parity_agrees(OLD.len(), 4));
    }
}

#[test]
fn a_settlement_keeps_what_was_appended_and_the_next_term_commits_it() {
    for bed in appended() {
        assert!(matches!(
            bed.mark(true, &[]),
            NodeReply::Mark {
                epoch: Epoch(2),
                ..
            }
        ));
        assert_eq!(bed.newest(0, OLD.len(), 3), MIXED);
        assert_eq!(append(&bed, 4, 0, b"Term"), committed(4));
        assert_eq!(bed.commit(), NodeReply::Done);
        assert_eq!(bed.read(0, OLD.len(), 5), b"Term the client tried first");
        assert!(bed.parity_agrees(OLD.len(), 5));
    }
}

#[test]
fn a_commit_that_fails_half_way_leaves_the_updates_appended() {
    for bed in appended() {
        bed.break_node(Some(3));
        assert!(matches!(bed.commit(), NodeReply::Refused(_)));
        bed.break_node(None);
        let NodeReply::Mark {
            epoch, sequence, ..
        } = bed.mark(false, &[])
        else {
            panic!("the stripe is settled again")
        };
        assert_eq!((epoch, sequence), (Epoch(2), Sequence(3)), "it was dropped");
        assert_eq!(bed.newest(0, OLD.len(), 3), MIXED);
        assert_eq!(bed.commit(), NodeReply::Done);
        // Number 4 is never used again.
        assert_eq!(bed.read(0, OLD.len(), 5), MIXED);
        assert!(bed.parity_agrees(OLD.len(), 5));
    }
}

#[test]
fn the_bytes_of_a_data_node_that_is_gone_come_from_their_copies() {
    for bed in appended() {
        // Data chunk 1 was appended to, and its node is gone before the commit.
        bed.fail(&[1]);
        bed.restart_primary();
        assert_eq!(bed.commit(), NodeReply::Done);
        let noted = (Epoch(3), vec![(ChunkIndex(1), Sequence(3))]);
        assert_eq!(bed.notes(), [noted], "before it is left out");
        // What the parity chunks say of chunk 1 is what was appended. Nobody was told but the store.
        assert_eq!(bed.read(0, OLD.len(), 4), MIXED);
        assert_eq!(bed.rebuilt(1, 5, 4), b"other");
    }
}

#[test]
fn a_stripe_waits_for_the_nodes_that_alone_have_what_was_appended() {
    let fates = appended().map(|bed| {
        // The data node of chunk 0 and the one node with CAU's replica of it.
        bed.fail(&[1, 2]);
        bed.restart_primary();
        bed.mark(false, &[])
    });
    let [parix, cau] = fates.collect::<Vec<_>>().try_into().expect("two schemes");
    assert!(
        matches!(parix, NodeReply::Mark { .. }),
        "node 3 has it: {parix:?}"
    );
    let NodeReply::Refused(Refusal::Unavailable(who)) = &cau else {
        panic!("{cau:?}")
    };
    assert_eq!(
        who,
        "every node that has the last updates of chunk 1 of stripe 1"
    );
    // After a commit the code has it.
    let bed = Bed::with_scheme(UpdateScheme::Cau, &[]);
    assert_eq!(append(&bed, 1, 1, NEW), committed(1));
    assert_eq!(bed.commit(), NodeReply::Done);
    bed.fail(&[1, 2]);
    bed.restart_primary();
    assert!(matches!(bed.mark(false, &[]), NodeReply::Mark { .. }));
}

#[test]
fn a_commit_waits_while_nodes_may_return_that_the_stripe_could_need() {
    for bed in appended() {
        // Nodes 0 and 2 have copies of all that was appended, but each chunk of the commit would be one
        // that nobody can stand in for.
        bed.fail(&[1, 3]);
        bed.restart_primary();
        let NodeReply::Refused(Refusal::Unavailable(who)) = bed.commit() else {
            panic!("it would leave the stripe with as few chunks as its code needs")
        };
        assert_eq!(
            who,
            "a node that the last updates of stripe 1 need for their commit"
        );
        assert_eq!(bed.notes(), [], "whoever returns has missed nothing");
        assert_eq!(
            bed.newest(0, OLD.len(), 3),
            MIXED,
            "it is only readers of the code who wait"
        );
        bed.mend();
        bed.fail(&[1]);
        bed.restart_primary();
        assert_eq!(bed.commit(), NodeReply::Done);
        assert_eq!(bed.read(0, OLD.len(), 4), MIXED);
        assert_eq!(bed.rebuilt(1, 5, 4), b"other");
    }
}
