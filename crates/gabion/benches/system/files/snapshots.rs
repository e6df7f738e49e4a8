//! The time of a snapshot of files of several sizes, while nothing writes and while a client writes into the file. The
//! last file is grown to 1 TiB, of which most is a hole. Beside them one write and sync of a page: a snapshot is one
//! transaction, and the files that clients write are frozen first.

use super::{POOL, Scale, at_most, connect};
use crate::machine;
use crate::trial::Trial;
use crate::updates::rank;
use bytes::Bytes;
use gabion_client::{Client, File, NewFile};
use gabion_meta::Inode;
use std::cell::Cell;
use std::time::Instant;

/// The goal for a snapshot, whatever the size.
const GOAL_MS: f64 = 5.0;
/// Bytes of a write beside snapshots.
const WRITE_BYTES: usize = 4 << 10;
/// Bytes of the file with a hole.
const SPARSE_BYTES: u64 = 1 << 40;

pub(super) async fn run(trial: &Trial, scale: Scale) -> anyhow::Result<()> {
    let (client, writer) = (connect(trial).await?, connect(trial).await?);
    for bytes in scale.snapshot_bytes {
        let name = format!("snapshots/{bytes}");
        let source = machine::pattern(bytes, 7);
        let new = NewFile {
            pool: Some(POOL),
            ..NewFile::named(&name)
        };
        client.put_over(new, &source[..], bytes as u64, &()).await?;
        let file = writer.open(&name).await?;
        let what = format!("{} MiB", bytes >> 20);
        measure((&client, &file), (&what, bytes), scale.snapshot_count).await?;
        if Some(&bytes) == scale.snapshot_bytes.last() {
            file.grow(SPARSE_BYTES).await?;
            let what = format!("1 TiB with {what} written");
            measure((&client, &file), (&what, bytes), scale.snapshot_count).await?;
        }
    }
    let sync_ms = 1e3 / machine::syncs_a_second(&trial.path("page"), 200)?;
    println!("        the disk alone: one write and sync of 4 KiB in {sync_ms:.2} ms");
    Ok(())
}

/// Takes snapshots in both states, and prints their times.
async fn measure(
    (client, file): (&Client, &File),
    (what, bytes): (&str, usize),
    count: usize,
) -> anyhow::Result<()> {
    let mut quiet_ms = times_ms(client, file, count).await?;
    let is_over = Cell::new(false);
    let timing = async {
        let times = times_ms(client, file, count).await;
        is_over.set(true);
        times
    };
    let begun = Instant::now();
    let writing = async {
        let mut next = machine::numbers(3);
        let block = Bytes::from(machine::pattern(WRITE_BYTES, 5));
        let mut count = 0_u64;
        while !is_over.get() {
            let offset = next() % (bytes / WRITE_BYTES) as u64 * WRITE_BYTES as u64;
            file.write(offset, block.clone()).await?;
            count += 1;
        }
        anyhow::Ok(count as f64 / begun.elapsed().as_secs_f64())
    };
    let (busy_ms, write_rate) = futures::future::join(timing, writing).await;
    let (mut busy_ms, write_rate) = (busy_ms?, write_rate?);
    let [quiet, busy] = [&mut quiet_ms, &mut busy_ms].map(|times_ms| {
        let median_ms = rank(times_ms, 0.5);
        let slowest_ms = rank(times_ms, 1.0);
        let word = at_most(median_ms, GOAL_MS);
        format!(
            "median {median_ms:.1} ms (goal at most {GOAL_MS:.0} ms: {word}), slowest {slowest_ms:.1} ms"
        )
    });
    println!(
        "    snapshot of a file of {what}, {count} each: {quiet}; beside {write_rate:.0} writes of 4 KiB a second: {busy}"
    );
    Ok(())
}

/// Takes snapshots one after another and removes each. Returns the times of the first.
async fn times_ms(client: &Client, file: &File, count: usize) -> anyhow::Result<Vec<f64>> {
    let mut times_ms = Vec::with_capacity(count);
    for _ in 0..count {
        let begun = Instant::now();
        client
            .snapshot(Inode::File(file.put_id()), "snapshots/taken", true)
            .await?;
        times_ms.push(begun.elapsed().as_secs_f64() * 1e3);
        client.rm("snapshots/taken").await?;
    }
    Ok(times_ms)
}
