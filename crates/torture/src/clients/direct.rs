//! A client without a cache: each write is durable when it is acknowledged.

use super::worker::{Worker, range, within_limit};
use crate::cells::fill;
use crate::recorder::{Kind, Span, UnderWay};
use bytes::Bytes;
use gabion_client::{Client, ClientError, File};
use std::collections::BTreeMap;

/// Operations until a file is reopened, on average: an open file keeps its layout.
const REOPEN_ONE_IN: u64 = 60;

pub(super) async fn run(mut worker: Worker) {
    let client = worker.connect(0).await;
    let mut files: BTreeMap<u32, File> = BTreeMap::new();
    while !worker.is_over() {
        let span = worker.draw_span();
        let is_inline = worker.load.files[span.file as usize].is_inline;
        let signals = std::sync::Arc::clone(&worker.load.signals);
        let Some(_inline) = signals.begin_inline(is_inline) else {
            worker.pause().await;
            continue;
        };
        // One client only reads, so that gaps of reads are visible while writes wait.
        let is_write = worker.number > 1 && worker.dice.one_in(2);
        let kind = match (is_write, worker.is_within_a_stripe(&span)) {
            (false, _) => Kind::Read,
            (true, true) => Kind::Write,
            (true, false) => Kind::Coordinated,
        };
        let known = files.remove(&span.file);
        let known = known.filter(|_| !worker.dice.one_in(REOPEN_ONE_IN));
        match carry_out(&worker, &client, known, &span, kind).await {
            Ok(file) => files.extend(file.map(|file| (span.file, file))),
            Err(error) => worker.load.recorder.note_error(&error),
        }
        worker.pause().await;
    }
}

/// Reads or writes an open file, or opens one for that. Returns the file unless the operation
/// failed.
async fn carry_out(
    worker: &Worker,
    client: &Client,
    known: Option<File>,
    span: &Span,
    kind: Kind,
) -> Result<Option<File>, String> {
    let recorder = &worker.load.recorder;
    let file = if let Some(file) = known {
        file
    } else {
        recorder.opens(worker.number);
        let name = &worker.load.files[span.file as usize].name;
        let file = within_limit(recorder, "opening a file", client.open(name)).await?;
        recorder.opened(worker.number);
        file
    };
    let operation = recorder.begin(worker.number, kind, span.clone());
    let made = make(worker, &file, &operation, kind).await;
    match made {
        Ok(()) => Ok(Some(file)),
        Err(error) => {
            recorder.failed(&operation, &error);
            Ok(None)
        }
    }
}

/// Reads or writes as the operation says, and records the result. Returns the error in words.
pub(super) async fn make(
    worker: &Worker,
    file: &File,
    operation: &UnderWay,
    kind: Kind,
) -> Result<(), String> {
    let (recorder, span) = (&worker.load.recorder, &operation.span);
    let range = range(span);
    if kind == Kind::Read {
        let known = |range| file.known_stripes(range);
        let reading = file.read(range);
        worker.read(operation, known, reading).await?;
    } else {
        let (first, count) = (span.cells.start, span.cells.end - span.cells.start);
        let bytes = fill(span.file, worker.number, operation.operation, first, count);
        let mut is_over = false;
        let write = async {
            let made = file.write(range.offset, Bytes::from(bytes)).await;
            is_over = !matches!(made, Err(ClientError::Undecided { .. }));
            made
        };
        match within_limit(recorder, "a write", write).await {
            Ok(()) => recorder.acknowledged(operation),
            Err(error) => {
                recorder.write_failed(operation, is_over);
                return Err(error);
            }
        }
    }
    Ok(())
}
