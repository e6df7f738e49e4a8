//! The certificates and tokens that an authority issued and revoked: a text file to which lines are appended.
//!
//! `issued SERIAL FROM UNTIL NAME [PARENT]`, where PARENT is the certificate or token that its holder showed for this
//! one; `used SERIAL` for a join token that was exchanged; `admitted SERIAL NODE` for a new node's certificate with
//! which that node joins; and `revoked SERIAL AT`. Times are seconds since 1970. A line without its end, which a crash
//! has left, does not count.

use super::error::{TrustError, io_error};
use super::files;
use super::name::Name;
use gabion_layout::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
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
    /// The end of its validity, in seconds since 1970.
    pub until_s: i64,
    /// The certificate or join token that its holder showed for it; none if an operator issued it.
    pub parent: Option<Serial>,
    /// The node that joins with it, if it is that of a new node.
    pub admitted: Option<NodeId>,
    /// Whether it counts.
    pub state: EntryState,
}

/// The contents of the ledger.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Register {
    /// All certificates, in the order in which they were issued.
    pub entries: Vec<Entry>,
    /// Numbers of the damaged lines, from 1. Their contents are unknown, so join tokens that were issued
    /// before the last of them count as used.
    pub damaged: Vec<usize>,
}

impl Register {
    /// The entry of a certificate.
    pub fn of(&self, serial: Serial) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.serial == serial)
    }

    /// The line of each certificate, by the first one of it: the one from which it comes by exchange and renewal.
    pub fn lines(&self) -> BTreeMap<Serial, Serial> {
        let mut lines = BTreeMap::new();
        // A parent was issued before its child.
        for entry in &self.entries {
            let line = entry.parent.and_then(|parent| lines.get(&parent));
            lines.insert(entry.serial, line.copied().unwrap_or(entry.serial));
        }
        lines
    }

    fn take_in(&mut self, line: Line, places: &mut BTreeMap<Serial, usize>) -> Option<()> {
        let (serial, change) = match line {
            Line::Issued(entry) => {
                let is_known = |parent| places.contains_key(&parent);
                let is_new = !places.contains_key(&entry.serial);
                if !is_new || !entry.parent.is_none_or(is_known) {
                    return None;
                }
                places.insert(entry.serial, self.entries.len());
                self.entries.push(entry);
                return Some(());
            }
            Line::Changed(serial, change) => (serial, change),
        };
        let entry = &mut self.entries[*places.get(&serial)?];
        match change {
            // A revoked certificate stays so.
            Change::Used if entry.state == EntryState::Valid => entry.state = EntryState::Used,
            Change::Used => {}
            Change::Revoked { at_s } => entry.state = EntryState::Revoked { at_s },
            Change::Admitted(node) => entry.admitted = Some(node),
        }
        Some(())
    }
}

/// The file.
pub(super) struct Ledger {
    path: PathBuf,
}

impl Ledger {
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// All that it says.
    pub(super) fn register(&self) -> Result<Register, TrustError> {
        // A damaged line may be no text at all.
        let bytes = files::read_bytes(&self.path)?.unwrap_or_default();
        let mut register = Register::default();
        let mut places = BTreeMap::new();
        // Bytes behind the last end of a line are incomplete.
        let complete = bytes[..complete_bytes(&bytes)].split_inclusive(|&byte| byte == b'\n');
        for (number, line) in complete.enumerate() {
            let line = std::str::from_utf8(&line[..line.len() - 1]);
            let parsed = line.ok().and_then(parse);
            let taken = parsed.and_then(|line| register.take_in(line, &mut places));
            if taken.is_none() {
                register.damaged.push(number + 1);
                let tokens = register.entries.iter_mut();
                let valid = tokens.filter(|e| e.name.is_token && e.state == EntryState::Valid);
                valid.for_each(|token| token.state = EntryState::Used);
            }
        }
        Ok(register)
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
        let parent = entry.parent.map_or_else(String::new, |p| format!(" {p}"));
        self.append(&format!(
            "issued {serial} {from_s} {until_s} {name}{parent}\n"
        ))
    }

    pub(super) fn note_used(&self, serial: Serial) -> Result<(), TrustError> {
        self.append(&format!("used {serial}\n"))
    }

    pub(super) fn note_admitted(&self, serial: Serial, node: NodeId) -> Result<(), TrustError> {
        self.append(&format!("admitted {serial} {}\n", node.0))
    }

    /// Notes these as revoked, all or, after a crash, the first ones.
    pub(super) fn note_revoked(
        &self,
        serials: &BTreeSet<Serial>,
        at_s: i64,
    ) -> Result<(), TrustError> {
        let lines = serials
            .iter()
            .map(|serial| format!("revoked {serial} {at_s}\n"));
        self.append(&lines.collect::<String>())
    }

