//! Views of holes, and of files that were truncated or punched, that clients may have, and views that they may not.

use gabion_meta::PutId;
use gabion_sim::cells::{CELL_BYTES, UpdateId, fill};
use gabion_sim::registers::{Anomaly, Registers, Seen};
use std::ops::Range;

const FILE: PutId = PutId(1);
/// Cells of a stripe.
const CELLS: u64 = 8;
/// The write of the put.
const PUT: u32 = 100;
/// Zeros.
const NONE: u32 = 0;

/// A file of three stripes, of which the put has stored four cells.
fn file() -> Registers {
    let mut registers = Registers::default();
    registers.add_file(FILE, CELLS);
    registers.add_holes(FILE, &(4..3 * CELLS), 0);
    call(&mut registers, PUT, 0..4, 0);
    acknowledge(&mut registers, PUT, 1);
    assert_eq!(registers.exists(FILE, 1), Ok(()));
    registers
}

fn call(registers: &mut Registers, write: u32, cells: Range<u64>, at_us: u64) {
    registers.called(FILE, UpdateId(write), std::slice::from_ref(&cells), at_us);
}

fn acknowledge(registers: &mut Registers, write: u32, at_us: u64) {
    let told = registers.acknowledged(FILE, UpdateId(write), at_us);
    assert_eq!(told, Ok(()));
}

/// A write from its call to its acknowledgement.
fn write(registers: &mut Registers, id: u32, cells: Range<u64>, (from, to): (u64, u64)) {
    call(registers, id, cells, from);
    acknowledge(registers, id, to);
}

/// An operation that makes cells zero, from its call to its acknowledgement, if there is one.
fn zero(registers: &mut Registers, cells: Range<u64>, from: u64, to: Option<u64>) {
    let number = registers.zeroing(FILE, cells, from);
    if let Some(to) = to {
        registers.zeroed(FILE, number, to);
    }
}

/// Reads cells from `first` on, each of which shows a write, or zeros.
fn read(
    registers: &mut Registers,
    first: u64,
    writes: &[u32],
    (called_us, answered_us): (u64, u64),
) -> Result<(), Anomaly> {
    let cells = (first..).zip(writes).flat_map(|(cell, &write)| {
        if write == NONE {
            vec![0; CELL_BYTES as usize]
        } else {
            fill(UpdateId(write), cell, 1)
        }
    });
    registers.read(&Seen {
        file: FILE,
        pieces: &[(first, cells.collect())],
        called_us,
        answered_us,
    })
}

#[track_caller]
fn is_wrong(found: Result<(), Anomaly>) {
    found.expect_err("no order explains it");
}

#[test]
fn holes_are_zero_until_a_write_is_acknowledged() {
    let mut registers = file();
    assert_eq!(read(&mut registers, 2, &[PUT, PUT, NONE], (2, 3)), Ok(()));
    write(&mut registers, 1, 9..12, (10, 20));
    assert_eq!(
        read(&mut registers, 8, &[NONE, 1, 1, 1, NONE], (21, 22)),
        Ok(())
    );
    is_wrong(read(&mut registers, 9, &[NONE], (23, 24)));
}

#[test]
fn a_lost_write_of_the_put_is_found() {
    is_wrong(read(&mut file(), 3, &[NONE], (2, 3)));
}

#[test]
fn a_hole_is_not_there_again_after_it_was_filled() {
    let mut registers = file();
    // The write is open, and was seen.
    call(&mut registers, 1, 9..10, 10);
    assert_eq!(read(&mut registers, 9, &[1], (11, 12)), Ok(()));
    // It may store the stripe anew, so readers with an old layout may miss it.
    assert_eq!(read(&mut registers, 9, &[NONE], (13, 14)), Ok(()));
    acknowledge(&mut registers, 1, 20);
    is_wrong(read(&mut registers, 9, &[NONE], (21, 22)));
}

#[test]
fn a_stripe_and_the_hole_behind_it_may_be_of_different_moments() {
    let mut registers = file();
    call(&mut registers, 1, 2..6, 10);
    let seen = read(&mut registers, 0, &[PUT, PUT, 1, 1, NONE, NONE], (11, 12));
    assert_eq!(seen, Ok(()));
    // Zeros before a write are of its stripe.
    let mut registers = file();
    call(&mut registers, 1, 5..7, 10);
    is_wrong(read(&mut registers, 5, &[NONE, 1], (11, 12)));
}

#[test]
fn cells_are_zero_after_a_truncation_until_they_are_written_again() {
    let truncated = || {
        let mut registers = file();
        write(&mut registers, 1, 9..12, (10, 20));
        zero(&mut registers, 10..u64::MAX, 30, Some(40));
        registers
    };
    assert_eq!(
        read(&mut truncated(), 9, &[1, NONE, NONE], (41, 42)),
        Ok(())
    );
    is_wrong(read(&mut truncated(), 9, &[NONE], (41, 42)));
    is_wrong(read(&mut truncated(), 10, &[1], (41, 42)));
    // A read that was called before the answer may show either.
    assert_eq!(read(&mut truncated(), 10, &[1], (39, 42)), Ok(()));
    let mut registers = truncated();
    write(&mut registers, 2, 10..11, (50, 60));
    assert_eq!(read(&mut registers, 10, &[2, NONE], (61, 62)), Ok(()));
    is_wrong(read(&mut registers, 10, &[NONE], (61, 62)));
}

#[test]
fn a_hole_that_was_not_acknowledged_may_come_at_any_time_and_an_ended_write_before_one_does_not() {
    let mut registers = file();
    zero(&mut registers, 9..12, 5, None);
    write(&mut registers, 1, 9..12, (10, 20));
    assert_eq!(read(&mut registers, 9, &[1], (21, 22)), Ok(()));
    assert_eq!(read(&mut registers, 9, &[NONE], (23, 24)), Ok(()));
    is_wrong(read(&mut registers, 0, &[NONE], (25, 26)));
    let mut registers = file();
    call(&mut registers, 1, 9..12, 10);
    assert_eq!(registers.ended(FILE, UpdateId(1), 20), Ok(()));
    zero(&mut registers, 9..12, 30, Some(40));
    is_wrong(read(&mut registers, 9, &[1], (41, 42)));
    // A write that is still open may come later.
    let mut registers = file();
    call(&mut registers, 1, 9..12, 10);
    zero(&mut registers, 9..12, 30, Some(40));
    assert_eq!(read(&mut registers, 9, &[1], (41, 42)), Ok(()));
}

#[test]
fn other_cells_of_a_truncated_file_keep_their_order() {
    let mut registers = file();
    zero(&mut registers, 12..u64::MAX, 2, Some(3));
    write(&mut registers, 1, 0..2, (10, 20));
    write(&mut registers, 2, 0..1, (30, 40));
    is_wrong(read(&mut registers, 0, &[1, 1], (41, 42)));
    is_wrong(read(&mut registers, 1, &[PUT], (43, 44)));
}
