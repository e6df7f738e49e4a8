//! The volumes of MSR Cambridge: `timestamp, host, disk, Read|Write, offset, size, response`, times
//! in ticks of 100 ns since 1601, offset and size in bytes.
//!
//! Described by the readme of the traces "MSR Cambridge Traces" of SNIA's IOTTA repository, and in
//! Narayanan, Donnelly, Rowstron, "Write Off-Loading", FAST 2008.

use super::row::{Row, VolumeName, comma_fields, kind, number, request};
use crate::error::RowProblem;

const COLUMNS: &str = "7: timestamp, host, disk, Read or Write, offset, size, response";

/// Reads one row.
pub(super) fn row(row: &str) -> Result<Row<'_>, RowProblem> {
    let [timestamp, host, disk, kind_of, offset, size, response] = comma_fields(row, COLUMNS)?;
    let at_ticks = number("timestamp", timestamp)?;
    let kind = kind(kind_of, "Read", "Write")?;
    let offset_bytes = number("offset", offset)?;
    let size_bytes = number("size", size)?;
    number("response", response)?;
    let request = request(at_ticks, kind, offset_bytes, size_bytes)?;
    Ok(Some((VolumeName::of_host(host, disk), request)))
}
