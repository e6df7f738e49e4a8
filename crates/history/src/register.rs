//! One register: a cell of a file, each of whose writes brings a value of its own.
//!
//! So a read names the write that it shows, and the question is decided value by value (Gibbons and Korach,
//! "Testing shared memories", 1997, section 5). The *zone* of a value reaches from the earliest answer of an
//! operation that wrote or read it to the latest call of one. Of two values one comes first if an operation with it
//! was answered before one with the other was called. The register is linearizable if and only if no two values come
//! before each other, and no value was read before it was written. In the paper's words: no two forward zones
//! overlap, and no backward zone lies within a forward one.
//!
//! - A write that was acknowledged took effect once, between its call and its answer.
//! - A write that was not may take effect at any time after its call, once, or never.
//!
//! Zones only grow. So it does not matter in which order operations that have ended are told, and a contradiction
//! is found with the operation that completes it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use thiserror::Error;

/// What cannot have happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Contradiction<W: Debug> {
    /// A value that no write brought here.
    #[error("{0:?} was not written here")]
    Unwritten(W),
    /// A read was answered with a value before the write of it was called.
    #[error("{0:?} was there before it was written")]
    Early(W),
    /// Two values come before each other.
    #[error("there was {one:?}, then {other:?}, then {one:?} again")]
    Again {
        /// The value that the last operation wrote or read.
        one: W,
        /// The other.
        other: W,
    },
}

/// What is known of when a value was there. Times are of one clock, whatever its unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Zone {
    /// When its write was called.
    pub written_from: u64,
    /// The first answer of an operation with it; `u64::MAX` while there is none.
    pub first_answer: u64,
    /// The last call of an operation with it.
    pub last_call: u64,
}

impl Zone {
    /// Whether an operation with this value was answered before one with the other was called.
    pub fn is_before(&self, other: &Self) -> bool {
        self.first_answer < other.last_call
    }

    /// The zone after one more operation with the value.
    fn with(self, called: u64, answered: u64) -> Self {
        Self {
            written_from: self.written_from,
            first_answer: self.first_answer.min(answered),
            last_call: self.last_call.max(called),
        }
    }
}

/// The writes of one register, and what was seen of them.
#[derive(Clone, Debug)]
pub struct Register<W> {
    zones: BTreeMap<W, Zone>,
}

impl<W> Default for Register<W> {
    fn default() -> Self {
        let zones = BTreeMap::new();
        Self { zones }
    }
}

impl<W: Copy + Ord + Debug> Register<W> {
    /// A write is called, before any read can show it.
    ///
    /// # Panics
    /// When it was called before: no two writes bring the same value.
    pub fn called(&mut self, write: W, now: u64) {
        let zone = Zone {
            written_from: now,
            first_answer: u64::MAX,
            last_call: now,
        };
        let known = self.zones.insert(write, zone);
        assert!(known.is_none(), "{write:?} is called once");
    }

    /// A write was acknowledged.
    ///
    /// # Errors
    /// See [`Contradiction`].
    pub fn acknowledged(&mut self, write: W, now: u64) -> Result<(), Contradiction<W>> {
        // The call is part of the zone already.
        self.saw(write, 0, now)
    }

    /// A read was answered with a value.
    ///
    /// # Errors
    /// See [`Contradiction`].
    pub fn saw(&mut self, write: W, called: u64, answered: u64) -> Result<(), Contradiction<W>> {
        let zone = self.after(write, called, answered)?;
        self.zones.insert(write, zone);
        Ok(())
    }

    /// The zone of a value if a read between these times shows it; nothing is noted.
    ///
    /// # Errors
    /// See [`Contradiction`].
    pub fn after(&self, write: W, called: u64, answered: u64) -> Result<Zone, Contradiction<W>> {
        let Some(zone) = self.zones.get(&write) else {
            return Err(Contradiction::Unwritten(write));
        };
        if answered < zone.written_from {
            return Err(Contradiction::Early(write));
        }
        let zone = zone.with(called, answered);
        let is_circle = |(value, other): &(&W, &Zone)| {
            **value != write && zone.is_before(other) && other.is_before(&zone)
        };
        match self.zones.iter().find(is_circle) {
            None => Ok(zone),
            Some((&other, _)) => Err(Contradiction::Again { one: write, other }),
        }
    }

    /// The zones of all values that were written.
    pub fn zones(&self) -> impl Iterator<Item = (W, &Zone)> {
        self.zones.iter().map(|(&write, zone)| (write, zone))
    }
}
