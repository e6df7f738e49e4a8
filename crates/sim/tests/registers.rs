//! What clients may see of a file's bytes, and what they may not.

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
        assert!(
            matches!(found, Err(Anomaly::Again { cell: 0, .. })),
            "{found:?}"
        );
    }
}

/// One write, another, and the first once more: it was applied twice.
#[test]
fn a_write_that_is_applied_twice_is_found() {
    let mut registers = file();
    call(&mut registers, 1, 0..1, 10);
    call(&mut registers, 2, 0..1, 20);
    acknowledge(&mut registers, 2, 30).unwrap();
    assert_eq!(read(&mut registers, 0, &[2], (31, 32)), Ok(()));
    // The first has no answer yet: it may as well have come only now.
    assert_eq!(read(&mut registers, 0, &[1], (40, 41)), Ok(()));
    let found = read(&mut registers, 0, &[2], (50, 51));
    assert!(matches!(found, Err(Anomaly::Again { .. })), "{found:?}");

    let mut registers = file();
    call(&mut registers, 1, 0..1, 10);
    assert_eq!(read(&mut registers, 0, &[1], (11, 12)), Ok(()));
    call(&mut registers, 2, 0..1, 20);
    acknowledge(&mut registers, 2, 30).unwrap();
    let found = read(&mut registers, 0, &[1], (40, 41));
    assert!(matches!(found, Err(Anomaly::Again { .. })), "{found:?}");

    let mut registers = one_then_two();
    let found = read(&mut registers, 0, &[1], (40, 41));
    assert!(matches!(found, Err(Anomaly::Again { .. })), "{found:?}");
}

#[test]
fn the_answer_of_a_write_that_was_read_and_replaced_may_be_late() {
    let mut registers = file();
    call(&mut registers, 1, 0..1, 10);
    assert_eq!(read(&mut registers, 0, &[1], (11, 12)), Ok(()));
    call(&mut registers, 2, 0..1, 20);
    assert_eq!(read(&mut registers, 0, &[2], (21, 22)), Ok(()));
    assert_eq!(acknowledge(&mut registers, 1, 30), Ok(()));
    assert_eq!(acknowledge(&mut registers, 2, 31), Ok(()));
    assert_eq!(read(&mut registers, 0, &[2], (40, 41)), Ok(()));
}

#[test]
fn a_write_without_an_answer_may_come_at_any_time_or_never() {
    let mut never = file();
    call(&mut never, 1, 0..1, 10);
    assert_eq!(read(&mut never, 0, &[PUT], (1_000, 1_001)), Ok(()));
    assert_eq!(read(&mut never, 0, &[1], (2_000, 2_001)), Ok(()));
    let found = read(&mut never, 0, &[PUT], (3_000, 3_001));
    assert!(matches!(found, Err(Anomaly::Again { .. })), "{found:?}");
}

#[test]
fn reads_and_writes_at_the_same_time_may_be_in_any_order() {
    for shown in [1, 2, PUT] {
        let mut registers = file();
        call(&mut registers, 1, 0..1, 10);
        call(&mut registers, 2, 0..1, 11);
        assert_eq!(read(&mut registers, 0, &[shown], (12, 13)), Ok(()));
        acknowledge(&mut registers, 1, 20).unwrap();
        acknowledge(&mut registers, 2, 21).unwrap();
    }
    // But once one was seen to be the last, it is.
    let mut registers = file();
    call(&mut registers, 1, 0..1, 10);
    call(&mut registers, 2, 0..1, 11);
    acknowledge(&mut registers, 1, 20).unwrap();
    acknowledge(&mut registers, 2, 21).unwrap();
    assert_eq!(read(&mut registers, 0, &[1], (30, 31)), Ok(()));
    let found = read(&mut registers, 0, &[2], (40, 41));
    assert!(matches!(found, Err(Anomaly::Again { .. })), "{found:?}");
}

#[test]
fn a_write_whose_answer_comes_after_it_was_replaced_everywhere_is_found() {
    let mut registers = file();
    call(&mut registers, 1, 0..1, 10);
    assert_eq!(read(&mut registers, 0, &[PUT], (20, 21)), Ok(()));
    assert_eq!(acknowledge(&mut registers, 1, 22), Ok(()));
    let found = read(&mut registers, 0, &[PUT], (23, 24));
    assert!(matches!(found, Err(Anomaly::Again { .. })), "{found:?}");
}

#[test]
fn a_value_before_its_write_is_found() {
    let mut registers = file();
    call(&mut registers, 1, 0..1, 10);
    let found = read(&mut registers, 0, &[1], (8, 9));
    assert!(matches!(found, Err(Anomaly::Early { .. })), "{found:?}");
}

