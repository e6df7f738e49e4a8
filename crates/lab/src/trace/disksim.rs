//! `DiskSim`'s ASCII traces: `time device block size flags`, separated by blanks; times in
//! milliseconds, block and size in sectors of 512 bytes, flags in hexadecimal with bit 0 for a read.
//!
//! Described in Bucy et al., "The `DiskSim` Simulation Environment Version 4.0 Reference Manual",
//! CMU-PDL-08-101, and read by `iotrace_ascii_get_ioreq_event` of its `disksim_iotrace.c`.

use super::request::RequestKind;
use super::row::{
    Row, SECTOR_BYTES, TICKS_A_MILLISECOND, VolumeName, blank_fields, cut, number, request, scaled,
    time,
};
use crate::error::RowProblem;

const COLUMNS: &str = "5: time, device, block, size, flags";
/// The flag of a read.
const READ: u64 = 1;

/// Reads one row.
pub(super) fn row(row: &str) -> Result<Row<'_>, RowProblem> {
    let [at, device, block, size, flags] = blank_fields(row, COLUMNS)?;
    let at_ticks = time(at, TICKS_A_MILLISECOND)?;
    number("device", device)?;
    let offset_bytes = scaled("block", block, SECTOR_BYTES)?;
    let size_bytes = scaled("size", size, SECTOR_BYTES)?;
    let digits = flags.strip_prefix("0x").unwrap_or(flags);
    let flags = u64::from_str_radix(digits, 16).map_err(|_| RowProblem::NotANumber {
        field: "flags",
        text: cut(flags),
    })?;
    let kind = if flags & READ == 0 {
        RequestKind::Write
    } else {
        RequestKind::Read
    };
    let request = request(at_ticks, kind, offset_bytes, size_bytes)?;
    Ok(Some((VolumeName::new(device), request)))
}
