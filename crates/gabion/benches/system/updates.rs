//! Small updates, one at a time, through the client library.

use crate::machine;
use crate::put;
use crate::trial::argument;
use anyhow::Context;
use gabion_client::ClientOptions;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Instant;

/// Bytes of one update.
const UPDATE_BYTES: usize = 4 << 10;
/// Bytes of the file that is updated: 16 stripes of 6 chunks of 1 MiB.
const FILE_BYTES: usize = 96 << 20;

/// Amounts of work.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// Turns of updates and of plain writes.
    pub(crate) turn_count: usize,
    /// Updates, and plain writes, in one turn.
    pub(crate) turn_updates: usize,
}

/// Overwrites blocks at random, in turns with plain synced writes, and prints the figures.
pub(crate) async fn run(scale: Scale) -> anyhow::Result<()> {
    let trial = put::cluster().await?;
    let source = trial.path("updated");
    fs::write(&source, machine::pattern(FILE_BYTES, 11)).context("write a temporary file")?;
    trial.run(&["put", argument(&source)?, "updated"]).await?;
    let plain = File::options()
        .write(true)
        .open(&source)
        .context("open a temporary file")?;
    plain.sync_all().context("sync a temporary file")?;
    let client = gabion_wire::connect(
        trial.coordinator(),
        trial.security()?,
        ClientOptions::default(),
    )
    .await?;
    let file = client.open("updated").await?;
    let mut next = machine::numbers(5);
    let mut offset = || next() % (FILE_BYTES / UPDATE_BYTES) as u64 * UPDATE_BYTES as u64;
    let (mut updates_s, mut plain_s) = (Vec::new(), Vec::new());
    for turn in 0..scale.turn_count {
        let bytes = machine::pattern(UPDATE_BYTES, turn as u64);
        for _ in 0..scale.turn_updates {
            let begun = Instant::now();
            file.write(offset(), bytes.clone().into()).await?;
            updates_s.push(begun.elapsed().as_secs_f64());
        }
        for _ in 0..scale.turn_updates {
            let begun = Instant::now();
            plain.write_all_at(&bytes, offset()).context("write")?;
            plain.sync_data().context("sync")?;
            plain_s.push(begun.elapsed().as_secs_f64());
        }
    }
    let count = updates_s.len();
    println!(
        "updates of 4 KiB in rs(6,3), one at a time, {count}: {:.0}/s, median {:.2} ms, p99 {:.2} ms; \
         plain write and sync of 4 KiB: median {:.2} ms, p99 {:.2} ms; ratio of the medians {:.2}",
        count as f64 / updates_s.iter().sum::<f64>(),
        rank(&mut updates_s, 0.5) * 1e3,
        rank(&mut updates_s, 0.99) * 1e3,
        rank(&mut plain_s, 0.5) * 1e3,
        rank(&mut plain_s, 0.99) * 1e3,
        rank(&mut updates_s, 0.5) / rank(&mut plain_s, 0.5)
    );
    Ok(())
}

/// The figure that a share of all is not above.
pub(crate) fn rank(figures: &mut [f64], share: f64) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[((figures.len() as f64 * share) as usize).min(figures.len() - 1)]
}
