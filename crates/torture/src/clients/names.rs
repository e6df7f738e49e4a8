//! A client that stores, lists, reads and removes files, and tracks the files that must exist.

use super::worker::{Worker, within_limit};
use crate::cells::{OperationId, fill};
use gabion_client::{Client, ClientError};
use gabion_layout::ByteRange;
use std::sync::atomic::Ordering;

/// Most files at once.
const FILES_MAX: usize = 12;
const CELLS_MAX: u64 = 300;
/// Cells of the largest file that is inline.
const INLINE_CELLS: u64 = 8;
/// The history's file number for whole files; shared files count from 0.
const WHOLE: u32 = 0xff_ffff;

/// A file that was stored.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

pub(super) async fn run(mut worker: Worker) -> Vec<Kept> {
    let client = worker.connect(0).await;
    let mut kept: Vec<Kept> = Vec::new();
    let mut next = 1;
    while !worker.is_over() {
        let signals = &worker.load.signals;
        let rests = signals.names_rest.load(Ordering::Acquire);
        signals.names_are_at_rest.store(rests, Ordering::Release);
        if !rests {
            let choice = worker.dice.below(10);
            let at = worker.dice.below(kept.len().max(1) as u64) as usize;
            match choice {
                0 | 1 if kept.len() < FILES_MAX => {
                    put(&mut worker, &client, &mut kept, next).await;
                    next += 1;
                }
                0..3 if kept.len() > FILES_MAX / 2 => {
                    remove(&worker, &client, kept.swap_remove(at)).await;
                }
                3 | 4 => list(&worker, &client, &kept).await,
                _ if !kept.is_empty() => {
                    if let Err(error) = get(&worker, &client, &kept[at]).await {
                        worker.load.recorder.note_error(&error);
                    }
                }
                _ => {}
            }
        }
        worker.pause().await;
        worker.pause().await;
    }
    kept
}

async fn put(worker: &mut Worker, client: &Client, kept: &mut Vec<Kept>, number: u64) {
    let recorder = &worker.load.recorder;
    let name = format!("whole-{number}");
    // Half of them are inline.
    let is_small = worker.dice.below(2) == 0;
    let count = worker
        .dice
        .between(1, if is_small { INLINE_CELLS } else { CELLS_MAX });
    let bytes = fill(WHOLE, worker.number, OperationId(number), 0, count);
    let pool = worker.load.pool.clone();
    let put = async {
        let done = client
            .put(
                &name,
                Some(&pool),
                bytes.as_slice(),
                bytes.len() as u64,
                &(),
            )
            .await;
        done.map(drop)
    };
    match within_limit(recorder, "a put", put).await {
        Ok(()) => {
            recorder.named();
            kept.push(Kept { name, bytes });
        }
        // It may exist, at once or later: the name is not reused.
        Err(error) => recorder.note_error(&error),
    }
}

async fn remove(worker: &Worker, client: &Client, file: Kept) {
    let recorder = &worker.load.recorder;
    match within_limit(recorder, "a removal", client.rm(&file.name)).await {
        Ok(()) => {
            recorder.named();
            let listed = within_limit(recorder, "a listing", client.ls(&file.name)).await;
            if listed.is_ok_and(|files| files.iter().any(|f| f.name == file.name)) {
                recorder.broken(format!("{} was removed and is listed", file.name));
            }
        }
        // It may be gone, at once or later.
        Err(error) => recorder.note_error(&error),
    }
}

async fn list(worker: &Worker, client: &Client, kept: &[Kept]) {
    let recorder = &worker.load.recorder;
    match within_limit(recorder, "a listing", client.ls("whole-")).await {
        Ok(listed) => {
            recorder.named();
            for file in kept {
                let found = listed.iter().find(|listed| listed.name == file.name);
                if found.is_none_or(|found| found.size_bytes != file.bytes.len() as u64) {
                    recorder.broken(format!("{} was stored and is not listed", file.name));
                }
            }
        }
        Err(error) => recorder.note_error(&error),
    }
}

async fn get(worker: &Worker, client: &Client, file: &Kept) -> Result<(), String> {
    let recorder = &worker.load.recorder;
    check(client, file)
        .await
        .map(|sentence| {
            recorder.named();
            if let Some(sentence) = sentence {
                recorder.broken(sentence);
            }
        })
        .map_err(|error| error.to_string())
}

/// Reads a file whole. Returns a sentence if its bytes are wrong.
pub(super) async fn check(client: &Client, file: &Kept) -> Result<Option<String>, ClientError> {
    let range = ByteRange::new(0, file.bytes.len() as u64);
    let bytes = client.read(&file.name, range).await?;
    let is_right = bytes == file.bytes;
    Ok((!is_right).then(|| format!("{} does not read the bytes that were stored", file.name)))
}
