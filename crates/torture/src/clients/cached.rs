//! A client that reads and writes through its cache: open, read, write, close. Its writes count as
//! acknowledged when the file is flushed, and its reads may be as of any instant since the opening.

use super::worker::{Worker, range, within_limit};
use crate::cells::fill;
use crate::recorder::{Kind, UnderWay};
use bytes::Bytes;
use gabion_client::{CachedFile, Client, ClientError};
use std::time::Duration;

/// Bytes of the client's cache.
const CACHE_BYTES: u64 = 8 << 20;

pub(super) async fn run(mut worker: Worker) {
    let client = worker.connect(CACHE_BYTES).await;
    while !worker.is_over() {
        session(&mut worker, &client).await;
        worker.pause().await;
    }
}

/// Opens a file, reads it, writes it, and flushes it until that succeeds.
async fn session(worker: &mut Worker, client: &Client) {
    let recorder = worker.load.recorder.clone();
    let file_number = worker.draw_span_in_stripes().file;
    let name = worker.load.files[file_number as usize].name.clone();
    let opened = recorder.now();
    recorder.opens(worker.number);
    let opening = client.open_cached(&name);
    let file = match within_limit(&recorder, "opening a file", opening).await {
        Ok(file) => file,
        Err(error) => return recorder.note_error(&error),
    };
    recorder.opened(worker.number);
    // Reads come first: others must not see writes before the flush.
    for _ in 0..worker.dice.below(4) {
        let span = worker.draw_span_of(file_number);
        let range = range(&span);
        let operation = recorder.begin(worker.number, Kind::Read, span);
        let operation = operation.since(opened);
        let known = |range| file.known_stripes(range);
        let made = worker.read(&operation, known, file.read(range));
        if let Err(error) = made.await {
            recorder.failed(&operation, &error);
        }
    }
    let mut writes = Vec::new();
    for _ in 0..worker.dice.between(1, 4) {
        let span = worker.draw_span_of(file_number);
        let write = recorder.begin(worker.number, Kind::Write, span.clone());
        let count = span.cells.end - span.cells.start;
        let bytes = fill(
            span.file,
            worker.number,
            write.operation,
            span.cells.start,
            count,
        );
        let put = file.write(range(&span).offset, Bytes::from(bytes));
        match within_limit(&recorder, "a cached write", put).await {
            Ok(()) => writes.push(write),
            Err(error) => recorder.failed(&write, &error),
        }
    }
    flush(worker, &file, &writes).await;
}

/// Flushes until it succeeds; otherwise the writes stay unacknowledged. After [`ClientError::Forgotten`] each may
/// have been made or dropped, and the next flush says nothing of them.
async fn flush(worker: &Worker, file: &CachedFile, writes: &[UnderWay]) {
    let recorder = &worker.load.recorder;
    loop {
        let flushed = async { Ok::<_, ClientError>(file.flush().await) };
        match within_limit(recorder, "a flush", flushed).await {
            Ok(Ok(())) => {
                for write in writes {
                    recorder.acknowledged(write);
                }
                return;
            }
            Ok(Err(forgotten @ ClientError::Forgotten(_))) => {
                for write in writes {
                    recorder.failed(write, &forgotten.to_string());
                }
                return;
            }
            Ok(Err(error)) => recorder.note_error(&error.to_string()),
            Err(error) => recorder.note_error(&error),
        }
        if worker.is_over() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
