//! The output of `blkparse` for a trace of `blktrace`:
//! `major,minor cpu sequence seconds.nanoseconds pid action rwbs sector + sectors [process]`.
//!
//! A request has several events. Those with action `Q`, where it enters the queue, count; in a file
//! without them those with `D`, where it is issued to the driver. Discards and flushes are left out,
//! and so is the summary at the end.
//!
//! Described in `blkparse(1)`, "Output description and formatting"; the default format is in
//! `blkparse_fmt.c` of blktrace.

use super::request::RequestKind;
use super::row::{Row, SECTOR_BYTES, TICKS_A_SECOND, VolumeName, number, request, scaled, time};
use crate::error::RowProblem;

const COLUMNS: &str = "at least 7: device, cpu, sequence, time, pid, action, rwbs";

/// The events that count, and whether the summary has begun.
#[derive(Debug)]
pub(super) struct Blkparse {
    action: &'static str,
    in_summary: bool,
}

impl Blkparse {
    /// For a file that begins with these lines.
    pub(super) fn new(head: &str) -> Self {
        let actions = || {
            head.lines()
                .filter_map(|line| line.split_ascii_whitespace().nth(5))
        };
        let only_issued = !actions().any(|a| a == "Q") && actions().any(|a| a == "D");
        Self {
            action: if only_issued { "D" } else { "Q" },
            in_summary: false,
        }
    }

    /// Reads one row.
    pub(super) fn row<'a>(&mut self, row: &'a str) -> Result<Row<'a>, RowProblem> {
        let is_summary = row.starts_with("CPU") || row.starts_with("Total (");
        self.in_summary |= is_summary;
        if self.in_summary || row.trim().is_empty() {
            return Ok(None);
        }
        let mut fields = row.split_ascii_whitespace();
        let mut first = [""; 7];
        for (at, place) in first.iter_mut().enumerate() {
            *place = fields.next().ok_or(RowProblem::FieldCount {
                found: at,
                columns: COLUMNS,
            })?;
        }
        let [device, _, _, at, _, action, rwbs] = first;
        let (major, minor) = device.split_once(',').unwrap_or((device, ""));
        number("major device number", major)?;
        number("minor device number", minor)?;
        let at_ticks = time(at, TICKS_A_SECOND)?;
        if action != self.action || rwbs.contains('D') {
            return Ok(None);
        }
        let kind = match (rwbs.contains('R'), rwbs.contains('W')) {
            (true, _) => RequestKind::Read,
            (_, true) => RequestKind::Write,
            _ => return Ok(None),
        };
        // A flush has neither sector nor length.
        let (Some(sector), Some("+"), Some(sectors)) =
            (fields.next(), fields.next(), fields.next())
        else {
            return Ok(None);
        };
        let size_bytes = scaled("number of sectors", sectors, SECTOR_BYTES)?;
        if size_bytes == 0 {
            return Ok(None);
        }
        let offset_bytes = scaled("sector", sector, SECTOR_BYTES)?;
        let request = request(at_ticks, kind, offset_bytes, size_bytes)?;
        Ok(Some((VolumeName::new(device), request)))
    }
}