    /// Appends lines durably. One that a crash has cut short is removed first.
    fn append(&self, lines: &str) -> Result<(), TrustError> {
        let bytes = files::read_bytes(&self.path)?.unwrap_or_default();
        let complete = &bytes[..complete_bytes(&bytes)];
        if complete.len() < bytes.len() {
            files::replace(&self.path, complete)?;
        }
        let append = || {
            let mut file = OpenOptions::new()
                .create(true)
                .append(true)
                .mode(0o600)
                .open(&self.path)?;
            file.write_all(lines.as_bytes())?;
            file.sync_all()
        };
        append().map_err(io_error("write", &self.path))
    }
}

/// Bytes up to the last end of a line.
fn complete_bytes(bytes: &[u8]) -> usize {
    let end = bytes.iter().rposition(|&byte| byte == b'\n');
    end.map_or(0, |end| end + 1)
}

enum Line {
    Issued(Entry),
    Changed(Serial, Change),
}

enum Change {
    Used,
    Revoked { at_s: i64 },
    Admitted(NodeId),
}

fn parse(line: &str) -> Option<Line> {
    let words: Vec<&str> = line.split(' ').collect();
    let changed = |serial: &str, change| Some(Line::Changed(serial.parse().ok()?, change));
    match words[..] {
        ["issued", serial, from_s, until_s, name, ref parent @ ..] if parent.len() <= 1 => {
            let parent = parent.first().map(|parent| parent.parse()).transpose();
            Some(Line::Issued(Entry {
                serial: serial.parse().ok()?,
                name: name.parse().ok()?,
                from_s: from_s.parse().ok()?,
                until_s: until_s.parse().ok()?,
                parent: parent.ok()?,
                admitted: None,
                state: EntryState::Valid,
            }))
        }
        ["used", serial] => changed(serial, Change::Used),
        ["admitted", serial, node] => changed(serial, Change::Admitted(NodeId(node.parse().ok()?))),
        ["revoked", serial, at_s] => {
            let at_s = at_s.parse().ok()?;
            changed(serial, Change::Revoked { at_s })
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
            parent: None,
            admitted: None,
            state: EntryState::Valid,
        }
    }

    fn ledger(directory: &tempfile::TempDir) -> Ledger {
        Ledger::at(directory.path().join("ledger"))
    }

    #[test]
    fn a_ledger_is_read_as_it_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = ledger(&directory);
        assert_eq!(ledger.register().unwrap(), Register::default());
        let child = Entry {
            parent: Some(Serial(3)),
            ..entry(4)
        };
        for issued in [entry(1), entry(2), entry(3), child] {
            ledger.note_issued(&issued).unwrap();
        }
        ledger.note_revoked(&[Serial(2)].into(), 7).unwrap();
        ledger.note_used(Serial(2)).unwrap();
        ledger.note_used(Serial(3)).unwrap();
        ledger.note_admitted(Serial(1), NodeId(6)).unwrap();
        let register = ledger.register().unwrap();
        let admitted = Entry {
            admitted: Some(NodeId(6)),
            ..entry(1)
        };
        let of_state = |number, state| Entry {
            state,
            ..entry(number)
        };
        let revoked = of_state(2, EntryState::Revoked { at_s: 7 });
        let used = of_state(3, EntryState::Used);
        assert_eq!(register.entries, [admitted, revoked, used, child]);
        assert_eq!(register.damaged, []);
        let lines = register.lines();
        assert_eq!(lines[&child.serial], Serial(3));
        assert_eq!(lines[&used.serial], Serial(3));
    }

    #[test]
    fn a_line_that_a_crash_has_cut_does_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = ledger(&directory);
        ledger.note_issued(&entry(1)).unwrap();
        let text = fs::read_to_string(&ledger.path).unwrap();
        fs::write(&ledger.path, [text.as_bytes(), b"issued 0\xff"].concat()).unwrap();
        assert_eq!(ledger.register().unwrap().entries, [entry(1)]);
        ledger.note_issued(&entry(2)).unwrap();
        let register = ledger.register().unwrap();
        assert_eq!(
            (register.entries, register.damaged),
            (vec![entry(1), entry(2)], vec![])
        );
    }

    #[test]
    fn damaged_lines_are_named_and_earlier_tokens_count_as_used() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = ledger(&directory);
        let token = |number| Entry {
            name: entry(number).name.as_token(),
            ..entry(number)
        };
        ledger.note_issued(&token(1)).unwrap();
        ledger.note_issued(&entry(2)).unwrap();
        let orphan = Entry {
            parent: Some(Serial(9)),
            ..entry(3)
        };
        for damage in [
            &b"uzed 1"[..],
            b"revoked 8 7",
            b"admitted 2 x",
            b"",
            b"issued 2 5 9 x",
            b"\xff\xfe\0",
        ] {
            let before = fs::read(&ledger.path).unwrap();
            fs::write(&ledger.path, [&before, damage, b"\n"].concat()).unwrap();
        }
        ledger.note_issued(&orphan).unwrap();
        ledger.note_issued(&token(4)).unwrap();
        let register = ledger.register().unwrap();
        let used = Entry {
            state: EntryState::Used,
            ..token(1)
        };
        assert_eq!(register.entries, [used, entry(2), token(4)]);
        assert_eq!(register.damaged, [3, 4, 5, 6, 7, 8, 9]);
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
