//! An object of several cells whose operations are atomic: a stripe of a file.
//!
//! A write overwrites some cells with unique contents, so a read names for each of its cells the
//! write that it shows. [`Block`] decides exactly whether all operations have an order in which
//! each takes effect at one instant between its call and its answer, and each read shows the last
//! write of each of its cells. This is checked after each operation, in any order of the reports.
//!
//! - An answered write took effect once, between its call and its answer.
//! - A write without an answer may take effect at any time after its call, once, or never. Until a
//!   read shows it, it takes no part in the order.
//! - Cells that are written and read alike are ranges, and a range costs as much as one cell.

use crate::choices::{Choice, Choices, Refutation};
use crate::contradiction::{Circle, Contradiction, Operation, Reason};
use crate::order::{Clash, Op, Why};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Range;

/// The client's knowledge of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// None yet.
    Open,
    /// It took effect.
    Answered(u64),
    /// By then it had taken effect, or never will.
    Ended(u64),
    /// It did not take effect.
    Denied,
}

#[derive(Clone, Debug)]
struct Write {
    cells: Vec<Range<u64>>,
    called: u64,
    outcome: Outcome,
    /// Its number once it is known to have taken effect.
    op: Option<Op>,
}

/// The effect of an operation.
#[derive(Clone, Debug)]
enum Effect<W> {
    /// It writes these cells.
    Write(W, Vec<Range<u64>>),
    /// It shows writes in ranges of cells.
    Read(Vec<(Range<u64>, Op)>),
}

/// The operations on one block. Times are of one clock, in any unit.
#[derive(Clone, Debug)]
pub struct Block<W: Debug> {
    writes: BTreeMap<W, Write>,
    /// Reads, and the writes that took effect, by number.
    effects: Vec<Effect<W>>,
    /// The numbers of the reads.
    reads: Vec<Op>,
    /// The numbers of the writes.
    made: Vec<Op>,
    choices: Choices,
    broken: Option<Contradiction<W>>,
}

impl<W: Debug> Default for Block<W> {
    fn default() -> Self {
        Self {
            writes: BTreeMap::new(),
            effects: Vec::new(),
            reads: Vec::new(),
            made: Vec::new(),
            choices: Choices::default(),
            broken: None,
        }
    }
}

impl<W: Copy + Ord + Debug> Block<W> {
    /// Notes the call of a write, before any read can show it. Another call is still the same
    /// write; if it was denied before, the denied call is void.
    pub fn called(&mut self, write: W, cells: &[Range<u64>], at: u64) {
        let mut cells = cells.to_vec();
        cells.retain(|range| !range.is_empty());
        cells.sort_unstable_by_key(|range| range.start);
        let fresh = Write {
            cells,
            called: at,
            outcome: Outcome::Open,
            op: None,
        };
        let known = self.writes.entry(write).or_insert_with(|| fresh.clone());
        match known.outcome {
            Outcome::Denied => *known = fresh,
            Outcome::Ended(_) => known.outcome = Outcome::Open,
            Outcome::Open | Outcome::Answered(_) => {}
        }
    }

    /// Notes that a client was told that its write took effect.
    ///
    /// # Errors
    /// See [`Contradiction`].
    ///
    /// # Panics
    /// If it was not called.
    pub fn answered(&mut self, write: W, at: u64) -> Result<(), Contradiction<W>> {
        let known = self.known(write);
        if let Outcome::Answered(_) = known.outcome {
            return self.so_far();
        }
        known.outcome = Outcome::Answered(at);
        let answered = match known.op {
            Some(op) => self.choices.order.answer(op, at),
            None => self.take_in(write).map(drop),
        };
        self.judge(answered)
    }

    /// Notes that a write has taken effect by now, or never will.
    ///
    /// # Errors
    /// See [`Contradiction`].
    ///
    /// # Panics
    /// If it was not called.
    pub fn ended(&mut self, write: W, at: u64) -> Result<(), Contradiction<W>> {
        let known = self.known(write);
        if known.outcome != Outcome::Open {
            return self.so_far();
        }
        known.outcome = Outcome::Ended(at);
        let ended = match known.op {
            Some(op) => self.choices.order.answer(op, at),
            None => Ok(()),
        };
        self.judge(ended)
    }

