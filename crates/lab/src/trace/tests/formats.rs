//! Each format: its rows, units, detection and bad rows; volumes, times and compression.

use super::{gzip, read};
use crate::error::LabError;
use crate::trace::{
    FORMATS, Format, Request, RequestKind, TimeFault, TraceOptions, TraceReader, volumes,
};
use std::io::{Cursor, Read, Write};
use std::sync::Mutex;

pub(super) fn read_as(bytes: &[u8], format: &str) -> Vec<Result<Request, LabError>> {
    let options = TraceOptions {
        format: Some(format.parse().unwrap()),
        ..TraceOptions::default()
    };
    let bytes = Cursor::new(bytes.to_vec());
    TraceReader::with("t".to_owned(), bytes, &options)
        .unwrap()
        .collect()
}

/// Two rows of each format, the same requests: at 2 s a write of 4 KiB at 1 MiB, at 3 s a read of
/// 8 KiB at 512, or at 0 where offsets are in KiB; and a bad third row with what is said of it.
pub(super) const SAMPLES: [(&str, &str, &str, &str); 10] = [
    (
        "msr",
        "20000000,h,0,Write,1048576,4096,9\n30000000,h,0,Read,512,8192,9\n",
        "40000000,h,0,Trim,0,512,9",
        "type 'Trim'",
    ),
    (
        "fio",
        "fio version 2 iolog\nf add\nf open\nf wait 2000000 0\nf write 1048576 4096\n\
         f wait 1000000 0\nf read 512 8192\nf sync 0 0\n",
        "f jump 0 512",
        "type 'jump'",
    ),
    (
        "fio",
        "fio version 3 iolog\n0 f add\n1 f open\n2000000 f write 1048576 4096\n\
         3000000 f read 512 8192\n3000001 f trim 0 512\n",
        "4000000 f write 0",
        "4 fields",
    ),
    (
        "blkparse",
        "  8,0    1        1     2.000000000  77  A  WS 2048 + 8 <- (8,1) 0\n  \
           8,0    1        2     2.000000000  77  Q  WS 2048 + 8 [app]\n  \
           8,0    1        3     2.000100000  77  D  WS 2048 + 8 [app]\n  \
           8,0    1        4     2.500000000  77  Q FWS [app]\n  \
           8,0    1        5     3.000000000  77  Q  RA 1 + 16 [app]\n  \
           8,0    1        6     3.000000000  77  Q   D 1 + 16 [app]\n",
        "  8,x    1        7     4.0  77  Q  R 1 + 16 [app]",
        "minor device number 'x'",
    ),
    (
        "alibaba",
        "7,W,1048576,4096,2000000\n7,R,512,8192,3000000\n",
        "7,X,0,512,4000000",
        "type 'X'",
    ),
    (
        "tencent",
        "2,2048,8,1,7\n3,1,16,0,7\n",
        "4,0,0,1,7",
        "size is 0",
    ),
    (
        "systor17",
        "Timestamp,Response,IOType,LUN,Offset,Size\n2.000000000,0.001,W,4,1048576,4096\n\
         2.5,,,4,0,512\n3.000000000,0.001,R,4,512,8192\n",
        "now,0.001,R,4,0,512",
        "timestamp 'now'",
    ),
    (
        "cloudphysics",
        "version,time,op,size,lbn\n1,2,2a,4096,2048\n1,3,28,8192,1\n",
        "1,4,28,100,1",
        "multiple of 512",
    ),
    (
        "disksim",
        "2000.000 0 2048 8 0\n3000.0 0 1 16 1\n",
        "4000.0 0 1 16",
        "4 fields",
    ),
    (
        "srt",
        "# created  start   stop  bytes disk_offset(k) device#   lv#  thrid pid\n \
         2.000000     12   8012   4096 W       1024 1f000400 40000003 0   77\n\
         # created  start   stop  bytes disk_offset(k) device#   lv#  thrid pid\n \
         3.000000     12   8012   8192 R          0 1f000400 null null   77\n",
        "4.000000 12 8012 512 W 0 disk 0 0 77",
        "device 'disk'",
    ),
];

#[test]
fn each_format_is_found_and_gives_the_same_requests() {
    let at = |seconds: u64, kind, offset_bytes, length_bytes| Request {
        at_ticks: seconds * 10_000_000,
        kind,
        offset_bytes,
        length_bytes,
    };
    for (name, rows, ..) in SAMPLES {
        let read_at = if name == "srt" { 0 } else { 512 };
        let expected = [
            at(2, RequestKind::Write, 1 << 20, 4096),
            at(3, RequestKind::Read, read_at, 8192),
        ];
        let reader = TraceReader::new(name.to_owned(), Cursor::new(rows)).unwrap();
        assert_eq!(reader.format().to_string(), name);
        let found: Vec<Request> = reader.map(Result::unwrap).collect();
        assert_eq!(found, expected, "{name}");
        let named: Vec<Request> = read_as(rows.as_bytes(), name)
            .into_iter()
            .map(Result::unwrap)
            .collect();
        assert_eq!(named, expected, "{name}");
    }
    for descriptor in FORMATS {
        let has_sample = SAMPLES.iter().any(|(name, ..)| *name == descriptor.name);
        assert!(has_sample, "{}", descriptor.name);
    }
}

