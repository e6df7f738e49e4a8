//! Append phases on real nodes: what readers and the code see of them, how commits end, and what is left
//! when a node is gone.

use crate::update::bed::Bed;
use crate::update::{NEW, OLD, committed, is_staged};
use gabion_layout::{
    ByteRange, ChunkIndex, ChunkRange, Epoch, NodeId, Sequence, Slices, UpdateScheme,
};
use gabion_plan::{Log, Logged, Step};
use gabion_protocol::message::{NodeReply, ReadCut, Refusal};

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

/// A range of a data chunk.
fn part(chunk: u8, length: usize) -> ChunkRange {
    ChunkRange {
        chunk: ChunkIndex(chunk),
        range: ByteRange::new(0, length as u64),
    }
}

/// The records that the primary names in the logs of other chunks' nodes.
fn copies(bed: &Bed, decode: &[ChunkRange]) -> (Sequence, Vec<Logged>) {
    let NodeReply::Mark {
        sequence, appended, ..
    } = bed.mark(false, decode)
    else {
        panic!("the stripe is settled")
    };
    let is_copy = |kept: &Logged| kept.log == Log::Replica;
    (sequence, appended.into_iter().filter(is_copy).collect())
}

#[test]
fn a_reader_that_decodes_learns_what_logs_have_and_commits_nothing() {
    for (scheme, bed) in SCHEMES.into_iter().zip(appended()) {
        let both = [part(0, 4), part(1, OLD.len())];
        let copy = |node, part| Logged {
            node: NodeId(node),
            log: Log::Replica,
            part,
        };
        // All of the first range has been appended, and five bytes of the second.
        let expected = match scheme {
            UpdateScheme::Parix => vec![
                copy(2, part(0, 4)),
                copy(3, part(0, 4)),
                copy(2, part(1, 5)),
                copy(3, part(1, 5)),
            ],
            _ => vec![copy(3, part(0, 4)), copy(2, part(1, 5))],
        };
        assert_eq!(copies(&bed, &both), (Sequence(3), expected));
        assert_eq!(copies(&bed, &[]), (Sequence(3), Vec::new()));
        assert!(bed.appends(), "nothing was committed");
        assert_eq!(bed.read(0, 4, 3), [0; 4]);
        assert_eq!(bed.commit(), NodeReply::Done);
        assert_eq!(copies(&bed, &both), (Sequence(4), Vec::new()));
    }
}

#[test]
fn a_log_that_lacks_bytes_or_has_passed_a_commit_refuses_a_reader() {
    for (scheme, bed) in SCHEMES.into_iter().zip(appended()) {
        let recall = |epoch, cut, length: usize| {
            let slices = Slices::whole(ByteRange::new(0, length as u64));
            let (node, log, chunk) = (NodeId(3), Log::Replica, ChunkIndex(0));
            let step = Step::Recall {
                node,
                log,
                chunk,
                slices,
            };
            let cut = (Epoch(epoch), ReadCut::Coded(Sequence(cut)));
            bed.ask_reader(3, cut, slices, step)
        };
        let recalled = recall(1, 3, OLD.len());
        assert!(
            matches!(recalled, NodeReply::PartDone { as_of, .. } if as_of == Sequence(3)),
            "{recalled:?}"
        );
        let more = recall(1, 3, OLD.len() + 1);
        let NodeReply::Refused(Refusal::Failed(why)) = &more else {
            panic!("{more:?}")
        };
        assert!(why.contains("does not have the last updates"), "{why}");
        // A later term may have acknowledged more.
        assert!(matches!(
            bed.mark(true, &[]),
            NodeReply::Mark { epoch, .. } if epoch == Epoch(2)
        ));
        let fenced = NodeReply::Refused(Refusal::Fenced { current: Epoch(2) });
        assert_eq!(recall(1, 3, OLD.len()), fenced, "{scheme}");
        assert_eq!(bed.commit(), NodeReply::Done);
        bed.merge(3, 4);
        let passed = Refusal::CutPassed { asked: Sequence(4) };
        assert_eq!(recall(2, 3, OLD.len()), NodeReply::Refused(passed));
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
        // The parity chunks hold the append of chunk 1. Only the store was told.
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
        // that no other chunk can stand in for.
        bed.fail(&[1, 3]);
        bed.restart_primary();
        let NodeReply::Refused(Refusal::Unavailable(who)) = bed.commit() else {
            panic!("it would leave the stripe with as few chunks as its code needs")
        };
        assert_eq!(
            who,
            "a node that the last updates of stripe 1 need for their commit"
        );
        assert_eq!(bed.notes(), [], "a node that returns has missed nothing");
        assert_eq!(bed.newest(0, OLD.len(), 3), MIXED);
        // A reader of chunk 1 needs no commit: the code has the bytes of the last one, and node 2 the others.
        let (mark, kept) = copies(&bed, &[part(1, OLD.len())]);
        let replica = Logged {
            node: NodeId(2),
            log: Log::Replica,
            part: part(1, 5),
        };
        assert_eq!((mark, kept), (Sequence(3), vec![replica]));
        bed.mend();
        bed.fail(&[1]);
        bed.restart_primary();
        assert_eq!(bed.commit(), NodeReply::Done);
        assert_eq!(bed.read(0, OLD.len(), 4), MIXED);
        assert_eq!(bed.rebuilt(1, 5, 4), b"other");
    }
}
