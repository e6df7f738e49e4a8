//! The checker is worth what it refuses. Valid plans of every family are changed in one place, in
//! every way that changes what they do, and each change must be refused.
//!
//! Changes that leave a plan's meaning alone are not made: two terms of a sum with one coefficient
//! may change places, so only terms with different ones are swapped; a chunk that the plan does not
//! read may be declared lost; a parity log may hold one delta three times; the one delta that a
//! parity chunk gets may be logged for its data chunk or for all; and a place in `placement` that the
//! plan does not use may be anything.

use gabion_codec::Code;
use gabion_layout::{
    ByteRange, ChunkIndex, ChunkRange, Geometry, NodeId, Slices, StripeId, Topology,
};
use gabion_plan::{CheckError, Goal, Log, Logged, Plan, Step, Term, ValueId, check};
use gabion_planner::repair::{Scheme, catch_up, read, repair};
use gabion_planner::update::{cau, parix};
use gabion_planner::{PlanError, Stripe, encode, update};
use proptest::prelude::*;

/// A node that no stripe here is on.
const STRANGER: NodeId = NodeId(9999);

/// One valid plan of each family for one stripe of a code.
fn plans(code: &Code, row_bytes: u64, slice_bytes: u64, pick: usize) -> Vec<Plan> {
    let w = code.sub_chunks();
    let geometry = Geometry::new(code.k(), code.m(), w, row_bytes * w as u64)
        .expect("whole rows make a geometry");
    let placement: Vec<NodeId> = (0..code.n() as u32).map(NodeId).collect();
    let lost = [ChunkIndex::new(pick % code.n())];
    let whole = Stripe {
        id: StripeId(1),
        code,
        geometry,
        placement: &placement,
        lost: &[],
    };
    let broken = Stripe {
        lost: &lost,
        ..whole
    };
    let (a, b) = (pick % code.k(), (pick + 1) % code.k());
    let middle = ByteRange::new(
        geometry.chunk_bytes() / 3,
        geometry.chunk_bytes().div_ceil(2),
    );
    let mut ranges = vec![ChunkRange {
        chunk: ChunkIndex::new(a),
        range: middle,
    }];
    if a != b {
        ranges.push(ChunkRange {
            chunk: ChunkIndex::new(b),
            range: ByteRange::new(0, 1),
        });
    }
    let reads: Vec<ChunkRange> = [lost[0], ChunkIndex::new((lost[0].at() + 1) % code.n())]
        .map(|chunk| ChunkRange {
            chunk,
            range: middle,
        })
        .to_vec();
    let helpers: Vec<ChunkIndex> = broken.available().collect();
    let requestor = NodeId(500);
    let topology = Topology::uniform(2, code.n() as u32);
    let repaired = |scheme| repair(&broken, lost[0], requestor, &helpers, scheme, slice_bytes);
    let (asker, chain) = (NodeId::CLIENT, Scheme::Pipeline);
    let plans = [
        encode::direct(&whole, asker, slice_bytes),
        update::delta(&whole, &topology, &ranges, slice_bytes),
        degraded_update(&whole, &topology, &ranges, slice_bytes),
        repaired(Scheme::Conventional),
        repaired(chain),
        read(&broken, &reads, asker, &helpers, chain, slice_bytes),
        catch_up(
            &broken,
            lost[0],
            broken.node_of(lost[0]),
            &[middle],
            &helpers,
            chain,
            slice_bytes,
        ),
    ];
    let plans = plans
        .into_iter()
        .chain([overlaid(&broken, &middle, slice_bytes)])
        .chain(cross_rack_plans(&whole, &ranges, slice_bytes))
        .chain(replica_plans(&whole, slice_bytes));
    plans
        .map(|plan| plan.expect("every code here survives one loss"))
        .collect()
}

