//! The checker of a block, compared with every order of small histories.

use gabion_history::{Block, Contradiction};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

const CELLS: usize = 4;

/// The cells of an operation.
type Cells = [bool; CELLS];

/// The final knowledge of a client about a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Answered(u64),
    Ended(u64),
    Denied,
    Open,
}

#[derive(Clone, Debug)]
struct Write {
    cells: Cells,
    called: u64,
    outcome: Outcome,
}

#[derive(Clone, Debug)]
struct Read {
    /// The write that each cell shows, if it is read.
    shows: [Option<usize>; CELLS],
    called: u64,
    answered: u64,
}

/// Write 0 has written all cells and has ended before all other calls.
#[derive(Clone, Debug)]
struct History {
    writes: Vec<Write>,
    reads: Vec<Read>,
    /// The order in which outcomes of writes and reads are reported.
    told: Vec<usize>,
}

/// One report: a write's outcome or a read.
#[derive(Clone, Copy, Debug)]
enum Told<'a> {
    Write(usize, Outcome),
    Read(&'a Read),
}

impl History {
    fn told(&self) -> impl Iterator<Item = Told<'_>> {
        let count = self.writes.len();
        self.told.iter().map(move |&number| match number {
            number if number < count => Told::Write(number, self.writes[number].outcome),
            number => Told::Read(&self.reads[number - count]),
        })
    }
}

/// Mostly neighbours.
fn cells() -> impl Strategy<Value = Cells> {
    (0..CELLS, 1..=CELLS, 0..3, any::<Cells>()).prop_map(|(first, count, kind, any)| {
        let is_in = |cell| (first..first + count).contains(&cell) && (kind > 0 || any[cell]);
        std::array::from_fn(is_in)
    })
}

fn write() -> impl Strategy<Value = Write> {
    (cells(), 2_u64..16, 1_u64..20, 0..10).prop_map(|(cells, called, length, outcome)| {
        let end = called + length;
        let outcome = match outcome {
            0..7 => Outcome::Answered(end),
            7 => Outcome::Ended(end),
            8 => Outcome::Open,
            _ => Outcome::Denied,
        };
        Write {
            cells,
            called,
            outcome,
        }
    })
}

/// A read shows the state at an instant if writes take effect at instants of their own; some of its
/// cells show another write.
fn history(write_max: usize, read_max: usize) -> impl Strategy<Value = History> {
    let writes = vec((write(), 0_u64..20), 1..=write_max);
    let at_once = proptest::bool::weighted(0.3);
    let seeds = vec(
        (
            cells(),
            2_u64..22,
            0_u64..10,
            0_u64..10,
            vec(0_usize..16, CELLS),
        ),
        1..=read_max,
    );
    (writes, seeds, at_once).prop_flat_map(|(writes, seeds, at_once)| {
        let mut instants: Vec<(u64, usize)> = Vec::new();
        let mut all = vec![Write {
            cells: [true; CELLS],
            called: 0,
            outcome: Outcome::Answered(1),
        }];
        for (mut write, delay) in writes {
            if at_once {
                write.called = 2;
                write.outcome = Outcome::Answered(30);
            }
            let instant = match write.outcome {
                Outcome::Answered(end) | Outcome::Ended(end) => (write.called + delay).min(end),
                Outcome::Open | Outcome::Denied => write.called + delay,
            };
            if write.outcome != Outcome::Denied {
                instants.push((instant, all.len()));
            }
            all.push(write);
        }
        instants.sort_unstable();
        let reads: Vec<Read> = seeds
            .into_iter()
            .map(|(cells, instant, before, after, wrong)| Read {
                shows: std::array::from_fn(|cell| {
                    let others = (0..all.len()).filter(|&one| all[one].cells[cell]);
                    let others: Vec<usize> = others.collect();
                    let made = instants.iter().rev().filter(|&&(at, _)| at <= instant);
                    let last = made.map(|&(_, one)| one).find(|one| others.contains(one));
                    let wrong: usize = wrong[cell];
                    let shown = others.get(wrong).copied().or(last).unwrap_or(0);
                    cells[cell].then_some(shown)
                }),
                called: if at_once {
                    2
                } else {
                    instant.saturating_sub(before).max(2)
                },
                answered: if at_once { 30 } else { instant + after },
            })
            .collect();
        let told: Vec<usize> = (1..all.len() + reads.len()).collect();
        (Just(all), Just(reads), Just(told).prop_shuffle()).prop_map(|(writes, reads, told)| {
            History {
                writes,
                reads,
                told,
            }
        })
    })
}

/// The remaining operations to order.
#[derive(Clone, Debug)]
struct Operation {
    called: u64,
    answered: u64,
    must_be: bool,
    write: Option<(usize, Cells)>,
    shows: [Option<usize>; CELLS],
}

/// Tries all orders. Those that lead to the same cells by the same operations are tried once.
struct Oracle {
    all: Vec<Operation>,
    tried: BTreeSet<(u32, [usize; CELLS])>,
}

