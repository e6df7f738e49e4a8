//! Events of a simulation that are due at known times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The owner's name for a flow or timer, which it gets back when that is due.
pub type Token = u64;

/// A timer or a slot that is due.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Due {
    /// A timer of the owner's.
    Timer(Token),
    /// A flow's slot.
    Slot(u32),
}

/// Timers by time, and of those at one time in the order in which they were set.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    entries: BinaryHeap<Reverse<(u64, u64, Due)>>,
    set_count: u64,
}

impl Agenda {
    pub(super) fn set(&mut self, at_ns: u64, due: Due) {
        self.entries.push(Reverse((at_ns, self.set_count, due)));
        self.set_count += 1;
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        self.entries.peek().map(|Reverse((at_ns, ..))| *at_ns)
    }

    pub(super) fn take(&mut self) -> Option<(u64, Due)> {
        self.entries
            .pop()
            .map(|Reverse((at_ns, _, due))| (at_ns, due))
    }
}
