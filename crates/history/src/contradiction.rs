//! Contradictions between reports, and their explanation.

use std::fmt::{Debug, Display, Formatter, Result as Written};
use thiserror::Error;

/// An operation in a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Operation<W> {
    /// A write.
    Write(W),
    /// A read.
    Read {
        /// When it was called.
        called: u64,
        /// When it was answered.
        answered: u64,
    },
}

/// Grounds on which an operation must come before another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason<W> {
    /// It was answered before the other was called.
    Answered,
    /// The other, a read, shows it.
    Shown,
    /// It is a read and shows, in this cell, an earlier write than the other.
    Replaced {
        /// The write that it shows.
        shown: W,
        /// The cell.
        cell: u64,
    },
    /// This read comes after it, and shows the other in this cell, which both wrote.
    Hidden {
        /// The read.
        read: Operation<W>,
        /// The cell.
        cell: u64,
    },
}

/// Operations each of which must come before the next one, and the last before the first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Circle<W>(pub Vec<(Operation<W>, Reason<W>)>);

/// Reports of clients that contradict each other.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Contradiction<W: Debug> {
    /// A read shows a write in a cell that the write did not cover.
    #[error("{read} shows write {write:?} in cell {cell}, but this write did not write the cell")]
    Unwritten {
        /// The read.
        read: Operation<W>,
        /// The write.
        write: W,
        /// The cell.
        cell: u64,
    },
    /// A read was answered before the write that it shows was called.
    #[error("{read} shows write {write:?} before it was called")]
    Early {
        /// The read.
        read: Operation<W>,
        /// The write.
        write: W,
    },
    /// A read shows a write although its client was told that it did not take effect.
    #[error("{read} shows write {write:?}, but its client learned that it did not take effect")]
    Denied {
        /// The read.
        read: Operation<W>,
        /// The write.
        write: W,
    },
    /// Operations must come before each other.
    #[error("{0}")]
    Circle(Circle<W>),
    /// A write can come neither before the write that a read shows nor after the read.
    #[error(
        "write {write:?} is neither before write {shown:?} nor after {read}, which shows {shown:?}: before it, \
        {older}; after it, {newer}"
    )]
    NoSide {
        /// The write.
        write: W,
        /// The write that the read shows.
        shown: W,
        /// The read.
        read: Operation<W>,
        /// The contradiction if it came before.
        older: Circle<W>,
        /// The contradiction if it came after.
        newer: Circle<W>,
    },
    /// Every combination of choices leads to a cycle, for more than one reason.
    #[error("no order explains {}", list(.0))]
    NoOrder(Vec<Operation<W>>),
}

impl<W: Debug> Contradiction<W> {
    /// A cell that shows it, if it concerns cells.
    pub fn cell(&self) -> Option<u64> {
        match self {
            Self::Unwritten { cell, .. } => Some(*cell),
            Self::Circle(circle) => circle.cell(),
            Self::NoSide { older, newer, .. } => older.cell().or(newer.cell()),
            Self::Early { .. } | Self::Denied { .. } | Self::NoOrder(_) => None,
        }
    }
}

impl<W> Circle<W> {
    fn cell(&self) -> Option<u64> {
        let mut reasons = self.0.iter().map(|(_, reason)| reason);
        reasons.find_map(|reason| match reason {
            Reason::Replaced { cell, .. } | Reason::Hidden { cell, .. } => Some(*cell),
            Reason::Answered | Reason::Shown => None,
        })
    }
}

impl<W: Debug> Display for Operation<W> {
    fn fmt(&self, to: &mut Formatter<'_>) -> Written {
        match self {
            Self::Write(write) => write!(to, "write {write:?}"),
            Self::Read { called, answered } => write!(to, "the read from {called} to {answered}"),
        }
    }
}

impl<W: Debug> Display for Reason<W> {
    fn fmt(&self, to: &mut Formatter<'_>) -> Written {
        match self {
            Self::Answered => write!(to, "answered before that was called"),
            Self::Shown => write!(to, "which shows it"),
            Self::Replaced { shown, cell } => {
                write!(
                    to,
                    "which replaced the {shown:?} that it shows in cell {cell}"
                )
            }
            Self::Hidden { read, cell } => {
                write!(to, "which {read} shows in cell {cell} after both")
            }
        }
    }
}

impl<W: Debug> Display for Circle<W> {
    fn fmt(&self, to: &mut Formatter<'_>) -> Written {
        let Self(steps) = self;
        for (at, (operation, reason)) in steps.iter().enumerate() {
            let (next, _) = &steps[(at + 1) % steps.len()];
            let (verb, start) = if at == 0 {
                ("comes before", "")
            } else {
                ("before", "; ")
            };
            write!(to, "{start}{operation} {verb} {next} ({reason})")?;
        }
        Ok(())
    }
}

fn list<W: Debug>(operations: &[Operation<W>]) -> String {
    let words: Vec<String> = operations.iter().map(ToString::to_string).collect();
    words.join(", ")
}