#[test]
fn bytes_that_no_write_brought_there_are_found() {
    let mut registers = file();
    call(&mut registers, 1, 0..1, 10);
    let found = read(&mut registers, 1, &[1], (11, 12));
    assert!(
        matches!(found, Err(Anomaly::Garbage { cell: 1, .. })),
        "{found:?}"
    );
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
    let mut registers = file();
    call(&mut registers, 1, 0..4, 10);
    for torn in [[1, 1, PUT, PUT], [PUT, 1, 1, 1]] {
        let found = read(&mut registers, 0, &torn, (11, 12));
        assert!(matches!(found, Err(Anomaly::Torn { .. })), "{found:?}");
    }
    assert_eq!(
        read(&mut registers, 0, &[1, 1, 1, 1, PUT], (11, 12)),
        Ok(())
    );
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
    assert!(matches!(found, Err(Anomaly::Torn { .. })), "{found:?}");
    // Nor may one read say that the first came first, and another the opposite.
    let mut registers = both();
    assert_eq!(read(&mut registers, 0, &[1, 2, 2, 2], (11, 12)), Ok(()));
    let found = read(&mut registers, 0, &[1, 1, 1, 2], (11, 12));
    assert!(matches!(found, Err(Anomaly::Torn { .. })), "{found:?}");
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

/// All histories of few operations on one cell, held against every order of them: the two agree.
#[test]
fn the_zones_say_what_trying_all_orders_says() {
    let mut counts = [0_u32; 2];
    let mut state = 1_u64;
    let mut next = |end: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % end
    };
    for _ in 0..40_000 {
        let writes: Vec<Operation> = (1..=next(3) as u32 + 1)
            .map(|value| Operation::draw(&mut next, true, value))
            .collect();
        let mut all = writes.clone();
        for _ in 0..=next(3) {
            let value = next(writes.len() as u64 + 1) as u32;
            all.push(Operation::draw(&mut next, false, value));
        }
        let expected = has_order(&all, 0, &mut vec![false; all.len()]);
        assert_eq!(is_accepted(&all), expected, "{all:?}");
        counts[usize::from(expected)] += 1;
    }
    assert!(counts.iter().all(|&count| count > 1_000), "{counts:?}");
}

/// A write or a read of the one cell; value 0 is the put's.
#[derive(Clone, Copy, Debug)]
struct Operation {
    is_write: bool,
    value: u32,
    called_us: u64,
    answered_us: u64,
}

impl Operation {
    fn draw(next: &mut impl FnMut(u64) -> u64, is_write: bool, value: u32) -> Self {
        let called_us = 10 + next(12);
        let has_answer = !is_write || next(3) > 0;
        let answered_us = if has_answer {
            called_us + 1 + next(8)
        } else {
            u64::MAX
        };
        Self {
            is_write,
            value,
            called_us,
            answered_us,
        }
    }
}

fn is_accepted(all: &[Operation]) -> bool {
    let mut registers = Registers::default();
    registers.add_file(FILE, 1);
    call(&mut registers, 0, 0..1, 0);
    acknowledge(&mut registers, 0, 1).expect("nothing else happens");
    for operation in all.iter().filter(|operation| operation.is_write) {
        call(&mut registers, operation.value, 0..1, operation.called_us);
    }
    let mut answered: Vec<&Operation> = all.iter().filter(|o| o.answered_us < u64::MAX).collect();
    answered.sort_by_key(|operation| operation.answered_us);
    answered.into_iter().all(|operation| {
        let times = (operation.called_us, operation.answered_us);
        if operation.is_write {
            acknowledge(&mut registers, operation.value, times.1).is_ok()
        } else {
            read(&mut registers, 0, &[operation.value], times).is_ok()
        }
    })
}

/// Whether the operations that are not done can follow each other from a value on.
fn has_order(all: &[Operation], value: u32, done: &mut Vec<bool>) -> bool {
    let is_left = |at: &usize| !done[*at];
    let left: Vec<usize> = (0..all.len()).filter(is_left).collect();
    if left.iter().all(|&at| all[at].answered_us == u64::MAX) {
        return true;
    }
    for &at in &left {
        let one = all[at];
        let is_first = left
            .iter()
            .all(|&other| all[other].answered_us >= one.called_us);
        if !is_first || (!one.is_write && one.value != value) {
            continue;
        }
        done[at] = true;
        let fits = has_order(all, if one.is_write { one.value } else { value }, done);
        done[at] = false;
        if fits {
            return true;
        }
    }
    false
}