/// An update without a written data chunk and a parity chunk, as far as the code bears it.
fn degraded_update(
    whole: &Stripe<'_>,
    topology: &Topology,
    ranges: &[ChunkRange],
    slice_bytes: u64,
) -> Result<Plan, PlanError> {
    let mut lost = vec![ranges[0].chunk, ChunkIndex::new(whole.code.n() - 1)];
    lost.truncate(whole.code.failures_survived() - 1);
    let degraded = Stripe {
        lost: &lost,
        ..*whole
    };
    update::delta(&degraded, topology, ranges, slice_bytes)
}

/// A read in an append phase of the lost chunk, of which one other node has a part, and of another data chunk.
fn overlaid(stripe: &Stripe<'_>, range: &ByteRange, slice_bytes: u64) -> Result<Plan, PlanError> {
    let data: Vec<ChunkIndex> = stripe.geometry.data_chunks().collect();
    let helpers: Vec<ChunkIndex> = stripe.available().collect();
    let mut chunks: Vec<ChunkIndex> = data.iter().copied().take(2).collect();
    chunks.extend(stripe.lost);
    chunks.sort_unstable();
    chunks.dedup();
    let reads: Vec<ChunkRange> = chunks
        .iter()
        .map(|&chunk| ChunkRange {
            chunk,
            range: *range,
        })
        .collect();
    let half = ByteRange::new(range.offset, range.length.div_ceil(2));
    let logged = data.iter().map(|&chunk| {
        let is_left = !stripe.lost.contains(&chunk);
        let other = helpers.iter().find(|helper| **helper != chunk);
        let node = if is_left {
            chunk
        } else {
            *other.expect("one is left")
        };
        Logged {
            node: stripe.node_of(node),
            log: if is_left { Log::Journal } else { Log::Replica },
            part: ChunkRange { chunk, range: half },
        }
    });
    let reader = update::Reader {
        asker: NodeId::CLIENT,
        helpers: &helpers,
        scheme: Scheme::Pipeline,
        slice_bytes,
    };
    update::overlay_read(stripe, &reads, &logged.collect::<Vec<_>>(), reader)
}

/// Encodings of replicas, of which the last data chunk has none at its place.
fn replica_plans(stripe: &Stripe<'_>, slice_bytes: u64) -> Vec<Result<Plan, PlanError>> {
    let (k, nodes) = (stripe.geometry.k(), stripe.geometry.n() as u32);
    let topology = Topology::uniform(2, nodes);
    let mut replicas: Vec<Vec<NodeId>> = (0..k as u32).map(|at| vec![NodeId(at)]).collect();
    replicas[k - 1] = vec![NodeId(nodes), NodeId(nodes + 1)];
    let gathered = encode::gather(stripe, &replicas, NodeId(0), &topology, slice_bytes);
    let chained = encode::chain(stripe, &replicas, &topology, slice_bytes);
    let converted = encode::convert(stripe, &replicas, NodeId(0), &topology, slice_bytes);
    let encoded = [gathered.map(|e| e.plan), chained.map(|e| e.plan)];
    encoded.into_iter().chain([converted]).collect()
}

/// Plans that know racks or let parity wait, with two nodes a rack.
fn cross_rack_plans(
    stripe: &Stripe<'_>,
    ranges: &[ChunkRange],
    slice_bytes: u64,
) -> Vec<Result<Plan, PlanError>> {
    let topology = &Topology::uniform(stripe.code.n().div_ceil(2) as u32, 2);
    let selection = cau::Selection::Selective;
    let mut plans = vec![
        update::rackcu(stripe, topology, ranges, slice_bytes),
        cau::append(stripe, topology, ranges, 1, slice_bytes),
        cau::commit(stripe, topology, ranges, selection, slice_bytes),
        parix::append(stripe, ranges, &ranges[1..], slice_bytes),
        parix::commit(stripe, ranges, slice_bytes),
    ];
    if let [first, second] = ranges {
        let (updated, other) = (first.chunk, second.chunk);
        let mut placement = stripe.placement.to_vec();
        placement.swap(updated.at(), other.at());
        let exchange = cau::Grouping {
            swaps: vec![cau::Swap { updated, other }],
            placement,
            gain: 0,
        };
        plans.push(cau::relocate(stripe, &exchange, slice_bytes));
    }
    plans
}

