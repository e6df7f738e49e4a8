//! Reads everything back with a client without earlier state.

use super::load::Load;
use super::names::{self, Kept};
use super::worker::{Worker, range};
use crate::recorder::{Kind, Span};
use std::time::Duration;

/// Cells of one read.
const PORTION_CELLS: u64 = 256;
/// Deadline of a read in a cluster without faults.
const LIMIT: Duration = Duration::from_mins(1);

/// Reads all shared files, which goes into the record, and all others. The load must have ended.
///
/// # Errors
/// A sentence if a file cannot be read.
pub(crate) fn read_all(load: &Load, kept: &[Kept]) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start a run-time: {error}"))?;
    let all = async {
        let mut worker = Worker::new(load, 99);
        let client = worker.connect(0).await;
        for file in &load.files {
            let open = client.open(&file.name).await;
            let open = open.map_err(|error| format!("{} cannot be opened: {error}", file.name))?;
            let mut first = 0;
            while first < file.cell_count {
                let end = file.cell_count.min(first + PORTION_CELLS);
                let span = Span {
                    file: file.number,
                    cells: first..end,
                };
                let read = load.recorder.begin(worker.number, Kind::Read, span.clone());
                let bytes = tokio::time::timeout(LIMIT, open.read(range(&span))).await;
                let lost = |why: String| format!("{} cannot be read: {why}", file.name);
                let bytes = bytes
                    .map_err(|_| lost(format!("no answer in {LIMIT:?}")))?
                    .map_err(|error| lost(error.to_string()))?;
                load.recorder.found(&read, &bytes, false);
                first = end;
            }
        }
        for file in kept {
            let checked = tokio::time::timeout(LIMIT, names::check(&client, file)).await;
            let lost = |why: String| format!("{} cannot be read: {why}", file.name);
            match checked {
                Err(_) => return Err(lost(format!("no answer in {LIMIT:?}"))),
                Ok(Err(error)) => return Err(lost(error.to_string())),
                Ok(Ok(Some(sentence))) => return Err(sentence),
                Ok(Ok(None)) => {}
            }
        }
        Ok(())
    };
    runtime.block_on(all)?;
    load.recorder.check()
}
