//! Views of a file's bytes that clients may have, and views that they may not. That of one cell is tested in
//! `gabion_history`.

use gabion_meta::PutId;
use gabion_sim::cells::{UpdateId, fill};
use gabion_sim::registers::{Anomaly, Registers, Seen};
use std::ops::Range;

const FILE: PutId = PutId(1);
const CELLS: u64 = 8;
/// The write of the put.
const PUT: u32 = 100;

/// A file of eight cells, put from 0 to 1.
fn file() -> Registers {
    let mut registers = Registers::default();
    registers.add_file(FILE, CELLS);
    call(&mut registers, PUT, 0..CELLS, 0);
    acknowledge(&mut registers, PUT, 1).expect("nothing else happens");
    registers
}

fn call(registers: &mut Registers, write: u32, cells: Range<u64>, at_us: u64) {
    registers.called(FILE, UpdateId(write), std::slice::from_ref(&cells), at_us);
}

fn acknowledge(registers: &mut Registers, write: u32, at_us: u64) -> Result<(), Anomaly> {
    registers.acknowledged(FILE, UpdateId(write), at_us)
}

/// Reads cells from `first` on, each of which shows a write.
fn read(
    registers: &mut Registers,
    first: u64,
    writes: &[u32],
    (called_us, answered_us): (u64, u64),
) -> Result<(), Anomaly> {
    let cells = (first..).zip(writes);
    let bytes = cells.flat_map(|(cell, &write)| fill(UpdateId(write), cell, 1));
    registers.read(&Seen {
        file: FILE,
        pieces: &[(first, bytes.collect())],
        called_us,
        answered_us,
    })
}

/// Writes 1 and 2 of the first cell, one after the other, both acknowledged.
fn one_then_two() -> Registers {
    let mut registers = file();
    for (write, at_us) in [(1, 10), (2, 20)] {
        call(&mut registers, write, 0..1, at_us);
        acknowledge(&mut registers, write, at_us + 5).expect("writes follow each other");
    }
    registers
}

#[test]
fn the_last_acknowledged_write_is_read() {
    let mut registers = one_then_two();
    assert_eq!(read(&mut registers, 0, &[2, PUT], (30, 31)), Ok(()));
}

#[test]
fn an_acknowledged_write_that_went_back_is_found() {
    for older in [1, PUT] {
        let found = read(&mut one_then_two(), 0, &[older], (26, 31));
        assert!(matches!(found, Err(Anomaly::NoOrder { .. })), "{found:?}");
    }
}

#[test]
fn a_value_before_its_write_is_found() {
    let mut registers = file();
    call(&mut registers, 1, 0..1, 10);
    let found = read(&mut registers, 0, &[1], (8, 9));
    assert!(matches!(found, Err(Anomaly::NoOrder { .. })), "{found:?}");
}

#[test]
fn bytes_that_no_write_brought_there_are_found() {
    let mut registers = file();
    call(&mut registers, 1, 0..1, 10);
    let found = read(&mut registers, 1, &[1], (11, 12));
    assert!(matches!(found, Err(Anomaly::NoOrder { .. })), "{found:?}");
    let found = registers.read(&Seen {
        file: FILE,
        pieces: &[(3, vec![0; 8])],
        called_us: 11,
        answered_us: 12,
    });
    assert!(
        matches!(found, Err(Anomaly::Garbage { cell: 3, .. })),
        "{found:?}"
    );
}

#[test]
fn a_read_that_shows_half_of_a_write_is_found() {
    let under_way = || {
        let mut registers = file();
        call(&mut registers, 1, 0..4, 10);
        registers
    };
    for torn in [[1, 1, PUT, PUT], [PUT, 1, 1, 1]] {
        let found = read(&mut under_way(), 0, &torn, (11, 12));
        assert!(matches!(found, Err(Anomaly::NoOrder { .. })), "{found:?}");
    }
    let whole = read(&mut under_way(), 0, &[1, 1, 1, 1, PUT], (11, 12));
    assert_eq!(whole, Ok(()));
}

#[test]
fn a_write_of_which_its_client_was_told_that_it_was_not_made_is_not_there() {
    let mut registers = file();
    call(&mut registers, 1, 0..1, 10);
    assert_eq!(registers.denied(FILE, UpdateId(1)), Ok(()));
    let found = read(&mut registers, 0, &[1], (11, 12));
    assert!(matches!(found, Err(Anomaly::NoOrder { .. })), "{found:?}");
    // Unless it is tried again.
    let mut registers = file();
    call(&mut registers, 1, 0..1, 10);
    assert_eq!(registers.denied(FILE, UpdateId(1)), Ok(()));
    call(&mut registers, 1, 0..1, 20);
    assert_eq!(read(&mut registers, 0, &[1], (21, 22)), Ok(()));
}

#[test]
fn two_writes_that_each_replace_the_other_are_found() {
    let both = || {
        let mut registers = file();
        call(&mut registers, 1, 0..3, 10);
        call(&mut registers, 2, 1..4, 10);
        registers
    };
    let found = read(&mut both(), 0, &[1, 1, 2, 2], (11, 12));
    assert!(matches!(found, Err(Anomaly::NoOrder { .. })), "{found:?}");
    // Nor may one read say that the first came first, and another the opposite.
    let mut registers = both();
    assert_eq!(read(&mut registers, 0, &[1, 2, 2, 2], (11, 12)), Ok(()));
    let found = read(&mut registers, 0, &[1, 1, 1, 2], (11, 12));
    assert!(matches!(found, Err(Anomaly::NoOrder { .. })), "{found:?}");
}

#[test]
fn a_check_leaves_nothing_behind() {
    let mut registers = file();
    call(&mut registers, 1, 0..1, 10);
    let bytes = fill(UpdateId(1), 0, 1);
    let seen = Seen {
        file: FILE,
        pieces: &[(0, bytes)],
        called_us: 20,
        answered_us: 20,
    };
    assert_eq!(registers.check(&seen), Ok(()));
    assert_eq!(read(&mut registers, 0, &[PUT], (30, 31)), Ok(()));
}
