//! What clients saw of one file, and whether it can be: linearizability of each cell by real time.
//!
//! Each cell is a register whose writes have distinct contents. For such registers Gibbons and
//! Korach's *Testing Shared Memories* (1997, section 5) gives a test that is exact and fast. A write
//! and its reads form a *zone*, from the first end among them to the last start. If the first end is
//! earlier, the write stands during the whole zone (a *forward* zone); otherwise it stands at some
//! instant of it (a *backward* zone). An order exists if and only if no two forward zones overlap and
//! no backward zone lies within a forward one.
//!
//! A write without an acknowledgement has no end: it may take effect at any later time, once, or
//! never. So it counts only if it was read.

use crate::cells::{CELL_BYTES, Cell, OperationId, place};
use std::collections::{BTreeMap, BTreeSet};
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

/// A write to one cell, with what was read of it.
#[derive(Clone, Debug)]
struct Zone {
    client: u32,
    started: Instant,
    /// When it was acknowledged.
    ended: Option<Instant>,
    first_read_end: Option<Instant>,
    last_read_start: Option<Instant>,
    read_count: u64,
}

impl Zone {
    /// The first end and the last start; none when it need not have taken effect.
    fn bounds(&self) -> Option<(Instant, Instant)> {
        let ends = self.ended.into_iter().chain(self.first_read_end);
        let first_end = ends.min()?;
        let last_start = self.started.max(self.last_read_start.unwrap_or(0));
        Some((first_end, last_start))
    }
}

#[derive(Clone, Debug, Default)]
struct CellHistory {
    zones: BTreeMap<OperationId, Zone>,
    reads: Vec<(u32, Instant, Instant, OperationId)>,
}

