//! Searches for an order: for each read and each other write of a cell that it shows, the side of
//! that write.
//!
//! A read shows a write. Every other write of that cell comes before the shown write or after the
//! read: a choice of two edges. If every choice is made without a cycle, any topological order of
//! the edges explains all reads; if every combination of choices has a cycle, no order does.
//! (Papadimitriou, "The serializability of concurrent database updates", 1979, calls such a graph a
//! polygraph.)
//!
//! Most choices are made at once, since one side would close a cycle (*saturation*). The others are
//! searched. The result is only the first guess of the next search, since later operations may need
//! another one. After both sides of a choice have failed, it is tried first as soon as an earlier
//! one has changed (Lecoutre et al., "Reasoning from last conflict(s) in constraint programming",
//! 2009), so independent choices are not combined.

use crate::order::{Clash, Op, Order, Why};
use std::collections::BTreeSet;

/// A write that comes before the write that a read shows in a cell, or after the read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub(crate) shown: Op,
    pub(crate) read: Op,
    pub(crate) other: Op,
    pub(crate) cell: u64,
}

/// Grounds on which no order explains the reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refutation {
    /// Operations each of which comes before the next one.
    Circle(Vec<(Op, Option<Why>)>),
    /// A write has no side: a cycle for each, with the write, the shown write and the read.
    NoSide([Op; 3], [Vec<(Op, Option<Why>)>; 2]),
    /// The writes and reads of all choices that failed.
    NoOrder(BTreeSet<Op>),
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    choice: Choice,
    /// The side that was tried last: whether the other write comes before the shown one.
    is_older: bool,
    /// Whether the known order leaves it open.
    is_open: bool,
}

/// The order as far as it is known, and the choices that it leaves open.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choices {
    pub(crate) order: Order,
    all: Vec<Kept>,
    /// No choice from here on is open.
    open_end: usize,
    /// Choices by each operation that takes part in them.
    of: Vec<Vec<usize>>,
    /// Choices that a search has made.
    made: Vec<usize>,
    is_searching: bool,
    /// Whether more is known than at the last success.
    is_changed: bool,
}

/// A choice in the course of a search.
struct Decision {
    marks: (usize, usize),
    number: usize,
    is_flipped: bool,
}

impl Choices {
    /// Adds an operation.
    pub(crate) fn add(&mut self, called: u64, answered: u64) -> Op {
        self.of.push(Vec::new());
        self.order.add(called, answered)
    }

    /// Adds a choice, unless it is already determined.
    pub(crate) fn consider(&mut self, choice: Choice) -> Result<(), Clash> {
        let (other, order) = (choice.other, &self.order);
        // Most are determined by time.
        if order.last(other) < order.first(choice.shown)
            || order.last(choice.read) < order.first(other)
        {
            return Ok(());
        }
        let number = self.all.len();
        let is_older = order.last(other) < order.last(choice.read);
        self.all.push(Kept {
            choice,
            is_older,
            is_open: true,
        });
        if self.is_made(number)? {
            self.all.pop();
            return Ok(());
        }
        for op in [choice.shown, choice.read, other] {
            self.of[op].push(number);
        }
        self.open_end = self.all.len();
        self.is_changed = true;
        Ok(())
    }

    /// Whether some order explains all operations.
    ///
    /// # Errors
    /// The reason if none does.
    pub(crate) fn settle(&mut self) -> Result<(), Refutation> {
        self.saturate().map_err(|clash| self.circle(&clash))?;
        if !std::mem::take(&mut self.is_changed) || self.last_open().is_none() {
            return Ok(());
        }
        self.set_searching(true);
        let found = self.search();
        self.undo((0, 0));
        let settled = found.map_err(|failed| self.explain(&failed));
        self.set_searching(false);
        settled
    }

    /// A cycle that shows a clash.
    pub(crate) fn circle(&self, clash: &Clash) -> Refutation {
        Refutation::Circle(self.order.circle(clash))
    }

    /// Makes all choices that the known order determines.
    fn saturate(&mut self) -> Result<(), Clash> {
        loop {
            let mut touched = self.order.take_touched();
            if touched.is_empty() {
                return Ok(());
            }
            touched.sort_unstable();
            touched.dedup();
            for op in touched {
                if !self.is_searching {
                    self.is_changed = true;
                    self.of[op].retain(|&number| self.all[number].is_open);
                }
                for at in 0..self.of[op].len() {
                    let number = self.of[op][at];
                    if self.all[number].is_open && self.is_made(number)? {
                        self.close(number);
                    }
                }
            }
        }
    }

