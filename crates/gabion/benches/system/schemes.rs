//! Small updates under each update scheme, one at a time and sixteen at once, with what they cost the
//! nodes' disks, as `gabion bench` measures them; merges of the same minutes are in.

use crate::trial::{Trial, number};
use anyhow::Context;
use serde_json::Value;

const SCHEMES: [&str; 4] = ["fo", "fl", "pl", "plr"];
/// The goal for parity logging with reserved space, as a multiple of the rate of FO, sixteen at once.
const GOAL: f64 = 1.5;

/// Amounts of work.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// Rounds over all schemes and depths, which are added up.
    pub(crate) round_count: usize,
    /// Seconds of each scheme and depth in a round.
    pub(crate) seconds: u64,
}

/// Overwrites blocks at random under every scheme in turn, on one cluster, and prints the figures.
pub(crate) async fn run(scale: Scale) -> anyhow::Result<()> {
    let trial = Trial::start(&["--racks=3", "--nodes-per-rack=3"]).await?;
    let mut bench = vec![
        "bench".to_owned(),
        "--workload=randwrite".to_owned(),
        "--block=4KiB".to_owned(),
        "--depth=1,16".to_owned(),
        // 8 stripes of 6 chunks of 1 MiB.
        "--size=48MiB".to_owned(),
        format!("--seconds={}", scale.seconds),
        format!("--rounds={}", scale.round_count),
    ];
    for scheme in SCHEMES {
        let update = format!("--update={scheme}");
        let pool = ["pool", "create", scheme, "--code=rs(6,3)", "--chunk=1MiB"];
        trial.run(&[&pool[..], &[&update]].concat()).await?;
        bench.push(format!("--pool={scheme}"));
    }
    let bench: Vec<&str> = bench.iter().map(String::as_str).collect();
    let report = trial.json(&bench).await?;
    print(&report)
}

fn print(report: &Value) -> anyhow::Result<()> {
    println!("updates of 4 KiB at random in rs(6,3), durable; an update costs all nodes together:");
    for scheme in SCHEMES {
        for depth in [1, 16] {
            print_line(line(report, scheme, depth)?)?;
        }
    }
    let rate = |scheme| real(line(report, scheme, 16)?, "requests_per_s");
    let ratio = rate("plr")? / rate("fo")?;
    let word = if ratio >= GOAL { "met" } else { "missed" };
    println!("PLR over FO, sixteen at once: {ratio:.2} (goal at least {GOAL:.1}: {word})");
    let processor = |scheme| servers_ms(line(report, scheme, 16)?);
    println!(
        "processor time of an update in all servers, FO over PLR: {:.2}",
        processor("fo")? / processor("plr")?
    );
    let sync_ms = real(report, "plain_write_ms")?;
    println!(
        "the disk alone: one plain write and sync of 4 KiB in {sync_ms:.2} ms; four of them, one after \
         another, would allow {:.0} updates/s",
        1e3 / (4.0 * sync_ms)
    );
    Ok(())
}

fn print_line(line: &Value) -> anyhow::Result<()> {
    let count = number(line, "requests")? as f64;
    let store = |name| number(&line["stores"], name);
    let kib = |name| Ok::<_, anyhow::Error>(store(name)? as f64 / 1024.0 / count);
    println!(
        "{:>4} depth {:>2}: {:>6.0}/s, median {:>6.2} ms, p99 {:>6.2} ms; {:.3} ms of processor in servers, \
         {:.3} in the client, {:.1} packets on loopback, {:.2} syncs, {:.1} KiB journal, {:.1} KiB images, \
         {:.1} KiB reserve, {:.1} KiB in place; {} merges in the foreground, {} behind, {} stalls",
        line["pool"].as_str().context("a pool's name")?,
        number(line, "depth")?,
        real(line, "requests_per_s")?,
        real(line, "p50_ms")?,
        real(line, "p99_ms")?,
        servers_ms(line)?,
        real(line, "client_processor_s")? * 1e3 / count,
        number(line, "loopback_packets")? as f64 / count,
        store("sync_count")? as f64 / count,
        kib("journal_bytes")?,
        kib("image_bytes")?,
        kib("reserve_bytes")?,
        kib("in_place_bytes")?,
        store("foreground_merge_count")?,
        store("background_merge_count")?,
        store("stalled_append_count")?,
    );
    Ok(())
}

/// The line of a scheme and a depth.
fn line<'a>(report: &'a Value, scheme: &str, depth: u64) -> anyhow::Result<&'a Value> {
    let lines = report["lines"]
        .as_array()
        .context("no lines in the report")?;
    let mut lines = lines.iter();
    let found = lines.find(|line| line["pool"] == scheme && line["depth"] == depth);
    found.with_context(|| format!("no line of {scheme} at depth {depth}"))
}

/// Processor time of an update in the coordinator and all nodes, in milliseconds.
fn servers_ms(line: &Value) -> anyhow::Result<f64> {
    let servers_s = real(line, "coordinator_processor_s")? + real(line, "nodes_processor_s")?;
    Ok(servers_s * 1e3 / number(line, "requests")? as f64)
}

fn real(value: &Value, name: &str) -> anyhow::Result<f64> {
    let real = value[name].as_f64();
    real.with_context(|| format!("{name} is no number in {value}"))
}
