//! Chunk updates that the count of update traffic gets through in a second of processor time, on a workload after
//! volume `hm_0`, with `rs(12,4)`.
//!
//! The workload is a file of rows, as a trace is, so parsing it is part of each count, and so is the bound. Parsing
//! alone is the yardstick. Each line has the memory by which a count's peak exceeds what the process had before.
//!
//! `cargo bench -p gabion-lab --bench counting -- --quick` counts one write in twenty.

use gabion_lab::update_traffic::{Options, Question, count};
use gabion_lab::workload::{Workload, volume};
use gabion_lab::{TraceReader, TraceWriter};
use gabion_layout::GroupingRule;
use rustix::time::{ClockId, clock_gettime};
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::num::NonZeroU64;
use std::path::Path;

/// Name, scheme and rule of grouping of each column.
const SCHEMES: [(&str, &str, Option<GroupingRule>); 5] = [
    ("baseline", "baseline", None),
    ("parix", "parix", None),
    ("cau", "cau", None),
    ("cau, grouping", "cau", Some(GroupingRule::Authors)),
    ("rackcu", "rackcu", None),
];

const LAYOUTS: [(&str, Option<u32>); 3] =
    [("rotate", Some(4)), ("random", Some(4)), ("6x2+2x2", None)];

/// Stripes of an append phase with data grouping.
const STRIPES_MAX: u64 = 20;

/// Processor time of this process, in seconds.
fn processor_seconds() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// A field of this process's status, in MiB.
fn status_mib(field: &str) -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("read this process's status");
    let line = status.lines().find(|line| line.starts_with(field));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.expect("a status has memory")
        .parse::<f64>()
        .expect("KiB are a number")
        / 1024.0
}

fn write_workload(path: &Path, one_in: NonZeroU64) {
    let target = volume("hm_0").expect("hm_0 is in the table").target;
    let workload = Workload::new(target.part(one_in), 1).expect("hm_0 has a workload");
    let file = File::create(path).expect("create the trace");
    let mut rows = TraceWriter::new(BufWriter::new(file));
    for request in workload.requests() {
        rows.write("hm", 0, &request).expect("write the trace");
    }
    rows.into_inner().flush().expect("write the trace");
}

fn parse(path: &Path) {
    let start = processor_seconds();
    let requests = TraceReader::open(path).expect("open the trace");
    let rows = requests.inspect(|row| assert!(row.is_ok())).count();
    let seconds = processor_seconds() - start;
    println!(
        "parsing alone: {rows} rows, {:.2} million/s",
        rows as f64 / seconds / 1e6
    );
}

fn run(path: &Path, layout: (&str, Option<u32>), chunk_bytes: u64) {
    for (name, scheme, grouping) in SCHEMES {
        let stripes_max = if grouping.is_some() { STRIPES_MAX } else { 100 };
        let question = Question {
            trace: "hm_0".to_owned(),
            code: "rs(12,4)".parse().expect("a code"),
            racks: layout.1,
            layout: layout.0.parse().expect("a layout"),
            chunk_bytes,
            schemes: vec![scheme.to_owned()],
            options: Options {
                stripes_max,
                grouping,
                ..Options::default()
            },
        };
        // The peak of memory counts from here.
        fs::write("/proc/self/clear_refs", "5").expect("reset the peak of memory");
        let before_mib = status_mib("VmRSS");
        let start = processor_seconds();
        let requests = TraceReader::open(path).expect("open the trace");
        let report = count(&question, requests).expect("the setting fits");
        let seconds = processor_seconds() - start;
        println!(
            "{:8} {:>5} KiB  {name:14} {:9} updates {:6.2} million/s {:6.0} MiB {:10} chunks",
            layout.0,
            chunk_bytes >> 10,
            report.chunk_updates,
            report.chunk_updates as f64 / seconds / 1e6,
            status_mib("VmHWM") - before_mib,
            report.schemes[scheme].cross_rack_chunks
        );
    }
}

fn main() {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let one_in = NonZeroU64::new(if is_quick { 20 } else { 1 }).expect("not zero");
    let directory = tempfile::tempdir().expect("make a temporary directory");
    let path = directory.path().join("hm_0.csv");
    write_workload(&path, one_in);
    parse(&path);
    for layout in LAYOUTS {
        for chunk_bytes in [1 << 20, 4 << 10] {
            run(&path, layout, chunk_bytes);
        }
    }
    parse(&path);
}
