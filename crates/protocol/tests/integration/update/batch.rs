//! Updates that wait for their stripe: a primary makes those that change different bytes together.

use crate::update::bed::{Bed, STRIPE, update_of};
use crate::update::{NEW, OLD, committed};
use gabion_layout::{ChunkIndex, Generation, NodeId, RunId, Sequence, UpdateScheme};
use gabion_plan::Part;
use gabion_protocol::message::{
    Effect, NodeReply, NodeRequest, Purpose, ReadCut, Refusal, RunFate, RunPart, RunQuestion, ask,
};
use gabion_protocol::ports::Asker;

const SCHEMES: [UpdateScheme; 3] = [UpdateScheme::Pl, UpdateScheme::Parix, UpdateScheme::Cau];

/// An update of the first bytes of a chunk.
fn update(run: u64, chunk: u8, bytes: &[u8]) -> ask::Update {
    update_of(run, chunk, bytes.len(), &[], Generation(1))
}

/// Stages bytes for each run at the node of its chunk, then asks for all updates at once. Only the first one
/// does not wait.
fn write_all(bed: &Bed, writes: &[(u64, u8, &'static [u8])]) -> Vec<NodeReply> {
    for &(run, chunk, bytes) in writes {
        bed.stage(chunk.into(), run, chunk, bytes);
    }
    let updates = writes
        .iter()
        .map(|&(run, chunk, bytes)| update(run, chunk, bytes));
    bed.update_all(updates.collect())
}

fn fate(bed: &Bed, run: u64, chunk: u8) -> NodeReply {
    let question = RunQuestion {
        stripe: STRIPE,
        generation: Generation(1),
        run: RunId(run),
        after: Sequence(0),
        chunks: vec![ChunkIndex(chunk)],
    };
    let ticket = None;
    bed.ask(0, ask::Fate { question, ticket })
}

const fn stood(sequence: u64) -> NodeReply {
    NodeReply::Fate(RunFate::Stood(Sequence(sequence)))
}

const NEVER: NodeReply = NodeReply::Fate(RunFate::Never);

#[test]
fn updates_that_wait_are_one_update_and_each_run_is_known() {
    for scheme in SCHEMES {
        let bed = Bed::with_scheme(scheme, &[]);
        let made = write_all(&bed, &[(7, 0, OLD), (8, 0, NEW), (9, 1, NEW)]);
        assert_eq!(made, [1, 2, 2].map(committed), "{scheme:?}");
        for chunk in [0, 1] {
            assert_eq!(bed.newest(chunk, NEW.len(), 2), NEW, "{scheme:?}");
        }
        let known = |bed: &Bed| [(7, 0), (8, 0), (9, 1)].map(|(run, chunk)| fate(bed, run, chunk));
        assert_eq!(known(&bed), [1, 2, 2].map(stood), "{scheme:?}");
        bed.restart_primary();
        assert_eq!(known(&bed), [1, 2, 2].map(stood), "{scheme:?}");
        bed.commit();
        let covered = bed.marks().into_iter().max().expect("four nodes");
        assert!(bed.parity_agrees(NEW.len(), covered), "{scheme:?}");
    }
}

#[test]
fn updates_of_the_same_bytes_are_made_one_after_the_other() {
    let bed = Bed::new(&[]);
    let made = write_all(&bed, &[(7, 0, OLD), (8, 1, OLD), (9, 1, NEW)]);
    assert_eq!(made, [1, 2, 3].map(committed));
    assert_eq!(bed.newest(1, NEW.len(), 3), NEW);
}

#[test]
fn of_updates_that_fail_together_none_stands() {
    for scheme in SCHEMES {
        let bed = Bed::with_scheme(scheme, &[]);
        assert_eq!(write_all(&bed, &[(6, 0, OLD)]), [committed(1)]);
        for (run, chunk) in [(8, 0), (9, 1)] {
            bed.stage(chunk.into(), run, chunk, NEW);
        }
        // Run 9 is withdrawn while it waits for its turn with run 8.
        let updates = [(7, 1, NEW), (8, 0, NEW), (9, 1, NEW)];
        bed.stage(1, 7, 1, NEW);
        bed.unstage(1, 9);
        let made = bed.update_all(
            updates
                .map(|(run, chunk, bytes)| update(run, chunk, bytes))
                .into(),
        );
        assert_eq!(made[0], committed(2), "{scheme:?}");
        for torn in &made[1..] {
            assert!(
                matches!(torn, NodeReply::Refused(_)),
                "{scheme:?}: {torn:?}"
            );
        }
        assert_eq!(fate(&bed, 8, 0), NEVER, "{scheme:?}");
        assert_eq!(fate(&bed, 9, 1), NEVER, "{scheme:?}");
        assert_eq!(bed.newest(0, OLD.len(), 2), OLD, "{scheme:?}");
        let NodeReply::Updated { sequence } = write_all(&bed, &[(10, 0, NEW)]).remove(0) else {
            panic!("{scheme:?}: the stripe goes on")
        };
        assert_eq!(bed.newest(0, NEW.len(), sequence.0), NEW, "{scheme:?}");
    }
}

#[test]
fn a_request_that_cannot_be_planned_spoils_no_other() {
    let bed = Bed::new(&[]);
    for (run, chunk) in [(7, 0), (8, 1)] {
        bed.stage(chunk.into(), run, chunk, NEW);
    }
    // There is no data chunk 9.
    let updates = vec![update(7, 0, NEW), update(6, 9, NEW), update(8, 1, NEW)];
    let made = bed.update_all(updates);
    assert_eq!(made[0], committed(1));
    assert!(
        matches!(made[1], NodeReply::NotBegun(Refusal::Invalid(_))),
        "{made:?}"
    );
    assert_eq!(made[2], committed(2));
}

#[test]
fn only_an_update_takes_the_bytes_of_several_runs() {
    let bed = Bed::new(&[]);
    bed.stage(1, 8, 1, NEW);
    let part = RunPart {
        run: RunId(5),
        joined: vec![RunId(8)],
        part: Part {
            stripe: STRIPE,
            node: NodeId(1),
            chunk_bytes: 4096,
            holds: Some(ChunkIndex(1)),
            keeping: gabion_layout::Keeping::InPlace,
            order: gabion_plan::StepOrder::default(),
            steps: Vec::new(),
        },
        epoch: gabion_layout::Epoch(0),
        generation: Generation(1),
        cut: ReadCut::Exactly(Sequence(0)),
        effect: Effect::None,
        purpose: Purpose::Client,
        spread_ms: 0,
        deadline_ms: 1000,
        stall_ms: None,
        ticket: None,
    };
    let stolen = bed.ask_as(Asker::Member, 1, NodeRequest::RunPart(Box::new(part)));
    assert!(
        matches!(stolen, NodeReply::Refused(Refusal::Invalid(_))),
        "{stolen:?}"
    );
    assert_eq!(bed.update(8, 1, NEW.len(), &[]), committed(1));
}
