//! The clients' view of one file, checked for linearizability of its blocks by real time.
//!
//! Each write has unique contents; `gabion_history` judges the writes that reads show. This file
//! maps bytes to writes, and explains a contradiction to the user.

use crate::cells::{CELL_BYTES, Cell, OperationId, place};
use gabion_history::{Blocks, Contradiction};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::ops::Range;
use thiserror::Error;

/// Reads of a file that its history keeps for messages.
const READS_KEPT: usize = 1_000;

/// An instant in microseconds since the start.
pub(crate) type Instant = u64;

/// The clients' view is not linearizable.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("file {file}, cell {cell}: {what}\n{history}")]
pub(crate) struct Violation {
    file: u32,
    cell: u64,
    what: String,
    /// The cell's writes, those that the newest read shows beside it, and its last reads, a line each.
    history: String,
}

/// A write in a message.
#[derive(Clone, Debug)]
struct Written {
    client: u32,
    cells: Range<u64>,
    started: Instant,
    /// When it was acknowledged, if ever.
    acknowledged: Option<Instant>,
}

/// A read in a message.
#[derive(Clone, Debug)]
struct Shown {
    client: u32,
    started: Instant,
    ended: Instant,
    runs: Vec<(Range<u64>, OperationId)>,
}

/// All operations on one file.
#[derive(Clone, Debug)]
pub(crate) struct History {
    file: u32,
    blocks: Blocks<OperationId>,
    writes: BTreeMap<OperationId, Written>,
    reads: VecDeque<Shown>,
}

/// A finished read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observation<'a> {
    pub(crate) client: u32,
    pub(crate) started: Instant,
    pub(crate) ended: Instant,
    pub(crate) first_cell: u64,
    pub(crate) bytes: &'a [u8],
    /// Whether each cell may be as of its own instant, since they come from a cache.
    pub(crate) is_cached: bool,
}

impl History {
    /// The history of a file that was stored by operation 0 of client 0 before `stored`.
    pub(crate) fn new(file: u32, cell_count: u64, block_cells: u64, stored: Instant) -> Self {
        let put = OperationId(0);
        let mut history = Self {
            file,
            blocks: Blocks::new(block_cells),
            writes: BTreeMap::new(),
            reads: VecDeque::new(),
        };
        history.begin_write(0, put, 0..cell_count, 0);
        let stored = history.acknowledged(put, stored);
        stored.expect("the first operation is valid");
        history
    }

    /// Notes a write before its first byte leaves the client.
    pub(crate) fn begin_write(
        &mut self,
        client: u32,
        operation: OperationId,
        cells: Range<u64>,
        started: Instant,
    ) {
        let ranges = std::slice::from_ref(&cells);
        self.blocks.called(operation, ranges, started);
        let written = Written {
            client,
            cells,
            started,
            acknowledged: None,
        };
        self.writes.insert(operation, written);
    }

    /// Notes that a write was acknowledged.
    ///
    /// # Errors
    /// A contradiction, if no order explains all operations.
    pub(crate) fn acknowledged(
        &mut self,
        operation: OperationId,
        ended: Instant,
    ) -> Result<(), Violation> {
        if let Some(written) = self.writes.get_mut(&operation) {
            written.acknowledged = Some(ended);
        }
        let noted = self.blocks.answered(operation, ended);
        noted.map_err(|why| self.violation(&why, self.first_cell(operation)))
    }

    /// Notes that a write has failed for good: it is either complete by now, or never takes effect.
    ///
    /// # Errors
    /// A contradiction, if no order explains all operations.
    pub(crate) fn ended(
        &mut self,
        operation: OperationId,
        ended: Instant,
    ) -> Result<(), Violation> {
        let noted = self.blocks.ended(operation, ended);
        noted.map_err(|why| self.violation(&why, self.first_cell(operation)))
    }

    /// Notes that a client has left a write, which may still take effect until an instant.
    pub(crate) fn left(&mut self, operation: OperationId, until: Instant) {
        self.blocks.left(operation, until);
    }

    /// Notes a read.
    ///
    /// # Errors
    /// Bytes that no write put at their place; or a contradiction, if no order explains all
    /// operations.
    pub(crate) fn read(&mut self, seen: &Observation<'_>) -> Result<(), Violation> {
        let runs = self.runs(seen)?;
        if self.reads.len() == READS_KEPT {
            self.reads.pop_front();
        }
        self.reads.push_back(Shown {
            client: seen.client,
            started: seen.started,
            ended: seen.ended,
            runs: runs.clone(),
        });
        let reads: Vec<&[_]> = if seen.is_cached {
            runs.chunks(1).collect()
        } else {
            vec![&runs]
        };
        for read in reads {
            let noted = self.blocks.read(read, seen.started, seen.ended);
            noted.map_err(|why| self.violation(&why, seen.first_cell))?;
        }
        Ok(())
    }

    /// The writes that a read shows; adjacent cells in one piece unless they may be of different
    /// instants.
    fn runs(&self, seen: &Observation<'_>) -> Result<Vec<(Range<u64>, OperationId)>, Violation> {
        let mut runs: Vec<(Range<u64>, OperationId)> = Vec::new();
        let pieces = seen.bytes.chunks(CELL_BYTES as usize);
        for (cell, bytes) in (seen.first_cell..).zip(pieces) {
            let garbage = |what| Err(self.told(cell, what));
            let Some(found) = Cell::parse(bytes) else {
                return garbage(format!(
                    "client {} read bytes that no write made: {:02x?}...",
                    seen.client,
                    &bytes[..bytes.len().min(24)]
                ));
            };
            if found.place != place(self.file, cell) {
                return garbage(format!(
                    "client {} read bytes of operation {} at place {:#x}, which did not write here",
                    seen.client, found.operation.0, found.place
                ));
            }
            match runs.last_mut() {
                Some((range, last)) if !seen.is_cached && *last == found.operation => {
                    range.end = cell + 1;
                }
                _ => runs.push((cell..cell + 1, found.operation)),
            }
        }
        Ok(runs)
    }

