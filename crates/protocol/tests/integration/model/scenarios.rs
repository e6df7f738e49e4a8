//! Histories that the rules survive, and without one of them do not, step by step. They are found by
//! the checker too; here they can be read.

use crate::model::properties::reads_are_whole;
use crate::model::rules::{Mutation, Rules};
use crate::model::state::{CHUNK_COUNT, Faults, State, Term, only};
use crate::model::steps::{Step, take};

const FAULTS: Faults = Faults {
    crash_count: 0,
    loss_count: 0,
    failure_count: 3,
    hint_count: 0,
    lease_count: 2,
    retry_count: 0,
};

/// Takes all steps, each of which must be possible.
fn after(rules: Rules, steps: &[Step]) -> State {
    let mut state = State::first(FAULTS);
    for &step in steps {
        state = take(rules, &state, step).unwrap_or_else(|| panic!("{step:?} is not possible"));
    }
    state
}

/// All parts of a run at these nodes become durable, and data nodes' parts are read first.
fn run_at(run: usize, data: &[usize], parities: &[usize]) -> Vec<Step> {
    let reads = data.iter().map(|&node| Step::Read { run, node });
    let records = data.iter().chain(parities);
    reads
        .chain(records.map(|&node| Step::Record { run, node }))
        .collect()
}

/// A settlement with these survivors.
fn settle(epoch: u8, survivors: &[usize]) -> Vec<Step> {
    let collect = survivors.iter().map(|&node| Step::Collect { epoch, node });
    let resolve = survivors.iter().map(|&node| Step::Resolve { epoch, node });
    [Step::Grant, Step::LookUp { epoch }]
        .into_iter()
        .chain(collect)
        .chain([Step::Decide { epoch }])
        .chain((survivors.len() < CHUNK_COUNT).then_some(Step::Note { epoch }))
        .chain(resolve)
        .collect()
}

/// Update 0 is under way to node 0 when that is declared failed. The others settle without it and
/// use the number again. The node returns with nothing undecided, and then the part arrives: its
/// term is past, but this node has not been told. The next settlement finds a record of that number.
fn a_part_that_arrives_after_its_node_has_returned() -> Vec<Step> {
    let mut steps = vec![
        Step::Issue {
            epoch: 1,
            update: 0,
        },
        Step::DeclareFailed { node: 0 },
    ];
    steps.extend(settle(2, &[1, 2, 3]));
    steps.push(Step::Issue {
        epoch: 2,
        update: 1,
    });
    steps.extend(run_at(1, &[1], &[2, 3]));
    steps.push(Step::Acknowledge { run: 1 });
    steps.extend(return_of(0));
    steps
}

/// The part of update 0 that was under way to node 0.
fn late_part() -> Vec<Step> {
    run_at(0, &[0], &[])
}

/// A node that was declared failed becomes a member again.
fn return_of(node: usize) -> [Step; 3] {
    [
        Step::Return { node },
        Step::Judge { node },
        Step::Admit { node },
    ]
}

/// Update 0 is acknowledged; no node has heard so. All but one data node are declared failed.
fn an_update_and_three_failures() -> Vec<Step> {
    let mut steps = vec![Step::Issue {
        epoch: 1,
        update: 0,
    }];
    steps.extend(run_at(0, &[0, 1], &[2, 3]));
    steps.push(Step::Acknowledge { run: 0 });
    steps.extend([0, 2, 3].map(|node| Step::DeclareFailed { node }));
    steps.extend([Step::Grant, Step::LookUp { epoch: 2 }]);
    steps.push(Step::Collect { epoch: 2, node: 1 });
    steps
}

#[test]
fn a_late_part_at_a_returned_node_is_told_from_the_update_that_has_its_number() {
    let steps = a_part_that_arrives_after_its_node_has_returned();
    let trusting = Rules::without(Mutation::ReturningTrusted);
    let mixed = after(
        trusting,
        &[&steps[..], &late_part(), &settle(3, &[0, 1, 2, 3])].concat(),
    );
    assert!(matches!(mixed.terms[2], Term::Serving { .. }));
    assert!(!reads_are_whole(trusting, &mixed));

    let fenced = after(Rules::SOUND, &steps);
    let whole = late_part()
        .into_iter()
        .try_fold(fenced, |state, step| take(Rules::SOUND, &state, step));
    assert_eq!(whole, None, "the node refuses the old term");
}

#[test]
fn a_survivor_that_is_alone_does_not_decide() {
    let steps = an_update_and_three_failures();
    let hasty = Rules::without(Mutation::NoQuorum);
    let alone = after(hasty, &steps);
    assert!(take(hasty, &alone, Step::Decide { epoch: 2 }).is_some());

    let alone = after(Rules::SOUND, &steps);
    assert_eq!(take(Rules::SOUND, &alone, Step::Decide { epoch: 2 }), None);
}

#[test]
fn a_lease_under_which_nothing_was_settled_makes_no_chunk_stale() {
    let mut steps = an_update_and_three_failures();
    for node in [0, 2, 3] {
        steps.extend(return_of(node));
    }
    assert_eq!(after(Rules::SOUND, &steps).coordinator.stale, 0);
}

#[test]
fn a_node_that_was_left_out_has_what_stands_and_counts() {
    let mut steps = vec![Step::Issue {
        epoch: 1,
        update: 0,
    }];
    steps.extend(run_at(0, &[0, 1], &[2, 3]));
    steps.push(Step::DeclareFailed { node: 3 });
    steps.extend(settle(2, &[0, 1, 2]));
    steps.extend(return_of(3));
    let back = after(Rules::SOUND, &steps);
    assert_eq!((back.coordinator.stale, back.nodes[3].mark), (0, 1));

    let lacks = |step: &Step| !matches!(step, Step::Record { node: 3, .. });
    let steps: Vec<Step> = steps.into_iter().filter(lacks).collect();
    let back = after(Rules::SOUND, &steps);
    assert_eq!(back.coordinator.stale, only(3), "it has missed the update");
}
