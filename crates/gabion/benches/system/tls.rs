//! Measures the cost of TLS: a cluster with certificates against one with `--insecure`, in turns.

use crate::machine;
use crate::median;
use crate::trial::{Trial, argument};
use crate::updates::rank;
use anyhow::Context;
use gabion_client::{Client, ClientOptions, File};
use std::path::Path;
use std::time::Instant;

/// Bytes of one update.
const UPDATE_BYTES: usize = 4 << 10;
/// Bytes of the file that is updated.
const UPDATED_BYTES: usize = 24 << 20;
/// Goals of `secure` against plain: rates of updates, and of sequential puts and gets.
const GOAL: f64 = 0.6;

/// Amounts of work.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// Turns of each cluster.
    pub(crate) turn_count: usize,
    /// Updates of each in one turn.
    pub(crate) turn_updates: usize,
    /// Bytes of the file that is put and got in each turn.
    pub(crate) file_bytes: u64,
}

/// One of the two clusters, and its figures.
struct Side {
    trial: Trial,
    file: File,
    _client: Client,
    updates_s: Vec<f64>,
    puts_s: Vec<f64>,
    gets_s: Vec<f64>,
    processor_s: f64,
}

impl Side {
    async fn start(further: &[&str]) -> anyhow::Result<Self> {
        let arguments = [&["--racks=3", "--nodes-per-rack=3"], further].concat();
        let trial = Trial::start(&arguments).await?;
        trial
            .run(&["pool", "create", "vm", "--code=rs(6,3)", "--chunk=1MiB"])
            .await?;
        let source = trial.path("updated");
        std::fs::write(&source, machine::pattern(UPDATED_BYTES, 11)).context("write a file")?;
        trial.run(&["put", argument(&source)?, "updated"]).await?;
        let security = trial.security()?;
        let client = gabion_wire::connect(trial.coordinator(), security, ClientOptions::default());
        let client = client.await?;
        Ok(Self {
            file: client.open("updated").await?,
            trial,
            _client: client,
            updates_s: Vec::new(),
            puts_s: Vec::new(),
            gets_s: Vec::new(),
            processor_s: 0.0,
        })
    }

    async fn update(&mut self, turn: usize, count: usize) -> anyhow::Result<()> {
        let mut next = machine::numbers(turn as u64);
        let bytes = machine::pattern(UPDATE_BYTES, turn as u64);
        for _ in 0..count {
            let offset = next() % (UPDATED_BYTES / UPDATE_BYTES) as u64 * UPDATE_BYTES as u64;
            let begun = Instant::now();
            self.file.write(offset, bytes.clone().into()).await?;
            self.updates_s.push(begun.elapsed().as_secs_f64());
        }
        Ok(())
    }

    /// A put and a get, with the processor time of all processes together.
    async fn transfer(&mut self, source: &Path) -> anyhow::Result<()> {
        let servers = self.trial.processes()?;
        let before_s = used_s(&servers)?;
        let got = self.trial.path("got");
        let put = ["put", argument(source)?, "sequential"];
        self.puts_s.push(self.seconds(&put).await?);
        let get = ["get", "sequential", argument(&got)?];
        self.gets_s.push(self.seconds(&get).await?);
        self.processor_s += used_s(&servers)? - before_s;
        self.trial.run(&["rm", "sequential"]).await?;
        Ok(())
    }

    async fn seconds(&self, arguments: &[&str]) -> anyhow::Result<f64> {
        let begun = Instant::now();
        self.trial.run(arguments).await?;
        Ok(begun.elapsed().as_secs_f64())
    }
}

/// Processor time of the servers and of the commands that have ended, in seconds.
fn used_s(servers: &[u64]) -> anyhow::Result<f64> {
    Ok(machine::used_by(servers)?.sum_s() + machine::used_by_ended_children()?.sum_s())
}

/// Lets both clusters take turns, and prints the figures.
pub(crate) async fn run(scale: Scale) -> anyhow::Result<()> {
    let mut secure = Side::start(&[]).await?;
    let mut plain = Side::start(&["--insecure"]).await?;
    let source = secure.trial.path("source");
    let bytes = machine::pattern(usize::try_from(scale.file_bytes)?, 3);
    std::fs::write(&source, bytes).context("write a file")?;
    for turn in 0..scale.turn_count {
        // The side that goes first in one turn goes last in the next.
        let mut sides = [&mut secure, &mut plain];
        if turn % 2 == 1 {
            sides.reverse();
        }
        for side in sides {
            side.update(turn, scale.turn_updates).await?;
            side.transfer(&source).await?;
        }
    }
    print(scale, secure, plain);
    Ok(())
}

fn print(scale: Scale, mut secure: Side, mut plain: Side) {
    println!(
        "TLS against plain, rs(6,3) on 9 nodes, {} turns; each ratio is a rate with TLS over that without:",
        scale.turn_count
    );
    let medians = [&mut secure, &mut plain].map(|side| rank(&mut side.updates_s, 0.5) * 1e3);
    line("updates of 4 KiB, one at a time, median ms", medians);
    let puts = [&secure, &plain].map(|side| median(side.puts_s.clone()));
    let name = format!("put of {} MiB, median s", scale.file_bytes >> 20);
    line(&name, puts);
    let gets = [&secure, &plain].map(|side| median(side.gets_s.clone()));
    line("get of it, median s", gets);
    println!(
        "    processor time of all puts and gets: {:.2} s with TLS, {:.2} s without",
        secure.processor_s, plain.processor_s
    );
}

fn line(name: &str, [secure, plain]: [f64; 2]) {
    let ratio = plain / secure;
    let word = if ratio >= GOAL { "met" } else { "missed" };
    println!(
        "    {name}: {secure:.3} with TLS, {plain:.3} without; ratio {ratio:.2} (goal at least {GOAL:.2}: {word})"
    );
}
