//! Histories of thousands of operations, as by the clients of a cluster.

use gabion_history::Block;
use std::ops::Range;

const CELLS: u64 = 2048;
const CLIENTS: usize = 5;

/// Draws numbers below an end.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// Mostly a few shared cells.
    fn range(&mut self) -> Range<u64> {
        let first = match self.below(4) {
            0 => self.below(CELLS),
            1 => self.below(16) * CELLS / 16,
            _ => self.below(8),
        };
        let length = match self.below(10) {
            0 => 1 + self.below(CELLS),
            1..4 => 1 + self.below(CELLS / 8),
            _ => 1 + self.below(24),
        };
        first..(first + length).min(CELLS)
    }
}

/// An operation under way.
struct UnderWay {
    cells: Range<u64>,
    called: u64,
    /// When it takes effect, and when it is answered.
    takes_effect: u64,
    answered: u64,
    write: Option<u64>,
    shows: Vec<(Range<u64>, u64)>,
    is_made: bool,
}

fn runs(cells: &[u64], first: u64) -> Vec<(Range<u64>, u64)> {
    let mut runs: Vec<(Range<u64>, u64)> = Vec::new();
    for (cell, &write) in (first..).zip(cells) {
        match runs.last_mut() {
            Some((range, last)) if *last == write => range.end = cell + 1,
            _ => runs.push((cell..cell + 1, write)),
        }
    }
    runs
}

/// Clients of an atomic block; one write in `unanswered_one_in` is never answered.
fn run(seed: u64, count: u64, pause: u64, unanswered_one_in: u64) -> Block<u64> {
    let mut dice = Dice(seed);
    let mut block = Block::default();
    let all = 0..CELLS;
    block.called(0, std::slice::from_ref(&all), 0);
    block.answered(0, 1).expect("the first");
    let mut cells = vec![0_u64; CELLS as usize];
    let mut clients: Vec<Option<UnderWay>> = (0..CLIENTS).map(|_| None).collect();
    let (mut next_write, mut told, mut now) = (1, 0, 10_u64);
    while told < count {
        now += 1;
        for client in &mut clients {
            if let Some(one) = client {
                if !one.is_made && one.takes_effect <= now {
                    one.is_made = true;
                    let range = one.cells.start as usize..one.cells.end as usize;
                    match one.write {
                        Some(write) => cells[range].fill(write),
                        None => one.shows = runs(&cells[range], one.cells.start),
                    }
                }
                if one.answered <= now {
                    let one = client.take().expect("it is there");
                    let noted = match one.write {
                        Some(_) if dice.below(unanswered_one_in) == 0 => Ok(()),
                        Some(write) => block.answered(write, now),
                        None => block.read(&one.shows, one.called, now),
                    };
                    noted.unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
                    told += 1;
                }
            } else if dice.below(pause) == 0 {
                let is_write = dice.below(2) == 0;
                let takes_effect = now + dice.below(20);
                let one = UnderWay {
                    cells: dice.range(),
                    called: now,
                    takes_effect,
                    answered: takes_effect + 1 + dice.below(20),
                    write: is_write.then_some(next_write),
                    shows: Vec::new(),
                    is_made: false,
                };
                if is_write {
                    next_write += 1;
                    block.called(
                        one.write.expect("a write"),
                        std::slice::from_ref(&one.cells),
                        now,
                    );
                }
                *client = Some(one);
            }
        }
    }
    block
}

#[test]
fn thousands_of_operations_are_explained() {
    for (seed, pause, unanswered_one_in) in [(1, 1, 1_000), (2, 200, 10), (3, 1, 10)] {
        run(seed, 2_000, pause, unanswered_one_in);
    }
}

#[test]
fn a_contradiction_after_thousands_of_operations_is_found() {
    let mut block = run(4, 2_000, 100, 1_000);
    // Far beyond the last operation.
    let at = 10_000_000;
    let cells = std::slice::from_ref(&(0..CELLS));
    block.called(u64::MAX, cells, at);
    assert_eq!(block.answered(u64::MAX, at + 1), Ok(()));
    let torn = [(0..7, u64::MAX), (7..8, 0)];
    assert!(block.read(&torn, at + 2, at + 3).is_err());
}
