//! Two operations on one file, the second one begun at many steps of the first.

use gabion_layout::UpdateScheme;
use gabion_sim::race::{Interruption, Kind, Operation, Race, Sharing};

/// Steps between two races of a pair that is not tried at every step.
const STRIDE: usize = 29;
const SCHEME: UpdateScheme = UpdateScheme::Plr;

fn check(race: &Race, from: usize, stride: usize) {
    if let Err((step, raced)) = race.run_at(from, stride) {
        let (log, step_count) = (raced.log.join("\n"), raced.step_count);
        panic!(
            "{log}\n{race:?} at step {step} of {step_count}: {:?}",
            raced.failure
        );
    }
}

/// Part of the hole is before the new end of the file, and must be zero.
#[test]
fn a_hole_and_a_truncation_into_it() {
    for sharing in Sharing::ALL {
        let race = Race {
            first: Operation::hole(),
            second: Operation::into_the_hole(),
            interruption: Interruption::Pause,
            sharing,
            kind: Kind::InStripes,
            scheme: SCHEME,
        };
        check(&race, 0, 1);
    }
}

/// The nodes know nothing of a stripe that has left the file while its primary was settling it.
#[test]
fn an_update_of_a_stripe_that_is_replaced() {
    let race = Race {
        first: Operation::pieces(),
        second: Operation::across_borders(),
        interruption: Interruption::Pause,
        sharing: Sharing::Never,
        kind: Kind::InStripes,
        scheme: SCHEME,
    };
    check(&race, 0, 1);
}

/// A hole that is punched while the file is truncated does not let it grow again.
#[test]
fn a_hole_in_inline_bytes_and_a_truncation() {
    for first in [Operation::Punch(200..1000), Operation::Truncate(300)] {
        for second in [Operation::Punch(200..1000), Operation::Truncate(300)] {
            let race = Race {
                first: first.clone(),
                second,
                interruption: Interruption::Pause,
                sharing: Sharing::Never,
                kind: Kind::Inline,
                scheme: SCHEME,
            };
            check(&race, 0, 1);
        }
    }
}

fn check_every_two(kind: Kind, stride: usize) {
    let races = Operation::all(kind).into_iter();
    let races = races.flat_map(|first| Race::of((SCHEME, kind), &first));
    for (number, race) in races.enumerate() {
        check(&race, number % stride, stride);
    }
}

#[test]
fn every_two_operations() {
    check_every_two(Kind::InStripes, STRIDE);
}

/// They have fewer steps.
#[test]
fn every_two_operations_on_an_inline_file() {
    check_every_two(Kind::Inline, 23);
}
