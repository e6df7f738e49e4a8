//! An answer to an update is lost: what the primary says of the run, whichever client has written
//! since, and whatever has become of primary and nodes.

use crate::update::bed::{Bed, STRIPE};
use crate::update::{NEW, OLD, committed};
use gabion_layout::{ChunkIndex, Generation, RunId, Sequence, UpdateScheme};
use gabion_protocol::message::{NodeReply, Refusal, RunFate, RunQuestion, ask};

/// Asks node 0 what became of a run of chunk 1.
fn fate(bed: &Bed, run: u64, after: Sequence) -> NodeReply {
    let question = RunQuestion {
        stripe: STRIPE,
        generation: Generation(1),
        run: RunId(run),
        after,
        chunks: vec![ChunkIndex(1)],
    };
    let ticket = None;
    bed.ask(0, ask::Fate { question, ticket })
}

const fn stood(sequence: u64) -> NodeReply {
    NodeReply::Fate(RunFate::Stood(Sequence(sequence)))
}

const NEVER: NodeReply = NodeReply::Fate(RunFate::Never);
const FORGOTTEN: NodeReply = NodeReply::Fate(RunFate::Forgotten);

/// Stages bytes of chunk 1, and gives the last update that its node knew.
fn stage(bed: &Bed, run: u64, bytes: &'static [u8]) -> Sequence {
    match bed.stage(1, run, 1, bytes) {
        NodeReply::Staged { newest } => newest,
        other => panic!("{other:?}"),
    }
}

/// Updates chunk 1.
fn write(bed: &Bed, run: u64, bytes: &'static [u8], sequence: u64) {
    stage(bed, run, bytes);
    assert_eq!(bed.update(run, 1, bytes.len(), &[]), committed(sequence));
}

#[test]
fn a_run_that_stood_is_known_after_others_have_written_and_the_primary_was_restarted() {
    for scheme in [UpdateScheme::Pl, UpdateScheme::Parix, UpdateScheme::Cau] {
        let bed = Bed::with_scheme(scheme, &[]);
        // The answer to run 7 is lost on its way; another client writes.
        let after = stage(&bed, 7, OLD);
        assert_eq!(bed.update(7, 1, OLD.len(), &[]), committed(1));
        write(&bed, 8, NEW, 2);
        let was_waiting = false;
        assert_eq!(bed.unstage(1, 7), NodeReply::Unstaged { was_waiting });
        assert_eq!(fate(&bed, 7, after), stood(1), "{scheme:?}");
        bed.restart_primary();
        assert_eq!(fate(&bed, 7, after), stood(1), "{scheme:?}");
        assert_eq!(bed.newest(1, NEW.len(), 2), NEW);
    }
}

#[test]
fn a_run_that_failed_half_way_never_stands() {
    for scheme in [UpdateScheme::Pl, UpdateScheme::Parix, UpdateScheme::Cau] {
        let bed = Bed::with_scheme(scheme, &[]);
        write(&bed, 6, NEW, 1);
        let after = stage(&bed, 7, OLD);
        assert_eq!(after, Sequence(1));
        // One participant never hears of it, and the others may have records.
        bed.break_node(Some(2));
        let refused = bed.update(7, 1, OLD.len(), &[]);
        assert!(matches!(refused, NodeReply::Refused(_)), "{refused:?}");
        bed.break_node(None);
        bed.unstage(1, 7);
        assert_eq!(fate(&bed, 7, after), NEVER, "{scheme:?}");
        assert_eq!(bed.newest(1, NEW.len(), 1), NEW);
    }
}

#[test]
fn a_refusal_says_whether_the_run_may_have_begun() {
    let bed = Bed::new(&[]);
    let update = |run| {
        stage(&bed, run, NEW);
        bed.update(run, 1, NEW.len(), &[])
    };
    // No settlement goes without a node that does not answer.
    bed.silence(Some(2));
    let unsettled = update(7);
    assert!(
        matches!(unsettled, NodeReply::NotBegun(Refusal::Unavailable(_))),
        "{unsettled:?}"
    );
    assert_eq!(bed.records(), []);
    bed.silence(None);
    assert_eq!(update(8), committed(1));
    // A part fails in a term that is settled.
    bed.break_node(Some(2));
    let torn = update(9);
    assert!(matches!(torn, NodeReply::Refused(_)), "{torn:?}");
}

#[test]
fn a_node_without_a_lease_begins_no_update() {
    let bed = Bed::new(&[]);
    bed.pass(u64::MAX / 2);
    let refused = bed.update(7, 1, NEW.len(), &[]);
    assert_eq!(refused, NodeReply::NotBegun(Refusal::NoLease));
}

#[test]
fn a_run_of_a_node_that_is_gone_is_known_by_the_others() {
    for scheme in [UpdateScheme::Pl, UpdateScheme::Parix, UpdateScheme::Cau] {
        let bed = Bed::with_scheme(scheme, &[]);
        let after = stage(&bed, 7, OLD);
        assert_eq!(bed.update(7, 1, OLD.len(), &[]), committed(1));
        bed.fail(&[1]);
        bed.restart_primary();
        assert_eq!(fate(&bed, 7, after), stood(1), "{scheme:?}");
        assert_eq!(fate(&bed, 9, after), NEVER, "{scheme:?}");
    }
}

#[test]
fn a_node_that_has_returned_does_not_deny_what_stood_without_it() {
    let bed = Bed::new(&[]);
    let after = stage(&bed, 7, OLD);
    bed.break_node(Some(3));
    let torn = bed.update(7, 1, OLD.len(), &[]);
    assert!(matches!(torn, NodeReply::Refused(_)), "{torn:?}");
    bed.break_node(None);
    bed.fail(&[3]);
    bed.restart_primary();
    assert_eq!(fate(&bed, 7, after), stood(1), "all others have it");
    bed.mend();
    bed.fail(&[2]);
    bed.heartbeat(0);
    bed.silence(Some(1));
    let unknown = fate(&bed, 7, after);
    assert!(
        matches!(unknown, NodeReply::Refused(Refusal::Unavailable(_))),
        "{unknown:?}"
    );
}

#[test]
fn a_run_that_too_few_nodes_would_remember_is_not_denied() {
    let bed = Bed::new(&[]);
    let after = stage(&bed, 7, OLD);
    assert_eq!(bed.update(7, 1, OLD.len(), &[]), committed(1));
    // The chunks on three nodes are made anew as of that update. One old one is left, and alone it
    // does not prove what was written to others.
    for node in [1, 2, 3] {
        bed.make_anew(node, 1);
    }
    assert_eq!(fate(&bed, 7, after), FORGOTTEN);
    assert_eq!(
        fate(&bed, 7, Sequence(1)),
        NEVER,
        "after that update all are remembered"
    );
}