#[test]
fn bad_rows_of_each_format_name_the_line_and_the_fault() {
    for (name, rows, bad, fault) in SAMPLES {
        let line = rows.lines().count() + 1;
        let error = read(format!("{rows}{bad}\n").as_bytes()).pop().unwrap();
        let error = error.unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("t.csv, line {line}: ")),
            "{name}: {error}"
        );
        assert!(error.contains(fault), "{name}: {error}");
    }
}

#[test]
fn bad_rows_of_srt_are_refused() {
    let row = |fields: &str| format!("0.5 1 2 512 W 0 a {fields}\n");
    for (bad, fault) in [
        ("4.0 1 2 512 W 0 a 0 0", "9 fields"),
        ("-4.0 1 2 512 W 0 a 0 0 7", "timestamp '-4.0'"),
        ("4.0 1.5 2 512 W 0 a 0 0 7", "start '1.5'"),
        ("4.0 1 x 512 W 0 a 0 0 7", "stop 'x'"),
        ("4.0 1 2 0 W 0 a 0 0 7", "size is 0"),
        ("4.0 1 2 -1 W 0 a 0 0 7", "bytes '-1'"),
        ("4.0 1 2 512 X 0 a 0 0 7", "type 'X'"),
        (
            "4.0 1 2 512 W 18014398509481984 a 0 0 7",
            "offset '18014398509481984'",
        ),
    ] {
        let rows = format!("{}{bad}\n", row("0 0 7").repeat(3));
        let error = read(rows.as_bytes())
            .pop()
            .unwrap()
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("t.csv, line 4: "), "{error}");
        assert!(error.contains(fault), "{bad}: {error}");
    }
}

#[test]
fn blkparse_counts_issued_requests_where_none_is_queued_and_stops_at_the_summary() {
    let rows = "8,0 1 1 0.5 7 D W 8 + 8 [a]\n8,0 1 2 0.6 0 C W 8 + 8 [0]\n\
                CPU0 (sda):\n Reads Queued: 0, 0KiB\n";
    let found = read(rows.as_bytes());
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].as_ref().unwrap().at_ticks, 5_000_000);
}

#[test]
fn what_is_no_trace_is_refused_with_the_formats() {
    let bytes = Cursor::new("name;age\nbob;7\n");
    let error = TraceReader::new("t.csv".to_owned(), bytes).unwrap_err();
    let error = error.to_string();
    assert!(
        error.starts_with("t.csv, line 1: the row fits no trace format"),
        "{error}"
    );
    assert!(error.contains("msr, fio, blkparse"), "{error}");
    let error = "iolog".parse::<Format>().unwrap_err().to_string();
    assert!(
        error.contains("'iolog'") && error.contains("disksim"),
        "{error}"
    );
}

const TWO_VOLUMES: &str = "1,W,0,512,1\n2,W,0,1024,2\n1,R,512,512,3\n3,W,0,512,4\n";

fn of_volume(volume: &str) -> Vec<Result<Request, LabError>> {
    let options = TraceOptions {
        volume: Some(volume.to_owned()),
        ..TraceOptions::default()
    };
    let bytes = Cursor::new(TWO_VOLUMES);
    TraceReader::with("t".to_owned(), bytes, &options)
        .unwrap()
        .collect()
}

#[test]
fn volumes_of_one_file_stay_apart() {
    let error = read(TWO_VOLUMES.as_bytes()).pop().unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "t.csv, line 2: another volume begins here; choose one with --volume: 1, 2, 3"
    );
    let ticks: Vec<u64> = of_volume("1")
        .iter()
        .map(|r| r.as_ref().unwrap().at_ticks)
        .collect();
    assert_eq!(ticks, [10, 30]);
    let error = of_volume("9").pop().unwrap().unwrap_err().to_string();
    assert_eq!(
        error,
        "t, line 4: the trace ends without a request of volume '9'; it has 1, 2, 3"
    );
    let hosts = "1,web,0,Read,0,512,9\n2,web,1,Read,0,512,9\n";
    let error = read(hosts.as_bytes())
        .pop()
        .unwrap()
        .unwrap_err()
        .to_string();
    assert!(error.ends_with("--volume: web_0, web_1"), "{error}");
}

#[test]
fn volumes_are_counted() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(TWO_VOLUMES.as_bytes()).unwrap();
    let found = volumes(file.path(), None).unwrap();
    let found: Vec<_> = found
        .iter()
        .map(|(name, of)| (name.as_str(), of.requests, of.writes, of.span_bytes))
        .collect();
    assert_eq!(
        found,
        [("1", 2, 1, 1024), ("2", 1, 1, 1024), ("3", 1, 1, 512)]
    );
}

