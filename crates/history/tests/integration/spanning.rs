//! Allowed and forbidden views of a write that spans blocks.

use gabion_history::Blocks;
use std::ops::Range;

/// Blocks of eight cells, of which write 0 has written 24 and ended before 2.
fn file() -> Blocks<u64> {
    let mut file = Blocks::new(8);
    call(&mut file, 0, 0..24, 0);
    file.answered(0, 1).expect("nothing else happens");
    file
}

fn call(file: &mut Blocks<u64>, write: u64, cells: Range<u64>, at: u64) {
    file.called(write, std::slice::from_ref(&cells), at);
}

fn shows(file: &mut Blocks<u64>, cell: u64, write: u64, at: u64) -> bool {
    let seen = (cell..cell + 1, write);
    file.read(std::slice::from_ref(&seen), at, at + 1).is_ok()
}

#[test]
fn a_write_may_be_seen_in_one_block_and_not_in_another_while_it_goes_on() {
    let mut file = file();
    call(&mut file, 1, 6..10, 10);
    // One read of both blocks, and others that miss it after it was seen.
    assert_eq!(file.read(&[(6..8, 1), (8..10, 0)], 11, 12), Ok(()));
    assert_eq!(file.read(&[(6..8, 0), (8..10, 1)], 13, 14), Ok(()));
    assert_eq!(file.answered(1, 20), Ok(()));
    assert!(shows(&mut file, 6, 0, 18), "called before the answer");
    assert!(shows(&mut file, 9, 1, 21));
    assert!(!shows(&mut file, 6, 0, 21), "called after the answer");
}

#[test]
fn a_write_is_never_torn_within_a_block() {
    let mut file = file();
    call(&mut file, 1, 6..10, 10);
    assert!(file.read(&[(6..7, 1), (7..8, 0)], 11, 12).is_err());
}

#[test]
fn a_write_within_a_block_is_not_missed_once_others_have_seen_it() {
    let mut file = file();
    call(&mut file, 1, 6..8, 10);
    assert!(shows(&mut file, 6, 1, 11));
    assert!(!shows(&mut file, 6, 0, 13));
}

#[test]
fn a_write_that_failed_is_in_all_blocks_or_in_none() {
    let failed = || {
        let mut file = file();
        call(&mut file, 1, 6..10, 10);
        assert_eq!(file.ended(1, 20), Ok(()));
        file
    };
    let mut all = failed();
    assert!(shows(&mut all, 6, 1, 30) && shows(&mut all, 8, 1, 32));
    let mut none = failed();
    assert!(shows(&mut none, 6, 0, 30) && shows(&mut none, 8, 0, 32));
    // Whichever is read first.
    let mut one = failed();
    assert!(shows(&mut one, 6, 1, 30) && !shows(&mut one, 8, 0, 32));
    let mut other = failed();
    assert!(shows(&mut other, 6, 0, 30) && !shows(&mut other, 8, 1, 32));
    // A write seen before the end is there after it.
    let mut early = file();
    call(&mut early, 1, 6..10, 10);
    assert!(shows(&mut early, 6, 1, 11) && early.ended(1, 20).is_ok());
    assert!(!shows(&mut early, 8, 0, 30));
}

#[test]
fn a_write_that_its_client_has_left_may_take_effect_later_and_is_then_not_missed() {
    let mut file = file();
    call(&mut file, 1, 6..10, 10);
    file.left(1, 20);
    assert!(shows(&mut file, 6, 0, 30) && shows(&mut file, 6, 1, 40));
    assert!(!shows(&mut file, 6, 0, 50));
}

#[test]
fn a_write_that_was_not_made_is_in_no_block() {
    let mut file = file();
    call(&mut file, 1, 6..10, 10);
    assert_eq!(file.denied(1), Ok(()));
    assert!(shows(&mut file, 6, 0, 30) && !shows(&mut file, 8, 1, 32));
}

#[test]
fn a_check_leaves_no_trace() {
    let mut file = file();
    call(&mut file, 1, 6..8, 10);
    assert_eq!(file.check(&[(6..8, 1)], 20, 21), Ok(()));
    assert!(file.check(&[(5..8, 1)], 20, 21).is_err());
    assert!(shows(&mut file, 6, 0, 30));
}

#[test]
fn a_write_that_stores_its_block_anew_may_be_missed_until_its_answer() {
    let mut file = file();
    file.called_anew(1, std::slice::from_ref(&(6..8)), 10);
    assert!(shows(&mut file, 6, 1, 11));
    assert!(shows(&mut file, 6, 0, 13));
    assert_eq!(file.answered(1, 20), Ok(()));
    assert!(!shows(&mut file, 6, 0, 21));
}