/// A plan with one thing changed, and what that was.
type Mutant = (String, Plan);

/// The plan with step `at` changed.
fn changed(plan: &Plan, at: usize, what: &str, change: impl FnOnce(&mut Step)) -> Mutant {
    let mut plan = plan.clone();
    change(&mut plan.steps[at]);
    (format!("{what} in step {at}"), plan)
}

/// The plan without step `at`. Those after it get new numbers, and so do their uses; a use of the
/// dropped value is left dangling.
fn dropped(plan: &Plan, at: usize) -> Mutant {
    let mut plan = plan.clone();
    plan.steps.remove(at);
    for step in &mut plan.steps {
        for value in uses(step) {
            *value = match value.at().cmp(&at) {
                std::cmp::Ordering::Less => *value,
                std::cmp::Ordering::Equal => ValueId(u32::MAX),
                std::cmp::Ordering::Greater => ValueId(value.0 - 1),
            };
        }
    }
    (format!("step {at} dropped"), plan)
}

fn uses(step: &mut Step) -> Vec<&mut ValueId> {
    match step {
        Step::Input { .. } | Step::Read { .. } | Step::Recall { .. } => vec![],
        Step::Combine { terms, .. } => terms.iter_mut().map(|term| &mut term.value).collect(),
        Step::Send { value, .. }
        | Step::Write { value, .. }
        | Step::Append { value, .. }
        | Step::Deliver { value, .. } => vec![value],
    }
}

fn slices_of(step: &mut Step) -> Option<&mut Slices> {
    match step {
        Step::Input { slices, .. }
        | Step::Read { slices, .. }
        | Step::Recall { slices, .. }
        | Step::Write { slices, .. }
        | Step::Append { slices, .. }
        | Step::Deliver { slices, .. } => Some(slices),
        Step::Combine { .. } | Step::Send { .. } => None,
    }
}

fn chunk_of(step: &mut Step) -> Option<&mut ChunkIndex> {
    match step {
        Step::Input { chunk, .. }
        | Step::Read { chunk, .. }
        | Step::Recall { chunk, .. }
        | Step::Write { chunk, .. }
        | Step::Append { chunk, .. }
        | Step::Deliver { chunk, .. } => Some(chunk),
        Step::Combine { .. } | Step::Send { .. } => None,
    }
}

fn step_mutants(plan: &Plan, at: usize) -> Vec<Mutant> {
    let n = plan.geometry.n();
    let mut step = plan.steps[at].clone();
    let mut mutants = vec![dropped(plan, at)];
    mutants.push(changed(plan, at, "another node", |step| match step {
        Step::Input { node, .. }
        | Step::Read { node, .. }
        | Step::Recall { node, .. }
        | Step::Combine { node, .. }
        | Step::Write { node, .. }
        | Step::Append { node, .. }
        | Step::Deliver { node, .. }
        | Step::Send { to: node, .. } => *node = STRANGER,
    }));
    // Over GF(2^8) three equal deltas are one, so a parity log may hold them.
    let copies_max = match &step {
        Step::Append {
            log: Log::Parity { .. },
            ..
        } => 1,
        step if step.makes_value() => 0,
        _ => 2,
    };
    for copy_count in 1..=copies_max {
        let mut again = plan.clone();
        again.steps.extend(vec![step.clone(); copy_count]);
        mutants.push((format!("step {at} done {copy_count} times more"), again));
    }
    for other in (0..n).filter(|_| chunk_of(&mut step).is_some()) {
        mutants.push(changed(plan, at, "another chunk", |step| {
            let chunk = chunk_of(step).expect("asked above");
            let is_same = chunk.at() == other;
            *chunk = ChunkIndex::new(if is_same { n } else { other });
        }));
    }
    if slices_of(&mut step).is_some() {
        let edits: [fn(&mut Slices); 9] = [
            |s| s.offset += 1,
            |s| s.offset = s.offset.wrapping_sub(1),
            |s| s.slice_bytes += 1,
            |s| s.count += 1,
            |s| s.count -= 1,
            |s| s.tail_bytes += 1,
            |s| s.tail_bytes -= 1,
            |s| s.stride += 1,
            |s| s.offset = u64::MAX,
        ];
        for (number, edit) in edits.into_iter().enumerate() {
            let what = format!("slices edited by {number}");
            mutants.push(changed(plan, at, &what, |step| {
                edit(slices_of(step).expect("asked above"));
            }));
        }
    }
    for term in 0..uses(&mut step).len() {
        for (what, value) in [("use before definition", at), ("dangling use", 1 << 20)] {
            mutants.push(changed(plan, at, what, |step| {
                *uses(step)[term] = ValueId(value as u32);
            }));
        }
    }
    mutants.extend(special_mutants(plan, at));
    mutants
}

