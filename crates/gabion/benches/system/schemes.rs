//! Small updates under each update scheme, one at a time and sixteen at once, with what they cost the
//! nodes' disks; merges of the same minutes are in.

use crate::machine;
use crate::trial::{Trial, argument};
use crate::updates::rank;
use anyhow::Context;
use futures::stream::{self, StreamExt, TryStreamExt};
use gabion_client::{Client, ClientOptions, File};
use gabion_protocol::message::StoreCounts;
use std::fs;
use std::os::unix::fs::FileExt;
use std::time::Instant;

/// Bytes of one update.
const UPDATE_BYTES: usize = 4 << 10;
/// Bytes of the file that is updated: 8 stripes of 6 chunks of 1 MiB.
const FILE_BYTES: usize = 48 << 20;
const SCHEMES: [&str; 4] = ["fo", "fl", "pl", "plr"];
const DEPTHS: [usize; 2] = [1, 16];
/// How much faster than FO parity logging with reserved space should be, sixteen at once.
const GOAL: f64 = 1.5;

/// How much is done.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// Rounds over all schemes and depths; the median of each counts.
    pub(crate) round_count: usize,
    /// Updates of each scheme and depth in a round.
    pub(crate) update_count: usize,
}

/// One scheme's figures at one depth.
#[derive(Default)]
struct Figures {
    rates: Vec<f64>,
    latencies_s: Vec<f64>,
    update_count: u64,
    packet_count: u64,
    processor_s: f64,
    cost: StoreCounts,
}

/// Overwrites blocks at random under every scheme in turn, on one cluster, and prints the figures.
pub(crate) async fn run(scale: Scale) -> anyhow::Result<()> {
    let trial = Trial::start(&["--racks=3", "--nodes-per-rack=3"]).await?;
    let client = gabion_wire::connect(
        trial.coordinator(),
        trial.security()?,
        ClientOptions::default(),
    )
    .await?;
    let source = trial.path("updated");
    fs::write(&source, machine::pattern(FILE_BYTES, 11)).context("write a temporary file")?;
    let mut files = Vec::new();
    for scheme in SCHEMES {
        let (update, pool) = (format!("--update={scheme}"), format!("--pool={scheme}"));
        trial
            .run(&[
                "pool",
                "create",
                scheme,
                "--code=rs(6,3)",
                "--chunk=1MiB",
                &update,
            ])
            .await?;
        trial
            .run(&["put", argument(&source)?, scheme, &pool])
            .await?;
        files.push(client.open(scheme).await?);
    }
    let mut figures: Vec<Vec<Figures>> = Vec::new();
    figures.resize_with(SCHEMES.len(), || DEPTHS.map(|_| Figures::default()).into());
    let processes = trial.processes()?;
    let mut syncs_s = Vec::new();
    for round in 0..scale.round_count {
        for (file, figures) in files.iter().zip(&mut figures) {
            for (&depth, figures) in DEPTHS.iter().zip(figures) {
                let seed = 5 + round as u64;
                let used_before = machine::used_by(&processes)?;
                figures
                    .measure(&client, file, depth, seed, scale.update_count)
                    .await?;
                figures.processor_s += (machine::used_by(&processes)? - used_before).sum_s();
            }
        }
        syncs_s.push(sync_s(&source)?);
    }
    print(&mut figures);
    println!(
        "the disk alone: one plain write and sync of 4 KiB in {:.2} ms; four of them, one after \
         another, would allow {:.0} updates/s",
        median_of(&syncs_s) * 1e3,
        1.0 / (4.0 * median_of(&syncs_s))
    );
    Ok(())
}

fn median_of(figures: &[f64]) -> f64 {
    crate::median(figures.to_vec())
}

/// Seconds of one plain write and sync, of a few.
fn sync_s(path: &std::path::Path) -> anyhow::Result<f64> {
    let plain = fs::File::options()
        .write(true)
        .open(path)
        .context("open a temporary file")?;
    let bytes = machine::pattern(UPDATE_BYTES, 3);
    let mut figures = Vec::new();
    for at in 0..50_u64 {
        let begun = Instant::now();
        plain
            .write_all_at(&bytes, at * UPDATE_BYTES as u64)
            .context("write")?;
        plain.sync_data().context("sync")?;
        figures.push(begun.elapsed().as_secs_f64());
    }
    Ok(crate::median(figures))
}

