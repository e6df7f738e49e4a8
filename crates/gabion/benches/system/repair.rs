//! Measures the repair of one chunk over emulated links, pipelined and conventional, held against one healthy chunk's
//! passage over one such link (`ECPipe`, section 3), and the nodes' resources for it.

use crate::trial::{Trial, argument, number};
use crate::{machine, median, verdict};
use anyhow::{Context, ensure};
use gabion_client::ClientOptions;
use gabion_layout::ByteRange;
use serde_json::Value;
use std::time::Instant;

/// Data chunks of a stripe, each of which a conventional repair sends over the requestor's link.
const K: u64 = 10;
/// All chunks of a stripe.
const N: u64 = 14;
/// Each node's link, and its rate in bytes a second.
const LINK: &str = "--inner=400Mbit";
const LINK_BYTES_PER_S: f64 = 50e6;
/// The goal for a pipelined repair, as a multiple of one chunk's passage.
const GOAL: f64 = 1.10;
/// The goal for a helper, for each GiB that it passes on, in seconds of a processor, its disk excluded.
const GOAL_S_PER_GIB: f64 = 1.2;
/// Bytes of memory that a repair may take at any node.
const GOAL_BYTES: u64 = 8 << 20;
/// The file, which is one stripe.
const FILE: &str = "disk";
/// Passages of one chunk that are timed before each repair.
const PASSAGE_COUNT: usize = 3;

/// Amounts of work.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// The chunk size.
    pub(crate) chunk_mib: u64,
    /// Pipelined repairs; there is one conventional repair besides.
    pub(crate) round_count: usize,
}

/// One repair.
struct Round {
    repair_s: f64,
    passage_s: f64,
    /// Processor time of all nodes but the requestor for each GiB that helpers send, reads included.
    s_per_gib: f64,
    /// Processor time of all nodes for each GiB that they only read and check.
    read_s_per_gib: f64,
    /// By how much the process has grown that has grown most.
    grown_bytes: u64,
}

/// Loses and repairs one chunk some times, and prints the figures.
pub(crate) async fn run(scale: Scale) -> anyhow::Result<()> {
    let chunk_bytes = scale.chunk_mib << 20;
    let trial = Trial::start(&[
        "--racks=5",
        "--nodes-per-rack=3",
        LINK,
        "--repair-parallel=1",
    ])
    .await?;
    let chunk = format!("--chunk={}MiB", scale.chunk_mib);
    trial
        .run(&[
            "pool",
            "create",
            "cold",
            "--code=rs(10,4)",
            "--survive=2-nodes",
            &chunk,
        ])
        .await?;
    let source = trial.path("source");
    std::fs::write(&source, machine::pattern((K * chunk_bytes) as usize, 13))
        .context("write a temporary file")?;
    trial.run(&["put", argument(&source)?, FILE]).await?;
    std::fs::remove_file(&source).context("delete a temporary file")?;
    // Dirty pages of the put would be written back while the repair is timed.
    rustix::fs::sync();

    let mut pipelined = Vec::new();
    for _ in 0..scale.round_count {
        pipelined.push(lose_and_repair(&trial, "pipeline", chunk_bytes).await?);
    }
    let conventional = lose_and_repair(&trial, "conventional", chunk_bytes).await?;
    print(&pipelined, &conventional, scale);
    Ok(())
}

fn print(pipelined: &[Round], conventional: &Round, scale: Scale) {
    let of = |figure: fn(&Round) -> f64| median(pipelined.iter().map(figure).collect());
    let limit_s = (scale.chunk_mib << 20) as f64 / LINK_BYTES_PER_S;
    println!(
        "repair of one {} MiB chunk of rs(10,4) on 400 Mbit/s links, pipelined, median of {}: \
         {:.3} s; the chunk over one link: {:.3} s (the link's rate allows {limit_s:.3} s); {}",
        scale.chunk_mib,
        pipelined.len(),
        of(|r| r.repair_s),
        of(|r| r.passage_s),
        verdict(of(|r| r.repair_s / r.passage_s), GOAL)
    );
    let grown = pipelined.iter().map(|round| round.grown_bytes).max();
    let grown = grown.expect("there is a round");
    println!(
        "    processor time of the helpers for each GiB passed on: {:.2} s, of which reading and checking it takes \
         {:.2} s, so without the disk {:.2} s (goal at most {GOAL_S_PER_GIB:.2}); memory that a node took: {:.1} MiB \
         (goal at most {})",
        of(|r| r.s_per_gib),
        of(|r| r.read_s_per_gib),
        of(|r| r.s_per_gib - r.read_s_per_gib),
        grown as f64 / f64::from(1 << 20),
        GOAL_BYTES >> 20
    );
    println!(
        "    conventional: {:.3} s, {:.2} times the passage (its {K} chunks share one link: {K})",
        conventional.repair_s,
        conventional.repair_s / conventional.passage_s
    );
}