#[test]
fn faults_of_times_are_told_once_each() {
    static TOLD: Mutex<Vec<(TimeFault, u64)>> = Mutex::new(Vec::new());
    let times = [5, 4, 3].into_iter().chain(100..200).chain([300; 200]);
    let rows: Vec<String> = times.map(|at| format!("7,W,0,512,{at}")).collect();
    let rows = rows.join("\n");
    let options = TraceOptions {
        warn: |warning| TOLD.lock().unwrap().push((warning.fault, warning.line)),
        ..TraceOptions::default()
    };
    let reader = TraceReader::with("t".to_owned(), Cursor::new(rows), &options).unwrap();
    assert_eq!(reader.map(Result::unwrap).count(), 303);
    let expected = [
        (TimeFault::Unsorted, 2),
        (TimeFault::Sequence, 68),
        (TimeFault::Repeated, 168),
    ];
    assert_eq!(*TOLD.lock().unwrap(), expected);
}

fn bzip2(text: &str) -> Vec<u8> {
    let level = bzip2::Compression::default();
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), level);
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn zstd(text: &str) -> Vec<u8> {
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    ruzstd::encoding::compress_to_vec(text.as_bytes(), level)
}

type Compress = fn(&str) -> Vec<u8>;

/// The compressions of traces, by the names that errors use.
const COMPRESSIONS: [(&str, Compress); 3] = [("gzip", gzip), ("bzip2", bzip2), ("Zstandard", zstd)];

#[test]
fn compressed_files_of_several_parts_are_read_to_their_end() {
    let rows = SAMPLES[0].1;
    let (first, second) = rows.split_at(rows.find('\n').unwrap() + 1);
    for (_, compress) in COMPRESSIONS {
        assert_eq!(read(&compress(rows)).len(), 2);
        let parts = [compress(first), compress(second)].concat();
        let requests: Vec<_> = read(&parts).into_iter().map(Result::unwrap).collect();
        assert_eq!(requests.len(), 2);
    }
}

/// Rows with digits that differ, so that they do not compress to almost nothing.
fn many_rows() -> String {
    let row = |at: u64| {
        let mixed = at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!("{at},h,0,Write,{},512,{}\n", mixed >> 20, mixed % 1000)
    };
    (1..=20_000).map(row).collect()
}

/// The reader's error for these bytes, and the number of requests before it.
fn refused(bytes: Vec<u8>) -> (LabError, u64) {
    let reader = match TraceReader::new("t".to_owned(), Cursor::new(bytes)) {
        Ok(reader) => reader,
        Err(error) => return (error, 0),
    };
    let mut given = 0;
    for request in reader {
        match request {
            Ok(_) => given += 1,
            Err(error) => return (error, given),
        }
    }
    panic!("nothing is refused");
}

fn check_damaged(compression: &str, bytes: Vec<u8>) {
    let file_bytes = bytes.len() as u64;
    let (error, given) = refused(bytes);
    match error {
        LabError::DamagedTrace {
            line,
            compression: found,
            read_bytes,
            ..
        } => {
            assert_eq!(found, compression);
            assert_eq!(
                line,
                given + 1,
                "{compression}: the line after the last one"
            );
            assert!(
                (1..=file_bytes).contains(&read_bytes),
                "{compression}: {read_bytes} of {file_bytes}"
            );
        }
        other => panic!("{compression}: {other}"),
    }
}

#[test]
fn damaged_compressed_data_is_named_with_the_line_that_was_reached() {
    let rows = many_rows();
    for (compression, compress) in COMPRESSIONS {
        let whole = compress(&rows);
        let len = whole.len();
        // Cut within the head, in the middle, and before the last bytes, which are checksums.
        for kept in [5, len / 2, len - 2] {
            check_damaged(compression, whole[..kept].to_vec());
        }
        let mut flipped = whole.clone();
        flipped[len - 3] ^= 0x10;
        check_damaged(compression, flipped);
        // Another part follows that is none.
        let with_more = [&whole[..], b"no further part, but text"].concat();
        check_damaged(compression, with_more);
    }
}

/// The bytes of a file that fails after them.
struct Broken(Cursor<Vec<u8>>);

impl Read for Broken {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(std::io::Error::other("the disk is gone")),
            count => Ok(count),
        }
    }
}

#[test]
fn a_compressed_file_that_cannot_be_read_is_not_called_damaged() {
    for (_, compress) in COMPRESSIONS {
        let whole = compress(&many_rows());
        let half = Broken(Cursor::new(whole[..whole.len() / 2].to_vec()));
        let reader = TraceReader::new("t".to_owned(), half);
        let error = reader.and_then(|rows| rows.last().unwrap()).unwrap_err();
        assert!(error.to_string().contains("the disk is gone"), "{error}");
    }
}