impl Oracle {
    fn new(history: &History, told: &[Told<'_>]) -> Self {
        let mut outcomes: BTreeMap<usize, Outcome> = BTreeMap::new();
        let mut all = Vec::new();
        for one in told {
            match one {
                Told::Write(number, outcome) => drop(outcomes.insert(*number, *outcome)),
                Told::Read(read) => all.push(Operation {
                    called: read.called,
                    answered: read.answered,
                    must_be: true,
                    write: None,
                    shows: read.shows,
                }),
            }
        }
        for (number, write) in history.writes.iter().enumerate().skip(1) {
            let outcome = outcomes.get(&number).copied().unwrap_or(Outcome::Open);
            let (answered, must_be) = match outcome {
                Outcome::Answered(at) => (at, true),
                Outcome::Ended(at) => (at, false),
                Outcome::Open => (u64::MAX, false),
                Outcome::Denied => continue,
            };
            all.push(Operation {
                called: write.called,
                answered,
                must_be,
                write: Some((number, write.cells)),
                shows: [None; CELLS],
            });
        }
        let tried = BTreeSet::new();
        Self { all, tried }
    }

    fn has_order(&mut self, done: u32, state: [usize; CELLS]) -> bool {
        let left: Vec<usize> = (0..self.all.len())
            .filter(|at| done >> at & 1 == 0)
            .collect();
        if left.iter().all(|&at| !self.all[at].must_be) {
            return true;
        }
        if !self.tried.insert((done, state)) {
            return false;
        }
        for &at in &left {
            let one = &self.all[at];
            let is_late =
                |&&other: &&usize| self.all[other].must_be && self.all[other].answered < one.called;
            // The next operation excludes for good any optional one without instants left.
            let skipped = left.iter().filter(|&&other| {
                !self.all[other].must_be && self.all[other].answered < one.called
            });
            let skipped = skipped.fold(0, |mask, &other| mask | 1 << other);
            let shows = one.shows.iter().zip(state);
            let fits = shows
                .clone()
                .all(|(shown, is)| shown.is_none_or(|shown| shown == is));
            if left.iter().any(|other| is_late(&other)) || !fits {
                continue;
            }
            let mut after = state;
            if let Some((number, cells)) = &one.write {
                let touched = after.iter_mut().zip(cells);
                touched.for_each(|(is, touches)| {
                    if *touches {
                        *is = *number;
                    }
                });
            }
            if self.has_order(done | 1 << at | skipped, after) {
                return true;
            }
        }
        false
    }
}

fn begin(history: &History) -> Block<usize> {
    let mut block = Block::default();
    for (number, write) in history.writes.iter().enumerate() {
        let touched = (0..CELLS as u64).filter(|&cell| write.cells[cell as usize]);
        let cells: Vec<Range<u64>> = touched.map(|cell| cell..cell + 1).collect();
        block.called(number, &cells, write.called);
    }
    block.answered(0, 1).expect("nothing else has happened yet");
    block
}

fn tell(block: &mut Block<usize>, told: Told<'_>) -> Result<(), Contradiction<usize>> {
    match told {
        Told::Write(number, Outcome::Answered(at)) => block.answered(number, at),
        Told::Write(number, Outcome::Ended(at)) => block.ended(number, at),
        Told::Write(number, Outcome::Denied) => block.denied(number),
        Told::Write(_, Outcome::Open) => Ok(()),
        Told::Read(read) => {
            let cells = read.shows.iter().enumerate();
            let seen = cells.filter_map(|(cell, shown)| Some((cell as u64, (*shown)?)));
            let seen: Vec<_> = seen.map(|(cell, shown)| (cell..cell + 1, shown)).collect();
            block.read(&seen, read.called, read.answered)
        }
    }
}

/// Checks that the two agree after each report. Returns the contradiction, if there is one.
fn compare(history: &History) -> Option<Contradiction<usize>> {
    let mut block = begin(history);
    let told: Vec<Told<'_>> = history.told().collect();
    for end in 1..=told.len() {
        let found = tell(&mut block, told[end - 1]);
        let expected = Oracle::new(history, &told[..end]).has_order(0, [0; CELLS]);
        assert_eq!(
            found.is_ok(),
            expected,
            "{found:?} after {:?}",
            &told[..end]
        );
        if let Err(contradiction) = found {
            return Some(contradiction);
        }
    }
    None
}

fn run(write_max: usize, read_max: usize, count: u32) -> BTreeMap<&'static str, u32> {
    let counts = RefCell::new(BTreeMap::new());
    let mut runner = TestRunner::new(Config {
        cases: count,
        failure_persistence: None,
        ..Config::default()
    });
    let compared = runner.run(&history(write_max, read_max), |history| {
        let kind = match compare(&history) {
            None => "explained",
            Some(Contradiction::Circle(_)) => "circle",
            Some(Contradiction::NoSide { .. }) => "no side",
            Some(Contradiction::NoOrder(_)) => "no order",
            Some(Contradiction::Denied { .. }) => "denied",
            Some(Contradiction::Early { .. }) => "early",
            Some(Contradiction::Unwritten { .. }) => "unwritten",
        };
        *counts.borrow_mut().entry(kind).or_insert(0) += 1;
        Ok(())
    });
    if let Err(failed) = compared {
        panic!("{failed}");
    }
    counts.into_inner()
}

#[test]
fn the_checker_agrees_with_a_search_over_all_orders() {
    let counts = run(4, 4, 20_000);
    for kind in ["explained", "circle"] {
        assert!(counts[kind] > 1_000, "{counts:?}");
    }
}

#[test]
fn longer_histories_are_judged_alike() {
    let counts = run(7, 8, 6_000);
    for kind in ["explained", "circle"] {
        assert!(counts[kind] > 700, "{counts:?}");
    }
}
