//! Tests of the readers.

mod altered;
mod formats;

use super::*;
use crate::error::LabError;
use flate2::Compression;
use flate2::write::GzEncoder;
use formats::read_as;
use std::io::{Cursor, Write};
use std::num::NonZeroU64;
use std::path::Path;

const ROWS: &str = "128166410318060999,wdev,1,Write,3165323264,4096,1189\r\n\
                    7,wdev,1,Read,512,1024,0";

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
fn a_trace_without_requests_is_an_error() {
    for bytes in [&b""[..], b"\n \n", &gzip("")] {
        let error = TraceReader::new("t.csv".to_owned(), Cursor::new(bytes.to_vec())).unwrap_err();
        let expected = "t.csv, line 1: the trace has no requests";
        assert_eq!(error.to_string(), expected);
    }
    let only_header = b"Timestamp,Response,IOType,LUN,Offset,Size\n";
    let error = read_as(only_header, "systor17").pop().unwrap().unwrap_err();
    assert!(
        matches!(error, LabError::EmptyTrace { line: 1, .. }),
        "{error}"
    );
}

#[test]
fn a_truncated_archive_is_an_error() {
    let whole = gzip(&format!("{ROWS}\n").repeat(100));
    let cut_bytes = whole.len() - 9;
    let last = read(&whole[..cut_bytes]).pop().unwrap().unwrap_err();
    assert!(last.to_string().starts_with("t.csv, line "), "{last}");
    let expected = format!(
        ": the gzip data is damaged or cut off within the first {cut_bytes} bytes of the file; fetch the file again"
    );
    assert!(last.to_string().ends_with(&expected), "{last}");
    assert!(!last.is_usage(), "as for a malformed row");
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
    check_problem("1,h,0,Write,0,1073741825,9", "exceeds 1073741824 bytes");
    check_problem(&"1".repeat(5000), "longer than 1024");
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    let found = read(b"1,h,0,Read,0,512,9\n\xff\xfe\n");
    let message = found[1].as_ref().unwrap_err().to_string();
    assert_eq!(
        message,
        "t.csv, line 2: the line is not text, so this is not a trace of requests"
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
