//! Nodes whose chunks a term leaves out: they are fenced before the term serves, so that a reader with an
//! old layout reads nothing there that updates have passed.

use crate::update::bed::{Bed, CHUNK_BYTES, STRIPE, stripe};
use gabion_layout::{
    ByteRange, ChunkIndex, Epoch, Generation, Keeping, NodeId, Sequence, Slices, StaleChunk,
    StripeRecord,
};
use gabion_plan::{Part, PartStep, Step, StepOrder, ValueId};
use gabion_protocol::message::{
    CommittedMark, Decided, Effect, EndCause, NodeReply, NodeRequest, Purpose, ReadCut, Refusal,
    RunId, RunPart, ask,
};
use gabion_protocol::ports::Ports as _;

const NEWS: &[u8] = b"what readers must see";
/// Any mark, as plain readers ask.
const NEWEST: ReadCut = ReadCut::Committed(Epoch(0), Sequence(0));

impl Bed {
    /// Returns a node's answer to a reader with the first layout, as of a cut.
    fn read_by_first_layout(&self, node: u32, cut: ReadCut) -> NodeReply {
        let slices = Slices::whole(ByteRange::new(0, CHUNK_BYTES));
        let (holder, chunk) = (NodeId(node), ChunkIndex(node as u8));
        let step = Step::Read {
            node: holder,
            chunk,
            slices,
        };
        self.ask_reader(node, (Epoch(0), cut), slices, step)
    }

    /// Returns a node's answer to a reader whose part is this step.
    pub(crate) fn ask_reader(
        &self,
        node: u32,
        (epoch, cut): (Epoch, ReadCut),
        slices: Slices,
        step: Step,
    ) -> NodeReply {
        let part = RunPart {
            run: RunId(self.ports(node).random()),
            joined: Vec::new(),
            part: Part {
                stripe: STRIPE,
                node: NodeId(node),
                holds: Some(ChunkIndex(node as u8)),
                chunk_bytes: CHUNK_BYTES,
                keeping: Keeping::InPlace,
                order: StepOrder::default(),
                steps: vec![PartStep {
                    id: ValueId(0),
                    slices,
                    step,
                }],
            },
            epoch,
            generation: stripe().generation,
            cut,
            effect: Effect::None,
            purpose: Purpose::Client,
            spread_ms: 0,
            deadline_ms: u64::MAX / 2,
            stall_ms: None,
            ticket: None,
        };
        self.ask(node, NodeRequest::RunPart(Box::new(part)))
    }
}

/// Chunk 1 is damaged: it is stale, and its node is up.
fn condemn(stripe: &mut StripeRecord) {
    let missed_after = None;
    let chunk = ChunkIndex(1);
    let stale = StaleChunk {
        chunk,
        missed_after,
    };
    stripe.note_stale(stale);
}

/// Stages an update of chunk 1 where the primary wants it, and has it made.
fn update_degraded(bed: &Bed, run: u64) -> NodeReply {
    bed.stage(2, run, 1, NEWS);
    let substitute = (ChunkIndex(1), NodeId(2));
    bed.update(run, 1, NEWS.len(), &[substitute])
}

#[test]
fn the_node_of_a_stale_chunk_refuses_old_layouts_before_an_update_leaves_it_out() {
    let bed = Bed::new(&[]);
    bed.stage(1, 1, 1, b"what was there before");
    let NodeReply::Updated { .. } = bed.update(1, 1, NEWS.len(), &[]) else {
        panic!("the stripe is whole")
    };
    let as_of = Sequence(1);
    let old = bed.read_by_first_layout(1, NEWEST);
    assert!(
        matches!(old, NodeReply::PartDone { as_of: found, .. } if found == as_of),
        "{old:?}"
    );
    bed.change_layout(condemn);
    let updated = update_degraded(&bed, 2);
    assert!(matches!(updated, NodeReply::Updated { .. }), "{updated:?}");
    let current = Generation(2);
    let refused = NodeReply::Refused(Refusal::StaleGeneration { current });
    assert_eq!(bed.read_by_first_layout(1, NEWEST), refused);
    let through_the_code = ReadCut::Exactly(Sequence(2));
    let helped = bed.read_by_first_layout(1, through_the_code);
    assert!(matches!(helped, NodeReply::Refused(_)), "{helped:?}");
}

#[test]
fn no_update_leaves_a_chunk_out_whose_node_neither_answers_nor_is_declared_failed() {
    let bed = Bed::new(&[]);
    bed.change_layout(condemn);
    bed.silence(Some(1));
    let waits = update_degraded(&bed, 1);
    assert!(
        matches!(&waits, NodeReply::NotBegun(Refusal::Unavailable(peer)) if peer.contains('1')),
        "{waits:?}"
    );
    bed.fail(&[1]);
    let updated = update_degraded(&bed, 2);
    assert!(matches!(updated, NodeReply::Updated { .. }), "{updated:?}");
}

