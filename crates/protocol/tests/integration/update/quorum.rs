//! Reads that rest on what a quorum of the stripe's nodes knows, and on no lease.

use crate::update::bed::{Bed, STRIPE};
use gabion_layout::{ChunkIndex, Epoch, Generation, NodeId, Sequence};
use gabion_plan::Part;
use gabion_protocol::message::{
    Attestation, AttestedCut, Effect, NodeReply, NodeRequest, Purpose, ReadCut, Refusal, RunId,
    RunPart, ask,
};

const NEW: &[u8] = b"acknowledged";

impl Bed {
    fn attest(&self, node: u32) -> Attestation {
        match self.ask(node, ask::Attest { stripe: STRIPE }) {
            NodeReply::Attested(attested) => attested,
            other => panic!("{other:?}"),
        }
    }

    /// Whether a node admits a read, which moves no bytes here.
    fn admits(&self, run: u64, node: u8, cut: ReadCut) -> NodeReply {
        let part = Part {
            node: NodeId(node.into()),
            stripe: STRIPE,
            holds: Some(ChunkIndex(node)),
            chunk_bytes: crate::update::bed::CHUNK_BYTES,
            keeping: gabion_layout::Keeping::InPlace,
            order: gabion_plan::StepOrder::default(),
            steps: Vec::new(),
        };
        let request = RunPart {
            run: RunId(run),
            joined: Vec::new(),
            part,
            epoch: Epoch(0),
            generation: Generation(1),
            cut,
            effect: Effect::None,
            purpose: Purpose::Client,
            spread_ms: 0,
            deadline_ms: 1000,
            stall_ms: None,
            ticket: None,
        };
        self.ask(node.into(), NodeRequest::RunPart(Box::new(request)))
    }
}

fn update(bed: &Bed, run: u64) -> NodeReply {
    bed.stage(0, run, 0, NEW);
    bed.update(run, 0, NEW.len(), &[])
}

#[test]
fn a_node_without_a_lease_answers_quorum_reads_of_its_own_term_alone() {
    let bed = Bed::new(&[]);
    for run in 1..=2 {
        let sequence = Sequence(run);
        assert_eq!(update(&bed, run), NodeReply::Updated { sequence });
    }
    bed.pass(u64::MAX / 2);
    // Those that take part in the second update hear with it that the first is settled. That the second is
    // settled, the primary alone knows.
    let sequence = Sequence(2);
    let plain = ReadCut::Committed(Epoch(0), Sequence(0));
    let no_lease = NodeReply::Refused(Refusal::NoLease);
    assert_eq!(bed.admits(11, 0, plain), no_lease);
    let known: Vec<Attestation> = (0..4).map(|node| bed.attest(node)).collect();
    assert!(known.iter().all(|known| known.epoch == Epoch(1)));
    let marks: Vec<u64> = known.iter().map(|known| known.mark.0).collect();
    assert_eq!(marks, [1, 1, 1, 1]);
    let last = known.iter().map(|known| known.led);
    let last: Vec<_> = last.map(|led| led.map(|led| led.mark.0)).collect();
    assert_eq!(last, [Some(2), None, None, None]);
    let is_read = |reply: &NodeReply| matches!(reply, NodeReply::PartDone { as_of, .. } if *as_of == sequence);
    let cut = |epoch| AttestedCut::of_term(Epoch(epoch), sequence);
    let attested = |epoch| ReadCut::Attested(cut(epoch));
    assert!(is_read(&bed.admits(12, 0, attested(1))));
    let until = Epoch(2);
    let in_both = ReadCut::Attested(AttestedCut { until, ..cut(1) });
    assert!(is_read(&bed.admits(15, 0, in_both)));
    for (run, epoch) in [(13, 0), (14, 2)] {
        let current = Epoch(1);
        let fenced = NodeReply::Refused(Refusal::Fenced { current });
        assert_eq!(bed.admits(run, 0, attested(epoch)), fenced, "term {epoch}");
    }
    assert_eq!(bed.mark(false, &[]), no_lease);
}

#[test]
fn an_update_that_leaves_out_a_node_which_its_term_has_asked_is_of_a_new_term() {
    let bed = Bed::new(&[]);
    assert_eq!(
        update(&bed, 7),
        NodeReply::Updated {
            sequence: Sequence(1)
        }
    );
    bed.fail(&[3]);
    bed.heartbeat(0);
    assert_eq!(
        update(&bed, 8),
        NodeReply::Updated {
            sequence: Sequence(2)
        }
    );
    // Node 3 may still serve quorum reads, if it was cut off. A reader that asks two of the others hears of
    // the term that has left it out.
    bed.mend();
    assert_eq!(bed.attest(3).epoch, Epoch(1));
    for node in 0..3 {
        assert_eq!(bed.attest(node).epoch, Epoch(2), "node {node}");
    }
    assert_eq!(bed.notes()[0].0, Epoch(2));
}

#[test]
fn a_primary_answers_for_its_last_update_until_a_settlement_may_be_known() {
    let bed = Bed::new(&[]);
    let led = |bed: &Bed| {
        let led = bed.attest(0).led;
        led.map(|led| (led.since.0, led.until.0, led.mark.0))
    };
    assert_eq!(led(&bed), None);
    let sequence = Sequence(1);
    assert_eq!(update(&bed, 1), NodeReply::Updated { sequence });
    bed.break_node(Some(3));
    update(&bed, 2);
    assert_eq!(led(&bed), Some((1, 1, 1)), "the second one has failed");
    bed.break_node(None);
    bed.silence(Some(3));
    update(&bed, 3);
    assert_eq!(led(&bed), Some((1, 2, 1)), "its next term is not settled");
    bed.silence(None);
    bed.fail(&[3]);
    bed.heartbeat(0);
    bed.refuse_notes();
    update(&bed, 4);
    // The coordinator may have noted that the second one stands.
    assert_eq!(led(&bed), None);
}
