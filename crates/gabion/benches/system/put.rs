//! Measures the time of a put, held against writing the same bytes plainly.

use crate::machine::{self, Machine, ProcessorTime};
use crate::trial::{Trial, argument};
use crate::{median, verdict};
use anyhow::Context;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

/// The goal for a put, as a multiple of the plain write.
const GOAL: f64 = 1.5;
/// A put that keeps the processors busy for more than this share of its time waits for them and
/// not for the disk.
const BOUND_SHARE: f64 = 0.8;
/// With less idle time than this and less use by the put, other work on the machine was in the way.
const BUSY_IDLE_SHARE: f64 = 0.1;

/// Amounts of work.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// Bytes of the file. Whole stripes of 6 MiB have no padding; 1 GiB has 2 MiB of it.
    pub(crate) file_bytes: u64,
    /// The number of puts.
    pub(crate) round_count: usize,
}

/// One put.
struct Round {
    put_s: f64,
    plain_s: f64,
    client: ProcessorTime,
    nodes: ProcessorTime,
    idle_share: f64,
}

/// A cluster of 12 nodes in 3 racks without link limits, with one pool: rs(6,3), chunks of 1 MiB.
pub(crate) async fn cluster() -> anyhow::Result<Trial> {
    let trial = Trial::start(&["--racks=3", "--nodes-per-rack=4"]).await?;
    trial
        .run(&["pool", "create", "vm", "--code=rs(6,3)", "--chunk=1MiB"])
        .await?;
    Ok(trial)
}

/// Puts a file some times, each between two plain writes, and prints the figures.
pub(crate) async fn run(scale: Scale) -> anyhow::Result<()> {
    let trial = &cluster().await?;
    let source = trial.path("source");
    write_source(&source, scale.file_bytes)?;
    let stored_bytes = scale.file_bytes / 6 * 9;
    let plain = trial.path("plain");
    // Each plain write is before one put and after another, so a slow moment of the disk meets both.
    let mut before_s = machine::plain_write_s(&plain, stored_bytes)?;
    let mut rounds = Vec::new();
    for round in 0..scale.round_count {
        let mut round = put(trial, &source, &format!("put-{round}")).await?;
        let after_s = machine::plain_write_s(&plain, stored_bytes)?;
        round.plain_s = f64::midpoint(before_s, after_s);
        before_s = after_s;
        rounds.push(round);
    }
    std::fs::remove_file(&source).context("delete the source")?;
    print(&rounds, scale.file_bytes, stored_bytes);
    Ok(())
}

fn write_source(path: &Path, file_bytes: u64) -> anyhow::Result<()> {
    let doing = || format!("write {}", path.display());
    let mut file = File::create(path).with_context(doing)?;
    let bytes = machine::pattern(1 << 20, 3);
    for _ in 0..file_bytes >> 20 {
        file.write_all(&bytes).with_context(doing)?;
    }
    // Pending writes would slow the next measurement.
    file.sync_all().with_context(doing)
}

async fn put(trial: &Trial, source: &Path, name: &str) -> anyhow::Result<Round> {
    let servers = trial.processes()?;
    let servers_before = machine::used_by(&servers)?;
    let client_before = machine::used_by_ended_children()?;
    let machine_before = Machine::now()?;
    let printed = trial.json(&["put", argument(source)?, name]).await?;
    let machine_after = Machine::now()?;
    Ok(Round {
        put_s: printed["seconds"].as_f64().context("seconds")?,
        plain_s: 0.0,
        client: machine::used_by_ended_children()? - client_before,
        nodes: machine::used_by(&servers)? - servers_before,
        idle_share: machine_after.idle_share_since(machine_before),
    })
}

fn print(rounds: &[Round], file_bytes: u64, stored_bytes: u64) {
    let of = |figure: fn(&Round) -> f64| median(rounds.iter().map(figure).collect());
    let (put_s, plain_s) = (of(|r| r.put_s), of(|r| r.plain_s));
    let mib = |bytes: u64| bytes >> 20;
    println!(
        "put of {} MiB into rs(6,3), 12 nodes, median of {}: {put_s:.2} s; plain write and sync of \
         the {} MiB stored: {plain_s:.2} s ({:.0} MB/s); {}",
        mib(file_bytes),
        rounds.len(),
        mib(stored_bytes),
        stored_bytes as f64 / 1e6 / plain_s,
        verdict(of(|r| r.put_s / r.plain_s), GOAL)
    );
    let fastest = |figure: fn(&Round) -> f64| rounds.iter().map(figure).fold(f64::MAX, f64::min);
    println!(
        "    the fastest put {:.2} s, the fastest plain write {:.2} s; other work slows the one \
         thread of a plain write more than the many of a put",
        fastest(|r| r.put_s),
        fastest(|r| r.plain_s)
    );
    let used_s = of(|r| r.client.sum_s() + r.nodes.sum_s());
    let processors = machine::processor_count();
    let idle_share = of(|r| r.idle_share);
    println!(
        "    processor time {used_s:.2} s: client {:.2} user + {:.2} system, servers {:.2} user + \
         {:.2} system; over {processors} processors that is at least {:.2} s",
        of(|r| r.client.user_s),
        of(|r| r.client.system_s),
        of(|r| r.nodes.user_s),
        of(|r| r.nodes.system_s),
        used_s / processors as f64
    );
    let share = used_s / processors as f64 / put_s;
    let bound = if share > BOUND_SHARE {
        "it was bound by them"
    } else if idle_share < BUSY_IDLE_SHARE {
        "other work was in its way"
    } else {
        "it was bound by the disk or by waiting"
    };
    println!(
        "    the put used {:.0} % of the processors, which were idle for {:.0} %: {bound}",
        share * 100.0,
        idle_share * 100.0
    );
}