    fn first_cell(&self, operation: OperationId) -> u64 {
        let written = self.writes.get(&operation);
        written.map_or(0, |written| written.cells.start)
    }

    /// A contradiction, with the operations on the cell that shows it, or else on another.
    fn violation(&self, why: &Contradiction<OperationId>, or_else: u64) -> Violation {
        self.told(why.cell().unwrap_or(or_else), why.to_string())
    }

    fn told(&self, cell: u64, what: String) -> Violation {
        Violation {
            file: self.file,
            cell,
            what,
            history: self.render(cell),
        }
    }

    /// A cell's writes, those that the newest read shows beside it, and the cell's last reads.
    fn render(&self, cell: u64) -> String {
        let mut text = String::new();
        let seconds = |at: Instant| format!("{:.6}", at as f64 / 1e6);
        let mut line =
            |words: String| writeln!(text, "  {words}").expect("a string takes all text");
        let newest = self.reads.back();
        let is_beside = |id: &OperationId| {
            newest.is_some_and(|read| read.runs.iter().any(|(_, shown)| shown == id))
        };
        let is_here = |(id, written): &(&OperationId, &Written)| {
            written.cells.contains(&cell) || is_beside(id)
        };
        for (id, written) in self.writes.iter().filter(is_here) {
            let ended = written.acknowledged.map_or_else(
                || "without an acknowledgement".to_owned(),
                |ended| format!("acknowledged {} s", seconds(ended)),
            );
            line(format!(
                "write {} of client {}, cells {:?}: started {} s, {ended}",
                id.0,
                written.client,
                written.cells,
                seconds(written.started),
            ));
        }
        for read in &self.reads {
            let mut runs = read.runs.iter();
            if let Some((_, found)) = runs.find(|(cells, _)| cells.contains(&cell)) {
                line(format!(
                    "read of client {}: {} to {} s found {}, in all {}",
                    read.client,
                    seconds(read.started),
                    seconds(read.ended),
                    found.0,
                    shown(&read.runs),
                ));
            }
        }
        text
    }
}

/// The writes that a read shows, by cells.
fn shown(runs: &[(Range<u64>, OperationId)]) -> String {
    let runs = runs
        .iter()
        .map(|(cells, found)| format!("{cells:?}: {}", found.0));
    runs.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::fill;

    fn read(history: &mut History, bytes: &[u8], started: Instant) -> Result<(), Violation> {
        history.read(&Observation {
            client: 2,
            started,
            ended: started + 1,
            first_cell: 0,
            bytes,
            is_cached: false,
        })
    }

    #[test]
    fn a_lost_write_is_reported_with_all_operations_on_its_cell() {
        let mut history = History::new(0, 1, 1, 1);
        let write = OperationId(7);
        history.begin_write(1, write, 0..1, 10);
        assert_eq!(history.acknowledged(write, 20), Ok(()));
        let found = read(&mut history, &fill(0, 0, OperationId(0), 0, 1), 30);
        assert_eq!(
            found.expect_err("it is lost").to_string(),
            "file 0, cell 0: write OperationId(7) comes before the read from 30 to 31 (answered before that was \
             called); the read from 30 to 31 before write OperationId(7) (which replaced the OperationId(0) that it \
             shows in cell 0)\n  \
             write 0 of client 0, cells 0..1: started 0.000000 s, acknowledged 0.000001 s\n  \
             write 7 of client 1, cells 0..1: started 0.000010 s, acknowledged 0.000020 s\n  \
             read of client 2: 0.000030 to 0.000031 s found 0, in all 0..1: 0\n"
        );
    }

    #[test]
    fn bytes_of_another_place_and_garbage_are_refused() {
        let seen = |bytes: &[u8]| read(&mut History::new(0, 2, 2, 1), bytes, 2);
        assert!(seen(&fill(0, 0, OperationId(0), 1, 1)).is_err());
        assert!(seen(&fill(1, 0, OperationId(0), 0, 1)).is_err());
        assert!(seen(&fill(0, 1, OperationId(5), 0, 1)).is_err());
        assert!(seen(&[0; 512]).is_err());
        assert_eq!(seen(&fill(0, 0, OperationId(0), 0, 2)), Ok(()));
    }

    #[test]
    fn a_read_that_shows_half_of_a_write_is_refused_unless_a_cache_brought_it() {
        for (is_cached, is_fine) in [(false, false), (true, true)] {
            let mut history = History::new(0, 2, 2, 1);
            history.begin_write(1, OperationId(7), 0..2, 10);
            let mut bytes = fill(0, 1, OperationId(7), 0, 1);
            bytes.extend(fill(0, 0, OperationId(0), 1, 1));
            let found = history.read(&Observation {
                client: 2,
                started: 5,
                ended: 20,
                first_cell: 0,
                bytes: &bytes,
                is_cached,
            });
            assert_eq!(found.is_ok(), is_fine, "{found:?}");
        }
    }
}
