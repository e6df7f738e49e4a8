//! How long the repair of one chunk takes over emulated links, pipelined and conventional, held
//! against one healthy chunk's passage over one such link (`ECPipe`, section 3).

use crate::trial::{Trial, argument, number};
use crate::{machine, median, verdict};
use anyhow::{Context, ensure};
use gabion_client::{Client, ClientOptions};
use gabion_layout::ByteRange;
use serde_json::Value;
use std::time::Instant;

/// Data chunks of a stripe, each of which a conventional repair sends over the requestor's link.
const K: u64 = 10;
/// Each node's link, and its rate in bytes a second.
const LINK: &str = "--inner=400Mbit";
const LINK_BYTES_PER_S: f64 = 50e6;
/// What a pipelined repair may take, as a multiple of one chunk's passage.
const GOAL: f64 = 1.10;
/// The file, which is one stripe.
const FILE: &str = "disk";
/// How often one chunk's passage is timed before each repair.
const PASSAGE_COUNT: usize = 3;

/// How much is done.
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
    let lost = trial.json(&["stat", FILE]).await?["stripes"][0]["nodes"][0]
        .as_u64()
        .context("the node of chunk 0")?;
    trial
        .run(&["chaos", "kill-node", &lost.to_string()])
        .await?;
    trial.wait_until_failed(&[lost]).await?;
    let before = trial.json(&["cluster", "status"]).await?;
    let scheme = format!("--scheme={scheme}");
    let after = trial.json(&["repair", &scheme, "--watch"]).await?;
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
    Ok(Round {
        repair_s,
        passage_s,
    })
}

/// Seconds in which a healthy chunk comes from its node to a client, whose own link is unlimited.
async fn passage_s(trial: &Trial, chunk_bytes: u64) -> anyhow::Result<f64> {
    let client = Client::connect(trial.coordinator(), ClientOptions::default()).await?;
    let file = client.open(FILE).await?;
    let mut times_s = Vec::new();
    for _ in 0..PASSAGE_COUNT {
        let begun = Instant::now();
        file.read(ByteRange::new(0, chunk_bytes)).await?;
        times_s.push(begun.elapsed().as_secs_f64());
    }
    Ok(median(times_s))
}
