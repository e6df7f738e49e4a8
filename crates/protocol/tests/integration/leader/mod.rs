//! Several coordinators on one database, explored exhaustively: leaders that are deposed and do not know it, lost
//! answers, slow clocks, pauses, and messages that arrive late or twice. What is modelled, what is left out and the
//! results are in docs/proof.md.

mod membership;
mod moves;
mod rules;
mod state;
mod steps;
mod transactions;

use rules::{Mutation, Rules};
use state::{Bounds, State, Work};
use stateright::{Checker, HasDiscoveries, Model, Path, Property};
use std::time::Instant;
use steps::Step;

/// Threads that explore. A search for a violation uses one, so it finds the same trace each time.
const THREAD_COUNT: usize = 2;

/// Properties of every state.
const KEPT: &str = "acknowledged changes are durable";
const ONCE: &str = "each change is made once";
const FRESH: &str = "reads show what was known before";
const OUT: &str = "a node that updates leave out does not serve";
const NEWEST: &str = "a node follows no older coordinator";
const THERE: &str = "the chunk that counts is there";
const ALWAYS: [&str; 6] = [KEPT, ONCE, FRESH, OUT, NEWEST, THERE];

/// Properties of some states.
const ALL_DONE: &str = "all changes are acknowledged";
const LATE: &str = "a transaction of a former leader is under way";
const LEFT_OUT: &str = "an update leaves the node out";
const HEARD_NEW: &str = "the node follows a new coordinator";
const BACK: &str = "another leader has moved the chunk back";

/// A cluster's coordinators under some rules.
#[derive(Clone, Debug)]
struct Cluster {
    rules: Rules,
    bounds: Bounds,
    /// Whether to check only what holds although the clock of a leader may stand still.
    distrusts_clocks: bool,
}

impl Model for Cluster {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::first(self.bounds)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        Step::all(state, steps);
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        steps::take(self.rules, state, step)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        match self.bounds.work {
            Work::Rows => rows_properties(self.bounds),
            Work::Membership => membership_properties(self.distrusts_clocks),
            Work::Moves => moves_properties(),
        }
    }
}

/// A property of the model.
type Claim = Property<Cluster>;

fn rows_properties(bounds: Bounds) -> Vec<Claim> {
    let mut properties = vec![
        Claim::always(KEPT, |_, state| {
            state.clients.acknowledged & !state.database.rows.made() == 0
        }),
        Claim::always(ONCE, |_, state| state.database.rows.is_each_made_once()),
        Claim::always(FRESH, |_, state| !state.clients.has_read_old),
        Claim::sometimes(ALL_DONE, |cluster, state| {
            let all = u32::from(cluster.bounds.change_count);
            state.clients.acknowledged.count_ones() == all
        }),
    ];
    if bounds.takeover_count > 0 {
        properties.push(Claim::sometimes(LATE, |_, state| {
            let term = state.database.term;
            state.attempts.iter().any(|attempt| attempt.term < term)
        }));
    }
    properties
}

fn membership_properties(distrusts_clocks: bool) -> Vec<Claim> {
    let mut properties = vec![
        Claim::always(NEWEST, |_, state| !state.clients.has_followed_older),
        Claim::sometimes(HEARD_NEW, |_, state| state.node.heard > 0),
        Claim::sometimes(LEFT_OUT, |_, state| state.clients.has_left_out),
    ];
    if !distrusts_clocks {
        properties.push(Claim::always(OUT, |_, state| {
            !state.clients.has_left_out || state.node.lease == 0
        }));
    }
    properties
}

fn moves_properties() -> Vec<Claim> {
    vec![
        Claim::always(THERE, |_, state| {
            let place = usize::from(state.database.rows.place);
            state.holders[place].has_chunk
        }),
        Claim::sometimes(BACK, |_, state| {
            let rows = state.database.rows;
            let has_returned = rows.place == 0 && state.holders[0].epoch > 0;
            has_returned && state.database.term > 0 && state.holders[0].epoch == rows.epoch
        }),
    ]
}

/// Bounds: takeovers, transactions, lost connections, changes, reads, runs that end, servers that fall behind, and
/// ticks for which the machine of a leader is stopped.
const fn bounds(work: Work, counts: [u8; 8]) -> Bounds {
    let [
        takeover_count,
        attempt_count,
        loss_count,
        change_count,
        read_count,
        end_count,
        lag_count,
        stop_count,
    ] = counts;
    Bounds {
        work,
        takeover_count,
        attempt_count,
        loss_count,
        change_count,
        read_count,
        end_count,
        lag_count,
        stop_count,
    }
}

/// Explores all states within the bounds. No state may break a property, and what should be possible must be found.
fn check_all(rules: Rules, bounds: Bounds) {
    let began = Instant::now();
    let cluster = Cluster {
        rules,
        bounds,
        distrusts_clocks: bounds.stop_count > 0,
    };
    let checker = cluster
        .checker()
        .threads(THREAD_COUNT)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    checker.assert_properties();
    println!(
        "{} states, {} steps deep, in {:.1?}: {bounds:?}",
        checker.unique_state_count(),
        checker.max_depth(),
        began.elapsed()
    );
}

