//! fio's I/O logs: a first line `fio version 2 iolog` or `fio version 3 iolog`, then
//! `file action [offset length]`, in version 3 after a time in microseconds. In version 2 a `wait`
//! line gives a pause in microseconds. Offset and length are in bytes, a file is a volume.
//!
//! Described in fio's documentation, "Trace file format", and read by `read_iolog` of its `iolog.c`.

use super::request::RequestKind;
use super::row::{Row, TICKS_A_MICROSECOND, VolumeName, cut, number, request, scaled};
use crate::error::RowProblem;

const COLUMNS_2: &str = "2 or 4: file, action, offset, length";
const COLUMNS_3: &str = "3 or 5: timestamp, file, action, offset, length";
/// Actions that neither read nor write.
const OTHER_ACTIONS: [&str; 7] = [
    "add",
    "open",
    "close",
    "sync",
    "datasync",
    "sync_file_range",
    "trim",
];

/// The state of a log: its version and the time that has passed.
#[derive(Default, Debug)]
pub(super) struct Fio {
    version: u8,
    now_ticks: u64,
}

impl Fio {
    /// Reads one row.
    pub(super) fn row<'a>(&mut self, row: &'a str) -> Result<Row<'a>, RowProblem> {
        match self.version {
            2 => self.untimed(row),
            3 => self.timed(row),
            _ => {
                self.version = match row.trim() {
                    "fio version 2 iolog" => 2,
                    "fio version 3 iolog" => 3,
                    _ => return Err(RowProblem::NoFioVersion),
                };
                Ok(None)
            }
        }
    }

    fn untimed<'a>(&mut self, row: &'a str) -> Result<Row<'a>, RowProblem> {
        let mut fields = row.split_ascii_whitespace();
        match (fields.next(), fields.next()) {
            (Some(file), Some(action)) => self.action(file, action, fields, COLUMNS_2),
            (first, _) => Err(RowProblem::FieldCount {
                found: usize::from(first.is_some()),
                columns: COLUMNS_2,
            }),
        }
    }

    fn timed<'a>(&mut self, row: &'a str) -> Result<Row<'a>, RowProblem> {
        let mut fields = row.split_ascii_whitespace();
        let (Some(at), Some(file), Some(action)) = (fields.next(), fields.next(), fields.next())
        else {
            return Err(RowProblem::FieldCount {
                found: row.split_ascii_whitespace().count(),
                columns: COLUMNS_3,
            });
        };
        self.now_ticks = scaled("timestamp", at, TICKS_A_MICROSECOND)?;
        self.action(file, action, fields, COLUMNS_3)
    }

    fn action<'a>(
        &mut self,
        file: &'a str,
        action: &str,
        mut operands: impl Iterator<Item = &'a str>,
        columns: &'static str,
    ) -> Result<Row<'a>, RowProblem> {
        if OTHER_ACTIONS.contains(&action) {
            return Ok(None);
        }
        let missing = |found| RowProblem::FieldCount { found, columns };
        let named = if self.version == 3 { 3 } else { 2 };
        let offset = operands.next().ok_or_else(|| missing(named))?;
        if action == "wait" {
            let passed = scaled("wait", offset, TICKS_A_MICROSECOND)?;
            self.now_ticks = self.now_ticks.saturating_add(passed);
            return Ok(None);
        }
        let kind = match action {
            "read" => RequestKind::Read,
            "write" => RequestKind::Write,
            _ => {
                return Err(RowProblem::UnknownType {
                    text: cut(action),
                    read: "read",
                    write: "write, nor another action of fio",
                });
            }
        };
        let length = operands.next().ok_or_else(|| missing(named + 1))?;
        let request = request(
            self.now_ticks,
            kind,
            number("offset", offset)?,
            number("length", length)?,
        )?;
        Ok(Some((VolumeName::new(file), request)))
    }
}