    /// Notes that a client was told that its write did not and never will take effect. After an
    /// answer this concerns a second attempt, and has no effect.
    ///
    /// # Errors
    /// See [`Contradiction`].
    ///
    /// # Panics
    /// If it was not called.
    pub fn denied(&mut self, write: W) -> Result<(), Contradiction<W>> {
        let known = self.known(write);
        if let Outcome::Answered(_) = known.outcome {
            return self.so_far();
        }
        known.outcome = Outcome::Denied;
        if let Some(op) = known.op {
            let shows = |effect: &Effect<W>| match effect {
                Effect::Read(seen) => seen.iter().any(|&(_, shown)| shown == op),
                Effect::Write(..) => false,
            };
            // It has a number only if a read has shown it.
            let read = self.effects.iter().position(shows).unwrap_or(op);
            let read = self.operation(read);
            let denied = Contradiction::Denied { read, write };
            self.broken.get_or_insert(denied);
        }
        self.so_far()
    }

    /// Notes the answer of a read: ranges of cells, and the write that they show.
    ///
    /// # Errors
    /// See [`Contradiction`].
    pub fn read(
        &mut self,
        seen: &[(Range<u64>, W)],
        called: u64,
        answered: u64,
    ) -> Result<(), Contradiction<W>> {
        self.so_far()?;
        if let Err(contradiction) = self.may_show(seen, called, answered) {
            self.broken = Some(contradiction);
            return self.so_far();
        }
        let added = self.add_read(seen, called, answered);
        self.judge(added)
    }

    /// Whether a write is known to have taken effect: it was answered, or a read has shown it.
    pub fn is_made(&self, write: W) -> bool {
        let known = self.writes.get(&write);
        known.is_some_and(|known| known.op.is_some())
    }

    /// When a write was called whose client knows no outcome.
    pub(crate) fn open_since(&self, write: W) -> Option<u64> {
        let known = self.writes.get(&write);
        let open = known.filter(|known| known.outcome == Outcome::Open);
        open.map(|known| known.called)
    }

    fn known(&mut self, write: W) -> &mut Write {
        let known = self.writes.get_mut(&write);
        known.expect("a write is called before its other reports")
    }

