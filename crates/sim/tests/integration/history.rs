//! Histories that must be rejected, and one that must not.

use gabion_layout::{Sequence, StripeId};
use gabion_sim::cells::{UpdateId, fill};
use gabion_sim::history::{History, Observation, Violation};
use std::ops::Range;

const STRIPE: StripeId = StripeId(1);
const CELLS: u64 = 8;
const ORIGIN: u32 = 100;

/// A stripe of eight cells with updates 1 (cells 0..4) and 2 (cells 2..6), sent out in this order.
fn history() -> History {
    let mut history = History::default();
    history.add_stripe(STRIPE, 0..CELLS, UpdateId(ORIGIN));
    submit(&mut history, 1, 0..4);
    submit(&mut history, 2, 2..6);
    for number in [1, 2] {
        history.numbered(STRIPE, UpdateId(number), Sequence(u64::from(number)));
    }
    history
}

fn submit(history: &mut History, update: u32, cells: Range<u64>) {
    history.submitted(STRIPE, UpdateId(update), std::slice::from_ref(&cells));
}

/// Reads the whole stripe, each cell as `writers` says, from `began_us` to a microsecond later.
fn read(history: &mut History, as_of: u64, began_us: u64, writers: [u32; 8]) -> Option<Violation> {
    let cells = writers.iter().zip(0..);
    let pieces: Vec<(u64, Vec<u8>)> = cells
        .map(|(&writer, cell)| (cell, fill(UpdateId(writer), cell, 1)))
        .collect();
    let seen = Observation {
        stripe: STRIPE,
        as_of: Sequence(as_of),
        pieces: &pieces,
        began_us,
        ended_us: began_us + 1,
    };
    history.read(&seen).err()
}

const BEFORE: [u32; 8] = [ORIGIN; 8];
const AFTER_ONE: [u32; 8] = [1, 1, 1, 1, ORIGIN, ORIGIN, ORIGIN, ORIGIN];
const AFTER_BOTH: [u32; 8] = [1, 1, 2, 2, 2, 2, ORIGIN, ORIGIN];
const TWO_ALONE: [u32; 8] = [ORIGIN, ORIGIN, 2, 2, 2, 2, ORIGIN, ORIGIN];

#[test]
fn each_prefix_is_accepted_and_an_unanswered_update_may_be_dropped() {
    let mut whole = history();
    assert_eq!(read(&mut whole, 0, 10, BEFORE), None);
    assert_eq!(read(&mut whole, 1, 20, AFTER_ONE), None);
    assert_eq!(read(&mut whole, 2, 30, AFTER_BOTH), None);
    let mut dropped = history();
    assert_eq!(read(&mut dropped, 2, 10, TWO_ALONE), None);
    assert_eq!(read(&mut dropped, 2, 20, TWO_ALONE), None);
}

#[test]
fn bytes_that_nobody_wrote_are_rejected() {
    let mut history = history();
    let pieces = [(3, vec![0; 8])];
    let seen = Observation {
        stripe: STRIPE,
        as_of: Sequence(1),
        pieces: &pieces,
        began_us: 1,
        ended_us: 2,
    };
    let found = history.read(&seen);
    assert!(matches!(found, Err(Violation::Garbage { cell: 3, .. })));
    let elsewhere = [1, 1, 1, 1, 1, ORIGIN, ORIGIN, ORIGIN];
    let found = read(&mut history, 1, 10, elsewhere);
    assert!(matches!(found, Some(Violation::Wrong { cell: 4, .. })));
}

#[test]
fn an_update_that_is_half_there_is_rejected() {
    for (cell, other) in [(2, 1), (3, 1), (4, ORIGIN), (5, ORIGIN)] {
        let mut torn = AFTER_BOTH;
        torn[cell] = other;
        let found = read(&mut history(), 2, 10, torn);
        let is_rejected = matches!(
            found,
            Some(Violation::Revived { .. } | Violation::Wrong { .. })
        );
        assert!(is_rejected, "cell {cell}: {found:?}");
    }
}

