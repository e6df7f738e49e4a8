//! A client that opens a file exclusively, under all faults: until its session is displaced, every byte
//! is as the client last saw or wrote it.

use crate::client::{SimClient, byte_range};
use crate::cluster::Cluster;
use crate::workload::choose_in;
use gabion_client::{ClientError, File, TakeOver};
use std::ops::Range;

/// Longest pause between two operations, in microseconds.
const PAUSE_US: u64 = 800_000;

impl SimClient {
    /// Opens a file exclusively, as [`SimClient::open`] does.
    pub(crate) async fn open_exclusive(
        &self,
        name: &str,
        take_over: TakeOver,
    ) -> Result<File, ClientError> {
        let called_us = self.now_us();
        let file = self.client.open_exclusive(name, take_over).await?;
        self.note_opened(name, &file, called_us);
        Ok(file)
    }
}

/// Writes and reads some cells of a file as its only writer, and then ends the session or leaves it.
pub(crate) async fn write_alone(
    cluster: &Cluster,
    client: &SimClient,
    name: &str,
) -> Result<(), ClientError> {
    let world = &cluster.world;
    let (take_over, count) = world.roll(|dice| {
        let take_over = if dice.one_in(2) {
            TakeOver::Now
        } else {
            TakeOver::IfAbandoned
        };
        (take_over, dice.between(2, 6))
    });
    let file = client.open_exclusive(name, take_over).await?;
    client.count(|coverage| coverage.exclusive_open_count += 1);
    let Some(cells) = choose_in(cluster, &file) else {
        return Ok(());
    };
    let mut known = file.read(byte_range(&cells)).await?;
    for _ in 0..count {
        let (pause_us, writes, part) = world.roll(|dice| {
            let part = dice.cells(cells.end - cells.start);
            (dice.below(PAUSE_US), dice.one_in(2), part)
        });
        world.sleep(pause_us).await;
        if writes {
            let within = cells.start + part.start..cells.start + part.end;
            let bytes = client.write(&file, &within).await?;
            let at = byte_range(&part);
            known[at.offset as usize..at.end() as usize].copy_from_slice(&bytes);
            continue;
        }
        if file.read(byte_range(&cells)).await? != known {
            check_displaced(client, &file, &cells).await?;
            return Ok(());
        }
    }
    if world.roll(|dice| dice.one_in(2)) {
        file.end_session().await?;
    }
    Ok(())
}

/// Another client has written, so this one must not be able to any more.
async fn check_displaced(
    client: &SimClient,
    file: &File,
    cells: &Range<u64>,
) -> Result<(), ClientError> {
    if client.write(file, cells).await.is_ok() {
        let name = file.name();
        client.fail(format!(
            "{name} changed under its only writer, in cells {cells:?}"
        ));
    }
    Ok(())
}
