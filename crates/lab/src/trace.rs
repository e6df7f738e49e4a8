//! A streaming reader of block traces in the form of the MSR Cambridge volumes, plain or gzip:
//! `timestamp, host, disk, Read|Write, offset, size, response`, one request a line, no header.
//!
//! It keeps one line in memory, whatever the trace's length. It does not repair: a malformed row
//! ends the stream with an error that names the line.

use crate::error::{LabError, RowProblem};
use flate2::bufread::MultiGzDecoder;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::num::NonZeroU64;
use std::path::Path;

/// The longest line that is read; rows of real traces have under 100 bytes.
const LINE_BYTES_MAX: usize = 1024;
/// The largest request that is believed. No disk takes more at once, and a row that claims exabytes
/// would keep an experiment busy for years.
const REQUEST_BYTES_MAX: u64 = 1 << 30;
/// Fields of a row.
const FIELD_COUNT: usize = 7;
/// The first bytes of every gzip member.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Whether a request reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestKind {
    /// Stored bytes are read.
    Read,
    /// Stored bytes are replaced.
    Write,
}

/// One request to a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// When it was made, in units of 100 ns; from when they count is the trace's own affair (the
    /// year 1601 for MSR Cambridge).
    pub at_ticks: u64,
    /// Read or write.
    pub kind: RequestKind,
    /// First byte.
    pub offset_bytes: u64,
    /// Number of bytes, at least 1; `offset_bytes + length_bytes` does not overflow.
    pub length_bytes: u64,
}

impl Request {
    /// Reads one row, without its line break.
    ///
    /// # Errors
    /// The first thing that is wrong with it, field by field from the left.
    pub fn from_row(row: &str) -> Result<Self, RowProblem> {
        let mut fields = [""; FIELD_COUNT];
        let mut found = 0;
        for field in row.split(',') {
            if let Some(place) = fields.get_mut(found) {
                *place = field.trim();
            }
            found += 1;
        }
        if found != FIELD_COUNT {
            return Err(RowProblem::FieldCount { found });
        }
        // Host and disk are names that no experiment looks at.
        let [timestamp, _, _, kind, offset, size, response] = fields;
        let at_ticks = number("timestamp", timestamp)?;
        let kind = if kind.eq_ignore_ascii_case("Read") {
            RequestKind::Read
        } else if kind.eq_ignore_ascii_case("Write") {
            RequestKind::Write
        } else {
            return Err(RowProblem::UnknownType { text: cut(kind) });
        };
        let offset_bytes = number("offset", offset)?;
        let size_bytes = number("size", size)?;
        number("response", response)?;
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
        Ok(Self {
            at_ticks,
            kind,
            offset_bytes,
            length_bytes: size_bytes,
        })
    }

    /// The request on a file of `file_bytes` bytes instead of its volume: addresses are folded over at
    /// the file's end, and a request that would straddle it is moved down to stop there. One longer
    /// than the file becomes all of it.
    #[must_use]
    pub fn folded(self, file_bytes: NonZeroU64) -> Self {
        let length_bytes = self.length_bytes.min(file_bytes.get());
        let offset_bytes = self.offset_bytes % file_bytes;
        Self {
            offset_bytes: offset_bytes.min(file_bytes.get() - length_bytes),
            length_bytes,
            ..self
        }
    }

    /// One past the last byte.
    pub const fn end_bytes(&self) -> u64 {
        self.offset_bytes + self.length_bytes
    }
}

fn number(field: &'static str, text: &str) -> Result<u64, RowProblem> {
    text.parse().map_err(|_| RowProblem::NotANumber {
        field,
        text: cut(text),
    })
}

/// The beginning of a bad field: enough to find it by, and no more than fits a message.
fn cut(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Reads requests from a trace, one after another. After the first error the stream is over.
pub struct TraceReader {
    name: String,
    source: Box<dyn BufRead + Send>,
    line: Vec<u8>,
    line_count: u64,
    is_over: bool,
}

impl fmt::Debug for TraceReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceReader")
            .field("name", &self.name)
            .field("line_count", &self.line_count)
            .finish_non_exhaustive()
    }
}