    fn so_far(&self) -> Result<(), Contradiction<W>> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    /// Checks a read by itself, without the order.
    fn may_show(
        &self,
        seen: &[(Range<u64>, W)],
        called: u64,
        answered: u64,
    ) -> Result<(), Contradiction<W>> {
        let read = Operation::Read { called, answered };
        for &(ref cells, write) in seen {
            let known = self.writes.get(&write);
            let wrote = known.map_or(&[][..], |known| known.cells.as_slice());
            if let Some(cell) = first_outside(cells, wrote) {
                return Err(Contradiction::Unwritten { read, write, cell });
            }
            match known {
                Some(known) if known.outcome == Outcome::Denied => {
                    return Err(Contradiction::Denied { read, write });
                }
                Some(known) if answered < known.called => {
                    return Err(Contradiction::Early { read, write });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The number of a write that took effect. Adds its place before or after all reads so far.
    fn take_in(&mut self, write: W) -> Result<Op, Clash> {
        let known = self.known(write);
        if let Some(op) = known.op {
            return Ok(op);
        }
        let (called, cells) = (known.called, known.cells.clone());
        let answered = match known.outcome {
            Outcome::Answered(at) | Outcome::Ended(at) => at,
            Outcome::Open | Outcome::Denied => u64::MAX,
        };
        let other = self.choices.add(called, answered);
        self.known(write).op = Some(other);
        for &read in &self.reads {
            let Effect::Read(seen) = &self.effects[read] else {
                continue;
            };
            if self.choices.order.last(read) < called {
                continue;
            }
            for (shown, cell) in common(&cells, seen) {
                self.choices.consider(Choice {
                    shown,
                    read,
                    other,
                    cell,
                })?;
            }
        }
        self.made.push(other);
        self.effects.push(Effect::Write(write, cells));
        Ok(other)
    }

    fn add_read(
        &mut self,
        seen: &[(Range<u64>, W)],
        called: u64,
        answered: u64,
    ) -> Result<(), Clash> {
        let mut pieces: Vec<(Range<u64>, Op)> = Vec::with_capacity(seen.len());
        for &(ref cells, write) in seen {
            pieces.push((cells.clone(), self.take_in(write)?));
        }
        pieces.sort_unstable_by_key(|(cells, _)| cells.start);
        let mut shown: Vec<Op> = pieces.iter().map(|&(_, write)| write).collect();
        shown.sort_unstable();
        shown.dedup();
        let read = self.choices.add(called, answered);
        let order = &mut self.choices.order;
        for &write in &shown {
            order.put_before(write, read, Why::Shown)?;
        }
        let oldest = shown.iter().map(|&write| order.first(write)).min();
        for &other in &self.made {
            let Effect::Write(_, cells) = &self.effects[other] else {
                continue;
            };
            let order = &self.choices.order;
            if Some(order.last(other)) < oldest || order.first(other) > answered {
                continue;
            }
            for (shown, cell) in common(cells, &pieces) {
                if shown != other {
                    self.choices.consider(Choice {
                        shown,
                        read,
                        other,
                        cell,
                    })?;
                }
            }
        }
        self.reads.push(read);
        self.effects.push(Effect::Read(pieces));
        Ok(())
    }

    /// Whether an order remains after an operation was added.
    fn judge(&mut self, added: Result<(), Clash>) -> Result<(), Contradiction<W>> {
        if self.broken.is_none() {
            let added = added.map_err(|clash| self.choices.circle(&clash));
            if let Err(refutation) = added.and_then(|()| self.choices.settle()) {
                self.broken = Some(self.in_words(refutation));
            }
        }
        self.so_far()
    }

    fn operation(&self, op: Op) -> Operation<W> {
        if let Some(&Effect::Write(write, _)) = self.effects.get(op) {
            return Operation::Write(write);
        }
        // The operation being added is a write with a number, or else a read.
        let is_it = |(_, write): &(&W, &Write)| write.op == Some(op);
        let (called, answered) = self.choices.order.span(op);
        let read = Operation::Read { called, answered };
        let write = self.writes.iter().find(is_it);
        write.map_or(read, |(&write, _)| Operation::Write(write))
    }

    fn write_of(&self, op: Op) -> W {
        match self.operation(op) {
            Operation::Write(write) => write,
            Operation::Read { .. } => unreachable!("only writes are shown and replaced"),
        }
    }

    fn in_words(&self, refutation: Refutation) -> Contradiction<W> {
        match refutation {
            Refutation::Circle(circle) => Contradiction::Circle(self.circle(&circle)),
            Refutation::NoSide([write, shown, read], [older, newer]) => Contradiction::NoSide {
                write: self.write_of(write),
                shown: self.write_of(shown),
                read: self.operation(read),
                older: self.circle(&older),
                newer: self.circle(&newer),
            },
            Refutation::NoOrder(operations) => {
                let named = operations.into_iter().map(|op| self.operation(op));
                Contradiction::NoOrder(named.collect())
            }
        }
    }

    fn circle(&self, steps: &[(Op, Option<Why>)]) -> Circle<W> {
        let reason = |why| match why {
            None => Reason::Answered,
            Some(Why::Shown) => Reason::Shown,
            Some(Why::Replaced(shown, cell)) => Reason::Replaced {
                shown: self.write_of(shown),
                cell,
            },
            Some(Why::Hidden(read, cell)) => Reason::Hidden {
                read: self.operation(read),
                cell,
            },
        };
        let steps = steps.iter();
        let named = steps.map(|&(op, why)| (self.operation(op), reason(why)));
        Circle(named.collect())
    }
}

/// The first cell of a range that is outside the others, which are sorted.
fn first_outside(cells: &Range<u64>, others: &[Range<u64>]) -> Option<u64> {
    let mut next = cells.start;
    for other in others {
        if other.contains(&next) {
            next = other.end;
        }
    }
    (next < cells.end).then_some(next)
}

/// The writes shown in any of the given cells, each with the first of these. Both are sorted.
fn common(cells: &[Range<u64>], seen: &[(Range<u64>, Op)]) -> Vec<(Op, u64)> {
    let mut found: Vec<(Op, u64)> = Vec::new();
    for range in cells {
        let from = seen.partition_point(|(shown, _)| shown.end <= range.start);
        let overlapping = seen[from..].iter();
        for &(ref shown, write) in overlapping.take_while(|(shown, _)| shown.start < range.end) {
            if found.iter().all(|&(known, _)| known != write) {
                found.push((write, shown.start.max(range.start)));
            }
        }
    }
    found
}
