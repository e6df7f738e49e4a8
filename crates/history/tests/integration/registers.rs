//! What clients may see of one cell, and what they may not.

use gabion_history::{Register, RegisterContradiction as Contradiction};

/// One register that is written and read as told: `w ID START END`, `w ID START -` without an acknowledgement, `r ID
/// START END`. Write 0 has ended before 2. Gives whether some order explains it.
fn check(script: &str) -> Result<(), Contradiction<u64>> {
    let mut register = Register::default();
    register.called(0, 0);
    register.acknowledged(0, 1)?;
    for operation in script.split(", ") {
        let words: Vec<&str> = operation.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        match (words[0], words[3]) {
            ("w", "-") => register.called(number(1), number(2)),
            ("w", _) => {
                register.called(number(1), number(2));
                register.acknowledged(number(1), number(3))?;
            }
            _ => register.saw(number(1), number(2), number(3))?,
        }
    }
    Ok(())
}

#[test]
fn histories_that_have_an_order_pass() {
    for script in [
        "r 0 2 3",
        "w 1 10 20, r 1 30 40",
        // Both results of a read beside a write, and a read that ends before the write does.
        "w 1 10 20, r 0 11 12, r 1 30 40",
        "w 1 10 20, r 1 11 12, r 1 30 40",
        // Writes at the same time have either order.
        "w 1 10 20, w 2 15 25, r 1 30 40",
        "w 1 10 20, w 2 15 25, r 2 30 40",
        // A write without an acknowledgement takes effect later, or never.
        "w 1 10 -, w 2 20 30, r 2 40 50, r 1 60 70",
        "w 1 10 -, w 2 20 30, r 2 40 50, r 2 60 70",
        "w 1 10 -, r 0 20 30",
        // The answer of one that was read and replaced is late.
        "w 1 10 -, r 1 11 12, w 2 20 31, r 2 21 22, r 2 40 41",
        "w 1 10 -, r 0 1000 1001, r 1 2000 2001",
    ] {
        assert_eq!(check(script), Ok(()), "{script}");
    }
}

#[test]
fn histories_without_an_order_are_found() {
    let again = |one, other| Contradiction::Again { one, other };
    for (script, expected) in [
        // Acknowledged and never there.
        ("w 1 10 20, r 0 30 40", again(0, 1)),
        // The second of two acknowledged writes is lost.
        ("w 1 10 20, w 2 30 40, r 1 50 60", again(1, 2)),
        // A retried write is applied twice.
        (
            "w 1 10 20, r 1 21 22, w 2 30 40, r 2 50 60, r 1 70 80",
            again(1, 2),
        ),
        // The same where its first attempt was never acknowledged.
        ("w 1 10 -, r 1 15 20, w 2 30 40, r 1 50 60", again(1, 2)),
        ("w 1 10 22, r 0 20 21, r 0 23 24", again(0, 1)),
        // What was seen to be the last is it.
        ("w 1 10 20, w 2 11 21, r 1 30 31, r 2 40 41", again(2, 1)),
        // A reader sees an older state than one that has ended before.
        ("w 1 10 99, r 1 20 30, r 0 40 50", again(0, 1)),
        // A write that may come at any time comes once.
        ("w 1 10 -, r 0 20 30, r 1 40 50, r 0 60 70", again(0, 1)),
        // Two values take turns.
        (
            "w 1 10 99, w 2 10 99, r 1 20 21, r 2 22 23, r 1 24 25, r 2 26 27",
            again(1, 2),
        ),
        ("w 1 10 20, r 1 3 4", Contradiction::Early(1)),
        ("r 5 20 30", Contradiction::Unwritten(5)),
    ] {
        assert_eq!(check(script), Err(expected), "{script}");
    }
}

#[test]
fn a_zone_that_is_only_asked_for_leaves_nothing_behind() {
    let mut register = Register::default();
    register.called(0_u64, 0);
    register.acknowledged(0, 1).expect("the first write");
    register.called(1, 10);
    assert!(register.after(1, 20, 21).is_ok());
    assert_eq!(register.saw(0, 30, 31), Ok(()), "nobody has seen 1 yet");
}

/// A write or a read; value 0 is there from the start.
#[derive(Clone, Copy, Debug)]
struct Operation {
    is_write: bool,
    value: u64,
    called: u64,
    /// `u64::MAX` for a write that was not acknowledged.
    answered: u64,
}

impl Operation {
    fn draw(next: &mut impl FnMut(u64) -> u64, is_write: bool, value: u64) -> Self {
        let called = 10 + next(12);
        let has_answer = !is_write || next(3) > 0;
        let answered = if has_answer {
            called + 1 + next(8)
        } else {
            u64::MAX
        };
        Self {
            is_write,
            value,
            called,
            answered,
        }
    }
}

/// Small histories, held against every order of their operations: the two agree, in whatever order the operations
/// are told.
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
        let writes: Vec<Operation> = (1..=next(3) + 1)
            .map(|value| Operation::draw(&mut next, true, value))
            .collect();
        let mut all = writes.clone();
        for _ in 0..=next(3) {
            let value = next(writes.len() as u64 + 1);
            all.push(Operation::draw(&mut next, false, value));
        }
        let expected = has_order(&all, 0, &mut vec![false; all.len()]);
        let mut by_answer = all.clone();
        by_answer.sort_by_key(|operation| operation.answered);
        for told in [&all, &by_answer] {
            assert_eq!(is_accepted(told), expected, "{told:?}");
        }
        counts[usize::from(expected)] += 1;
    }
    assert!(counts.iter().all(|&count| count > 1_000), "{counts:?}");
}

fn is_accepted(told: &[Operation]) -> bool {
    let mut register = Register::default();
    register.called(0, 0);
    register.acknowledged(0, 1).expect("nothing else happens");
    for write in told.iter().filter(|operation| operation.is_write) {
        register.called(write.value, write.called);
    }
    let mut answered = told.iter().filter(|one| one.answered < u64::MAX);
    answered.all(|one| {
        let noted = if one.is_write {
            register.acknowledged(one.value, one.answered)
        } else {
            register.saw(one.value, one.called, one.answered)
        };
        noted.is_ok()
    })
}

/// Whether the operations that are not done can follow each other from a value on. An answer and a call at the same
/// instant have no order.
fn has_order(all: &[Operation], value: u64, done: &mut Vec<bool>) -> bool {
    let left: Vec<usize> = (0..all.len()).filter(|&at| !done[at]).collect();
    if left.iter().all(|&at| all[at].answered == u64::MAX) {
        return true;
    }
    for &at in &left {
        let one = all[at];
        let is_first = left.iter().all(|&other| all[other].answered >= one.called);
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