    /// Whether the known order determines a choice. If so, adds its consequences.
    fn is_made(&mut self, number: usize) -> Result<bool, Clash> {
        let Choice {
            shown, read, other, ..
        } = self.all[number].choice;
        let order = &mut self.order;
        let is_older = if order.is_before(other, shown) {
            true
        } else if order.is_before(read, other) {
            false
        } else if order.is_before(shown, other) {
            self.put(number, false)?;
            false
        } else if order.is_before(other, read) {
            self.put(number, true)?;
            true
        } else {
            return Ok(false);
        };
        self.all[number].is_older = is_older;
        Ok(true)
    }

    /// Puts the other write of a choice on one of its sides.
    fn put(&mut self, number: usize, is_older: bool) -> Result<(), Clash> {
        let Choice {
            shown,
            read,
            other,
            cell,
        } = self.all[number].choice;
        if is_older {
            self.order.put_before(other, shown, Why::Hidden(read, cell))
        } else {
            self.order
                .put_before(read, other, Why::Replaced(shown, cell))
        }
    }

    /// Puts the other write of a choice on one of its sides, with all consequences.
    fn choose(&mut self, number: usize, is_older: bool) -> Result<(), Clash> {
        self.all[number].is_older = is_older;
        self.put(number, is_older)?;
        self.close(number);
        self.saturate()
    }

    /// Notes that a choice is made.
    fn close(&mut self, number: usize) {
        self.all[number].is_open = false;
        if self.is_searching {
            self.made.push(number);
        }
    }

    /// The last open choice.
    fn last_open(&mut self) -> Option<usize> {
        while self.open_end > 0 && !self.all[self.open_end - 1].is_open {
            self.open_end -= 1;
        }
        self.open_end.checked_sub(1)
    }

    fn set_searching(&mut self, is_searching: bool) {
        self.is_searching = is_searching;
        self.order.search(is_searching);
    }

    fn marks(&self) -> (usize, usize) {
        (self.order.mark(), self.made.len())
    }

    fn undo(&mut self, (changes, made): (usize, usize)) {
        self.order.undo(changes);
        for number in self.made.drain(made..) {
            self.all[number].is_open = true;
            self.open_end = self.open_end.max(number + 1);
        }
    }

    /// Makes all choices.
    ///
    /// # Errors
    /// The choices with two failed sides, if the search fails.
    fn search(&mut self) -> Result<(), BTreeSet<usize>> {
        let mut path: Vec<Decision> = Vec::new();
        let mut urgent = None;
        let mut failed = BTreeSet::new();
        loop {
            let next = urgent.filter(|&number: &usize| self.all[number].is_open);
            let Some(number) = next.or_else(|| self.last_open()) else {
                return Ok(());
            };
            path.push(Decision {
                marks: self.marks(),
                number,
                is_flipped: false,
            });
            let mut is_possible = self.choose(number, self.all[number].is_older).is_ok();
            let mut deepest = None;
            while !is_possible {
                let Some(decision) = path.last_mut() else {
                    return Err(failed);
                };
                self.undo(decision.marks);
                let number = decision.number;
                if decision.is_flipped {
                    failed.insert(number);
                    deepest.get_or_insert(number);
                    path.pop();
                    continue;
                }
                decision.is_flipped = true;
                is_possible = self.choose(number, !self.all[number].is_older).is_ok();
            }
            urgent = deepest.or(urgent);
        }
    }

    /// The explanation for the user: a single choice without a possible side, if there is one.
    fn explain(&mut self, failed: &BTreeSet<usize>) -> Refutation {
        for &number in failed {
            if let (Some(older), Some(newer)) =
                (self.probe(number, true), self.probe(number, false))
            {
                let Choice {
                    shown, read, other, ..
                } = self.all[number].choice;
                return Refutation::NoSide([other, shown, read], [older, newer]);
            }
        }
        let choices = failed.iter().map(|&number| self.all[number].choice);
        let concerned = choices.flat_map(|choice| [choice.shown, choice.read, choice.other]);
        Refutation::NoOrder(concerned.collect())
    }

    /// The cycle that a side of a choice closes, if it does so without another choice.
    fn probe(&mut self, number: usize, is_older: bool) -> Option<Vec<(Op, Option<Why>)>> {
        let chosen = self.choose(number, is_older);
        let circle = chosen.err().map(|clash| self.order.circle(&clash));
        self.undo((0, 0));
        circle
    }
}
