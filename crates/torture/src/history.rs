//! What clients saw of one file, and whether it can be: linearizability of each cell by real time.
//!
//! Each cell is a register whose writes have distinct contents: `gabion_history` judges it. Here is what bytes a
//! write has, and what people are told when no order of the operations explains what was read.

use crate::cells::{CELL_BYTES, Cell, OperationId, place};
use gabion_history::{Register, RegisterContradiction as Contradiction};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use thiserror::Error;

/// Reads of a cell that its history keeps for people to read.
const READS_KEPT: usize = 40;

/// An instant in microseconds since the start.
pub(crate) type Instant = u64;

/// Clients saw what no order of their operations explains.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("file {file}, cell {cell}: {what}\n{history}")]
pub(crate) struct Violation {
    file: u32,
    cell: u64,
    what: String,
    /// The cell's writes and its last reads, a line each.
    history: String,
}

#[derive(Clone, Debug, Default)]
struct CellHistory {
    register: Register<OperationId>,
    /// The client of each write, and when it was acknowledged.
    writes: BTreeMap<OperationId, (u32, Option<Instant>)>,
    reads: Vec<(u32, Instant, Instant, OperationId)>,
}

/// All operations on one file.
#[derive(Clone, Debug)]
pub(crate) struct History {
    file: u32,
    cells: Vec<CellHistory>,
}

/// A finished read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observation<'a> {
    pub(crate) client: u32,
    pub(crate) started: Instant,
    pub(crate) ended: Instant,
    pub(crate) first_cell: u64,
    pub(crate) bytes: &'a [u8],
}

impl History {
    /// The history of a file that was stored by operation 0 of client 0 before `stored`.
    pub(crate) fn new(file: u32, cell_count: u64, stored: Instant) -> Self {
        let put = OperationId(0);
        let mut history = Self {
            file,
            cells: vec![CellHistory::default(); cell_count as usize],
        };
        history.begin_write(0, put, 0..cell_count, 0);
        let stored = history.acknowledged(put, 0..cell_count, stored);
        stored.expect("nothing else has happened yet");
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
        for cell in cells {
            let history = &mut self.cells[cell as usize];
            history.register.called(operation, started);
            history.writes.insert(operation, (client, None));
        }
    }

    /// Notes that a write was acknowledged.
    ///
    /// # Errors
    /// The first cell for which no order exists any more.
    pub(crate) fn acknowledged(
        &mut self,
        operation: OperationId,
        cells: Range<u64>,
        ended: Instant,
    ) -> Result<(), Violation> {
        for cell in cells {
            let history = &mut self.cells[cell as usize];
            if let Some((_, acknowledged)) = history.writes.get_mut(&operation) {
                *acknowledged = Some(ended);
            }
            let noted = history.register.acknowledged(operation, ended);
            noted.map_err(|contradiction| self.violation(cell, in_words(contradiction)))?;
        }
        Ok(())
    }

    /// Notes a read.
    ///
    /// # Errors
    /// Bytes that no write put at their place; the first cell for which no order exists any more.
    pub(crate) fn read(&mut self, seen: &Observation<'_>) -> Result<(), Violation> {
        let pieces = seen.bytes.chunks(CELL_BYTES as usize);
        for (cell, bytes) in (seen.first_cell..).zip(pieces) {
            let Some(found) = Cell::parse(bytes) else {
                let what = format!(
                    "client {} read bytes that no write made: {:02x?}...",
                    seen.client,
                    &bytes[..bytes.len().min(24)]
                );
                return Err(self.violation(cell, what));
            };
            if found.place != place(self.file, cell) {
                let what = format!(
                    "client {} read bytes of operation {} at place {:#x}, which did not write here",
                    seen.client, found.operation.0, found.place
                );
                return Err(self.violation(cell, what));
            }
            let history = &mut self.cells[cell as usize];
            if history.reads.len() == READS_KEPT {
                history.reads.remove(0);
            }
            let read = (seen.client, seen.started, seen.ended, found.operation);
            history.reads.push(read);
            let noted = history
                .register
                .saw(found.operation, seen.started, seen.ended);
            noted.map_err(|contradiction| self.violation(cell, in_words(contradiction)))?;
        }
        Ok(())
    }

    fn violation(&self, cell: u64, what: String) -> Violation {
        let history = self.cells[cell as usize].render();
        Violation {
            file: self.file,
            cell,
            what,
            history,
        }
    }
}

fn in_words(contradiction: Contradiction<OperationId>) -> String {
    match contradiction {
        Contradiction::Unwritten(write) => {
            format!("operation {} was read, which did not write here", write.0)
        }
        Contradiction::Early(write) => format!("operation {} was read before it began", write.0),
        Contradiction::Again { one, other } => format!(
            "operation {} was there, then operation {}, then the first again",
            one.0, other.0
        ),
    }
}

impl CellHistory {
    /// The cell's writes, and its last reads.
    fn render(&self) -> String {
        let mut text = String::new();
        let seconds = |at: Instant| format!("{:.6}", at as f64 / 1e6);
        let mut line =
            |words: String| writeln!(text, "  {words}").expect("a string takes all text");
        for (id, zone) in self.register.zones() {
            let (client, acknowledged) = self.writes.get(&id).copied().unwrap_or_default();
            let ended = acknowledged.map_or_else(
                || "without an acknowledgement".to_owned(),
                |ended| format!("acknowledged {} s", seconds(ended)),
            );
            let was_seen = zone.first_answer < acknowledged.unwrap_or(Instant::MAX)
                || zone.last_call > zone.written_from;
            let seen = was_seen.then(|| {
                format!(
                    "; its zone is from {} to {} s",
                    seconds(zone.first_answer),
                    seconds(zone.last_call)
                )
            });
            line(format!(
                "write {} of client {client}: started {} s, {ended}{}",
                id.0,
                seconds(zone.written_from),
                seen.unwrap_or_default()
            ));
        }
        for &(client, started, ended, found) in &self.reads {
            line(format!(
                "read of client {client}: {} to {} s found {}",
                seconds(started),
                seconds(ended),
                found.0
            ));
        }
        text
    }
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
        })
    }

    #[test]
    fn a_lost_write_is_told_with_all_that_was_done_to_its_cell() {
        let mut history = History::new(0, 1, 1);
        let write = OperationId(7);
        history.begin_write(1, write, 0..1, 10);
        assert_eq!(history.acknowledged(write, 0..1, 20), Ok(()));
        let found = read(&mut history, &fill(0, 0, OperationId(0), 0, 1), 30);
        assert_eq!(
            found.expect_err("it is lost").to_string(),
            "file 0, cell 0: operation 0 was there, then operation 7, then the first again\n  \
             write 0 of client 0: started 0.000000 s, acknowledged 0.000001 s\n  \
             write 7 of client 1: started 0.000010 s, acknowledged 0.000020 s\n  \
             read of client 2: 0.000030 to 0.000031 s found 0\n"
        );
    }

    #[test]
    fn bytes_of_another_place_and_garbage_are_refused() {
        let mut history = History::new(0, 2, 1);
        let mut seen = |bytes: &[u8]| read(&mut history, bytes, 2);
        assert!(seen(&fill(0, 0, OperationId(0), 1, 1)).is_err());
        assert!(seen(&fill(1, 0, OperationId(0), 0, 1)).is_err());
        assert!(seen(&fill(0, 1, OperationId(5), 0, 1)).is_err());
        assert!(seen(&[0; 512]).is_err());
        assert_eq!(seen(&fill(0, 0, OperationId(0), 0, 2)), Ok(()));
    }
}
