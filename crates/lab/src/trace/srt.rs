//! HP's SRT traces as text: `created start stop bytes R|W offset device volume thread process`, separated by blanks.
//! The time of creation is in seconds from the trace's first, start and stop in microseconds after it, the offset in
//! KiB, the device in hexadecimal. Lines that begin with `#` are headers.
//!
//! Described by the script `dssrt2txt` and the converter `srt2ds.cpp` (`src/process`) of the repository
//! `dataseries/DataSeries`, whose authors publish HP's traces.

use super::row::{
    Row, TICKS_A_SECOND, VolumeName, blank_fields, cut, kind, number, request, scaled, time,
};
use crate::error::RowProblem;

const COLUMNS: &str =
    "10: created, start, stop, bytes, R or W, offset, device, volume, thread, process";
/// Bytes of the unit of offsets.
const BLOCK_BYTES: u64 = 1024;

/// Reads one row.
pub(super) fn row(row: &str) -> Result<Row<'_>, RowProblem> {
    if row.starts_with('#') {
        return Ok(None);
    }
    let [created, start, stop, size, kind_of, offset, device, ..]: [&str; 10] =
        blank_fields(row, COLUMNS)?;
    let at_ticks = time(created, TICKS_A_SECOND)?;
    number("start", start)?;
    number("stop", stop)?;
    let size_bytes = number("bytes", size)?;
    let kind = kind(kind_of, "R", "W")?;
    let offset_bytes = scaled("offset", offset, BLOCK_BYTES)?;
    if u64::from_str_radix(device, 16).is_err() {
        return Err(RowProblem::NotANumber {
            field: "device",
            text: cut(device),
        });
    }
    let request = request(at_ticks, kind, offset_bytes, size_bytes)?;
    Ok(Some((VolumeName::new(device), request)))
}
