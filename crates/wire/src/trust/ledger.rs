//! What an authority has issued and revoked: a text file to which lines are appended.
//!
//! `issued SERIAL FROM UNTIL NAME`, `used SERIAL` for a join token that was exchanged, and `revoked SERIAL AT`; times
//! are seconds since 1970. A line without its end, which a crash has left, does not count.

use super::error::{TrustError, io_error, malformed};
use super::files;
use super::name::Name;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The serial of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Serial(pub(super) u128);

impl Serial {
    /// A number of an X.509 certificate, if it may be one of ours.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes = match bytes {
            [0, rest @ ..] => rest,
            all => all,
        };
        let mut padded = [0; 16];
        let start = padded.len().checked_sub(bytes.len())?;
        padded[start..].copy_from_slice(bytes);
        Some(Self(u128::from_be_bytes(padded)))
    }

    pub(super) fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for Serial {
    type Err = TrustError;

    fn from_str(text: &str) -> Result<Self, TrustError> {
        let unknown = || TrustError::UnknownSerial(text.to_owned());
        let is_hex = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| is_hex);
        number.map(Self).ok_or_else(unknown)
    }
}

/// Whether a certificate counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryState {
    /// It counts until it expires.
    Valid,
    /// A join token that was exchanged.
    Used,
    /// It was revoked, in seconds since 1970.
    Revoked {
        /// When.
        at_s: i64,
    },
}

/// A certificate that an authority has issued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its serial.
    pub serial: Serial,
    /// Its name.
    pub name: Name,
    /// From when it is valid, in seconds since 1970.
    pub from_s: i64,
    /// Until when it is valid, in seconds since 1970.
    pub until_s: i64,
    /// Whether it counts.
    pub state: EntryState,
}

/// The file.
pub(super) struct Ledger {
    path: PathBuf,
}

impl Ledger {
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// All certificates, in the order in which they were issued.
    pub(super) fn entries(&self) -> Result<Vec<Entry>, TrustError> {
        let text = files::read(&self.path)?.unwrap_or_default();
        let mut entries: Vec<Entry> = Vec::new();
        let mut places = BTreeMap::new();
        // What stands behind the last end of a line is incomplete.
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in complete.lines() {
            let wrong = || malformed(&self.path, format!("the line '{line}' is damaged"));
            match parse(line).ok_or_else(wrong)? {
                Line::Issued(entry) => {
                    places.insert(entry.serial, entries.len());
                    entries.push(entry);
                }
                Line::Changed(serial, state) => {
                    let place = places.get(&serial).ok_or_else(wrong)?;
                    entries[*place].state = state;
                }
            }
        }
        Ok(entries)
    }

    /// Its length.
    pub(super) fn bytes(&self) -> Result<u64, TrustError> {
        match std::fs::metadata(&self.path) {
            Ok(metadata) => Ok(metadata.len()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(io_error("read", &self.path)(error)),
        }
    }

    pub(super) fn note_issued(&self, entry: &Entry) -> Result<(), TrustError> {
        let Entry {
            serial,
            from_s,
            until_s,
            name,
            ..
        } = entry;
        self.append(&format!("issued {serial} {from_s} {until_s} {name}\n"))
    }

    pub(super) fn note_used(&self, serial: Serial) -> Result<(), TrustError> {
        self.append(&format!("used {serial}\n"))
    }

    pub(super) fn note_revoked(&self, serial: Serial, at_s: i64) -> Result<(), TrustError> {
        self.append(&format!("revoked {serial} {at_s}\n"))
    }

    /// Appends a line durably. One that a crash has cut short is completed first, so that it stays on its own.
    fn append(&self, line: &str) -> Result<(), TrustError> {
        let is_cut = files::read(&self.path)?.is_some_and(|text| !cut_part(&text).is_empty());
        if is_cut {
            let text = files::read(&self.path)?.unwrap_or_default();
            let whole = text.len() - cut_part(&text).len();
            files::replace(&self.path, &text[..whole])?;
        }
        let append = || {
            let mut file = OpenOptions::new()
                .create(true)
                .append(true)
                .mode(0o600)
                .open(&self.path)?;
            file.write_all(line.as_bytes())?;
            file.sync_all()
        };
        append().map_err(io_error("write", &self.path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// What stands behind the last end of a line.
fn cut_part(text: &str) -> &str {
    text.rfind('\n').map_or(text, |end| &text[end + 1..])
}

enum Line {
    Issued(Entry),
    Changed(Serial, EntryState),
}

fn parse(line: &str) -> Option<Line> {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["issued", serial, from_s, until_s, name] => Some(Line::Issued(Entry {
            serial: serial.parse().ok()?,
            name: name.parse().ok()?,
            from_s: from_s.parse().ok()?,
            until_s: until_s.parse().ok()?,
            state: EntryState::Valid,
        })),
        ["used", serial] => Some(Line::Changed(serial.parse().ok()?, EntryState::Used)),
        ["revoked", serial, at_s] => {
            let at_s = at_s.parse().ok()?;
            Some(Line::Changed(
                serial.parse().ok()?,
                EntryState::Revoked { at_s },
            ))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::role::Role;
    use gabion_layout::ClusterId;
    use std::fs;

    fn entry(number: u128) -> Entry {
        Entry {
            serial: Serial(number),
            name: Name::of(ClusterId(1), Role::Client),
            from_s: 5,
            until_s: 9,
            state: EntryState::Valid,
        }
    }

    #[test]
    fn a_ledger_is_read_as_it_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = Ledger::at(directory.path().join("ledger"));
        assert_eq!(ledger.entries().unwrap(), []);
        for number in 1..=3 {
            ledger.note_issued(&entry(number)).unwrap();
        }
        ledger.note_revoked(Serial(2), 7).unwrap();
        ledger.note_used(Serial(3)).unwrap();
        let states: Vec<EntryState> = ledger.entries().unwrap().iter().map(|e| e.state).collect();
        let expected = [
            EntryState::Valid,
            EntryState::Revoked { at_s: 7 },
            EntryState::Used,
        ];
        assert_eq!(states, expected);
    }

    #[test]
    fn a_line_that_a_crash_has_cut_does_not_count_and_another_damage_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = Ledger::at(directory.path().join("ledger"));
        ledger.note_issued(&entry(1)).unwrap();
        let text = fs::read_to_string(ledger.path()).unwrap();
        fs::write(ledger.path(), format!("{text}issued 00")).unwrap();
        assert_eq!(ledger.entries().unwrap(), [entry(1)]);
        ledger.note_issued(&entry(2)).unwrap();
        assert_eq!(ledger.entries().unwrap(), [entry(1), entry(2)]);
        fs::write(ledger.path(), format!("{text}revoked 2 7\n")).unwrap();
        let error = ledger.entries().unwrap_err().to_string();
        assert!(error.contains("'revoked 2 7' is damaged"), "{error}");
    }

    #[test]
    fn serials_are_those_of_certificates() {
        for bytes in [&[1][..], &[0, 0x80], &[0xff; 16]] {
            let serial = Serial::from_bytes(bytes).unwrap();
            assert_eq!(Serial::from_bytes(&serial.to_bytes()), Some(serial));
        }
        assert_eq!(Serial::from_bytes(&[1; 17]), None);
    }
}
