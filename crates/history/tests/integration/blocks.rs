//! Allowed and forbidden views of a block.

use gabion_history::{Block, Circle, Contradiction, Operation, Reason};
use std::ops::Range;

/// `3` or `0-7`, the last one included.
fn cells(words: &str) -> Vec<Range<u64>> {
    let range = |word: &str| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let number = |word: &str| word.parse::<u64>().expect("a number");
        number(first)..number(last) + 1
    };
    words.split(',').map(range).collect()
}

/// Reports operations on a block of cells 0 to 99, which write 0 has written and ended before 2: `w
/// ID CELLS START END`, END is `-` without an answer; `r CELLS=ID,... START END`; `e ID END`; `d
/// ID`. Returns whether some order explains them.
fn check(script: &str) -> Result<(), Contradiction<u64>> {
    let mut block = Block::default();
    block.called(0, &cells("0-99"), 0);
    block.answered(0, 1)?;
    for operation in script.split("; ") {
        let words: Vec<&str> = operation.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        match words[0] {
            "w" => {
                block.called(number(1), &cells(words[2]), number(3));
                if words[4] != "-" {
                    block.answered(number(1), number(4))?;
                }
            }
            "e" => block.ended(number(1), number(2))?,
            "d" => block.denied(number(1))?,
            _ => {
                let shown = words[1].split(',').map(|part| {
                    let (range, write) = part.split_once('=').expect("what they show");
                    let write = write.parse().expect("a number");
                    (cells(range).swap_remove(0), write)
                });
                block.read(&shown.collect::<Vec<_>>(), number(2), number(3))?;
            }
        }
    }
    Ok(())
}

#[test]
fn histories_that_have_an_order_pass() {
    for script in [
        "r 0-99=0 2 3",
        "w 1 0-3 10 20; r 0-3=1,4=0 30 40",
        // Both results of a read beside a write, and a read that ends before the write does.
        "w 1 0 10 20; r 0=0 11 12; r 0=1 30 40",
        "w 1 0 10 20; r 0=1 11 12; r 0=1 30 40",
        // Concurrent writes have either order.
        "w 1 0 10 20; w 2 0 15 25; r 0=1 30 40",
        "w 1 0 10 20; w 2 0 15 25; r 0=2 30 40",
        // A write without an answer takes effect later, or never.
        "w 1 0 10 -; w 2 0 20 30; r 0=2 40 50; r 0=1 60 70",
        "w 1 0 10 -; w 2 0 20 30; r 0=2 40 50; r 0=2 60 70",
        "w 1 0 10 -; r 0=0 20 30",
        // The answer of a write that was read and replaced is late.
        "w 1 0 10 -; r 0=1 11 12; w 2 0 20 31; r 0=2 21 22; r 0=2 40 41",
        "w 1 0 10 -; r 0=0 1000 1001; r 0=1 2000 2001",
        // The later of two writes hides a part of the other.
        "w 1 0-2 10 20; w 2 1-3 10 20; r 0=1,1-3=2 30 40",
        // An ended write took effect before its end, or never.
        "w 1 0 10 -; e 1 20; r 0=1 30 40; r 0=1 50 60",
        "w 1 0 10 -; e 1 20; r 0=0 30 40; r 0=0 50 60",
        // A denied write is called again.
        "w 1 0 10 -; d 1; w 1 0 20 -; r 0=0 25 26; r 0=1 30 40",
    ] {
        assert_eq!(check(script), Ok(()), "{script}");
    }
}

