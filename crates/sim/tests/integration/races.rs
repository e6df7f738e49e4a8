//! Two operations on one file, the second one begun at many steps of the first.

use gabion_layout::UpdateScheme::{self, Cau, Fl, Fo, Parix, Pl, Plr};
use gabion_sim::race::{FILE_CELLS, Operation, Race, STRIPE_CELLS, Sharing, run_race};
use std::ops::Range;

/// Cells within the second stripe, which begins before them and ends behind them.
const WITHIN: Range<u64> = STRIPE_CELLS + 300..STRIPE_CELLS + 1200;
/// Steps between two races of a pair that is not tried at every step.
const STRIDE: usize = 29;

fn operations() -> Vec<Operation> {
    vec![
        Operation::Write(WITHIN),
        Operation::Write(STRIPE_CELLS - 400..2 * STRIPE_CELLS + 200),
        Operation::Write(FILE_CELLS + 200..FILE_CELLS + 2000),
        Operation::WritePieces(STRIPE_CELLS - 100..FILE_CELLS + 1000),
        Operation::Append(1000),
        Operation::Grow(FILE_CELLS + 3000),
        Operation::Truncate(WITHIN.start + 400),
        Operation::Punch(STRIPE_CELLS - 200..2 * STRIPE_CELLS),
        Operation::Cached(STRIPE_CELLS - 20..STRIPE_CELLS + 40),
        Operation::Alone(WITHIN),
        Operation::Snapshot,
        Operation::Replace(3000),
    ]
}

fn check(race: &Race, step: u64) -> u64 {
    let raced = run_race(race, step);
    let log = || raced.log.join("\n");
    assert_eq!(raced.failure, None, "{}\n{race:?} at step {step}", log());
    raced.step_count
}

/// Begins the second operation behind the first one, and before every `stride`-th step of it from one on.
fn race_at(race: &Race, from: usize, stride: usize) {
    let step_count = check(race, u64::MAX);
    assert!(step_count > 0, "{race:?} has no steps");
    // Also a short operation has one step that is tried.
    let from = from % stride.min(step_count as usize);
    for step in (0..step_count).skip(from).step_by(stride) {
        check(race, step);
    }
}

/// Each sharing, with and without an interruption.
fn pairs() -> impl Iterator<Item = (Sharing, bool)> {
    let with = |sharing| [false, true].map(move |interrupts| (sharing, interrupts));
    Sharing::ALL.into_iter().flat_map(with)
}

/// Races of every two operations, of a file that shares no stripes, shares them, or did so before.
fn race_all(schemes: &[UpdateScheme], stride: usize) {
    let all = operations();
    let mut number = 0;
    for &scheme in schemes {
        for first in &all {
            for second in &all {
                for (sharing, interrupts) in pairs() {
                    let race = Race {
                        first: first.clone(),
                        second: second.clone(),
                        interrupts,
                        sharing,
                        scheme,
                    };
                    race_at(&race, number % stride, stride);
                    number += 1;
                }
            }
        }
    }
}

/// Part of the hole is before the new end of the file, and must be zero.
#[test]
fn a_hole_and_a_truncation_into_it() {
    for sharing in Sharing::ALL {
        let race = Race {
            first: Operation::Punch(WITHIN),
            second: Operation::Truncate(WITHIN.start + 400),
            interrupts: true,
            sharing,
            scheme: Plr,
        };
        race_at(&race, 0, 1);
    }
}

/// The nodes know nothing of a stripe that has left the file while its primary was settling it.
#[test]
fn an_update_of_a_stripe_that_is_replaced() {
    let race = Race {
        first: Operation::WritePieces(STRIPE_CELLS - 100..FILE_CELLS + 1000),
        second: Operation::Write(STRIPE_CELLS - 400..2 * STRIPE_CELLS + 200),
        interrupts: true,
        sharing: Sharing::Never,
        scheme: Plr,
    };
    race_at(&race, 0, 1);
}

#[test]
fn every_two_operations() {
    race_all(&[Plr], STRIDE);
}

#[test]
#[ignore = "it takes an hour; run it after a change of the client or of what it asks for"]
fn every_two_operations_at_every_step() {
    race_all(&[Fo, Fl, Pl, Plr, Parix, Cau], 1);
}
