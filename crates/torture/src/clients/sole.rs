//! A client that opens a file exclusively, writes and reads it, and ends its session or leaves it. Two of them take the
//! file from each other: a write that fails because the other one has displaced its client never takes effect.

use super::direct::make;
use super::worker::{Worker, within_limit};
use crate::recorder::Kind;
use gabion_client::{Client, TakeOver};
use std::sync::atomic::Ordering;

/// Most operations of a session.
const OPERATIONS_MAX: u64 = 60;

pub(super) async fn run(mut worker: Worker) {
    let client = worker.connect(0).await;
    while !worker.is_over() {
        if worker.load.signals.names_rest.load(Ordering::Acquire) {
            // A session that only an old database knows would be lost with it.
            worker.pause().await;
            continue;
        }
        if let Err(error) = session(&mut worker, &client).await {
            worker.load.recorder.note_error(&error);
        }
        worker.pause().await;
    }
}

async fn session(worker: &mut Worker, client: &Client) -> Result<(), String> {
    let recorder = worker.load.recorder.clone();
    let owned = worker.load.files.iter().find(|file| file.is_owned);
    let (number, name) = owned.map_or((0, String::new()), |file| (file.number, file.name.clone()));
    // An abandoned session keeps the file for ten seconds, so most opens displace it.
    let take_over = if worker.dice.one_in(4) {
        TakeOver::IfAbandoned
    } else {
        TakeOver::Now
    };
    let opening = client.open_exclusive(&name, take_over);
    let file = within_limit(&recorder, "an exclusive open", opening).await?;
    for _ in 0..worker.dice.between(1, OPERATIONS_MAX) {
        let span = worker.draw_span_of(number);
        let is_write = worker.dice.one_in(2);
        // Writes wait for the coordinator while a session begins, so they are none of the gaps of plain writes.
        let kind = if is_write {
            Kind::Coordinated
        } else {
            Kind::Read
        };
        let operation = recorder.begin(worker.number, kind, span);
        let made = make(worker, &file, &operation, kind).await;
        if let Err(error) = &made {
            recorder.failed(&operation, error);
            return Ok(());
        }
        worker.pause().await;
    }
    if worker.dice.one_in(2) {
        return within_limit(&recorder, "the end of a session", file.end_session()).await;
    }
    Ok(())
}
