//! The record of all clients and the fault driver: operations with their times, gaps, faults.
//!
//! All times are of this process's monotonic clock.

use crate::cells::OperationId;
use crate::history::{History, Instant, Observation};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Kinds of operations.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    Read,
    /// Reads that waited for a layout, because another client had replaced their stripe since the last one.
    Replaced,
    /// A write within one stripe, or by a cache.
    Write,
    /// Operations that wait for the coordinator: writes across a border of stripes, and openings.
    Coordinated,
}

impl Kind {
    const fn noun(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Replaced => "read of a replaced stripe",
            Self::Write | Self::Coordinated => "write",
        }
    }

    /// The goal of gaps after a single failure, in microseconds; none where clients wait for the coordinator.
    pub(crate) const fn goal_us(self) -> Option<u64> {
        match self {
            Self::Read | Self::Replaced => Some(1_000_000),
            Self::Write => Some(5_000_000),
            Self::Coordinated => None,
        }
    }
}

/// A time during which a client waited for an operation of one kind to succeed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap {
    pub(crate) kind: Kind,
    pub(crate) from: Instant,
    pub(crate) to: Instant,
}

/// Operations that clients have made.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counts {
    pub(crate) read: u64,
    pub(crate) written: u64,
    /// Puts, removals, listings and gets of whole files.
    pub(crate) named: u64,
    pub(crate) failed: u64,
    /// Writes whose outcome no node remembered.
    pub(crate) forgotten: u64,
}

/// A range of cells of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) file: u32,
    pub(crate) cells: Range<u64>,
}

/// An operation under way.
#[derive(Debug)]
pub(crate) struct UnderWay {
    pub(crate) operation: OperationId,
    client: u32,
    kind: Kind,
    pub(crate) span: Span,
    started: Instant,
    is_cached: bool,
}

#[derive(Debug, Default)]
struct State {
    histories: Vec<History>,
    next_operation: u64,
    /// Since when each client waits for a success.
    waiting: BTreeMap<(u32, Kind), Instant>,
    gaps: Vec<Gap>,
    counts: Counts,
    /// The last message of failed operations, with their number.
    errors: BTreeMap<String, u64>,
    broken: Option<String>,
}

/// Shorter gaps are not kept.
const GAP_MIN_US: u64 = 50_000;
/// A read that fails after more than this time is printed.
const SAID_US: u64 = 1_000_000;
/// Time in which a write may still take effect after its client has left it: a minute, plus the delay of a stopped
/// process.
const LEFT_US: u64 = 90_000_000;
/// Most different messages kept.
const ERRORS_MAX: usize = 40;

/// The record of an episode.
#[derive(Debug)]
pub(crate) struct Recorder {
    since: std::time::Instant,
    state: Mutex<State>,
}

/// The part of the record for the report.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) counts: Counts,
    pub(crate) gaps: Vec<Gap>,
    pub(crate) errors: BTreeMap<String, u64>,
}

impl UnderWay {
    /// Moves the start back: a cache returns the bytes, and each cell may be as of any instant
    /// since then.
    pub(crate) fn since(mut self, started: Instant) -> Self {
        self.started = self.started.min(started);
        self.is_cached = true;
        self
    }
}