/// All operations on one file.
#[derive(Clone, Debug)]
pub(crate) struct History {
    file: u32,
    cells: Vec<CellHistory>,
    /// Cells with operations since the last check.
    unchecked: BTreeSet<u64>,
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
        let zone = Zone {
            client: 0,
            started: 0,
            ended: Some(stored),
            first_read_end: None,
            last_read_start: None,
            read_count: 0,
        };
        let cell = CellHistory {
            zones: BTreeMap::from([(OperationId(0), zone)]),
            reads: Vec::new(),
        };
        Self {
            file,
            cells: vec![cell; cell_count as usize],
            unchecked: BTreeSet::new(),
        }
    }

    /// Notes a write before its first byte leaves the client.
    pub(crate) fn begin_write(
        &mut self,
        client: u32,
        operation: OperationId,
        cells: Range<u64>,
        started: Instant,
    ) {
        let zone = Zone {
            client,
            started,
            ended: None,
            first_read_end: None,
            last_read_start: None,
            read_count: 0,
        };
        for cell in cells {
            let zones = &mut self.cells[cell as usize].zones;
            let known = zones.insert(operation, zone.clone());
            assert!(known.is_none(), "an operation begins once");
        }
    }

    /// Notes that a write was acknowledged.
    pub(crate) fn acknowledged(
        &mut self,
        operation: OperationId,
        cells: Range<u64>,
        ended: Instant,
    ) {
        for cell in cells {
            let zone = self.cells[cell as usize].zones.get_mut(&operation);
            zone.expect("a write begins before it ends").ended = Some(ended);
            self.unchecked.insert(cell);
        }
    }

    /// Notes a read.
    ///
    /// # Errors
    /// Bytes that no write put at their place.
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
            let history = &mut self.cells[cell as usize];
            let zone = history.zones.get_mut(&found.operation);
            let zone = zone.filter(|_| found.place == place(self.file, cell));
            let Some(zone) = zone else {
                let what = format!(
                    "client {} read bytes of operation {} at place {:#x}, which did not write here",
                    seen.client, found.operation.0, found.place
                );
                return Err(self.violation(cell, what));
            };
            let first_end = zone.first_read_end.unwrap_or(Instant::MAX);
            zone.first_read_end = Some(first_end.min(seen.ended));
            let last_start = zone.last_read_start.unwrap_or(0);
            zone.last_read_start = Some(last_start.max(seen.started));
            zone.read_count += 1;
            if history.reads.len() == READS_KEPT {
                history.reads.remove(0);
            }
            history
                .reads
                .push((seen.client, seen.started, seen.ended, found.operation));
            self.unchecked.insert(cell);
        }
        Ok(())
    }

    /// Checks the cells with operations since the last check.
    ///
    /// # Errors
    /// The first cell for which no order exists.
    pub(crate) fn check(&mut self) -> Result<(), Violation> {
        for cell in std::mem::take(&mut self.unchecked) {
            if let Some(what) = self.cells[cell as usize].contradiction() {
                return Err(self.violation(cell, what));
            }
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

impl CellHistory {
    /// Two writes that have no order, in words.
    fn contradiction(&self) -> Option<String> {
        let is_early = |zone: &&Zone| zone.first_read_end.is_some_and(|end| end < zone.started);
        if let Some(early) = self.zones.values().find(is_early) {
            return Some(format!(
                "a write of client {} was read before it began",
                early.client
            ));
        }
        let bounds = |(&id, zone): (&OperationId, &Zone)| Some((zone.bounds()?, id));
        let zones = self.zones.iter().filter_map(bounds);
        let (mut forward, backward): (Vec<_>, Vec<_>) =
            zones.partition(|((first_end, last_start), _)| first_end < last_start);
        forward.sort_unstable();
        for pair in forward.windows(2) {
            let [((_, last_start), one), ((first_end, _), other)] = [pair[0], pair[1]];
            if first_end < last_start {
                return Some(format!(
                    "operations {} and {} each stand before and after the other",
                    one.0, other.0
                ));
            }
        }
        backward.into_iter().find_map(|((end, start), inner)| {
            // Forward zones do not overlap, so only the last that begins earlier can hold it.
            let until = forward.partition_point(|((first_end, _), _)| *first_end < start);
            let ((_, last_start), outer) = *forward.get(until.checked_sub(1)?)?;
            (end < last_start).then(|| {
                format!(
                    "operation {} was seen before and after operation {}, which stands between",
                    outer.0, inner.0
                )
            })
        })
    }

    /// The cell's writes, and its last reads.
    fn render(&self) -> String {
        let mut text = String::new();
        let seconds = |at: Instant| format!("{:.6}", at as f64 / 1e6);
        let mut line =
            |words: String| writeln!(text, "  {words}").expect("a string takes all text");
        for (id, zone) in &self.zones {
            let ended = zone.ended.map_or_else(
                || "without an acknowledgement".to_owned(),
                |ended| format!("acknowledged {} s", seconds(ended)),
            );
            let reads = match (zone.first_read_end, zone.last_read_start) {
                (Some(first), Some(last)) => format!(
                    "; {} reads, the first ended {} s, the last started {} s",
                    zone.read_count,
                    seconds(first),
                    seconds(last)
                ),
                _ => String::new(),
            };
            line(format!(
                "write {} of client {}: started {} s, {ended}{reads}",
                id.0,
                zone.client,
                seconds(zone.started)
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

    /// One cell that is written and read as told: `w ID START END`, `w ID START -` without an
    /// acknowledgement, `r ID START END`. Gives whether some order explains it.
    fn check(script: &str) -> Result<(), Violation> {
        let mut history = History::new(0, 1, 1);
        for operation in script.split(',') {
            let words: Vec<&str> = operation.split_whitespace().collect();
            let number = |at: usize| words[at].parse::<u64>().expect("a number");
            let (id, started) = (OperationId(number(1)), number(2));
            match (words[0], words[3]) {
                ("w", "-") => history.begin_write(1, id, 0..1, started),
                ("w", _) => {
                    history.begin_write(1, id, 0..1, started);
                    history.acknowledged(id, 0..1, number(3));
                }
                _ => {
                    let client = u32::from(id.0 > 0);
                    let bytes = fill(0, client, id, 0, 1);
                    history.read(&Observation {
                        client: 2,
                        started,
                        ended: number(3),
                        first_cell: 0,
                        bytes: &bytes,
                    })?;
                }
            }
        }
        history.check()
    }

    #[test]
    fn histories_that_have_an_order_pass() {
        for script in [
            "r 0 2 3",
            "w 1 10 20, r 1 30 40",
            // Both results of a read beside a write, and a read that ends before the write does.
            "w 1 10 20, r 0 11 12, r 1 30 40",
            "w 1 10 20, r 1 11 12, r 1 30 40",
            // Writes at the same time have either order.
            "w 1 10 20, w 2 15 25, r 1 30 40",
            "w 1 10 20, w 2 15 25, r 2 30 40",
            // A write without an acknowledgement takes effect later, or never.
            "w 1 10 -, w 2 20 30, r 2 40 50, r 1 60 70",
            "w 1 10 -, w 2 20 30, r 2 40 50, r 2 60 70",
            "w 1 10 -, r 0 20 30",
        ] {
            assert_eq!(check(script), Ok(()), "{script}");
        }
    }

    #[test]
    fn sabotaged_histories_are_refused() {
        for (script, words) in [
            // Acknowledged and never there.
            ("w 1 10 20, r 0 30 40", "before and after"),
            // The second of two acknowledged writes is lost.
            ("w 1 10 20, w 2 30 40, r 1 50 60", "before and after"),
            // A retried write is applied twice.
            (
                "w 1 10 20, r 1 21 22, w 2 30 40, r 2 50 60, r 1 70 80",
                "before and after",
            ),
            // The same where its first attempt was never acknowledged.
            (
                "w 1 10 -, r 1 15 20, w 2 30 40, r 1 50 60",
                "before and after",
            ),
            // A reader sees an older state than one that has ended before.
            ("w 1 10 99, r 1 20 30, r 0 40 50", "before and after"),
            // Two values take turns.
            (
                "w 1 10 99, w 2 10 99, r 1 20 21, r 2 22 23, r 1 24 25, r 2 26 27",
                "each stand",
            ),
            ("w 1 10 20, r 1 3 4", "before it began"),
            // Bytes of a write to nowhere.
            ("r 5 20 30", "did not write here"),
        ] {
            let found = check(script).expect_err(script).to_string();
            assert!(found.contains(words), "{script}: {found}");
        }
    }

    #[test]
    fn bytes_of_another_place_and_garbage_are_refused() {
        let mut history = History::new(0, 2, 1);
        let mut seen = |bytes: &[u8]| {
            history.read(&Observation {
                client: 2,
                started: 2,
                ended: 3,
                first_cell: 0,
                bytes,
            })
        };
        assert!(seen(&fill(0, 0, OperationId(0), 1, 1)).is_err());
        assert!(seen(&fill(1, 0, OperationId(0), 0, 1)).is_err());
        assert!(seen(&[0; 512]).is_err());
        assert_eq!(seen(&fill(0, 0, OperationId(0), 0, 2)), Ok(()));
    }

    #[test]
    fn the_test_agrees_with_a_search_through_all_orders() {
        // Few writes and reads in small times, so that both answers are frequent.
        let mut state = 1_u64;
        let mut below = |end: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % end
        };
        let mut refused_count = 0;
        for _ in 0..3000 {
            let mut script = Vec::new();
            let mut operations = Vec::new();
            for id in 1..=3 {
                let (start, length) = (2 + below(12), 1 + below(6));
                script.push(format!("w {id} {start} {}", start + length));
                operations.push((true, id, start, start + length));
            }
            for _ in 0..3 {
                let (start, length, id) = (2 + below(14), 1 + below(4), below(4));
                script.push(format!("r {id} {start} {}", start + length));
                operations.push((false, id, start, start + length));
            }
            let script = script.join(",");
            let has_order = is_linearizable(&operations, &mut vec![false; 6], 0);
            assert_eq!(check(&script).is_ok(), has_order, "{script}");
            refused_count += u64::from(!has_order);
        }
        assert!((500..2500).contains(&refused_count), "{refused_count}");
    }

    /// Tries every order of the operations that are left. Ends and starts at the same instant have no
    /// order.
    fn is_linearizable(
        operations: &[(bool, u64, u64, u64)],
        done: &mut Vec<bool>,
        value: u64,
    ) -> bool {
        let left: Vec<usize> = (0..operations.len()).filter(|&at| !done[at]).collect();
        let first_end = left.iter().map(|&at| operations[at].3).min();
        let Some(first_end) = first_end else {
            return true;
        };
        left.into_iter().any(|at| {
            let (is_write, id, start, _) = operations[at];
            if start > first_end || (!is_write && id != value) {
                return false;
            }
            done[at] = true;
            let found = is_linearizable(operations, done, if is_write { id } else { value });
            done[at] = false;
            found
        })
    }
}