impl Figures {
    /// So many updates, `depth` of them at once.
    async fn measure(
        &mut self,
        client: &Client,
        file: &File,
        depth: usize,
        seed: u64,
        count: usize,
    ) -> anyhow::Result<()> {
        let before = cost(client).await?;
        let packets_before = machine::loopback_packet_count()?;
        let mut next = machine::numbers(seed);
        let bytes = machine::pattern(UPDATE_BYTES, seed);
        let blocks = (FILE_BYTES / UPDATE_BYTES) as u64;
        let begun = Instant::now();
        let updates = (0..count).map(|_| {
            let (offset, bytes) = (next() % blocks * UPDATE_BYTES as u64, bytes.clone());
            async move {
                let begun = Instant::now();
                file.write(offset, bytes.into()).await?;
                anyhow::Ok(begun.elapsed().as_secs_f64())
            }
        });
        let latencies_s: Vec<f64> = stream::iter(updates)
            .buffer_unordered(depth)
            .try_collect()
            .await?;
        self.rates
            .push(count as f64 / begun.elapsed().as_secs_f64());
        self.latencies_s.extend(latencies_s);
        self.update_count += count as u64;
        self.packet_count += machine::loopback_packet_count()? - packets_before;
        let after = cost(client).await?;
        self.cost = sum(self.cost, after, before);
        Ok(())
    }
}

/// What all nodes' disks have done.
async fn cost(client: &Client) -> anyhow::Result<StoreCounts> {
    let nodes = client.store_counts().await?;
    let none = StoreCounts::default();
    Ok(nodes
        .into_iter()
        .fold(none, |all, (_, one)| sum(all, one, none)))
}

/// `all` and what has come between `before` and `after`, as far as it is printed.
fn sum(all: StoreCounts, after: StoreCounts, before: StoreCounts) -> StoreCounts {
    let add = |of: fn(&StoreCounts) -> u64| of(&all) + of(&after) - of(&before);
    StoreCounts {
        sync_count: add(|c| c.sync_count),
        journal_bytes: add(|c| c.journal_bytes),
        image_bytes: add(|c| c.image_bytes),
        reserve_bytes: add(|c| c.reserve_bytes),
        in_place_bytes: add(|c| c.in_place_bytes),
        foreground_merge_count: add(|c| c.foreground_merge_count),
        background_merge_count: add(|c| c.background_merge_count),
        stalled_append_count: add(|c| c.stalled_append_count),
        ..StoreCounts::default()
    }
}

fn print(figures: &mut [Vec<Figures>]) {
    println!("updates of 4 KiB at random in rs(6,3), durable; an update costs all nodes together:");
    for (scheme, figures) in SCHEMES.iter().zip(figures.iter_mut()) {
        for (depth, figures) in DEPTHS.iter().zip(figures) {
            let each = |count: u64| count as f64 / figures.update_count as f64;
            let kib = |bytes: u64| each(bytes) / 1024.0;
            let cost = figures.cost;
            println!(
                "{scheme:>4} depth {depth:>2}: {:>6.0}/s, median {:>6.2} ms, p99 {:>6.2} ms; {:.3} ms \
                 of processor, {:.1} packets on loopback, {:.2} syncs, {:.1} KiB journal, {:.1} KiB images, {:.1} KiB reserve, {:.1} KiB in place; \
                 {} merges in the foreground, {} behind, {} stalls",
                crate::median(figures.rates.clone()),
                rank(&mut figures.latencies_s, 0.5) * 1e3,
                rank(&mut figures.latencies_s, 0.99) * 1e3,
                figures.processor_s * 1e3 / figures.update_count as f64,
                each(figures.packet_count),
                each(cost.sync_count),
                kib(cost.journal_bytes),
                kib(cost.image_bytes),
                kib(cost.reserve_bytes),
                kib(cost.in_place_bytes),
                cost.foreground_merge_count,
                cost.background_merge_count,
                cost.stalled_append_count,
            );
        }
    }
    let rate = |scheme: usize| crate::median(figures[scheme][1].rates.clone());
    let ratio = rate(3) / rate(0);
    let word = if ratio >= GOAL { "met" } else { "missed" };
    println!("PLR over FO, sixteen at once: {ratio:.2} (goal at least {GOAL:.1}: {word})");
    let processor = |scheme: usize| figures[scheme][1].processor_s;
    println!(
        "processor time of an update in all servers, FO over PLR: {:.2}",
        processor(0) / processor(3)
    );
}