impl Recorder {
    pub(crate) fn new() -> Self {
        let state = State {
            next_operation: 1,
            ..State::default()
        };
        Self {
            since: std::time::Instant::now(),
            state: Mutex::new(state),
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.since.elapsed().as_micros() as Instant
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a file that was stored before this call. `block_cells` of it are atomic.
    pub(crate) fn add_file(&self, cell_count: u64, block_cells: u64) {
        let stored = self.now();
        let mut state = self.state();
        let file = state.histories.len() as u32;
        let history = History::new(file, cell_count, block_cells, stored);
        state.histories.push(history);
    }

    /// Notes that an operation begins.
    pub(crate) fn begin(&self, client: u32, kind: Kind, span: Span) -> UnderWay {
        let mut state = self.state();
        let operation = OperationId(state.next_operation);
        state.next_operation += 1;
        let started = self.now();
        if kind != Kind::Read {
            let history = &mut state.histories[span.file as usize];
            history.begin_write(client, operation, span.cells.clone(), started);
        }
        state.waiting.entry((client, kind)).or_insert(started);
        UnderWay {
            operation,
            client,
            kind,
            span,
            started,
            is_cached: false,
        }
    }

    /// Notes the bytes that a read found, and whether its stripes were others than the client knew as it began.
    pub(crate) fn found(&self, read: &UnderWay, bytes: &[u8], is_replaced: bool) {
        let ended = self.now();
        let mut state = self.state();
        let seen = Observation {
            client: read.client,
            started: read.started,
            ended,
            first_cell: read.span.cells.start,
            bytes,
            is_cached: read.is_cached,
        };
        if let Err(violation) = state.histories[read.span.file as usize].read(&seen) {
            state.note_broken(violation.to_string());
        }
        state.counts.read += 1;
        let ends = if is_replaced {
            Kind::Replaced
        } else {
            Kind::Read
        };
        if let Some(gap) = state.succeeded(read.client, (Kind::Read, ends), ended) {
            say_late(&gap, read);
        }
    }

    /// Notes that a write was acknowledged.
    pub(crate) fn acknowledged(&self, write: &UnderWay) {
        let ended = self.now();
        let mut state = self.state();
        let history = &mut state.histories[write.span.file as usize];
        let noted = history.acknowledged(write.operation, ended);
        if let Err(violation) = noted {
            state.note_broken(violation.to_string());
        }
        state.counts.written += 1;
        if let Some(gap) = state.succeeded(write.client, (write.kind, write.kind), ended) {
            say_late(&gap, write);
        }
    }

    /// Notes that a write has failed: for good, or such that it may still take effect for a minute.
    pub(crate) fn write_failed(&self, write: &UnderWay, is_over: bool) {
        let ended = self.now();
        let mut state = self.state();
        let history = &mut state.histories[write.span.file as usize];
        if !is_over {
            history.left(write.operation, ended + LEFT_US);
        } else if let Err(violation) = history.ended(write.operation, ended) {
            state.note_broken(violation.to_string());
        }
    }

    /// Notes that a client waits for a file to open.
    pub(crate) fn opens(&self, client: u32) {
        let now = self.now();
        let mut state = self.state();
        let waiting = state.waiting.entry((client, Kind::Coordinated));
        waiting.or_insert(now);
    }

    /// Notes that the file is open.
    pub(crate) fn opened(&self, client: u32) {
        let now = self.now();
        let kind = Kind::Coordinated;
        self.state().succeeded(client, (kind, kind), now);
    }

    /// Notes that an operation failed; a write may still take effect.
    pub(crate) fn failed(&self, operation: &UnderWay, error: &str) {
        let (kind, ms) = (operation.kind, (self.now() - operation.started) / 1000);
        if kind == Kind::Read && self.now() - operation.started > SAID_US {
            let (client, now) = (operation.client, self.now() as f64 / 1e6);
            eprintln!("{now:>9.3} s  a read of client {client} fails after {ms} ms: {error}");
        }
        self.note_error(&format!("{kind:?}: {error} (after {ms} ms)"));
    }

    /// Notes the message of a failed operation.
    pub(crate) fn note_error(&self, error: &str) {
        let mut state = self.state();
        state.counts.failed += 1;
        state.counts.forgotten += u64::from(error.contains("no node remembers"));
        // Messages that differ in numbers only are joined.
        let sentence: String = error
            .chars()
            .map(|c| if c.is_ascii_digit() { '#' } else { c })
            .collect();
        let is_known = state.errors.contains_key(&sentence);
        if is_known || state.errors.len() < ERRORS_MAX {
            *state.errors.entry(sentence).or_default() += 1;
        }
    }

    /// Notes an operation on a whole file that succeeded.
    pub(crate) fn named(&self) {
        self.state().counts.named += 1;
    }

    /// Notes a violated guarantee; the first one counts.
    pub(crate) fn broken(&self, what: String) {
        self.state().note_broken(what);
    }

    /// Checks the record so far.
    ///
    /// # Errors
    /// The first violated guarantee, in words.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.state().broken.clone().map_or(Ok(()), Err)
    }

    /// Ends the record; open waits end now.
    pub(crate) fn finish(&self) -> Recorded {
        let now = self.now();
        let mut state = self.state();
        let waiting = std::mem::take(&mut state.waiting);
        for ((client, kind), _) in waiting.clone() {
            state.waiting.clone_from(&waiting);
            state.succeeded(client, (kind, kind), now);
        }
        state.waiting.clear();
        Recorded {
            counts: state.counts,
            gaps: state.gaps.clone(),
            errors: state.errors.clone(),
        }
    }

    /// Number of operations begun.
    pub(crate) fn operation_count(&self) -> u64 {
        self.state().next_operation - 1
    }
}

/// Prints a gap that is longer than its goal.
fn say_late(gap: &Gap, last: &UnderWay) {
    let waited_us = gap.to - gap.from;
    if gap
        .kind
        .goal_us()
        .is_some_and(|goal_us| waited_us > goal_us)
    {
        eprintln!(
            "{:>9.3} s  client {} has waited {:.2} s for a {} of file {}, cells {} to {}",
            gap.to as f64 / 1e6,
            last.client,
            waited_us as f64 / 1e6,
            gap.kind.noun(),
            last.span.file,
            last.span.cells.start,
            last.span.cells.end - 1
        );
    }
}

impl State {
    /// Notes the gap that a success ends: of operations that began as one kind, and are counted as another. Returns it
    /// if it is worth keeping.
    fn succeeded(&mut self, client: u32, (began, kind): (Kind, Kind), to: Instant) -> Option<Gap> {
        let from = self.waiting.remove(&(client, began)).unwrap_or(to);
        let gap = Gap { kind, from, to };
        (to - from >= GAP_MIN_US).then(|| {
            self.gaps.push(gap);
            gap
        })
    }

    fn note_broken(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_write_is_found_through_the_recorder() {
        let recorder = Recorder::new();
        recorder.add_file(4, 4);
        let span = |cells| Span { file: 0, cells };
        let write = recorder.begin(1, Kind::Write, span(1..3));
        recorder.acknowledged(&write);
        assert_eq!(recorder.check(), Ok(()));
        std::thread::sleep(std::time::Duration::from_micros(10));
        let read = recorder.begin(2, Kind::Read, span(0..4));
        std::thread::sleep(std::time::Duration::from_micros(10));
        recorder.found(
            &read,
            &crate::cells::fill(0, 0, OperationId(0), 0, 4),
            false,
        );
        let found = recorder.check().expect_err("the write is lost");
        assert!(found.contains("file 0, cell 1"), "{found}");
    }
}
