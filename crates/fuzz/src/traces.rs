//! Traces that a person names on the command line: rows of all formats, plain and compressed.

use crate::script::{Script, edit};
use crate::target::Target;
use bzip2::write::BzEncoder;
use flate2::write::GzEncoder;
use gabion_lab::LabError;
use gabion_lab::trace::{FORMATS, Format, Request, TraceOptions, TraceReader};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use std::io::{Cursor, Write};

/// Rows, with the same result plain and compressed.
pub(crate) const ROWS: Target = Target {
    name: "trace-rows",
    run: run_rows,
    seeds: seeds_of_rows,
    input_bytes_max: 4096,
    memory_bytes_max: 16 << 20,
    test_input_count: 30_000,
};

/// Compressed files with damage.
pub(crate) const COMPRESSED: Target = Target {
    name: "compressed-traces",
    run: run_compressed,
    seeds: seeds_of_compressed,
    input_bytes_max: 1024,
    // The window of a Zstandard frame has at most 128 MiB.
    memory_bytes_max: 160 << 20,
    test_input_count: 8_000,
};

/// The most requests that are read: the contents of a compressed file may be much longer than the file.
const REQUEST_COUNT_MAX: usize = 10_000;

/// Rows of each format, two requests or more.
const SAMPLES: [&str; 10] = [
    "20000000,h,0,Write,1048576,4096,9\n30000000,h,0,Read,512,8192,9\n",
    "fio version 2 iolog\nf add\nf open\nf wait 2000000 0\nf write 1048576 4096\nf read 512 8192\nf sync 0 0\n",
    "fio version 3 iolog\n0 f add\n1 f open\n2000000 f write 1048576 4096\n3000001 f trim 0 512\n",
    "  8,0    1        1     2.000000000  77  A  WS 2048 + 8 <- (8,1) 0\n  8,0    1        2     2.000000000  77  Q  WS \
     2048 + 8 [app]\n  8,0    1        5     3.000000000  77  Q  RA 1 + 16 [app]\n",
    "7,W,1048576,4096,2000000\n7,R,512,8192,3000000\n",
    "2,2048,8,1,7\n3,1,16,0,7\n",
    "Timestamp,Response,IOType,LUN,Offset,Size\n2.000000000,0.001,W,4,1048576,4096\n2.5,,,4,0,512\n3.0,0.001,R,4,512,8192\n",
    "version,time,op,size,lbn\n1,2,2a,4096,2048\n1,3,28,8192,1\n",
    "2000.000000 0 2048 8 0\n3000.000000 0 1 16 1\n",
    "2.000000 2.1 2.2 4096 W 1024 1 1 1 1\n3.000000 3.1 3.2 8192 R 0 1 1 1 1\n",
];

/// Reads a whole trace: its requests, and whether an error ended it.
fn read(bytes: Vec<u8>, format: Option<Format>) -> (Vec<Request>, Option<LabError>) {
    let options = TraceOptions {
        format,
        ..TraceOptions::default()
    };
    let reader = match TraceReader::with("t".to_owned(), Cursor::new(bytes), &options) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut requests = Vec::new();
    for request in reader.take(REQUEST_COUNT_MAX) {
        match request {
            Ok(request) => {
                let end = request.offset_bytes.checked_add(request.length_bytes);
                assert!(end.is_some(), "{request:?} has no end");
                requests.push(request);
            }
            Err(error) => return (requests, Some(error)),
        }
    }
    (requests, None)
}

/// The first byte: the format and a compression. The others: the text.
fn run_rows(input: &[u8]) {
    let mut script = Script::new(input);
    let choice = usize::from(script.u8());
    let text = script.rest();
    let format = FORMATS.get(choice % 16).map(|known| known.format);
    let (plain, plain_error) = read(text.to_vec(), format);
    let compressed = match choice / 16 % 8 {
        0 => gzip(text),
        1 => bzip2(text),
        2 => zstd(text),
        _ => return,
    };
    let is_text = ![&b"\x1f\x8b"[..], b"BZh", b"\x28\xb5\x2f\xfd"]
        .iter()
        .any(|magic| text.starts_with(magic));
    let (requests, error) = read(compressed, format);
    if is_text {
        assert_eq!(requests, plain, "compression changes the requests");
        let sentence = |error: Option<LabError>| error.map(|error| error.to_string());
        assert_eq!(sentence(error), sentence(plain_error));
    }
}

/// The first two bytes choose rows, repeat them and compress them. The others: edits of the file.
fn run_compressed(input: &[u8]) {
    let mut script = Script::new(input);
    let (choice, count) = (script.u8(), usize::from(script.u8() % 16));
    let text = SAMPLES[usize::from(choice) % SAMPLES.len()]
        .repeat(count)
        .into_bytes();
    let mut bytes = match choice / 16 % 8 {
        0 => gzip(&text),
        1 => bzip2(&text),
        2 => zstd(&text),
        3 => [gzip(&text), gzip(&text)].concat(),
        4 => [bzip2(&text), bzip2(&text)].concat(),
        5 => [zstd(&text), zstd(&text)].concat(),
        _ => script.rest().to_vec(),
    };
    while !script.is_empty() {
        edit(&mut bytes, &mut script);
    }
    // Damage may also make more of it, whose decoders have their own limits.
    let (_, error) = read(bytes, None);
    if let Some(error) = error {
        assert!(!error.to_string().is_empty());
    }
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).expect("into memory");
    encoder.finish().expect("into memory")
}

fn bzip2(text: &[u8]) -> Vec<u8> {
    let mut encoder = BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    encoder.write_all(text).expect("into memory");
    encoder.finish().expect("into memory")
}

fn zstd(text: &[u8]) -> Vec<u8> {
    compress_to_vec(text, CompressionLevel::Fastest)
}

fn seeds_of_rows() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (at, rows) in (0_u8..).zip(SAMPLES) {
        let compression = at % 4 * 16;
        // Without a format, and in each one.
        seeds.push([&[15 + compression][..], rows.as_bytes()].concat());
        seeds.push([&[15 + 48][..], rows.as_bytes()].concat());
        for format in 0..FORMATS.len() as u8 {
            if format == at || format + 1 == at {
                seeds.push([&[format + 48][..], rows.as_bytes()].concat());
            }
        }
    }
    seeds
}

fn seeds_of_compressed() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = (0..96).map(|choice| vec![choice, 2]).collect();
    for rows in &SAMPLES[..3] {
        for bytes in [
            gzip(rows.as_bytes()),
            bzip2(rows.as_bytes()),
            zstd(rows.as_bytes()),
        ] {
            seeds.push([&[96, 0][..], &bytes].concat());
        }
    }
    seeds
}