#[test]
fn an_update_after_the_cut_is_rejected() {
    let found = read(&mut history(), 1, 10, AFTER_BOTH);
    assert!(
        matches!(found, Some(Violation::Wrong { cell: 2, .. })),
        "{found:?}"
    );
}

#[test]
fn an_acknowledged_update_must_be_in_later_reads_whatever_cut_they_claim() {
    for as_of in [0, 2] {
        let mut history = history();
        history
            .acknowledged(STRIPE, UpdateId(1), Sequence(1), 5)
            .unwrap();
        let found = read(&mut history, as_of, 10, BEFORE);
        assert!(
            matches!(found, Some(Violation::Missing { .. })),
            "{found:?}"
        );
    }
    let mut concurrent = history();
    concurrent
        .acknowledged(STRIPE, UpdateId(1), Sequence(1), 5)
        .unwrap();
    let during = read(&mut concurrent, 0, 4, BEFORE);
    assert_eq!(during, None, "the read began before the answer");
}

#[test]
fn what_a_read_has_shown_stays() {
    let mut history = history();
    assert_eq!(read(&mut history, 1, 10, AFTER_ONE), None);
    let found = read(&mut history, 0, 20, BEFORE);
    assert!(
        matches!(found, Some(Violation::Missing { .. })),
        "{found:?}"
    );
}

#[test]
fn what_a_read_has_shown_to_be_dropped_stays_away() {
    let mut history = history();
    assert_eq!(read(&mut history, 1, 10, BEFORE), None);
    let found = read(&mut history, 1, 20, AFTER_ONE);
    assert!(matches!(found, Some(Violation::Wrong { .. })), "{found:?}");
    let acknowledged = history.acknowledged(STRIPE, UpdateId(1), Sequence(1), 30);
    assert!(matches!(acknowledged, Err(Violation::Revived { .. })));
}

#[test]
fn an_update_that_was_never_sent_out_must_not_show() {
    let mut history = history();
    submit(&mut history, 3, 0..8);
    let found = read(&mut history, 2, 10, [3; 8]);
    assert!(matches!(found, Some(Violation::Wrong { .. })), "{found:?}");
}

#[test]
fn numbers_are_for_one_update_each() {
    let mut twice = history();
    submit(&mut twice, 3, 6..7);
    twice.numbered(STRIPE, UpdateId(3), Sequence(1));
    twice
        .acknowledged(STRIPE, UpdateId(1), Sequence(1), 5)
        .unwrap();
    let acknowledged = twice.acknowledged(STRIPE, UpdateId(3), Sequence(1), 6);
    assert!(matches!(acknowledged, Err(Violation::Number { .. })));
}

#[test]
fn an_update_may_stand_under_a_further_number_but_not_twice() {
    let mut again = history();
    again.numbered(STRIPE, UpdateId(1), Sequence(3));
    assert_eq!(
        read(&mut again, 2, 10, TWO_ALONE),
        None,
        "nothing says which"
    );
    again
        .acknowledged(STRIPE, UpdateId(1), Sequence(3), 20)
        .unwrap();
    let after_three = [1, 1, 1, 1, 2, 2, ORIGIN, ORIGIN];
    assert_eq!(read(&mut again, 3, 30, after_three), None);
    let mut known = history();
    known
        .acknowledged(STRIPE, UpdateId(1), Sequence(1), 5)
        .unwrap();
    known
        .acknowledged(STRIPE, UpdateId(2), Sequence(2), 6)
        .unwrap();
    known.numbered(STRIPE, UpdateId(1), Sequence(3));
    let found = read(&mut known, 3, 30, after_three);
    assert!(
        matches!(found, Some(Violation::Missing { .. })),
        "{found:?}"
    );
}

#[test]
fn a_closed_update_that_nobody_had_sent_out_never_shows() {
    let mut history = history();
    submit(&mut history, 3, 0..8);
    history.closed(STRIPE, UpdateId(3));
    history.numbered(STRIPE, UpdateId(3), Sequence(3));
    let found = read(&mut history, 3, 10, [3; 8]);
    assert!(matches!(found, Some(Violation::Wrong { .. })), "{found:?}");
}
