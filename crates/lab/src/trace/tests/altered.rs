//! Traces with damage anywhere: a reader returns requests or an error, and never panics.

use super::formats::SAMPLES;
use crate::trace::{Format, TraceOptions, TraceReader};
use flate2::Compression;
use flate2::write::GzEncoder;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::io::{Cursor, Write};

/// Altered copies of each sample.
const COPY_COUNT: usize = 2_000;

/// Texts at the borders of what a reader expects.
const TEXTS: [&str; 18] = [
    "0",
    "-1",
    "18446744073709551615",
    "18446744073709551616",
    "9223372036854775807",
    "340282366920938463463374607431768211456",
    "1e309",
    "NaN",
    "inf",
    "0.0000000000000000001",
    "99999999999.999999999",
    "é",
    "\u{feff}",
    "\0",
    ",",
    "\n",
    " ",
    "",
];

/// Changes a trace in one place: puts a text between its bytes or in place of a field, changes or removes a byte, or
/// repeats a piece.
fn alter(bytes: &mut Vec<u8>, rng: &mut ChaCha8Rng) {
    if bytes.is_empty() {
        return;
    }
    let at = rng.random_range(0..bytes.len());
    let text = TEXTS.choose(rng).expect("there are some").bytes();
    match rng.random_range(0..6) {
        0 => drop(bytes.splice(at..at, text)),
        1 | 2 => {
            let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'.';
            let start = bytes[..at].iter().rposition(|byte| !is_inner(byte));
            let start = start.map_or(0, |before| before + 1);
            let end = bytes[at..].iter().position(|byte| !is_inner(byte));
            let end = end.map_or(bytes.len(), |behind| at + behind).max(start);
            drop(bytes.splice(start..end, text));
        }
        3 => bytes[at] = rng.random(),
        4 => drop(bytes.remove(at)),
        _ => {
            let end = (at + rng.random_range(1..40)).min(bytes.len());
            let piece = bytes[at..end].to_vec();
            drop(bytes.splice(at..at, piece));
        }
    }
}

/// Reads all of a trace, in a format or in the one that is found.
fn read_all(bytes: &[u8], format: Option<Format>) {
    let options = TraceOptions {
        format,
        ..TraceOptions::default()
    };
    let bytes = Cursor::new(bytes.to_vec());
    let Ok(reader) = TraceReader::with("t".to_owned(), bytes, &options) else {
        return;
    };
    for request in reader {
        match request {
            Ok(request) => {
                let end = request.offset_bytes.checked_add(request.length_bytes);
                assert!(end.is_some(), "{request:?} has no end");
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

#[test]
fn no_altered_trace_makes_a_reader_panic() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for (name, rows, bad, _) in SAMPLES {
        let format: Format = name.parse().expect("the format's name");
        let sound = format!("{rows}{bad}\n").into_bytes();
        for _ in 0..COPY_COUNT {
            let mut bytes = sound.clone();
            for _ in 0..rng.random_range(1..=3) {
                alter(&mut bytes, &mut rng);
            }
            read_all(&bytes, Some(format));
            read_all(&bytes, None);
        }
    }
}

#[test]
fn no_altered_compressed_trace_makes_a_reader_panic() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    for (_, rows, ..) in SAMPLES {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(rows.as_bytes()).expect("into memory");
        let sound = encoder.finish().expect("into memory");
        for _ in 0..200 {
            let mut bytes = sound.clone();
            alter(&mut bytes, &mut rng);
            read_all(&bytes, None);
        }
    }
}