impl TraceReader {
    /// Opens a trace file. Whether it is compressed is seen from its first bytes, not its name.
    ///
    /// # Errors
    /// [`LabError::Io`] when the file cannot be opened or its first bytes cannot be read.
    pub fn open(path: &Path) -> Result<Self, LabError> {
        let trace = path.display().to_string();
        match File::open(path) {
            Ok(file) => Self::new(trace, file),
            Err(source) => Err(LabError::Io {
                operation: "open",
                trace,
                source,
            }),
        }
    }

    /// Reads a trace from bytes that come from anywhere; errors call it `name`.
    ///
    /// # Errors
    /// [`LabError::Io`] when the first bytes cannot be read.
    pub fn new(name: String, mut bytes: impl Read + Send + 'static) -> Result<Self, LabError> {
        let mut head = Vec::with_capacity(GZIP_MAGIC.len());
        let magic_bytes = GZIP_MAGIC.len() as u64;
        if let Err(source) = bytes.by_ref().take(magic_bytes).read_to_end(&mut head) {
            return Err(LabError::Io {
                operation: "read",
                trace: name,
                source,
            });
        }
        let is_gzip = head == GZIP_MAGIC;
        let whole = BufReader::new(Cursor::new(head).chain(bytes));
        let source: Box<dyn BufRead + Send> = if is_gzip {
            Box::new(BufReader::new(MultiGzDecoder::new(whole)))
        } else {
            Box::new(whole)
        };
        Ok(Self {
            name,
            source,
            line: Vec::with_capacity(LINE_BYTES_MAX + 1),
            line_count: 0,
            is_over: false,
        })
    }

    fn read_row(&mut self) -> Result<Option<Request>, LabError> {
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
            Ok(0) => Ok(None),
            Ok(_) => row_of(&self.line)
                .map(Some)
                .map_err(|problem| LabError::Row {
                    trace: self.name.clone(),
                    line: self.line_count,
                    problem,
                }),
            Err(source) => Err(self.read_error(source)),
        }
    }

    fn read_error(&self, source: io::Error) -> LabError {
        LabError::Io {
            operation: "read",
            trace: self.name.clone(),
            source,
        }
    }
}

/// Reads a line with or without its break.
fn row_of(line: &[u8]) -> Result<Request, RowProblem> {
    let row = line.strip_suffix(b"\n").unwrap_or(line);
    let row = row.strip_suffix(b"\r").unwrap_or(row);
    if row.len() >= LINE_BYTES_MAX {
        return Err(RowProblem::LongLine {
            limit_bytes: LINE_BYTES_MAX,
        });
    }
    Request::from_row(str::from_utf8(row).map_err(|_| RowProblem::NotText)?)
}

impl Iterator for TraceReader {
    type Item = Result<Request, LabError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let row = self.read_row().transpose();
        self.is_over = !matches!(row, Some(Ok(_)));
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    const ROWS: &str = "128166410318060999,wdev,1,Write,3165323264,4096,1189\r\n\
                        7,cp,0,Read,512,1024,0";

