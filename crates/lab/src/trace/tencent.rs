//! Tencent's block traces: `timestamp, offset, size, io type, volume`, times in seconds since 1970,
//! offset and size in sectors of 512 bytes, 0 for a read and 1 for a write.
//!
//! Described by the readme of the traces "Tencent Block Storage" of SNIA's IOTTA repository, and in
//! Zhang et al., "OSCA", USENIX ATC 2020.

use super::row::{
    Row, SECTOR_BYTES, TICKS_A_SECOND, VolumeName, comma_fields, kind, number, request, scaled,
};
use crate::error::RowProblem;

const COLUMNS: &str = "5: timestamp, offset, size, 0 or 1, volume";

/// Reads one row.
pub(super) fn row(row: &str) -> Result<Row<'_>, RowProblem> {
    let [timestamp, offset, size, kind_of, volume] = comma_fields(row, COLUMNS)?;
    let at_ticks = scaled("timestamp", timestamp, TICKS_A_SECOND)?;
    let offset_bytes = scaled("offset", offset, SECTOR_BYTES)?;
    let size_bytes = scaled("size", size, SECTOR_BYTES)?;
    let kind = kind(kind_of, "0", "1")?;
    number("volume", volume)?;
    let request = request(at_ticks, kind, offset_bytes, size_bytes)?;
    Ok(Some((VolumeName::new(volume), request)))
}
