//! Alibaba's block traces: `device_id, opcode, offset, length, timestamp`, offset and length in
//! bytes, times in microseconds since 1970.
//!
//! Described by the readme of the repository `alibaba/block-traces`, and in Li et al., "An In-Depth
//! Analysis of Cloud Block Storage Workloads in Large-Scale Production", IISWC 2020.

use super::row::{
    Row, TICKS_A_MICROSECOND, VolumeName, comma_fields, kind, number, request, scaled,
};
use crate::error::RowProblem;

const COLUMNS: &str = "5: device, R or W, offset, length, timestamp";

/// Reads one row.
pub(super) fn row(row: &str) -> Result<Row<'_>, RowProblem> {
    let [device, opcode, offset, length, timestamp] = comma_fields(row, COLUMNS)?;
    number("device", device)?;
    let kind = kind(opcode, "R", "W")?;
    let offset_bytes = number("offset", offset)?;
    let size_bytes = number("length", length)?;
    let at_ticks = scaled("timestamp", timestamp, TICKS_A_MICROSECOND)?;
    let request = request(at_ticks, kind, offset_bytes, size_bytes)?;
    Ok(Some((VolumeName::new(device), request)))
}