#[test]
fn histories_without_an_order_are_found() {
    for script in [
        // Answered and never there.
        "w 1 0 10 20; r 0=0 30 40",
        // The second of two writes is lost.
        "w 1 0 10 20; w 2 0 30 40; r 0=1 50 60",
        // A retried write is applied twice.
        "w 1 0 10 20; r 0=1 21 22; w 2 0 30 40; r 0=2 50 60; r 0=1 70 80",
        // The same where its first attempt was never answered.
        "w 1 0 10 -; r 0=1 15 20; w 2 0 30 40; r 0=1 50 60",
        "w 1 0 10 22; r 0=0 20 21; r 0=0 23 24",
        // The write seen as the last one is the last one.
        "w 1 0 10 20; w 2 0 11 21; r 0=1 30 31; r 0=2 40 41",
        // A reader sees an older state than one that has ended before.
        "w 1 0 10 99; r 0=1 20 30; r 0=0 40 50",
        // A write that may take effect at any time does so once.
        "w 1 0 10 -; r 0=0 20 30; r 0=1 40 50; r 0=0 60 70",
        // Two values take turns.
        "w 1 0 10 99; w 2 0 10 99; r 0=1 20 21; r 0=2 22 23; r 0=1 24 25; r 0=2 26 27",
        // A read shows half of a write.
        "w 1 0-3 10 99; r 0-1=1,2-3=0 11 12",
        "w 1 0-3 10 99; r 0=0,1-3=1 11 12",
        "w 1 0,7 10 99; r 0=1 11 12; r 7=0 13 14",
        // Two writes each replace the other, in one read or in two.
        "w 1 0-2 10 99; w 2 1-3 10 99; r 0-1=1,2-3=2 11 12",
        "w 1 0-2 10 99; w 2 1-3 10 99; r 0=1,1-3=2 11 12; r 0-2=1,3=2 11 12",
        // Each of two reads misses what the other shows.
        "w 1 0 10 99; w 2 1 10 99; r 0=1,1=0 11 50; r 0=0,1=2 11 50",
        // Three do so in a cycle; no two of them contradict each other.
        "w 1 0 10 99; w 2 1 10 99; w 3 2 10 99; r 0=1,1=0 11 50; r 1=2,2=0 11 50; r 2=3,0=0 11 50",
        // A write that has ended takes no effect later.
        "w 1 0 10 -; e 1 20; r 0=0 21 22; r 0=1 30 40",
    ] {
        let found = check(script);
        assert!(
            matches!(found, Err(Contradiction::Circle(_))),
            "{script}: {found:?}"
        );
    }
    let read = Operation::Read {
        called: 20,
        answered: 30,
    };
    let denied = Contradiction::Denied { read, write: 1 };
    let unwritten = |write, cell| Contradiction::Unwritten { read, write, cell };
    for (script, expected) in [
        ("w 1 0 10 -; r 0=1 20 30; d 1", denied.clone()),
        ("w 1 0 10 -; d 1; r 0=1 20 30", denied),
        ("r 0=5 20 30", unwritten(5, 0)),
        ("w 1 0-2 10 19; r 0-4=1 20 30", unwritten(1, 3)),
        (
            "w 1 0 31 40; r 0=1 20 30",
            Contradiction::Early { read, write: 1 },
        ),
    ] {
        assert_eq!(check(script), Err(expected), "{script}");
    }
}

/// Ten writes, each with a cell of its own beside one shared with another. Whether 2 is before 1 or
/// after the read that shows 1, two other pairs contradict each other. All operations are
/// concurrent.
#[test]
fn a_write_that_has_no_side_for_several_reasons_is_found() {
    // The writes of a pair share a cell: 1 and 2 cell 1, 3 and 4 cell 2, and so on; the own cell is 10 more.
    let writes =
        (1..=10_u64).map(|write| format!("w {write} {},{} 10 99", write.div_ceil(2), 10 + write));
    // The first of each pair is shown, with the own cells of others that come before the read.
    let shows = |write: u64, before: &[u64]| {
        let before = before.iter().map(|one| format!(",{}={one}", 10 + one));
        let before: String = before.collect();
        format!("r {}={write}{before} 10 99", write.div_ceil(2))
    };
    // A read that shows one write's own cell and not another's lies between them.
    let between = |one: u64, other: u64| format!("r {}={one},{}=0 10 99", 10 + one, 10 + other);
    let reads = [
        shows(1, &[8, 10]),
        shows(3, &[1]),
        shows(5, &[1]),
        shows(7, &[2]),
        shows(9, &[2]),
        // Before 1: then 4 is before 3 and 6 before 5, which is a cycle.
        between(4, 2),
        between(6, 2),
        between(3, 6),
        between(5, 4),
        // After the read: then 8 is before 7 and 10 before 9, which is another.
        between(7, 10),
        between(9, 8),
    ];
    let all: Vec<String> = writes.chain(reads).collect();
    let found = check(&all.join("; "));
    assert!(
        matches!(found, Err(Contradiction::NoSide { .. })),
        "{found:?}"
    );
    // Without any one of these reads there is an order.
    for left_out in 10..all.len() {
        let mut fewer = all.clone();
        fewer.remove(left_out);
        assert_eq!(
            check(&fewer.join("; ")),
            Ok(()),
            "without {}",
            all[left_out]
        );
    }
}

#[test]
fn a_contradiction_is_explained_by_the_operations_of_a_circle() {
    let found = check("w 1 0 10 20; r 0=0 30 40").expect_err("it is lost");
    let read = Operation::Read {
        called: 30,
        answered: 40,
    };
    let circle = vec![
        (Operation::Write(1), Reason::Answered),
        (read, Reason::Replaced { shown: 0, cell: 0 }),
    ];
    assert_eq!(found, Contradiction::Circle(Circle(circle)));
    assert_eq!(
        found.to_string(),
        "write 1 comes before the read from 30 to 40 (answered before that was called); the read from 30 to 40 before \
         write 1 (which replaced the 0 that it shows in cell 0)"
    );
}

#[test]
fn a_contradiction_stays_once_found() {
    let mut block = Block::default();
    for (write, at) in [(0_u64, 0), (1, 10)] {
        block.called(write, &cells("0"), at);
        block
            .answered(write, at + 5)
            .expect("they follow each other");
    }
    let found = block.read(&[(0..1, 0)], 20, 21);
    assert!(found.is_err());
    assert_eq!(block.read(&[(0..1, 1)], 30, 31), found);
    block.called(2, &cells("0"), 40);
    assert_eq!(block.answered(2, 41), found);
}