/// Changes that only some kinds of steps allow.
fn special_mutants(plan: &Plan, at: usize) -> Vec<Mutant> {
    match &plan.steps[at] {
        Step::Combine { terms, .. } => combine_mutants(plan, at, terms),
        Step::Send { from, to, .. } => [
            ("send to self", *from, *from),
            ("send from the receiver", *to, *to),
            ("send from a stranger", STRANGER, *to),
        ]
        .map(|(what, new_from, new_to)| {
            changed(plan, at, what, |step| {
                if let Step::Send { from, to, .. } = step {
                    (*from, *to) = (new_from, new_to);
                }
            })
        })
        .to_vec(),
        Step::Append { log, .. } => {
            let mut logs: Vec<Log> = if *log == Log::ParitySum {
                vec![]
            } else {
                let for_data = |data| Log::Parity { data };
                plan.geometry.chunks().map(for_data).collect()
            };
            logs.extend([Log::Journal, Log::Replica, Log::Original]);
            let others = logs.into_iter().filter(|other| other != log);
            others
                .map(|other| {
                    changed(plan, at, "another log", |step| {
                        if let Step::Append { log, .. } = step {
                            *log = other;
                        }
                    })
                })
                .collect()
        }
        Step::Recall { log, .. } => {
            let logs = [Log::Journal, Log::Replica, Log::Original, Log::ParitySum];
            let others = logs.into_iter().filter(|other| other != log);
            others
                .map(|other| {
                    changed(plan, at, "recalled from another log", |step| {
                        if let Step::Recall { log, .. } = step {
                            *log = other;
                        }
                    })
                })
                .collect()
        }
        Step::Input { .. } | Step::Read { .. } | Step::Write { .. } | Step::Deliver { .. } => {
            vec![]
        }
    }
}

/// `terms` are those of the combination that is step `at`.
fn combine_mutants(plan: &Plan, at: usize, terms: &[Term]) -> Vec<Mutant> {
    let with_terms = |what: &str, new: Vec<Term>| {
        changed(plan, at, what, |step| {
            if let Step::Combine { terms, .. } = step {
                *terms = new;
            }
        })
    };
    let mut mutants = vec![with_terms("no terms", vec![])];
    for term in 0..terms.len() {
        for flip in [1, 0x80, terms[term].coefficient] {
            let mut new = terms.to_vec();
            new[term].coefficient ^= flip;
            mutants.push(with_terms("another coefficient", new));
        }
        mutants.push(with_terms(
            "a term twice",
            [terms, &terms[term..=term]].concat(),
        ));
        let other = (term + 1) % terms.len();
        if terms[term].coefficient != terms[other].coefficient {
            let mut new = terms.to_vec();
            (new[term].value, new[other].value) = (terms[other].value, terms[term].value);
            mutants.push(with_terms("terms swapped", new));
        }
    }
    mutants
}

