//! `gabion demo`: a whole cluster of real processes with real data, faults, repair, and
//! measurements. It needs only a temporary directory and leaves nothing behind.

mod report;
mod step;

use crate::arguments::{DemoOptions, TraceForm};
use crate::commands::lab::trace;
use crate::failure::{Context, Failure};
use crate::output::{Format, bytes, say_failure};
use gabion_lab::{Request, RequestKind, workload};
use gabion_layout::ByteRange;
use gabion_testbed::EndSignals;
use gabion_testbed::demo::{self, Script};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

pub(crate) async fn run(options: DemoOptions, format: Format) -> Result<(), Failure> {
    let script = script(&options)?;
    // Before the directory is made, so that a signal deletes it.
    let signals = EndSignals::listen()?;
    let scratch = Scratch::new()?;
    let report = demo::run(&scratch.0, &script, step::begin, signals).await?;
    report::print(&report, format)
}

/// The demo's sizes, and the writes of a trace or of the calibrated workload.
fn script(options: &DemoOptions) -> Result<Script, Failure> {
    let (size, seed) = (options.size, demo::SEED);
    if size < demo::FILE_BYTES_MIN {
        return Err(Failure::usage(format!(
            "the demo needs a file of at least {}; choose a larger --size",
            bytes(demo::FILE_BYTES_MIN)
        )));
    }
    let (source, requests) = match &options.trace {
        None if options.trace_form.is_given() => {
            return Err(Failure::usage(
                "--volume and --trace-format describe a trace; name the trace with --trace",
            ));
        }
        None => {
            let requests = workload::wdev_1(seed).requests_within(size);
            let source = "workload calibrated to MSR wdev_1".to_owned();
            (source, requests.map_err(Failure::usage)?.collect())
        }
        Some(path) => (
            path.display().to_string(),
            fold(path, &options.trace_form, size)?,
        ),
    };
    let writes = requests.into_iter();
    let writes = writes.filter(|request| request.kind == RequestKind::Write);
    let writes: Vec<ByteRange> = writes
        .map(|write| ByteRange::new(write.offset_bytes, write.length_bytes))
        .collect();
    if writes.is_empty() {
        return Err(Failure::usage(format!(
            "{source} has no writes, and the demo replays only writes; choose another --trace"
        )));
    }
    Ok(Script {
        engine: options.engine.into(),
        file_bytes: size,
        source,
        writes,
    })
}

/// The requests of a trace, moved into a file of `size` bytes.
fn fold(path: &Path, form: &TraceForm, size: u64) -> Result<Vec<Request>, Failure> {
    let size = NonZeroU64::new(size).ok_or_else(|| {
        Failure::usage("the demo cannot write into an empty file; choose a --size above 0")
    })?;
    let requests = trace::open(path, form).map_err(trace::failure)?;
    let folded = requests.map(|request| request.map(|request| request.folded(size)));
    folded.collect::<Result<_, _>>().map_err(trace::failure)
}

/// A directory that is deleted when the demo ends in any way.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("gabion-demo-{}", std::process::id()));
        std::fs::create_dir(&path).context(format!("create {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_dir_all(path) {
        say_failure(format_args!("cannot delete {}: {error}", path.display()));
    }
}
