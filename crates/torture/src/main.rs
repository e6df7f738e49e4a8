//! A torture test of real processes: clusters of the shipped binary under load, with faults of
//! processes, networks, disks and operators, and a check of the clients' view.
//!
//! It runs in two processes. The outer one makes a temporary directory and starts the inner one, as
//! root inside a testbed (`gabion lab testbed`), whose end also ends its processes, namespaces,
//! mounts and loop devices. It removes the directory unless the inner one has found a problem. The
//! inner one runs episodes: each is a cluster with schemes and faults of its own seed.
//!
//! Unlike in the simulator, times are real, so a seed determines the draws, not the events.

mod cells;
mod clients;
mod cluster;
mod dice;
mod disk;
mod episode;
mod faults;
mod history;
mod network;
mod outer;
mod recorder;
mod report;
mod schemes;
mod stop;

use clap::{Parser, ValueEnum};
use episode::Orders;
use faults::FaultKind;
use report::Report;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use stop::{Context, Stop};

/// Time with faults for one cluster, before it is read back and another one begins.
const EPISODE: Duration = Duration::from_secs(100);

/// The format of the report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
enum Format {
    /// A table
    #[default]
    Text,
    /// One JSON object
    Json,
}

/// Breaks clusters of real processes under load, and checks the clients' view. Exit codes: 0 no
/// problem, 1 problem found, 2 wrong usage.
#[derive(Parser, Debug)]
#[command(name = "cargo xtask torture")]
struct Arguments {
    /// Time of the whole run, in minutes
    #[arg(long, default_value_t = 2.0)]
    minutes: f64,
    /// Seed of the random draws [default: the time]
    #[arg(long)]
    seed: Option<u64>,
    /// Kinds of faults [default: all]
    #[arg(long, value_delimiter = ',', value_enum)]
    faults: Vec<FaultKind>,
    /// Format of the report
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// The binary [default: gabion beside this program]
    #[arg(long, value_name = "FILE")]
    gabion: Option<PathBuf>,
    /// The directory of all clusters, set by the outer process
    #[arg(long, hide = true)]
    inside: Option<PathBuf>,
    /// Whether the outer process has made a testbed
    #[arg(long, hide = true)]
    testbed: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.inside {
        None => outer::run(&arguments),
        Some(directory) => inner(&arguments, directory.clone()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(stop) => {
            eprintln!("error: {stop}");
            ExitCode::FAILURE
        }
    }
}

/// Runs episodes until the time is over or one fails. Returns whether all succeeded.
fn inner(arguments: &Arguments, directory: PathBuf) -> Result<bool, Stop> {
    let interrupted = Arc::new(AtomicBool::new(false));
    listen_for_signals(Arc::clone(&interrupted))?;
    let seed = arguments.seed.unwrap_or_default();
    let time = Duration::try_from_secs_f64(arguments.minutes * 60.0).context("take --minutes")?;
    let begun = Instant::now();
    let mut report = Report::new(seed);
    let mut orders = Orders {
        seed,
        gabion: outer::binary(arguments)?,
        directory,
        kinds: kinds(arguments),
        is_testbed: arguments.testbed,
        time: EPISODE,
        interrupted,
    };
    // The remaining time may be too short for another cluster.
    while begun.elapsed() < time.mul_f64(0.9) && report.failure().is_none() {
        let left = time.saturating_sub(begun.elapsed());
        // A run of two minutes is one episode with its start and its end.
        orders.time = EPISODE.min(left.mul_f64(0.85));
        let outcome = episode::run(&orders);
        eprintln!("seed {} is over: {}", orders.seed, outcome.title);
        report.add(orders.seed, outcome);
        orders.seed += 1;
    }
    match arguments.format {
        Format::Text => report.print(),
        Format::Json => println!("{:#}", report.as_json()),
    }
    Ok(report.failure().is_none())
}

/// The requested faults that are possible here.
fn kinds(arguments: &Arguments) -> Vec<FaultKind> {
    let all = if arguments.faults.is_empty() {
        FaultKind::value_variants().to_vec()
    } else {
        arguments.faults.clone()
    };
    let is_possible = |kind: &FaultKind| arguments.testbed || !kind.needs_testbed();
    let (possible, skipped): (Vec<_>, Vec<_>) = all.into_iter().partition(is_possible);
    if !skipped.is_empty() {
        let names: Vec<String> = skipped.into_iter().map(FaultKind::name).collect();
        let names = names.join(", ");
        eprintln!("skipped without root, iproute2, util-linux and e2fsprogs: {names}");
    }
    possible
}

/// Listens for the signals that end the run.
fn listen_for_signals(interrupted: Arc<AtomicBool>) -> Result<(), Stop> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start a run-time")?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        let interrupt = signal(SignalKind::interrupt()).context("listen for signals")?;
        (
            interrupt,
            signal(SignalKind::terminate()).context("listen for signals")?,
        )
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        });
        interrupted.store(true, Ordering::Release);
    });
    Ok(())
}