/// The ranges that a goal names.
fn ranges_of(goal: &mut Goal) -> Option<&mut Vec<ChunkRange>> {
    match goal {
        Goal::Update { ranges }
        | Goal::Read { ranges }
        | Goal::ReadAppended { ranges, .. }
        | Goal::CatchUp { ranges, .. }
        | Goal::Append { ranges, .. }
        | Goal::Commit { ranges, .. } => Some(ranges),
        _ => None,
    }
}

/// The chunks that a goal names, with their nodes.
fn chunks_of(goal: &mut Goal) -> Option<&mut Vec<(ChunkIndex, NodeId)>> {
    match goal {
        Goal::Repair { chunks }
        | Goal::Move { chunks }
        | Goal::EncodeReplicas { replicas: chunks }
        | Goal::Convert { sources: chunks } => Some(chunks),
        _ => None,
    }
}

/// Changes of what the plan says about itself.
fn plan_mutants(plan: &Plan) -> Vec<Mutant> {
    let mut mutants: Vec<Mutant> = Vec::new();
    let mut push = |what: &str, change: &dyn Fn(&mut Plan)| {
        let mut plan = plan.clone();
        change(&mut plan);
        mutants.push((what.to_owned(), plan));
    };
    for step in &plan.steps {
        match *step {
            Step::Read { chunk, .. } => {
                push("a chunk that is read is lost", &|plan| {
                    plan.lost.push(chunk);
                });
                push("a chunk that is read is elsewhere", &|plan| {
                    plan.placement[chunk.at()] = STRANGER;
                });
            }
            Step::Append { chunk, .. } => {
                push("a chunk that is logged for is elsewhere", &|plan| {
                    plan.placement[chunk.at()] = STRANGER;
                });
                push("a chunk that is logged for is lost", &|plan| {
                    plan.lost.push(chunk);
                });
            }
            _ => {}
        }
    }
    push("a place too many", &|plan| plan.placement.push(STRANGER));
    push("steps of no use to an empty goal", &|plan| {
        plan.goal = Goal::Update { ranges: vec![] };
    });
    push("a second copy of the goal", &|plan| {
        if let Some(ranges) = ranges_of(&mut plan.goal) {
            ranges.push(ranges[0]);
        } else if let Some(chunks) = chunks_of(&mut plan.goal) {
            chunks.push(chunks[0]);
        } else {
            plan.steps.clear();
        }
    });
    push("a goal one byte wider", &|plan| {
        if let Some(ranges) = ranges_of(&mut plan.goal) {
            ranges[0].range.length += 1;
        } else if let Goal::Repair { chunks } | Goal::Move { chunks } = &mut plan.goal {
            chunks[0].1 = STRANGER;
        } else {
            plan.placement[0] = STRANGER;
        }
    });
    push("a goal about another chunk", &|plan| {
        if let Some(ranges) = ranges_of(&mut plan.goal) {
            ranges[0].chunk = ChunkIndex(250);
        } else if let Some(chunks) = chunks_of(&mut plan.goal) {
            chunks[0].0 = ChunkIndex(250);
        } else {
            plan.placement.clear();
        }
    });
    mutants.extend(loss_mutants(plan));
    mutants.extend(log_mutants(plan));
    mutants
}

/// Changes of what an update without some chunks says of them; the first one lost is written.
fn loss_mutants(plan: &Plan) -> Vec<Mutant> {
    let (Goal::Update { .. }, false) = (&plan.goal, plan.lost.is_empty()) else {
        return Vec::new();
    };
    let (mut there, mut gone) = (plan.clone(), plan.clone());
    there.lost.remove(0);
    gone.lost = plan.geometry.chunks().collect();
    vec![
        ("a lost chunk that is written is there".to_owned(), there),
        ("all data is lost".to_owned(), gone),
    ]
}

/// Changes the entry of a number.
type LogEdit = fn(&mut Vec<Logged>, usize);

