//! `gabion bench`: rates, latencies and costs of pools of a running cluster.

mod report;

use super::connect;
use crate::arguments::{BenchOptions, Place};
use crate::failure::Failure;
use crate::output::{Format, Shown, complain};
use crate::output_file::OutputFile;
use gabion_client::Client;
use gabion_testbed::bench::{Bench, Order, Outcome, Setting, Workload};
use gabion_testbed::{EndSignals, LocalCluster};
use report::Report;
use std::io::Write as _;
use std::num::NonZeroU64;
use std::time::Duration;

/// Bytes of a sequential request.
const SEQUENTIAL_BYTES: NonZeroU64 = NonZeroU64::new(1 << 20).expect("not zero");
/// Sequential requests in flight.
const SEQUENTIAL_DEPTH: usize = 16;

pub(crate) async fn run(
    options: BenchOptions,
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    let client = connect(place).await?;
    let local = match (&place.coordinator, &place.dir) {
        (None, Some(directory)) => Some(LocalCluster::open(directory)?),
        _ => None,
    };
    let setting = Setting {
        pools: pools(&client, &options).await?,
        file_bytes: options.size,
        workloads: workloads(&options),
        time: Duration::from_secs(options.seconds),
        round_count: options.rounds,
        seed: options.seed,
        node: options.kill_node,
    };
    // Opened before anything is measured, so that a wrong name does not cost the time of a bench.
    let plot = options
        .plot
        .as_deref()
        .map(OutputFile::create)
        .transpose()?;
    let mut signals = EndSignals::listen()?;
    let files = Bench::file_names(&setting, &std::process::id().to_string());
    let measured = tokio::select! {
        measured = measure(&client, &setting, local.as_ref(), &files) => measured,
        () = signals.recv() => {
            if let (Some(node), Some(local)) = (setting.node, &local) {
                local.start_node(node).await?;
            }
            Err(Failure::failed("interrupted; the bench removed its files"))
        }
    };
    let removed = remove(&client, &files).await;
    let report = Report::new(&setting, measured?);
    removed?;
    if let Some(plot) = plot {
        let drawn = report.plot().svg().map_err(Failure::failed)?;
        let written = plot.file().write_all(drawn.as_bytes());
        written.map_err(|error| plot.failure(&error))?;
        plot.finish()?;
    }
    report.print(format)
}

async fn measure(
    client: &Client,
    setting: &Setting,
    local: Option<&LocalCluster>,
    files: &[String],
) -> Result<Outcome, Failure> {
    let bench = Bench::prepare(client, setting, local, files, Shown::of).await?;
    Ok(bench.run().await?)
}

/// The pools to measure: the named ones, or the only pool.
async fn pools(client: &Client, options: &BenchOptions) -> Result<Vec<String>, Failure> {
    let known = client.pools().await?.into_iter();
    let known: Vec<String> = known.map(|pool| pool.spec.name).collect();
    if let [only] = &known[..]
        && options.pools.is_empty()
    {
        return Ok(vec![only.clone()]);
    }
    if options.pools.is_empty() {
        return Err(Failure::usage(match &known[..] {
            [] => "there is no pool to measure; make one with 'gabion pool create'".to_owned(),
            _ => format!(
                "choose the pools to measure with --pool; there are {}",
                known.join(", ")
            ),
        }));
    }
    let mut pools: Vec<String> = Vec::new();
    for pool in &options.pools {
        if !known.contains(pool) {
            let there = if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            };
            return Err(Failure::usage(format!(
                "there is no pool \"{pool}\"; there are {there}"
            )));
        }
        if pools.contains(pool) {
            return Err(Failure::usage(format!(
                "pool \"{pool}\" is named twice; name it once"
            )));
        }
        pools.push(pool.clone());
    }
    Ok(pools)
}

fn workloads(options: &BenchOptions) -> Vec<Workload> {
    let mut workloads = Vec::new();
    for requests in &options.workload {
        let (access, order) = requests.parts();
        let mut add = |block_bytes, depth| {
            let workload = Workload {
                access,
                order,
                block_bytes,
                depth,
            };
            if !workloads.contains(&workload) {
                workloads.push(workload);
            }
        };
        if order == Order::Sequential {
            add(SEQUENTIAL_BYTES.min(options.size), SEQUENTIAL_DEPTH);
            continue;
        }
        for &block_bytes in &options.block {
            for &depth in &options.depth {
                add(block_bytes, depth as usize);
            }
        }
    }
    workloads
}

/// Removes the bench's files if they exist.
async fn remove(client: &Client, files: &[String]) -> Result<(), Failure> {
    let mut failed = Ok(());
    for file in files {
        let removed = match client.find(file).await {
            Ok(None) => Ok(()),
            Ok(Some(_)) => client.rm(file.as_str()).await,
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            complain(format_args!("{file} stays: {error}\n"));
            failed = Err(Failure::failed(format!(
                "the bench could not remove its file; remove it with 'gabion rm {file}'"
            )));
        }
    }
    failed
}