/// Kills the node of chunk 0, has the chunk repaired on the one node that is free, and starts the
/// killed node again so that it is free next time.
async fn lose_and_repair(trial: &Trial, scheme: &str, chunk_bytes: u64) -> anyhow::Result<Round> {
    let passage_s = passage_s(trial, chunk_bytes).await?;
    let read_s_per_gib = read_s_per_gib(trial, chunk_bytes).await?;
    let lost = trial.json(&["stat", FILE]).await?["stripes"][0]["nodes"][0]
        .as_u64()
        .context("the node of chunk 0")?;
    trial
        .run(&["chaos", "kill-node", &lost.to_string()])
        .await?;
    trial.wait_until_failed(&[lost]).await?;
    let before = trial.json(&["cluster", "status"]).await?;
    let scheme = format!("--scheme={scheme}");
    let processes = trial.processes()?.into_iter();
    let processes: Vec<u64> = processes.filter(|&pid| machine::is_running(pid)).collect();
    let sizes: Result<Vec<u64>, _> = processes
        .iter()
        .map(|&pid| machine::reset_peak(pid))
        .collect();
    let sizes = sizes?;
    let used = || -> anyhow::Result<Vec<f64>> {
        let by = |&pid: &u64| Ok(machine::used_by(&[pid])?.sum_s());
        processes.iter().map(by).collect()
    };
    let used_before = used()?;
    let after = trial.json(&["repair", &scheme, "--watch"]).await?;
    let used = used()?.into_iter().zip(used_before);
    let used: Vec<f64> = used.map(|(after, before)| after - before).collect();
    // The requestor does what a helper does, and writes and checks the chunk besides: it uses the most.
    let requestor_s = used.iter().copied().fold(0.0, f64::max);
    let used_s = used.iter().sum::<f64>() - requestor_s;
    let mut grown_bytes = 0;
    for (&pid, before) in processes.iter().zip(sizes) {
        grown_bytes = grown_bytes.max(machine::peak_bytes(pid)?.saturating_sub(before));
    }
    let difference = |name: &str| -> anyhow::Result<u64> {
        let of = |status: &Value| number(&status["repair"], name);
        Ok(of(&after)? - of(&before)?)
    };
    ensure!(
        difference("repaired_chunks")? == 1,
        "one chunk was lost: {after}"
    );
    let repair_s = difference("busy_ms")? as f64 / 1e3;
    trial
        .run(&["chaos", "start-node", &lost.to_string()])
        .await?;
    trial.wait_until_failed(&[]).await?;
    let sent_gib = (K * chunk_bytes) as f64 / f64::from(1 << 30);
    Ok(Round {
        repair_s,
        passage_s,
        s_per_gib: used_s / sent_gib,
        read_s_per_gib,
        grown_bytes,
    })
}

/// Returns the nodes' processor time to read and check their chunks, all those of a stripe, in seconds a GiB.
async fn read_s_per_gib(trial: &Trial, chunk_bytes: u64) -> anyhow::Result<f64> {
    let processes = &trial.processes()?;
    let before = machine::used_by(processes)?;
    trial.run(&["scrub"]).await?;
    let used_s = (machine::used_by(processes)? - before).sum_s();
    let read_gib = (N * chunk_bytes) as f64 / f64::from(1 << 30);
    Ok(used_s / read_gib)
}

/// Seconds in which a healthy chunk comes from its node to a client, whose own link is unlimited.
async fn passage_s(trial: &Trial, chunk_bytes: u64) -> anyhow::Result<f64> {
    let client = gabion_wire::connect(
        trial.coordinator(),
        trial.security()?,
        ClientOptions::default(),
    )
    .await?;
    let file = client.open(FILE).await?;
    let mut times_s = Vec::new();
    for _ in 0..PASSAGE_COUNT {
        let begun = Instant::now();
        file.read(ByteRange::new(0, chunk_bytes)).await?;
        times_s.push(begun.elapsed().as_secs_f64());
    }
    Ok(median(times_s))
}
