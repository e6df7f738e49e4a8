//! Several lost chunks of one stripe, which are made by one plan (`ECPipe` section 4.4).

use crate::coordinator::bed::{Bed, gone};
use crate::coordinator::resume::{readers, runs, written};
use futures::FutureExt;
use futures::future::ready;
use gabion_layout::{ByteRange, NodeId, StripeRecord};
use gabion_plan::Step;
use gabion_protocol::message::{Effect, NodeReply, NodeRequest, Refusal, RunPart, ask};

const MIB: u64 = 1 << 20;

/// The places of two chunks whose nodes are in different racks, so that there is a spare node for each.
fn two_apart(stripe: &StripeRecord) -> [usize; 2] {
    let rack = |at: usize| stripe.nodes[at].0 / 3;
    let other = (1..stripe.nodes.len()).find(|&at| rack(at) != rack(0));
    [0, other.expect("three racks")]
}

/// The node on which a run writes a chunk of the stripe.
fn requestor_of(run: &[(NodeId, RunPart)], index: usize) -> NodeId {
    let writes = |(_, part): &&(NodeId, RunPart)| {
        let mut steps = part.part.steps.iter();
        steps.any(|step| matches!(step.step, Step::Write { chunk, .. } if chunk.at() == index))
    };
    run.iter().find(writes).expect("a node writes it").0
}

#[test]
fn both_are_made_by_one_plan_in_which_each_helper_reads_its_chunk_once() {
    for (scheme, helper_count) in [("pipeline", 4), ("conventional", 4)] {
        let mut bed = Bed::three_racks();
        let before = bed.put("f", 1).remove(0);
        let lost = two_apart(&before);
        bed.fail(&lost.map(|at| before.nodes[at]));
        assert_eq!(bed.failures_left(), [(0, 1)]);
        bed.take_log();
        let scheme = Some(scheme.to_owned());
        bed.ask(ask::RepairNow { scheme });
        bed.pass(1_000);
        let runs = runs(&bed.take_log());
        assert_eq!(runs.len(), 1);
        let (requestors, _) = written(&runs[0]);
        assert_eq!(requestors.len(), 2, "each chunk has a node of its own");
        assert_eq!(readers(&runs[0]).len(), helper_count);
        for (_, part) in &runs[0] {
            let read = part.part.steps.iter().map(|step| match step.step {
                Step::Read { slices, .. } => slices.bytes(),
                _ => 0,
            });
            assert!(read.sum::<u64>() <= MIB, "once");
        }
        let after = bed.stripe("f");
        for at in lost {
            assert_eq!(after.nodes[at], requestor_of(&runs[0], at));
        }
        let repair = bed.status().repair;
        assert_eq!(repair.repaired_chunk_count, 2);
        assert_eq!((repair.queued_chunk_count, repair.last_error), (0, None));
        assert_eq!(bed.failures_left(), [(2, 1)]);
    }
}

#[test]
fn schemes_without_such_a_plan_make_one_after_another() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    bed.fail(&two_apart(&before).map(|at| before.nodes[at]));
    bed.take_log();
    let scheme = Some("ppr".to_owned());
    bed.ask(ask::RepairNow { scheme });
    bed.pass(1_000);
    let runs = runs(&bed.take_log());
    let counts: Vec<usize> = runs.iter().map(|run| written(run).0.len()).collect();
    assert_eq!(counts, [1, 1]);
    assert_eq!(bed.failures_left(), [(2, 1)]);
}

#[test]
fn one_chunk_is_finished_when_the_requestor_of_the_other_dies() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let [first, second] = two_apart(&before);
    let mut first_run = None;
    bed.hook(move |node, request| match request {
        NodeRequest::RunPart(part) => {
            let is_first = *first_run.get_or_insert(part.run) == part.run;
            let writes_second =
                part.part.steps.iter().any(
                    |step| matches!(step.step, Step::Write { chunk, .. } if chunk.at() == second),
                );
            if is_first && writes_second {
                return Some(ready(Err(gone(node))).boxed());
            }
            // Every other node waits for another one.
            let stalled = || ready(Ok(NodeReply::Refused(Refusal::Stalled(vec![])))).boxed();
            is_first.then(stalled)
        }
        NodeRequest::Written(ask::Written { chunk, .. }) if chunk.index.at() == first => {
            let kept = vec![ByteRange::new(0, MIB / 4)];
            Some(ready(Ok(NodeReply::Written(Some(kept)))).boxed())
        }
        _ => None,
    });
    bed.fail(&[first, second].map(|at| before.nodes[at]));
    bed.take_log();
    bed.ask(ask::RepairNow { scheme: None });
    bed.pass(3_000);
    let runs = runs(&bed.take_log());
    assert_eq!(runs.len(), 3);
    assert_eq!(written(&runs[0]).0.len(), 2);
    let to_first = requestor_of(&runs[0], first);
    let rest = vec![ByteRange::new(MIB / 4, 3 * MIB / 4)];
    assert_eq!(written(&runs[1]), ([to_first].into(), rest));
    let is_resumed = |(_, part): &(NodeId, RunPart)| matches!(part.effect, Effect::Resume { .. });
    assert!(runs[1].iter().all(is_resumed));
    // The other is begun anew, and only it.
    let (requestors, whole) = written(&runs[2]);
    assert_eq!((requestors.len(), whole), (1, vec![ByteRange::new(0, MIB)]));
    let after = bed.stripe("f");
    assert_eq!(after.nodes[first], to_first);
    assert_eq!(after.nodes[second], requestor_of(&runs[2], second));
    assert_eq!(bed.failures_left(), [(2, 1)]);
}
