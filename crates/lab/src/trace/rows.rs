//! The rows of a trace's file: opened, decompressed, of a known format, and counted by lines.

use super::decompress::{Damage, Text, text};
use super::format::{Format, Parser};
use super::request::Request;
use super::row::VolumeName;
use crate::error::{LabError, RowProblem};
use std::io::{self, BufRead, BufReader, Cursor, Read};

/// The longest line that is read; rows of real traces have under 200 bytes.
const LINE_BYTES_MAX: usize = 1024;
/// Bytes by which a format is found.
const HEAD_BYTES: usize = 64 << 10;

/// Reads rows, one after another, with one line in memory.
pub(super) struct Rows {
    pub(super) name: String,
    pub(super) format: Format,
    source: Text,
    parser: Parser,
    line: Vec<u8>,
    /// The line read last, from 1.
    pub(super) line_count: u64,
}

/// A reader of nothing but an error.
struct Failing(Option<io::Error>);

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

impl Rows {
    pub(super) fn new(
        name: String,
        bytes: impl Read + Send + 'static,
        format: Option<Format>,
    ) -> Result<Self, LabError> {
        let mut source = match text(bytes) {
            Ok(source) => source,
            Err(error) => return Err(unreadable(name, 1, error)),
        };
        let (head, error) = head_of(&mut source);
        if error.is_none() && head.len() < HEAD_BYTES && head.iter().all(u8::is_ascii_whitespace) {
            return Err(LabError::EmptyTrace {
                trace: name,
                line: 1,
            });
        }
        let sample = String::from_utf8_lossy(&head);
        let format = format.or_else(|| Format::of(&sample));
        let format = match (format, error) {
            (Some(format), None) => format,
            (Some(format), Some(error)) => {
                // Rows that were read before the error come first.
                source = Box::new(BufReader::new(Failing(Some(error))));
                format
            }
            (None, Some(error)) => {
                let lines = head.split(|&byte| byte == b'\n');
                return Err(unreadable(name, lines.count() as u64, error));
            }
            (None, None) => {
                return Err(LabError::UnknownFormat {
                    trace: name,
                    known: Format::names(),
                });
            }
        };
        let parser = Parser::new(format, &sample);
        Ok(Self {
            name,
            format,
            source: Box::new(Cursor::new(head).chain(source)),
            parser,
            line: Vec::with_capacity(LINE_BYTES_MAX + 1),
            line_count: 0,
        })
    }

    /// The next request, as `take` makes it; `None` at the end. Lines without one are passed over.
    pub(super) fn next<T>(
        &mut self,
        mut take: impl FnMut(VolumeName<'_>, Request) -> T,
    ) -> Result<Option<T>, LabError> {
        loop {
            if !self.read_line()? {
                return Ok(None);
            }
            let row = row_of(&self.line).and_then(|row| {
                if self.line_count == 1 && self.format.is_header(row) {
                    return Ok(None);
                }
                self.parser.row(row)
            });
            match row {
                Ok(Some((volume, request))) => return Ok(Some(take(volume, request))),
                Ok(None) => {}
                Err(problem) => {
                    return Err(LabError::Row {
                        trace: self.name.clone(),
                        line: self.line_count,
                        problem,
                    });
                }
            }
        }
    }

    fn read_line(&mut self) -> Result<bool, LabError> {
        self.line.clear();
        self.line_count += 1;
        // One byte more than a line may have tells a line that is too long from one that just fits.
        let limit = LINE_BYTES_MAX as u64 + 1;
        let read = self
            .source
            .by_ref()
            .take(limit)
            .read_until(b'\n', &mut self.line);
        match read {
            Ok(count) => Ok(count > 0),
            Err(error) => Err(unreadable(self.name.clone(), self.line_count, error)),
        }
    }
}

/// The error of a file that cannot be read or decoded beyond the beginning of a line.
fn unreadable(trace: String, line: u64, source: io::Error) -> LabError {
    match Damage::of(&source) {
        Some(Damage {
            compression,
            read_bytes,
        }) => LabError::DamagedTrace {
            trace,
            line,
            compression,
            read_bytes,
        },
        None => LabError::Io {
            operation: "read",
            trace,
            source,
        },
    }
}

/// The first bytes, and the error that ended them.
fn head_of(source: &mut Text) -> (Vec<u8>, Option<io::Error>) {
    let mut head = Vec::with_capacity(HEAD_BYTES);
    while head.len() < HEAD_BYTES {
        let count = match source.fill_buf() {
            Ok([]) => return (head, None),
            Ok(bytes) => {
                let count = bytes.len().min(HEAD_BYTES - head.len());
                head.extend_from_slice(&bytes[..count]);
                count
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return (head, Some(error)),
        };
        source.consume(count);
    }
    (head, None)
}

/// A line without its break.
fn row_of(line: &[u8]) -> Result<&str, RowProblem> {
    let row = line.strip_suffix(b"\n").unwrap_or(line);
    let row = row.strip_suffix(b"\r").unwrap_or(row);
    if row.len() >= LINE_BYTES_MAX {
        return Err(RowProblem::LongLine {
            limit_bytes: LINE_BYTES_MAX,
        });
    }
    str::from_utf8(row).map_err(|_| RowProblem::NotText)
}