/// Changes of what the plan says that logs keep.
fn log_mutants(plan: &Plan) -> Vec<Mutant> {
    let named = match &plan.goal {
        Goal::Append { copies: named, .. }
        | Goal::Commit { logged: named, .. }
        | Goal::ReadAppended { logged: named, .. } => named.as_slice(),
        _ => &[],
    };
    let edits: [(&str, LogEdit); 6] = [
        ("a log forgotten", |logged, at| {
            logged.remove(at);
        }),
        ("a log named twice", |logged, at| logged.push(logged[at])),
        ("a log at a stranger", |logged, at| {
            logged[at].node = STRANGER;
        }),
        ("a log of deltas", |logged, at| {
            logged[at].log = Log::ParitySum;
        }),
        ("a log of nothing", |logged, at| {
            logged[at].part.range.length = 0;
        }),
        ("a log of other bytes", |logged, at| {
            logged[at].part.range.offset += 1;
        }),
    ];
    let positions = 0..named.len();
    let mutants = positions.flat_map(|at| edits.iter().map(move |edit| (at, edit)));
    mutants
        .map(|(at, (what, edit))| {
            let mut plan = plan.clone();
            if let Goal::Append { copies: logged, .. }
            | Goal::Commit { logged, .. }
            | Goal::ReadAppended { logged, .. } = &mut plan.goal
            {
                edit(logged, at);
            }
            (format!("{what}, number {at}"), plan)
        })
        .collect()
}

