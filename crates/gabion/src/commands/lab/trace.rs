//! Opens the traces of the lab's commands, and reports their faults.

use crate::arguments::TraceForm;
use crate::failure::Failure;
use crate::output::wrapped;
use gabion_lab::trace::Warning;
use gabion_lab::{LabError, TraceOptions, TraceReader};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Opens a trace as the command line asks for.
pub(crate) fn open(path: &Path, form: &TraceForm) -> Result<TraceReader, LabError> {
    let options = TraceOptions {
        format: form.trace_format,
        volume: form.volume.clone(),
        warn,
    };
    TraceReader::open_with(path, &options)
}

/// The failure of a command of the lab.
pub(crate) fn failure(error: LabError) -> Failure {
    if error.is_usage() {
        Failure::usage(error)
    } else {
        Failure::failed(error)
    }
}

/// Prints a warning once, although a command may read the trace several times.
fn warn(warning: &Warning) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let sentence = warning.to_string();
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if !said.contains(&sentence) {
        eprintln!(
            "{}",
            wrapped(&format!("warning: {sentence}"), "warning: ".len())
        );
        said.insert(sentence);
    }
}
