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

/// An allocation stores zeros where the file has holes, and nothing where others write, cut or punch meanwhile.
#[test]
fn an_allocation_beside_other_changes() {
    let others = [
        Operation::into_the_hole(),
        Operation::hole(),
        Operation::pieces(),
        Operation::Snapshot,
    ];
    for (number, other) in others.into_iter().enumerate() {
        let allocate = Operation::allocation();
        for (first, second) in [(allocate.clone(), other.clone()), (other.clone(), allocate)] {
            for sharing in [Sharing::Never, Sharing::Now] {
                let race = Race {
                    first: first.clone(),
                    second: second.clone(),
                    interruption: Interruption::Pause,
                    sharing,
                    kind: Kind::InStripes,
                    scheme: SCHEME,
                };
                check(&race, number, STRIDE);
            }
        }
    }
}

/// A client that opens a file while it is renamed finds it or no file, and reads what it has opened. While another file
/// takes the name, it finds one of the two. A rename has few steps, but for the put of a file that takes the name.
#[test]
fn a_rename_and_an_open() {
    for kind in Kind::ALL {
        let renames = [(Operation::Rename, 3), (Operation::RenameOver(300), 11)];
        for (rename, stride) in renames {
            for (first, second) in [
                (Operation::Open, rename.clone()),
                (rename.clone(), Operation::Open),
            ] {
                for interruption in Interruption::ALL {
                    let race = Race {
                        first: first.clone(),
                        second: second.clone(),
                        interruption,
                        sharing: Sharing::Never,
                        kind,
                        scheme: SCHEME,
                    };
                    check(&race, 0, stride);
                }
            }
        }
    }
}

fn check_every_two(kind: Kind, stride: usize) {
    let races = Operation::on_bytes(kind).into_iter();
    let races = races.flat_map(|first| Race::of((SCHEME, kind), &first));
    let on_bytes = races.filter(|race| !Operation::on_names().contains(&race.second));
    for (number, race) in on_bytes.enumerate() {
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
