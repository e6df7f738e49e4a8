//! `CloudPhysics` traces of virtual machines, as text: `version, time, op, size, lbn`, times in whole
//! seconds, the SCSI operation in hexadecimal, the size in bytes and the first sector of 512 bytes.
//! A file is one virtual disk.
//!
//! Described by the sample `data/trace.csv` of the repository `1a1a11a/libCacheSim`, and in
//! Waldspurger et al., "Efficient MRC Construction", FAST 2015.

use super::request::RequestKind;
use super::row::{
    Row, SECTOR_BYTES, TICKS_A_SECOND, VolumeName, comma_fields, cut, number, request, scaled,
};
use crate::error::RowProblem;

const COLUMNS: &str = "5: version, time, op, size, lbn";

/// Reads one row.
pub(super) fn row(row: &str) -> Result<Row<'_>, RowProblem> {
    let [version, at, op, size, sector] = comma_fields(row, COLUMNS)?;
    number("version", version)?;
    let at_ticks = scaled("time", at, TICKS_A_SECOND)?;
    // READ and WRITE of 6, 10, 12 and 16 bytes.
    let kind = match op.to_ascii_lowercase().as_str() {
        "8" | "08" | "28" | "a8" | "88" => RequestKind::Read,
        "a" | "0a" | "2a" | "aa" | "8a" => RequestKind::Write,
        _ => {
            return Err(RowProblem::UnknownType {
                text: cut(op),
                read: "a SCSI read (08, 28, 88, a8)",
                write: "a SCSI write (0a, 2a, 8a, aa)",
            });
        }
    };
    let size_bytes = number("size", size)?;
    if !size_bytes.is_multiple_of(SECTOR_BYTES) {
        return Err(RowProblem::PartOfSector { size_bytes });
    }
    let offset_bytes = scaled("lbn", sector, SECTOR_BYTES)?;
    let request = request(at_ticks, kind, offset_bytes, size_bytes)?;
    Ok(Some((VolumeName::new("disk"), request)))
}
