//! One stripe, explored exhaustively: every order of messages, losses, crashes, failures, returns
//! and lease changes within small bounds. What is modelled, what is left out and what came of it is
//! in docs/proof.md.

mod properties;
mod retry;
mod rules;
mod scenarios;
mod settlement;
mod state;
mod steps;

use rules::{Mutation, Rules};
use state::{Faults, State};
use stateright::{Checker, HasDiscoveries, Model, Property};
use std::time::Instant;
use steps::Step;

/// Threads that explore; a shortest trace needs just one.
const THREAD_COUNT: usize = 2;

/// Properties of every state.
const WHOLE: &str = "reads are whole";
const FRESH: &str = "plain reads are fresh";
const ENOUGH: &str = "enough chunks count";

/// Properties of some states.
const ALL_DONE: &str = "all are acknowledged";
const DROPPED: &str = "one is dropped";
const NUMBER_AGAIN: &str = "a number is used again";
const BACK_AND_STALE: &str = "a returned chunk is stale";
const STOOD_UNHEARD: &str = "an update stood whose answer was lost";
const MADE_ANEW: &str = "an update is made anew";

/// The stripe under some rules, with some faults.
#[derive(Clone, Debug)]
struct Stripe {
    rules: Rules,
    faults: Faults,
}

impl Model for Stripe {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::first(self.faults)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        Step::all(state, steps);
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        steps::take(self.rules, state, step).map(State::representative)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(WHOLE, |stripe: &Self, state| {
                properties::reads_are_whole(stripe.rules, state)
            }),
            Property::always(FRESH, |stripe: &Self, state| {
                properties::plain_reads_are_fresh(stripe.rules, state)
            }),
            Property::always(ENOUGH, |_, state| properties::enough_chunks_count(state)),
            Property::sometimes(ALL_DONE, |_, state| properties::all_are_acknowledged(state)),
            Property::sometimes(DROPPED, |_, state| properties::one_is_dropped(state)),
        ];
        if self.faults.failure_count > 0 {
            properties.extend([
                Property::sometimes(NUMBER_AGAIN, |_, state| {
                    properties::a_number_is_used_again(state)
                }),
                Property::sometimes(BACK_AND_STALE, |_, state| {
                    properties::a_returned_chunk_is_stale(state)
                }),
            ]);
        }
        if self.faults.retry_count > 0 {
            properties.extend([
                Property::sometimes(STOOD_UNHEARD, |_, state| {
                    properties::one_stood_unheard(state)
                }),
                Property::sometimes(MADE_ANEW, |_, state| properties::one_is_made_anew(state)),
            ]);
        }
        properties
    }
}

/// Bounds on what may go wrong: crashes, lost disks, declared failures, heard marks, new leases, and runs that the
/// client gives up.
const fn bounds(counts: [u8; 6]) -> Faults {
    let [
        crash_count,
        loss_count,
        failure_count,
        hint_count,
        lease_count,
        retry_count,
    ] = counts;
    Faults {
        crash_count,
        loss_count,
        failure_count,
        hint_count,
        lease_count,
        retry_count,
    }
}

/// Explores all states within the bounds. No state may break a property, and what should be
/// possible must be found.
fn check_all(faults: Faults) {
    let began = Instant::now();
    let rules = Rules::SOUND;
    let checker = Stripe { rules, faults }
        .checker()
        .threads(THREAD_COUNT)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    checker.assert_properties();
    println!(
        "{} states, {} steps deep, in {:.1?}: {faults:?}",
        checker.unique_state_count(),
        checker.max_depth(),
        began.elapsed()
    );
}

#[test]
fn two_leases_may_change_hands_around_a_failure() {
    check_all(bounds([0, 0, 1, 0, 2, 0]));
}

#[test]
fn a_crash_a_lost_disk_and_a_failure_may_meet() {
    check_all(bounds([1, 1, 1, 1, 1, 0]));
}

#[test]
fn all_but_one_node_may_be_declared_failed_and_return() {
    check_all(bounds([0, 0, 3, 0, 1, 0]));
}

#[test]
fn a_client_may_lose_an_answer_and_make_its_update_anew() {
    check_all(bounds([0, 0, 1, 0, 1, 1]));
}

/// The bounds within which taking a rule away shows, and the property that it breaks.
fn where_it_shows(mutation: Mutation) -> Faults {
    match mutation {
        Mutation::NotNoted | Mutation::LateNote => bounds([0, 0, 1, 1, 2, 0]),
        Mutation::ReturningTrusted | Mutation::MissedCounts => bounds([0, 0, 1, 0, 2, 0]),
        Mutation::NotAsked | Mutation::NotWithdrawn | Mutation::FewRemember => {
            bounds([0, 0, 0, 0, 1, 1])
        }
        Mutation::NoQuorum => bounds([0, 0, 3, 0, 1, 0]),
        _ => bounds([1, 0, 1, 1, 1, 0]),
    }
}

#[test]
fn every_rule_is_needed() {
    for mutation in Mutation::ALL {
        let began = Instant::now();
        let rules = Rules::without(mutation);
        let faults = where_it_shows(mutation);
        let checker = Stripe { rules, faults }
            .checker()
            .finish_when(HasDiscoveries::AnyFailures)
            .spawn_bfs()
            .join();
        let found = [WHOLE, FRESH, ENOUGH]
            .into_iter()
            .find_map(|name| Some((name, checker.discovery(name)?)));
        let (name, path) = found.unwrap_or_else(|| panic!("nothing misses {mutation:?}"));
        let steps = path.into_actions();
        println!(
            "{mutation:?}: not so that {name} after {} steps, in {:.1?}: {steps:?}",
            steps.len(),
            began.elapsed()
        );
    }
}