/// Bounds within which a takeover meets a clock that stops.
const STOPPED: Bounds = bounds(Work::Membership, [1, 1, 0, 0, 0, 0, 0, 2]);

#[test]
fn takeovers_lose_no_change_and_no_read() {
    check_all(Rules::SOUND, bounds(Work::Rows, [1, 3, 0, 1, 2, 0, 0, 0]));
    check_all(Rules::SOUND, bounds(Work::Rows, [2, 2, 0, 1, 2, 0, 0, 0]));
    check_all(Rules::SOUND, bounds(Work::Rows, [1, 2, 0, 1, 2, 1, 1, 0]));
}

#[test]
fn lost_answers_lose_no_change_and_make_none_twice() {
    check_all(Rules::SOUND, bounds(Work::Rows, [1, 3, 1, 2, 0, 0, 0, 0]));
    check_all(Rules::SOUND, bounds(Work::Rows, [1, 3, 1, 1, 1, 0, 0, 0]));
}

#[test]
fn no_node_serves_whose_failure_another_leader_has_declared() {
    check_all(
        Rules::SOUND,
        bounds(Work::Membership, [1, 2, 0, 0, 0, 0, 0, 0]),
    );
    check_all(
        Rules::SOUND,
        bounds(Work::Membership, [2, 1, 0, 0, 0, 0, 0, 0]),
    );
}

#[test]
fn a_leader_whose_clock_stops_is_not_followed_by_nodes_that_know_a_newer_one() {
    check_all(Rules::SOUND, STOPPED);
    for mutation in Mutation::SECOND_LINES {
        check_all(Rules::without(mutation), STOPPED);
    }
}

#[test]
fn late_orders_remove_no_chunk_that_counts() {
    check_all(Rules::SOUND, bounds(Work::Moves, [1, 4, 1, 0, 0, 0, 0, 0]));
}

/// The first violation that the checker finds.
fn violation(
    rules: Rules,
    bounds: Bounds,
    distrusts_clocks: bool,
) -> Option<(&'static str, Path<State, Step>)> {
    let cluster = Cluster {
        rules,
        bounds,
        distrusts_clocks,
    };
    let checker = cluster
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    ALWAYS
        .into_iter()
        .find_map(|name| Some((name, checker.discovery(name)?)))
}

/// The bounds within which the absence of a rule shows.
fn where_it_shows(mutation: Mutation) -> Bounds {
    match mutation {
        Mutation::TermNotCompared
        | Mutation::TermStays
        | Mutation::BlindTakeover
        | Mutation::LeaseNotAwaited
        | Mutation::LeaseFromAnswer
        | Mutation::WholeLease
        | Mutation::ReadWithoutLease
        | Mutation::ReadBeforeDurable
        | Mutation::AcknowledgedEarly => bounds(Work::Rows, [1, 3, 0, 1, 2, 0, 0, 0]),
        Mutation::OldRows | Mutation::ReleasedFirst => bounds(Work::Rows, [1, 2, 0, 1, 2, 1, 1, 0]),
        Mutation::NumberNotCompared | Mutation::LostAnswerCounts | Mutation::RepetitionUnknown => {
            bounds(Work::Rows, [1, 3, 1, 2, 0, 0, 0, 0])
        }
        Mutation::OldSilence
        | Mutation::NoMargin
        | Mutation::RenewedWithoutLease
        | Mutation::NodeLeaseFromAnswer
        | Mutation::LeftOutEarly
        | Mutation::FailedRenewed => bounds(Work::Membership, [1, 2, 0, 0, 0, 0, 0, 0]),
        Mutation::OlderFollowed | Mutation::OlderNotRefused | Mutation::NewerIgnored => STOPPED,
        Mutation::OrderedEarly
        | Mutation::OrderedInDoubt
        | Mutation::OrderWithoutTerm
        | Mutation::EpochEarly => bounds(Work::Moves, [1, 4, 1, 0, 0, 0, 0, 0]),
    }
}

/// Prints a violation, step by step.
fn tell(what: &str, bounds: Bounds, found: Option<(&'static str, Path<State, Step>)>) {
    let (name, path) = found.unwrap_or_else(|| panic!("{what}: no violation within {bounds:?}"));
    let steps = path.into_actions();
    let step_count = steps.len();
    println!("{what}: not so that {name} after {step_count} steps: {steps:?}");
}

#[test]
fn every_rule_is_needed() {
    for mutation in Mutation::ALL {
        let bounds = where_it_shows(mutation);
        let found = violation(Rules::without(mutation), bounds, bounds.stop_count > 0);
        tell(&format!("{mutation:?}"), bounds, found);
    }
}

#[test]
fn a_clock_that_stops_breaks_reads_and_leases() {
    for bounds in [bounds(Work::Rows, [1, 2, 0, 1, 1, 0, 0, 2]), STOPPED] {
        let found = violation(Rules::SOUND, bounds, false);
        tell("with a stopped clock", bounds, found);
    }
}
