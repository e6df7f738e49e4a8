//! Records of the audit log, as lines of JSON, and the check of their seals.

use super::file::{file_names, number_of};
use gabion_protocol::message::{Cause, CoordinatorReply};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Bytes of a seal: half a SHA-256 digest.
const SEAL_BYTES: usize = 16;
/// Stands between a record and its seal on a line.
const SEAL_KEY: &str = ",\"seal\":\"";

/// One record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuditRecord {
    /// Its number. The next record has the next one.
    pub number: u64,
    /// Milliseconds since 1970 by the coordinator's clock.
    pub time_ms: i64,
    /// Its contents.
    #[serde(flatten)]
    pub noted: Noted,
}

/// The contents of a record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Noted {
    /// A file begins. Its first record's seal depends on this seal, the last one of the file before.
    Begun {
        /// The seal, in hexadecimal digits.
        after: String,
    },
    /// An order, before it is carried out.
    Order(AuditedOrder),
    /// The outcome of an order. After a crash there is none.
    Outcome(AuditedOutcome),
}

/// An order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuditedOrder {
    /// The sender.
    pub peer: AuditedPeer,
    /// The operation.
    pub operation: String,
    /// The file, directory, pool or node, or the setting.
    pub subject: String,
    /// The new path, if a name changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// The sender of an order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuditedPeer {
    /// Its role.
    pub role: String,
    /// The serial of its certificate; none without TLS, when it has proven nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// Its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

/// The outcome of an order, with the number of its record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuditedOutcome {
    /// The number of the order's record.
    pub order: u64,
    /// The outcome.
    pub became: Became,
}

/// The outcome of an order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Became {
    /// It was carried out.
    Done,
    /// It was not, for this reason.
    Refused(String),
    /// The coordinator failed with this error before it knew.
    Unknown(String),
}

impl Became {
    /// Returns the outcome that the answer to an order shows.
    pub(crate) fn of(reply: &CoordinatorReply) -> Self {
        match reply {
            CoordinatorReply::Refused(denial)
                if matches!(denial.cause, Cause::NotLeading | Cause::Failure) =>
            {
                Self::Unknown(denial.to_string())
            }
            CoordinatorReply::Refused(denial) | CoordinatorReply::Busy(denial) => {
                Self::Refused(denial.to_string())
            }
            _ => Self::Done,
        }
    }
}

/// A digest of a record and of all before it.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Seal([u8; SEAL_BYTES]);

impl Seal {
    /// The seal of the record that follows.
    fn over(self, record: &str) -> Self {
        let sealed = digest(&SHA256, &[&self.0, record.as_bytes()].concat());
        let mut seal = Self::default();
        seal.0.copy_from_slice(&sealed.as_ref()[..SEAL_BYTES]);
        seal
    }
}

impl fmt::Display for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The line of a record, and its seal. `last` is the seal of the record before.
pub(super) fn sealed(record: &AuditRecord, last: Seal) -> (String, Seal) {
    let line = serde_json::to_string(record);
    let mut line = line.expect("a struct of numbers and strings is JSON");
    let seal = last.over(&line);
    line.pop();
    (format!("{line}{SEAL_KEY}{seal}\"}}\n"), seal)
}

/// The record of a line without its end, and whether it has the right seal; none if the line is damaged.
fn opened(line: &str, last: Seal) -> Option<(AuditRecord, Seal, bool)> {
    let (record, seal) = line.rsplit_once(SEAL_KEY)?;
    let record = format!("{record}}}");
    let known: AuditRecord = serde_json::from_str(&record).ok()?;
    let last = match &known.noted {
        Noted::Begun { after } => parse_seal(after)?,
        _ => last,
    };
    let found = parse_seal(seal.strip_suffix("\"}")?)?;
    Some((known, found, found == last.over(&record)))
}

fn parse_seal(digits: &str) -> Option<Seal> {
    let mut seal = Seal::default();
    if digits.len() != 2 * SEAL_BYTES || !digits.is_ascii() {
        return None;
    }
    for (at, byte) in seal.0.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(seal)
}