    fn read(bytes: &[u8]) -> Vec<Result<Request, LabError>> {
        let bytes = Cursor::new(bytes.to_vec());
        TraceReader::new("t.csv".to_owned(), bytes)
            .unwrap()
            .collect()
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn check_rows(bytes: &[u8]) {
        let found: Vec<Request> = read(bytes).into_iter().map(Result::unwrap).collect();
        let write = Request {
            at_ticks: 128_166_410_318_060_999,
            kind: RequestKind::Write,
            offset_bytes: 3_165_323_264,
            length_bytes: 4096,
        };
        let read = Request {
            at_ticks: 7,
            kind: RequestKind::Read,
            offset_bytes: 512,
            length_bytes: 1024,
        };
        assert_eq!(found, [write, read]);
    }

    #[test]
    fn plain_and_compressed_rows_read_alike() {
        check_rows(ROWS.as_bytes());
        check_rows(format!("{ROWS}\n").as_bytes());
        check_rows(&gzip(ROWS));
        let (first, second) = ROWS.split_once('\n').unwrap();
        let two_members = [gzip(&format!("{first}\n")), gzip(second)].concat();
        check_rows(&two_members);
    }

    #[test]
    fn an_empty_trace_has_no_requests() {
        assert!(read(b"").is_empty());
    }

    #[test]
    fn a_truncated_archive_is_an_error() {
        let whole = gzip(&format!("{ROWS}\n").repeat(100));
        let last = read(&whole[..whole.len() - 9]).pop().unwrap();
        assert!(
            matches!(
                last,
                Err(LabError::Io {
                    operation: "read",
                    ..
                })
            ),
            "{last:?}"
        );
    }

    fn check_problem(row: &str, expected: &str) {
        let rows = format!("1,h,0,Read,0,512,9\n{row}\n1,h,0,Read,0,512,9\n");
        let found = read(rows.as_bytes());
        assert_eq!(
            found.len(),
            2,
            "the stream ends with the bad row: {found:?}"
        );
        let message = found[1].as_ref().unwrap_err().to_string();
        assert!(message.starts_with("t.csv, line 2: "), "{message}");
        assert!(message.contains(expected), "{message}");
    }

    #[test]
    fn malformed_rows_name_the_line_and_the_fault() {
        check_problem("1,h,0,Read,0,512", "6 fields");
        check_problem("1,h,0,Read,0,512,9,9", "8 fields");
        check_problem("", "1 fields");
        check_problem("x1,h,0,Read,0,512,9", "timestamp 'x1' is not");
        check_problem("1,h,0,Trim,0,512,9", "type 'Trim' is neither");
        check_problem("1,h,0,Read,-1,512,9", "offset '-1' is not");
        check_problem("1,h,0,Read,0,18446744073709551616,9", "size '1844");
        check_problem("1,h,0,Read,0,512,", "response '' is not");
        check_problem("1,h,0,Write,0,0,9", "size is 0");
        check_problem("1,h,0,Write,18446744073709551615,1,9", "past the last byte");
        check_problem("1,h,0,Write,0,1073741825,9", "more than 1073741824");
        check_problem(&"1".repeat(5000), "longer than 1024");
    }

    #[test]
    fn bytes_that_are_no_text_are_refused() {
        let found = read(b"1,h,0,Read,0,512,9\n\xff\xfe\n");
        let message = found[1].as_ref().unwrap_err().to_string();
        assert_eq!(
            message,
            "t.csv, line 2: the line is not text; this is no trace of requests"
        );
    }

    #[test]
    fn a_compressed_file_is_known_by_its_bytes() {
        let mut file = tempfile::NamedTempFile::with_suffix(".csv").unwrap();
        file.write_all(&gzip(ROWS)).unwrap();
        let requests = TraceReader::open(file.path()).unwrap();
        assert_eq!(requests.map(Result::unwrap).count(), 2);
    }

    #[test]
    fn folding_keeps_requests_inside() {
        let check = |offset_bytes, length_bytes, expected| {
            let request = Request {
                at_ticks: 1,
                kind: RequestKind::Write,
                offset_bytes,
                length_bytes,
            };
            let folded = request.folded(NonZeroU64::new(1000).unwrap());
            assert_eq!((folded.offset_bytes, folded.length_bytes), expected);
        };
        check(300, 700, (300, 700));
        check(2300, 10, (300, 10));
        check(990, 20, (980, 20));
        check(u64::MAX - 5000, 5000, (0, 1000));
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = TraceReader::open(Path::new("no/such/trace.csv")).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot open the trace no/such/trace.csv: ")
        );
    }
}
