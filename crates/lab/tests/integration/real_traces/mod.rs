//! The place of real traces for tests. They are not the project's to pass on, so tests do without them if they are
//! absent, and say so.

use gabion_lab::TraceReader;
use std::path::PathBuf;

/// Opens a trace below `$GABION_TRACES`, or below `shared/traces` next to the checkout; none, with a
/// line that says so, where it is absent.
pub(crate) fn open(path: &str) -> Option<TraceReader> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces");
    let folder =
        std::env::var_os("GABION_TRACES").map_or_else(|| PathBuf::from(beside), PathBuf::from);
    let file = folder.join(path);
    if !file.exists() {
        println!("skipped: no trace {path}; set GABION_TRACES to the folder that has it");
        return None;
    }
    Some(TraceReader::open(&file).unwrap())
}
