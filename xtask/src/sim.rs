//! `cargo xtask sim`: runs the simulator's seeds, races and reference model. It says what a failure was and how to see
//! it again; the simulator itself knows no real time, so the time is kept here.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::steps::{self, Step};

/// Seeds that one process of the simulator runs before the clock is looked at.
const BATCH: u64 = 20;

/// The seeds to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    /// This one.
    Seed(u64),
    /// New seeds for this number of seconds.
    Seconds(u64),
    /// None, but every two operations on one file at every step.
    Races,
    /// As many operations of the reference model.
    Model {
        operation_count: u64,
        /// The first seed; without one, it is a new one.
        first: Option<u64>,
    },
}

/// The runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Runs {
    pub(crate) span: Span,
    /// Whether peers send altered messages.
    pub(crate) has_hostile_peers: bool,
}

/// Runs seeds until one fails or the time is over; `false` means that one failed.
pub(crate) fn run(root: &Path, runs: Runs) -> anyhow::Result<bool> {
    let is_hostile = runs.has_hostile_peers;
    let seconds = match runs.span {
        Span::Races => return run_simulator(root, &["--races"], is_hostile),
        Span::Model {
            operation_count,
            first,
        } => {
            let first = first.map_or_else(new_seed, Ok)?.to_string();
            let count = operation_count.to_string();
            let arguments = ["--model", &*count, "--seed", &*first];
            return run_simulator(root, &arguments, is_hostile);
        }
        Span::Seed(seed) => return run_seeds(root, (seed, 1), is_hostile),
        Span::Seconds(seconds) => seconds,
    };
    // Compiling is not simulating.
    let words = ["build", profile(is_hostile), "--package", "gabion-sim"];
    if !steps::run(root, &[Step::Cargo(&words)])? {
        return Ok(false);
    }
    let first = new_seed()?;
    let (start, limit) = (Instant::now(), Duration::from_secs(seconds));
    let mut seed_count = 0;
    while start.elapsed() < limit {
        if !run_seeds(root, (first + seed_count, BATCH), is_hostile)? {
            return Ok(false);
        }
        seed_count += BATCH;
        let rate = seed_count as f64 / start.elapsed().as_secs_f64();
        eprintln!("{seed_count} seeds without a failure, {rate:.1} seeds/s");
    }
    Ok(true)
}

/// Any number that is another one at the next run: the seed of a failure is printed.
fn new_seed() -> anyhow::Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() << 16)
}

fn run_seeds(root: &Path, (first, count): (u64, u64), is_hostile: bool) -> anyhow::Result<bool> {
    let (first, count) = (first.to_string(), count.to_string());
    let mut arguments = vec!["--seed", &first, "--count", &count];
    if is_hostile {
        arguments.push("--hostile");
    }
    run_simulator(root, &arguments, is_hostile)
}

fn run_simulator(root: &Path, arguments: &[&str], is_hostile: bool) -> anyhow::Result<bool> {
    let mut words = vec![
        "run",
        "--quiet",
        profile(is_hostile),
        "--package",
        "gabion-sim",
        "--",
    ];
    words.extend(arguments);
    steps::run(root, &[Step::Cargo(&words)])
}

/// With hostile peers, a number that wraps around is to panic.
fn profile(is_hostile: bool) -> &'static str {
    if is_hostile {
        "--profile=test"
    } else {
        "--release"
    }
}
