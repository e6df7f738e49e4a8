//! Common parts of the rows of all formats: fields, numbers, times and the checks of a request.

use super::request::{Request, RequestKind};
use crate::error::RowProblem;

/// The largest request that is believed. No disk takes more at once, and a row that claims exabytes
/// would keep an experiment busy for years.
const REQUEST_BYTES_MAX: u64 = 1 << 30;
/// Bytes of a sector, the unit of many formats.
pub(super) const SECTOR_BYTES: u64 = 512;
/// Ticks of 100 ns in a second.
pub(super) const TICKS_A_SECOND: u64 = 10_000_000;
/// Ticks of 100 ns in a microsecond.
pub(super) const TICKS_A_MICROSECOND: u64 = 10;
/// Ticks of 100 ns in a millisecond.
pub(super) const TICKS_A_MILLISECOND: u64 = 10_000;

/// The volume of a row: one name, or a host and its disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct VolumeName<'a> {
    name: &'a str,
    disk: Option<&'a str>,
}

impl<'a> VolumeName<'a> {
    pub(super) const fn new(name: &'a str) -> Self {
        Self { name, disk: None }
    }

    pub(super) const fn of_host(name: &'a str, disk: &'a str) -> Self {
        Self {
            name,
            disk: Some(disk),
        }
    }

    /// Whether `text` is this name as [`Self::text`] writes it.
    pub(super) fn is(self, text: &str) -> bool {
        match self.disk {
            None => self.name == text,
            Some(disk) => {
                let rest = text.strip_prefix(self.name);
                rest.and_then(|rest| rest.strip_prefix('_')) == Some(disk)
            }
        }
    }

    /// The name as people write it: `wdev_1` for disk 1 of the host `wdev`.
    pub(super) fn text(self) -> String {
        match self.disk {
            None => self.name.to_owned(),
            Some(disk) => format!("{}_{disk}", self.name),
        }
    }
}

/// A row's volume and request; `None` for a row that is no read or write of stored bytes.
pub(super) type Row<'a> = Option<(VolumeName<'a>, Request)>;

/// Exactly `N` fields, separated by commas, without the blanks around them.
pub(super) fn comma_fields<'a, const N: usize>(
    row: &'a str,
    columns: &'static str,
) -> Result<[&'a str; N], RowProblem> {
    exactly(row.split(',').map(str::trim), columns)
}

/// Exactly `N` fields, separated by blanks.
pub(super) fn blank_fields<'a, const N: usize>(
    row: &'a str,
    columns: &'static str,
) -> Result<[&'a str; N], RowProblem> {
    exactly(row.split_ascii_whitespace(), columns)
}

fn exactly<'a, const N: usize>(
    all: impl Iterator<Item = &'a str>,
    columns: &'static str,
) -> Result<[&'a str; N], RowProblem> {
    let mut fields = [""; N];
    let mut found = 0;
    for field in all {
        if let Some(place) = fields.get_mut(found) {
            *place = field;
        }
        found += 1;
    }
    if found == N {
        Ok(fields)
    } else {
        Err(RowProblem::FieldCount { found, columns })
    }
}

/// A whole number.
pub(super) fn number(field: &'static str, text: &str) -> Result<u64, RowProblem> {
    text.parse().map_err(|_| RowProblem::NotANumber {
        field,
        text: cut(text),
    })
}

/// A number of units of `unit` each, which must stay below 2^64.
pub(super) fn scaled(field: &'static str, text: &str, unit: u64) -> Result<u64, RowProblem> {
    let units = number(field, text)?;
    units
        .checked_mul(unit)
        .ok_or_else(|| RowProblem::NotANumber {
            field,
            text: cut(text),
        })
}

/// A time in units of `unit_ticks`, with or without a fraction, in ticks of 100 ns; what is below a
/// tick is cut off.
pub(super) fn time(text: &str, unit_ticks: u64) -> Result<u64, RowProblem> {
    let problem = || RowProblem::NotATime { text: cut(text) };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(fraction) || whole.is_empty() {
        return Err(problem());
    }
    let units: u64 = whole.parse().map_err(|_| problem())?;
    let mut ticks = 0;
    let mut place = unit_ticks;
    for digit in fraction.bytes() {
        place /= 10;
        ticks += u64::from(digit - b'0') * place;
    }
    let whole = units.checked_mul(unit_ticks).ok_or_else(problem)?;
    whole.checked_add(ticks).ok_or_else(problem)
}

/// The request of a row, if its bytes can be believed.
pub(super) fn request(
    at_ticks: u64,
    kind: RequestKind,
    offset_bytes: u64,
    size_bytes: u64,
) -> Result<Request, RowProblem> {
    if size_bytes == 0 {
        return Err(RowProblem::ZeroSize);
    }
    if offset_bytes.checked_add(size_bytes).is_none() {
        return Err(RowProblem::Overflow {
            offset_bytes,
            size_bytes,
        });
    }
    if size_bytes > REQUEST_BYTES_MAX {
        return Err(RowProblem::HugeSize {
            size_bytes,
            limit_bytes: REQUEST_BYTES_MAX,
        });
    }
    Ok(Request {
        at_ticks,
        kind,
        offset_bytes,
        length_bytes: size_bytes,
    })
}

/// `read` or `write`, in any case.
pub(super) fn kind(
    text: &str,
    read: &'static str,
    write: &'static str,
) -> Result<RequestKind, RowProblem> {
    if text.eq_ignore_ascii_case(read) {
        Ok(RequestKind::Read)
    } else if text.eq_ignore_ascii_case(write) {
        Ok(RequestKind::Write)
    } else {
        Err(RowProblem::UnknownType {
            text: cut(text),
            read,
            write,
        })
    }
}

/// The beginning of a bad field: enough to find it by, and no more than fits a message.
pub(super) fn cut(text: &str) -> String {
    text.chars().take(40).collect()
}
