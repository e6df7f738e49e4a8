//! A client each of whose writes is durable when it is acknowledged.

use super::{One, range, within_limit};
use crate::cells::fill;
use crate::recorder::{Kind, UnderWay};
use bytes::Bytes;
use gabion_client::{Client, File};
use std::collections::BTreeMap;

/// Operations until a file is opened anew, on average: an open file keeps its layout.
const REOPEN_ONE_IN: u64 = 60;

pub(super) async fn run(mut one: One) {
    let client = one.connect(0).await;
    let mut files: BTreeMap<u32, File> = BTreeMap::new();
    while !one.is_over() {
        let span = one.draw_span();
        // One client only reads, so that a gap of reads is seen while writes wait.
        let is_write = one.number > 1 && one.dice.one_in(2);
        let kind = if is_write { Kind::Write } else { Kind::Read };
        let known = files.remove(&span.file);
        let known = known.filter(|_| !one.dice.one_in(REOPEN_ONE_IN));
        let operation = one.load.recorder.begin(one.number, kind, span);
        match carry_out(&one, &client, known, &operation, kind).await {
            Ok(file) => {
                files.insert(operation.span.file, file);
            }
            Err(error) => one.load.recorder.failed(&operation, &error),
        }
        one.pause().await;
    }
}

/// Reads or writes a file that is open, or is opened for it. Gives the file.
async fn carry_out(
    one: &One,
    client: &Client,
    known: Option<File>,
    operation: &UnderWay,
    kind: Kind,
) -> Result<File, String> {
    let (recorder, span) = (&one.load.recorder, &operation.span);
    let file = if let Some(file) = known {
        file
    } else {
        let name = &one.load.files[span.file as usize].name;
        within_limit(recorder, "opening a file", client.open(name)).await?
    };
    let range = range(span);
    match kind {
        Kind::Read => {
            let bytes = within_limit(recorder, "a read", file.read(range)).await?;
            recorder.found(operation, &bytes);
        }
        Kind::Write => {
            let (first, count) = (span.cells.start, span.cells.end - span.cells.start);
            let bytes = fill(span.file, one.number, operation.operation, first, count);
            let write = file.write(range.offset, Bytes::from(bytes));
            within_limit(recorder, "a write", write).await?;
            recorder.acknowledged(operation);
        }
    }
    Ok(file)
}