/// It knows the term from its join or from an update: as a member of the newest term it would tell a quorum's reader
/// that it has everything up to the mark.
#[test]
fn a_node_that_came_back_within_a_term_is_left_out_by_a_new_one_only() {
    let bed = Bed::new(&[1]);
    bed.stage(0, 1, 0, NEWS);
    let updated = bed.update(1, 0, NEWS.len(), &[]);
    assert!(matches!(updated, NodeReply::Updated { .. }), "{updated:?}");
    let epoch = bed.epoch();
    bed.mend();
    bed.heartbeat(0);
    bed.stage(1, 2, 1, NEWS);
    let updated = bed.update(2, 1, NEWS.len(), &[]);
    assert!(matches!(updated, NodeReply::Updated { .. }), "{updated:?}");
    assert_eq!(bed.epoch(), epoch, "the node takes part in the same term");
    bed.fail(&[1]);
    bed.heartbeat(0);
    let updated = update_degraded(&bed, 3);
    assert!(matches!(updated, NodeReply::Updated { .. }), "{updated:?}");
    assert!(bed.epoch() > epoch, "the node knows term {epoch}");
}

#[test]
fn a_node_that_may_still_have_a_chunk_that_was_moved_is_fenced_too() {
    let bed = Bed::new(&[4]);
    // Chunk 3 was rebuilt on node 4, which has failed since; the old one is still on node 3.
    bed.change_layout(|stripe| stripe.nodes[3] = NodeId(4));
    bed.leave_behind(3);
    bed.stage(0, 1, 0, NEWS);
    bed.silence(Some(3));
    let waits = bed.update(1, 0, NEWS.len(), &[]);
    assert!(
        matches!(waits, NodeReply::NotBegun(Refusal::Unavailable(_))),
        "{waits:?}"
    );
    bed.silence(None);
    bed.stage(0, 2, 0, NEWS);
    let updated = bed.update(2, 0, NEWS.len(), &[]);
    assert!(matches!(updated, NodeReply::Updated { .. }), "{updated:?}");
    let current = Generation(2);
    let refused = NodeReply::Refused(Refusal::StaleGeneration { current });
    assert_eq!(bed.read_by_first_layout(3, NEWEST), refused);
}

#[test]
fn the_node_of_a_chunk_that_an_update_leaves_out_is_told_no_mark() {
    let bed = Bed::new(&[]);
    bed.change_layout(condemn);
    for run in 1..=3 {
        let updated = update_degraded(&bed, run);
        assert!(matches!(updated, NodeReply::Updated { .. }), "{updated:?}");
        assert!(matches!(bed.mark(false, &[]), NodeReply::Mark { .. }));
    }
    let marks = bed.marks();
    assert!(marks[2] > 0 && marks[3] > 0, "others hear it: {marks:?}");
    assert_eq!(marks[1], 0, "its node would think that it has everything");
}

#[test]
fn a_node_that_returns_refuses_the_layouts_from_before() {
    let bed = Bed::new(&[]);
    let fate = Decided {
        stripe: STRIPE,
        epoch: Epoch(4),
        generation: Generation(3),
        stands: Vec::new(),
    };
    bed.restart_with(1, vec![fate]);
    let current = Generation(3);
    let refused = NodeReply::Refused(Refusal::StaleGeneration { current });
    assert_eq!(bed.read_by_first_layout(1, NEWEST), refused);
}

/// An update that one of its nodes has not made: its fate is open.
fn with_torn_update() -> Bed {
    let bed = Bed::new(&[]);
    bed.break_node(Some(3));
    bed.stage(0, 1, 0, NEWS);
    let torn = bed.update(1, 0, NEWS.len(), &[]);
    assert!(matches!(torn, NodeReply::Refused(_)), "{torn:?}");
    bed
}

/// A settlement without the node drops an update, and a later one finds it at a third node and lets it stand.
#[test]
fn a_joining_node_does_not_execute_a_decision_that_a_later_one_has_overtaken() {
    let bed = with_torn_update();
    let records = bed.undecided(0);
    assert_eq!(records.len(), 1, "the update is undecided");
    let decided = |epoch, stands: &[(Epoch, Sequence)]| Decided {
        stripe: STRIPE,
        epoch: Epoch(epoch),
        generation: Generation(1),
        stands: stands.to_vec(),
    };
    let epoch = bed.epoch();
    bed.restart_during(0, [decided(epoch + 1, &[]), decided(epoch + 2, &records)]);
    assert_eq!(bed.undecided(0), records, "its bytes may be acknowledged");
}

/// The coordinator counts the chunks that a node has reported.
#[test]
fn a_node_that_a_decision_costs_a_chunk_joins_again_without_it() {
    let bed = Bed::new(&[]);
    bed.spoil_reserve(3);
    bed.decide(vec![Decided {
        stripe: STRIPE,
        epoch: Epoch(2),
        generation: Generation(1),
        stands: vec![(Epoch(1), Sequence(1))],
    }]);
    bed.take_reports();
    bed.join_again(3);
    assert_eq!(bed.take_reports(), [vec![ChunkIndex(3)], vec![]]);
    assert!(serves(&bed, 3));
}

