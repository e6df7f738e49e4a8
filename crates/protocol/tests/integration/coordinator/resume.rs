//! Repairs whose helpers die or stall: others go on from where they stopped.

use crate::coordinator::bed::{Asked, Bed, gone};
use futures::FutureExt;
use futures::future::{pending, ready};
use gabion_layout::{ByteRange, NodeId, Sequence, StripeRecord};
use gabion_plan::Step;
use gabion_protocol::message::{Effect, NodeReply, NodeRequest, Refusal, RunPart, ask};
use std::collections::BTreeSet;

const MIB: u64 = 1 << 20;

/// The failure of a helper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Failure {
    /// Its process is gone.
    Dead,
    /// It is there, and says nothing.
    Frozen,
    /// It answers, and its own disk is what holds it up.
    Slow,
}

/// The parts that nodes were asked to run, run by run.
pub(crate) fn runs(log: &[Asked]) -> Vec<Vec<(NodeId, RunPart)>> {
    let mut runs: Vec<Vec<(NodeId, RunPart)>> = Vec::new();
    for asked in log {
        let NodeRequest::RunPart(part) = &asked.request else {
            continue;
        };
        match runs.last_mut() {
            Some(last) if last[0].1.run == part.run => last.push((asked.node, (**part).clone())),
            _ => runs.push(vec![(asked.node, (**part).clone())]),
        }
    }
    runs
}

/// Returns the nodes that write in a run, and the ranges that they write.
pub(crate) fn written(run: &[(NodeId, RunPart)]) -> (BTreeSet<NodeId>, Vec<ByteRange>) {
    let mut nodes = BTreeSet::new();
    let mut ranges = Vec::new();
    for (node, part) in run {
        for step in &part.part.steps {
            if let Step::Write { slices, .. } = step.step {
                nodes.insert(*node);
                ranges.push(slices.span());
            }
        }
    }
    (nodes, ByteRange::union(ranges))
}

pub(crate) fn readers(run: &[(NodeId, RunPart)]) -> BTreeSet<NodeId> {
    let reads = |(_, part): &&(NodeId, RunPart)| {
        let mut steps = part.part.steps.iter();
        steps.any(|step| matches!(step.step, Step::Read { .. }))
    };
    run.iter().filter(reads).map(|(node, _)| *node).collect()
}

/// A stripe of which chunk 3 is lost, on a bed where the helper that is `bad` fails the first run, and
/// the requestor has `kept` something of it. Gives the stripe and what nodes were asked.
fn repair_with(
    failure: Failure,
    bad: usize,
    kept: Option<Vec<ByteRange>>,
) -> (Bed, StripeRecord, Vec<Asked>) {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1).remove(0);
    let bad = before.nodes[bad];
    let mut first_run = None;
    bed.hook(move |node, request| match request {
        NodeRequest::RunPart(part) => {
            let is_first = *first_run.get_or_insert(part.run) == part.run;
            let refused = |refusal| ready(Ok(NodeReply::Refused(refusal))).boxed();
            let reply = match failure {
                _ if node != bad => refused(Refusal::Stalled(vec![bad])),
                Failure::Dead => ready(Err(gone(node))).boxed(),
                Failure::Frozen => pending().boxed(),
                Failure::Slow => refused(Refusal::Stalled(vec![])),
            };
            is_first.then_some(reply)
        }
        NodeRequest::Written(ask::Written { base, .. }) => {
            assert_eq!(*base, Sequence(0));
            Some(ready(Ok(NodeReply::Written(kept.clone()))).boxed())
        }
        _ => None,
    });
    let lost = before.nodes[3];
    bed.fail(&[lost]);
    bed.take_log();
    bed.ask(ask::RepairNow { scheme: None });
    bed.pass(3_000);
    let log = bed.take_log();
    (bed, before, log)
}

#[test]
fn other_helpers_bring_the_rest_when_one_dies_stalls_or_is_slow() {
    for failure in [Failure::Dead, Failure::Frozen, Failure::Slow] {
        let kept = vec![ByteRange::new(0, MIB / 4), ByteRange::new(MIB / 2, 1000)];
        let (mut bed, before, log) = repair_with(failure, 0, Some(kept));
        let runs = runs(&log);
        assert_eq!(runs.len(), 2, "{failure:?}");
        let (requestors, whole) = written(&runs[0]);
        assert_eq!(whole, [ByteRange::new(0, MIB)]);
        let rest = [
            ByteRange::new(MIB / 4, MIB / 4),
            ByteRange::new(MIB / 2 + 1000, MIB / 2 - 1000),
        ];
        assert_eq!(written(&runs[1]), (requestors.clone(), rest.to_vec()));
        assert!(readers(&runs[0]).contains(&before.nodes[0]));
        assert!(!readers(&runs[1]).contains(&before.nodes[0]), "{failure:?}");
        for (_, part) in &runs[1] {
            let base = Sequence(0);
            assert_eq!(part.effect, Effect::Resume { base });
            assert_eq!(part.cut, runs[0][0].1.cut, "as of the same update");
        }
        let after = bed.stripe("f");
        assert_eq!(Some(&after.nodes[3]), requestors.first());
        assert_eq!(bed.status().repair.resumed_count, 1);
    }
}

#[test]
fn a_requestor_that_has_kept_nothing_begins_anew() {
    let (mut bed, _, log) = repair_with(Failure::Dead, 1, None);
    let runs = runs(&log);
    assert!(runs.len() >= 2);
    for run in &runs {
        let (_, range) = written(run);
        assert_eq!(range, [ByteRange::new(0, MIB)]);
        let is_install =
            |(_, part): &(NodeId, RunPart)| matches!(part.effect, Effect::Install { .. });
        assert!(run.iter().all(is_install));
    }
    assert_eq!(bed.status().repair.resumed_count, 0);
    assert_ne!(
        bed.stripe("f").generation.0,
        1,
        "it is repaired all the same"
    );
}