/// Errors of reading the audit log.
#[derive(Debug, Error)]
pub enum AuditError {
    /// There is none.
    #[error("{} has no audit log; name the --data directory of a coordinator", .0.display())]
    None(PathBuf),
    /// A file or directory cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// A place at which the audit log differs from what the coordinator wrote.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum AuditFault {
    /// A line is damaged, or is no record.
    #[error("line {line} of {file} is damaged")]
    Damaged {
        /// The file's name.
        file: String,
        /// The line, from 1.
        line: usize,
    },
    /// A record was changed, or records before it are missing.
    #[error(
        "line {line} of {file} does not continue the line before; a record was changed, added or removed"
    )]
    Broken {
        /// The file's name.
        file: String,
        /// The line, from 1.
        line: usize,
    },
    /// A file does not follow on the one before.
    #[error("{file} does not continue the file before; records are missing")]
    Missing {
        /// The file's name.
        file: String,
    },
}

/// The records of an audit log, in order.
#[derive(Debug, Default)]
pub struct AuditTrail {
    /// The records that can be read.
    pub records: Vec<AuditRecord>,
    /// Differences of the files from their state when they were written.
    pub faults: Vec<AuditFault>,
    /// Files that end in a cut line, as a crash leaves them: that record was not durable, and its order not carried
    /// out.
    pub cut: Vec<String>,
    /// The seal of the last record, which depends on all of them.
    pub seal: String,
    /// The seals of the records.
    seals: Vec<Seal>,
}

impl AuditTrail {
    /// Reads the audit log in a coordinator's directory.
    ///
    /// # Errors
    /// [`AuditError`].
    pub fn read(data: &Path) -> Result<Self, AuditError> {
        let directory = data.join(super::log::DIRECTORY);
        let names = match file_names(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(AuditError::None(data.to_owned()));
            }
            names => names.map_err(read_error(&directory))?,
        };
        let mut trail = Self::default();
        let mut last = None;
        for name in names {
            let path = directory.join(&name);
            let text = std::fs::read(&path).map_err(read_error(&path))?;
            last = Some(trail.add(&name, &String::from_utf8_lossy(&text), last));
        }
        trail.seal = last.map(|(_, seal)| seal.to_string()).unwrap_or_default();
        Ok(trail)
    }

    /// Adds a file. `last` is the number and seal of the last record before it.
    fn add(&mut self, name: &str, text: &str, last: Option<(u64, Seal)>) -> (u64, Seal) {
        let first = number_of(name).unwrap_or_default();
        let (mut number, mut seal) = last.unwrap_or((first.wrapping_sub(1), Seal::default()));
        let (whole, cut) = text.rsplit_once('\n').unwrap_or(("", text));
        if !cut.is_empty() {
            self.cut.push(name.to_owned());
        }
        if whole.is_empty() {
            // Its first record does not count, and has a number.
            return (first, seal);
        }
        for (at, line) in whole.lines().enumerate() {
            let place = || (name.to_owned(), at + 1);
            let Some((record, found, is_right)) = opened(line, seal) else {
                let (file, line) = place();
                self.faults.push(AuditFault::Damaged { file, line });
                continue;
            };
            let follows = record.number == number.wrapping_add(1);
            let after = match &record.noted {
                Noted::Begun { after } => Some(after),
                _ => None,
            };
            if at == 0 && last.is_some() && (!follows || after != Some(&seal.to_string())) {
                let file = name.to_owned();
                self.faults.push(AuditFault::Missing { file });
            } else if !is_right || !follows {
                let (file, line) = place();
                self.faults.push(AuditFault::Broken { file, line });
            }
            (number, seal) = (record.number, found);
            self.records.push(record);
            self.seals.push(found);
        }
        (number, seal)
    }

    /// Whether a record has this seal, in hexadecimal digits. If the last seal of an earlier check is missing, records
    /// were removed since, or the log is another one.
    pub fn has_seal(&self, seal: &str) -> bool {
        parse_seal(seal).is_some_and(|seal| self.seals.contains(&seal))
    }

    /// The number and the seal of the last record of a file; none if it has no whole record.
    pub(super) fn end_of(name: &str, text: &str) -> Option<(u64, Seal)> {
        let mut trail = Self::default();
        let end = trail.add(name, text, None);
        (!trail.records.is_empty()).then_some(end)
    }
}

fn read_error(path: &Path) -> impl FnOnce(io::Error) -> AuditError {
    let path = path.to_owned();
    move |source| AuditError::Io { path, source }
}
