//! Writes into holes against overwrites of the same ranges: 4 KiB, a chunk's length and whole stripes, one at a time
//! and sixteen at once. A write into a hole stores a whole stripe. Beside them the same in a sparse file of the disk.

use super::{CHUNK_BYTES, POOL, STRIPE_BYTES, Scale, at_least, connect};
use crate::machine;
use crate::median;
use crate::trial::Trial;
use anyhow::Context;
use bytes::Bytes;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use gabion_client::{Client, File, NewFile};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

/// The goal for the rate of writes into holes over that of overwrites.
const GOAL: f64 = 0.8;
/// Writes at once.
const DEPTHS: [usize; 2] = [1, 16];
/// Bytes of a write.
const SIZES: [usize; 3] = [4 << 10, CHUNK_BYTES, STRIPE_BYTES];

/// Writes a second, one of each a round.
#[derive(Default)]
struct Rates {
    holes: Vec<f64>,
    overwrites: Vec<f64>,
}

impl Rates {
    /// The median of the rounds' ratios.
    fn ratio(&self) -> f64 {
        let pairs = self.holes.iter().zip(&self.overwrites);
        median(
            pairs
                .map(|(holes, overwrites)| holes / overwrites)
                .collect(),
        )
    }
}

pub(super) async fn run(trial: &Trial, scale: Scale) -> anyhow::Result<()> {
    let client = connect(trial).await?;
    for size in SIZES {
        let mut local = Rates::default();
        let mut ours = DEPTHS.map(|depth| (depth, Rates::default()));
        for round in 0..scale.round_count {
            for (depth, rates) in &mut ours {
                measure(&client, (size, scale.stripe_count, *depth), round, rates).await?;
            }
            let path = trial.path("sparse");
            measure_disk(&path, (size, scale.stripe_count), round, &mut local)?;
        }
        for (depth, rates) in ours {
            let ratio = rates.ratio();
            println!(
                "    writes of {} KiB, {depth:>2} at once: into holes {:.0}/s, overwrites {:.0}/s; ratio {ratio:.2} \
                 (goal at least {GOAL:.2}: {})",
                size >> 10,
                median(rates.holes),
                median(rates.overwrites),
                at_least(ratio, GOAL)
            );
        }
        println!(
            "        the disk alone, each write synced, one at a time: ratio {:.2}; {:.0}/s into holes, {:.0}/s over bytes",
            local.ratio(),
            median(local.holes),
            median(local.overwrites)
        );
    }
    Ok(())
}

/// One range of each stripe, at random within it.
fn offsets(size: usize, stripe_count: usize, round: usize) -> Vec<u64> {
    let mut next = machine::numbers(round as u64 + 1);
    let places = (STRIPE_BYTES / size) as u64;
    let offset = |stripe: usize| (stripe * STRIPE_BYTES) as u64 + next() % places * size as u64;
    (0..stripe_count).map(offset).collect()
}

async fn measure(
    client: &Client,
    (size, stripe_count, depth): (usize, usize, usize),
    round: usize,
    rates: &mut Rates,
) -> anyhow::Result<()> {
    let new = NewFile {
        pool: Some(POOL),
        ..NewFile::named("holes")
    };
    let file = client.create(new).await?;
    file.grow((stripe_count * STRIPE_BYTES) as u64).await?;
    let offsets = offsets(size, stripe_count, round);
    for (seed, rates) in [&mut rates.holes, &mut rates.overwrites]
        .into_iter()
        .enumerate()
    {
        let bytes = Bytes::from(machine::pattern(size, seed as u64 + 1));
        rates.push(rate(&file, (&offsets, depth), &bytes).await?);
    }
    drop(file);
    client.rm("holes").await?;
    Ok(())
}

/// Writes a second.
async fn rate(
    file: &File,
    (offsets, depth): (&[u64], usize),
    bytes: &Bytes,
) -> anyhow::Result<f64> {
    let begun = Instant::now();
    stream::iter(offsets)
        .map(|&offset| file.write(offset, bytes.clone()))
        .buffer_unordered(depth)
        .try_for_each(|()| async { Ok(()) })
        .await?;
    Ok(offsets.len() as f64 / begun.elapsed().as_secs_f64())
}

/// The same in a file of the disk.
fn measure_disk(
    path: &Path,
    (size, stripe_count): (usize, usize),
    round: usize,
    rates: &mut Rates,
) -> anyhow::Result<()> {
    let file = std::fs::File::create(path).context("make a sparse file")?;
    file.set_len((stripe_count * STRIPE_BYTES) as u64)
        .context("grow it")?;
    let offsets = offsets(size, stripe_count, round);
    for (seed, rates) in [&mut rates.holes, &mut rates.overwrites]
        .into_iter()
        .enumerate()
    {
        let bytes = machine::pattern(size, seed as u64 + 1);
        let begun = Instant::now();
        for &offset in &offsets {
            file.write_all_at(&bytes, offset).context("write")?;
            file.sync_data().context("sync")?;
        }
        rates.push(offsets.len() as f64 / begun.elapsed().as_secs_f64());
    }
    std::fs::remove_file(path).context("delete what was written")
}
