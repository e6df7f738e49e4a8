//! Two operations on one file, the second one begun at many steps of the first.

use gabion_layout::UpdateScheme;
use gabion_sim::race::{Interruption, Operation, Race, Sharing};

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
        scheme: SCHEME,
    };
    check(&race, 0, 1);
}

#[test]
fn every_two_operations() {
    let races = Operation::all().into_iter();
    let races = races.flat_map(|first| Race::of(SCHEME, &first));
    for (number, race) in races.enumerate() {
        check(&race, number % STRIDE, STRIDE);
    }
}
