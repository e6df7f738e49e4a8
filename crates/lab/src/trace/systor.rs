//! The traces of Systor '17: `timestamp, response, io type, LUN, offset, size`, times in seconds
//! since 1970 with a fraction, offset and size in bytes. A row without a type is a request whose
//! answer was not recorded; its kind is unknown, so it is left out.
//!
//! Described by the readme of the traces "Systor '17" of SNIA's IOTTA repository, and in Lee et al.,
//! "Understanding Storage Traffic Characteristics on Enterprise Virtual Desktop Infrastructure",
//! SYSTOR 2017.

use super::row::{Row, TICKS_A_SECOND, VolumeName, comma_fields, kind, number, request, time};
use crate::error::RowProblem;

const COLUMNS: &str = "6: timestamp, response, R or W, LUN, offset, size";

/// Reads one row.
pub(super) fn row(row: &str) -> Result<Row<'_>, RowProblem> {
    let [timestamp, _, kind_of, lun, offset, size] = comma_fields(row, COLUMNS)?;
    let at_ticks = time(timestamp, TICKS_A_SECOND)?;
    if kind_of.is_empty() {
        return Ok(None);
    }
    let kind = kind(kind_of, "R", "W")?;
    number("LUN", lun)?;
    let offset_bytes = number("offset", offset)?;
    let size_bytes = number("size", size)?;
    let request = request(at_ticks, kind, offset_bytes, size_bytes)?;
    Ok(Some((VolumeName::new(lun), request)))
}
