//! A client that reads and writes through its cache: open, read, write, close. Its writes count as
//! acknowledged when the file is flushed, and its reads may be as of any instant since the opening.

use super::{CACHE_BYTES, One, range, within_limit};
use crate::cells::fill;
use crate::recorder::{Kind, UnderWay};
use bytes::Bytes;
use gabion_client::{CachedFile, Client, ClientError};
use std::time::Duration;

pub(super) async fn run(mut one: One) {
    let client = one.connect(CACHE_BYTES).await;
    while !one.is_over() {
        session(&mut one, &client).await;
        one.pause().await;
    }
}

/// Opens a file, reads it, writes it, and flushes it until that succeeds.
async fn session(one: &mut One, client: &Client) {
    let recorder = one.load.recorder.clone();
    let file_number = one.draw_span().file;
    let name = one.load.files[file_number as usize].name.clone();
    let opened = recorder.now();
    recorder.opens(one.number);
    let opening = client.open_cached(&name);
    let file = match within_limit(&recorder, "opening a file", opening).await {
        Ok(file) => file,
        Err(error) => return recorder.note_error(&error),
    };
    recorder.opened(one.number);
    // Reads come first: others must not see writes before the flush.
    for _ in 0..one.dice.below(4) {
        let span = one.draw_span_of(file_number);
        let read = recorder.begin(one.number, Kind::Read, span.clone());
        let read = read.since(opened);
        match within_limit(&recorder, "a cached read", file.read(range(&span))).await {
            Ok(bytes) => recorder.found(&read, &bytes),
            Err(error) => recorder.failed(&read, &error),
        }
    }
    let mut writes = Vec::new();
    for _ in 0..one.dice.between(1, 4) {
        let span = one.draw_span_of(file_number);
        let write = recorder.begin(one.number, Kind::Write, span.clone());
        let count = span.cells.end - span.cells.start;
        let bytes = fill(
            span.file,
            one.number,
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
    flush(one, &file, &writes).await;
}

/// Flushes until it succeeds; otherwise the writes stay unacknowledged. After [`ClientError::Forgotten`] each may
/// have been made or dropped, and the next flush says nothing of them.
async fn flush(one: &One, file: &CachedFile, writes: &[UnderWay]) {
    let recorder = &one.load.recorder;
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
        if one.is_over() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