fn any_code() -> impl Strategy<Value = Code> {
    prop_oneof![
        (1usize..9, 1usize..5).prop_map(|(k, m)| format!("rs({k},{m})")),
        (1usize..7, 1usize..4).prop_map(|(k, m)| format!("cauchy({k},{m})")),
        (2usize..6).prop_map(|k| format!("rdp({k})")),
        (2usize..5).prop_map(|k| format!("evenodd({k})")),
        (2usize..4, 2usize..4, 1usize..3)
            .prop_map(|(per, l, g)| format!("lrc({},{l},{g})", per * l)),
        (2usize..5).prop_map(|n| format!("rep({n})")),
    ]
    .prop_map(|text| text.parse().expect("a code of its family"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn every_change_of_a_plan_is_refused(
        code in any_code(), row_bytes in 3u64..100, slice in 1u64..120, pick in any::<usize>(),
    ) {
        for plan in plans(&code, row_bytes, slice, pick % 1000) {
            prop_assert_eq!(check(&plan, &code), Ok(()));
            let steps = (0..plan.steps.len()).flat_map(|at| step_mutants(&plan, at));
            for (what, mutant) in steps.chain(plan_mutants(&plan)) {
                prop_assert!(
                    check(&mutant, &code).is_err(),
                    "{what} was accepted for {code}: {mutant:#?}"
                );
            }
        }
    }
}

/// A delta that another data chunk's entry bears would be dropped as resent, or added twice.
#[test]
fn a_delta_logged_for_another_chunk_is_refused_even_if_sums_agree() {
    let code: Code = "rs(2,1)".parse().unwrap();
    let geometry = Geometry::new(2, 1, 1, 64).unwrap();
    let placement = [0, 1, 2].map(NodeId);
    let stripe = Stripe {
        id: StripeId(1),
        code: &code,
        geometry,
        placement: &placement,
        lost: &[],
    };
    let range = ByteRange::new(0, 64);
    let ranges = [0, 1].map(|chunk| ChunkRange {
        chunk: ChunkIndex(chunk),
        range,
    });
    let mut plan = update::delta(&stripe, &Topology::uniform(3, 1), &ranges, 64).unwrap();
    for step in &mut plan.steps {
        if let Step::Append {
            log: Log::Parity { data },
            ..
        } = step
        {
            *data = ChunkIndex(1 - data.0);
        }
    }
    let error = check(&plan, &code).unwrap_err();
    assert!(matches!(error, CheckError::Wrong { .. }), "{error}");
}

/// A plan that delivers what a chunk had at the last commit would lose an acknowledged update, and one that recalls
/// from a lost node would wait for it.
#[test]
fn a_read_must_overlay_what_logs_have_and_from_nodes_that_are_left() {
    let code: Code = "rs(4,2)".parse().unwrap();
    let placement: Vec<NodeId> = (0..6).map(NodeId).collect();
    let stripe = Stripe {
        id: StripeId(1),
        code: &code,
        geometry: Geometry::new(4, 2, 1, 64).unwrap(),
        placement: &placement,
        lost: &[ChunkIndex(0)],
    };
    let part = ChunkRange {
        chunk: ChunkIndex(0),
        range: ByteRange::new(0, 64),
    };
    let at = |node, log| Logged {
        node: NodeId(node),
        log,
        part,
    };
    let helpers: Vec<ChunkIndex> = stripe.available().collect();
    let reader = update::Reader {
        asker: NodeId::CLIENT,
        helpers: &helpers,
        scheme: Scheme::Pipeline,
        slice_bytes: 64,
    };
    let read_with = |logged: &[Logged]| update::overlay_read(&stripe, &[part], logged, reader);
    let (journal, replica) = (at(0, Log::Journal), at(4, Log::Replica));
    let plan = read_with(&[journal, replica]).unwrap();
    assert_eq!(check(&plan, &code), Ok(()));
    assert_eq!(plan.participants(), [NodeId(4), NodeId::CLIENT]);

    let stored = Plan {
        goal: plan.goal.clone(),
        ..read_with(&[]).unwrap()
    };
    let error = check(&stored, &code).unwrap_err();
    assert!(matches!(error, CheckError::Wrong { .. }), "{error}");

    let mut gone = plan.clone();
    gone.lost.push(ChunkIndex(4));
    assert!(check(&gone, &code).is_err());

    let mut unlisted = plan;
    unlisted.goal = Goal::Read { ranges: vec![part] };
    assert!(check(&unlisted, &code).is_err());

    let none_left = read_with(&[journal]);
    assert_eq!(none_left, Err(PlanError::NoCopy(ChunkIndex(0))));
}

/// A commit bears thousands of small updates, and so must the read before it.
#[test]
fn a_read_overlays_as_many_updates_as_a_commit_bears() {
    let code: Code = "rs(10,4)".parse().unwrap();
    let placement: Vec<NodeId> = (0..14).map(NodeId).collect();
    let geometry = Geometry::new(10, 4, 1, 1 << 20).unwrap();
    let mut stripe = Stripe {
        id: StripeId(1),
        code: &code,
        geometry,
        placement: &placement,
        lost: &[],
    };
    let mut waiting = update::Waiting::default();
    let part = |number: u64| ChunkRange {
        chunk: ChunkIndex((number % 10) as u8),
        range: ByteRange::new(number / 10 * 3000, 100),
    };
    let updates = (0..).map(part).take_while(|&part| {
        let fits = waiting.fits(&[part], geometry);
        if fits {
            waiting.note_plan(&parix::append(&stripe, &[part], &[], 4096).unwrap());
        }
        fits
    });
    assert!(updates.count() > 2000);
    let lost = [0, 1, 2, 3].map(ChunkIndex);
    stripe.lost = &lost;
    let helpers: Vec<ChunkIndex> = stripe.available().collect();
    for scheme in [Scheme::Pipeline, Scheme::Conventional] {
        let reader = update::Reader {
            asker: NodeId::CLIENT,
            helpers: &helpers,
            scheme,
            slice_bytes: 256 << 10,
        };
        let range = ByteRange::new(0, geometry.chunk_bytes());
        let whole: Vec<ChunkRange> = geometry
            .data_chunks()
            .map(|chunk| ChunkRange { chunk, range })
            .collect();
        let plan = update::overlay_read(&stripe, &whole, &waiting.logged(), reader).unwrap();
        assert_eq!(check(&plan, &code), Ok(()));
        let parts = plan.participants().into_iter().map(|node| plan.part(node));
        let longest = parts.map(|part| part.steps.len()).max();
        assert!(longest < Some(65_536), "{longest:?} steps of a part");
    }
}