/// Records that it has lost with the chunk would seem not to have been made.
#[test]
fn a_node_that_has_lost_its_chunk_tells_nothing_of_its_records() {
    let bed = Bed::new(&[]);
    bed.lose_chunk(3);
    let collect = ask::Collect {
        stripe: STRIPE,
        epoch: Epoch(1),
        generation: Generation(1),
    };
    let attest = ask::Attest { stripe: STRIPE };
    for request in [NodeRequest::from(collect), attest.into()] {
        let told = bed.ask(3, request);
        assert!(
            matches!(&told, NodeReply::Refused(Refusal::Damaged(damage)) if damage.chunk.index == ChunkIndex(3)),
            "{told:?}"
        );
    }
}

#[test]
fn a_mark_says_nothing_of_records_of_another_term() {
    let bed = with_torn_update();
    let mark = CommittedMark {
        stripe: STRIPE,
        epoch: Epoch(bed.epoch() + 1),
        sequence: Sequence(9),
    };
    let marks = vec![mark];
    assert_eq!(
        bed.ask(0, ask::Committed { marks, from: None }),
        NodeReply::Done
    );
    assert_eq!(
        bed.marks()[0],
        0,
        "its record of the first term is undecided"
    );
}

/// Whether a node serves anything.
fn serves(bed: &Bed, node: u32) -> bool {
    bed.read_by_first_layout(node, NEWEST) != NodeReply::Refused(Refusal::NoLease)
}

#[test]
fn a_node_whose_lease_has_ended_serves_nothing_though_its_process_was_suspended() {
    let bed = Bed::new(&[]);
    bed.grant_leases_of(1_000, 0);
    bed.restart(1);
    bed.pass(999);
    assert!(serves(&bed, 1));
    bed.pass(1);
    assert!(!serves(&bed, 1));
    bed.heartbeat(1);
    assert!(serves(&bed, 1), "it is a member still");
    // The machine was suspended for an hour, which its clock counts.
    bed.pass(3_600_000);
    assert!(!serves(&bed, 1));
}

#[test]
fn a_lease_runs_from_when_the_node_asked_for_it() {
    let bed = Bed::new(&[]);
    bed.grant_leases_of(1_000, 600);
    bed.restart(1);
    assert!(serves(&bed, 1), "the join took 600 of 1000 ms");
    bed.pass(400);
    assert!(!serves(&bed, 1));
    bed.heartbeat(1);
    assert!(serves(&bed, 1), "so did the heartbeat");
    bed.pass(400);
    assert!(!serves(&bed, 1));
}

#[test]
fn a_node_sends_the_heartbeat_that_it_is_asked_for_before_it_is_due() {
    let bed = Bed::new(&[]);
    bed.grant_leases_of(1_000, 0);
    bed.restart(1);
    bed.ask_for_heartbeat(1, 700);
    assert!(serves(&bed, 1), "1400 ms after the first heartbeat");
}

#[test]
fn a_disk_on_which_work_waits_is_tried_with_a_write() {
    let bed = Bed::new(&[]);
    let before = bed.disk_counts(1);
    assert_eq!(bed.delay_disk(1), [NodeId(1)]);
    let after = bed.disk_counts(1);
    assert!(after.write_count > before.write_count && after.sync_count > before.sync_count);
}

#[test]
fn a_node_whose_disk_hangs_serves_nothing_and_says_so_until_it_has_joined_anew() {
    let bed = Bed::new(&[]);
    bed.grant_leases_of(1_000_000, 0);
    bed.heartbeat(1);
    assert!(serves(&bed, 1));
    bed.hang_disk(Some(1));
    bed.heartbeat(1);
    let refused = Some(NodeReply::Refused(Refusal::NoLease));
    assert_eq!(bed.take_ends(), [(EndCause::DiskHangs, refused)]);
    bed.heartbeat(1);
    assert_eq!(bed.take_ends(), [], "once");
    bed.hang_disk(None);
    assert!(!serves(&bed, 1), "others may have gone on without it");
    bed.heartbeat(1);
    assert!(serves(&bed, 1));
}

#[test]
fn a_part_that_began_before_its_node_joined_anew_leaves_nothing() {
    let bed = Bed::new(&[]);
    bed.stage(1, 1, 1, NEWS);
    let answer = bed.rejoin_during_update(1, NEWS.len(), 2);
    assert_eq!(answer, NodeReply::Refused(Refusal::NoLease));
    assert!(
        !bed.has_records(2),
        "the coordinator was told that there are none"
    );
}

#[test]
fn a_node_that_has_not_settled_an_update_does_not_read_as_of_it() {
    let bed = Bed::new(&[]);
    bed.stage(1, 1, 1, NEWS);
    let updated = bed.update(1, 1, NEWS.len(), &[]);
    assert!(matches!(updated, NodeReply::Updated { .. }), "{updated:?}");
    let settled = bed.read_by_first_layout(1, ReadCut::Settled(Sequence(1)));
    assert!(
        matches!(settled, NodeReply::PartDone { as_of, .. } if as_of == Sequence(1)),
        "{settled:?}"
    );
    // A repair has settled update 8 with this node, and then the node went back to this older store.
    let ahead = bed.read_by_first_layout(1, ReadCut::Settled(Sequence(8)));
    assert_eq!(ahead, NodeReply::Refused(Refusal::Unsettled));
}
