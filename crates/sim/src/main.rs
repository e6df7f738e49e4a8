//! `gabion-sim`: runs seeds one after another and stops at the first broken promise, with its event log and
//! the command that reproduces it. `cargo xtask sim` runs it.

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

use gabion_layout::UpdateScheme;
use gabion_planner::update::SCHEMES;
use gabion_sim::model::{
    COVERING_COUNT, ModelCounts, ModelOptions, OPERATIONS_PER_SEED, run_model,
};
use gabion_sim::race::{Kind, Operation, Race, Raced};
use gabion_sim::race_crashes::{Change, Crash};
use gabion_sim::{Coverage, FaultCounts, Options, scheme_of, simulate};
use std::fmt::Debug;
use std::io::Write as _;
use std::process::ExitCode;

/// A run allocates like a server, mostly for its copies of disks.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "Usage: gabion-sim --seed N [--count K] [--scheme SCHEME] [--lines L] [--hostile]
       gabion-sim --races
       gabion-sim --model OPERATIONS --seed N

Runs K seeds from N on (1 by default; with SCHEME only seeds of a pool with that update scheme) and
stops at the first failure. Prints the last 2000 lines of the failed run's event log. With --lines, it
prints L lines of the last run's log, even without a failure. If no seed fails, it prints their totals.
With --hostile, peers send altered messages too, and only a panic or an endless loop is a failure.
With --races, it runs every two operations on one file, the second one at every step of the first, and
changes of files with a crash of the coordinator or a node at every step.
With --model, it compares OPERATIONS random operations of a client with a reference model, 1000 in each seed from N on,
and stops at the first difference. It fails, too, if 10000 operations or more miss a kind or an outcome.";

/// Prints a line. The program ends when there is no reader any more.
macro_rules! say {
    ($($words:tt)*) => {
        if writeln!(std::io::stdout(), $($words)*).is_err() {
            std::process::exit(1);
        }
    };
}

/// The runs to execute.
struct Arguments {
    first: u64,
    count: u64,
    scheme: Option<UpdateScheme>,
    lines: Option<u64>,
    has_hostile_peers: bool,
}

impl Arguments {
    fn seeds(&self) -> impl Iterator<Item = u64> + use<> {
        let (first, scheme) = (self.first, self.scheme);
        let seeds = (0..).map(move |more| first.wrapping_add(more));
        let wanted = move |seed: &u64| scheme.is_none_or(|scheme| scheme_of(*seed) == scheme);
        seeds.filter(wanted).take(self.count as usize)
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == ["--races"] {
        return run_races();
    }
    if arguments.iter().any(|word| word == "--model") {
        let Some((operation_count, first)) = parse_model(&arguments) else {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        };
        return run_models(operation_count, first);
    }
    let Some(arguments) = parse(&arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let options = Options {
        kept_line_count: arguments.lines.unwrap_or(2_000) as usize,
        has_hostile_peers: arguments.has_hostile_peers,
        ..Options::default()
    };
    let (mut coverage, mut faults) = (Coverage::default(), FaultCounts::new());
    let last = arguments.seeds().last();
    for seed in arguments.seeds() {
        let report = simulate(seed, &options);
        let (line_count, digest) = report.digest;
        say!(
            "seed {seed}: {}; {} updates, {} reads, {} faults, {} altered messages, {} s; \
             {line_count} events, {digest:016x}",
            report.cluster,
            report.acknowledged_count,
            report.read_count,
            report.faults.values().sum::<u64>(),
            report.altered_count,
            report.elapsed_ms / 1000,
        );
        coverage += report.coverage;
        for (fault, count) in report.faults {
            *faults.entry(fault).or_default() += count;
        }
        let is_wanted = report.failure.is_some() || arguments.lines.is_some() && Some(seed) == last;
        for line in report.log.iter().filter(|_| is_wanted) {
            say!("{line}");
        }
        if let Some(failure) = report.failure {
            say!("seed {seed} failed: {failure}");
            let peers = if options.has_hostile_peers {
                " --hostile"
            } else {
                ""
            };
            say!("run it again with: cargo xtask sim --seed {seed}{peers}");
            return ExitCode::FAILURE;
        }
    }
    let rows = coverage.rows();
    let rows: Vec<String> = rows.map(|(what, count)| format!("{count} {what}")).into();
    say!("{} seeds: {}", arguments.count, rows.join(", "));
    let rows = faults
        .iter()
        .map(|(fault, count)| format!("{count} {fault:?}"));
    say!("faults: {}", rows.collect::<Vec<_>>().join(", "));
    ExitCode::SUCCESS
}

/// Runs all races at every step, with every update scheme.
fn run_races() -> ExitCode {
    let schemes = SCHEMES.iter().map(|known| known.scheme);
    for (scheme, kind) in schemes.flat_map(|scheme| Kind::ALL.map(|kind| (scheme, kind))) {
        for first in Operation::all(kind) {
            let mut run_count = 0;
            for race in Race::of((scheme, kind), &first) {
                match race.run_at(0, 1) {
                    Ok(more) => run_count += more,
                    Err((step, raced)) => return failed(&race, step, &raced),
                }
            }
            say!("{scheme}, {kind:?}, {first:?}: {run_count} races");
        }
    }
    run_crashes()
}

/// Runs all changes with a crash at every step, with every update scheme.
fn run_crashes() -> ExitCode {
    for scheme in SCHEMES.iter().map(|known| known.scheme) {
        for change in Change::all() {
            let mut run_count = 0;
            for crash in Crash::all(scheme, &change) {
                let step_count = match crash.step_count() {
                    Ok(step_count) => step_count,
                    Err(quiet) => return failed(&crash, u64::MAX, &quiet),
                };
                match crash.run_at(step_count, (0, 1)) {
                    Ok(more) => run_count += more,
                    Err((step, raced)) => return failed(&crash, step, &raced),
                }
            }
            say!("{scheme}, {change:?}: {run_count} crashes");
        }
    }
    ExitCode::SUCCESS
}

/// Tells of a run that failed.
fn failed(what: &impl Debug, step: u64, raced: &Raced) -> ExitCode {
    for line in &raced.log {
        say!("{line}");
    }
    say!("{what:?} at step {step} failed: {:?}", raced.failure);
    ExitCode::FAILURE
}

/// Runs operations of the reference model, in seeds from this one on.
fn run_models(operation_count: u64, first: u64) -> ExitCode {
    let mut counts = ModelCounts::default();
    let seed_count = operation_count.div_ceil(OPERATIONS_PER_SEED);
    for number in 0..seed_count {
        let seed = first.wrapping_add(number);
        let left_count = operation_count - number * OPERATIONS_PER_SEED;
        let options = ModelOptions {
            operation_count: left_count.min(OPERATIONS_PER_SEED),
            wrong: None,
        };
        let modelled = run_model(seed, options);
        if let Some(failure) = modelled.failure {
            for line in &modelled.log {
                say!("{line}");
            }
            say!("seed {seed} ({}) failed: {failure}", modelled.cluster);
            say!("run it again with: cargo xtask sim --model {OPERATIONS_PER_SEED} --seed {seed}");
            return ExitCode::FAILURE;
        }
        let (refused_count, doubt_count) =
            (modelled.counts.refusal_count(), modelled.counts.doubt_count);
        counts += modelled.counts;
        say!(
            "seed {seed}: {}; {refused_count} refused, {doubt_count} in doubt; {} of {operation_count} operations",
            modelled.cluster,
            counts.operation_count()
        );
    }
    print_counts(&counts);
    let missing = counts.missing();
    if operation_count >= COVERING_COUNT && !missing.is_empty() {
        say!("these never happened: {}", missing.join(", "));
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Prints what runs of the reference model have done.
fn print_counts(counts: &ModelCounts) {
    let operations = counts.operations.iter();
    let operations = operations.map(|(kind, count)| format!("{count} {kind:?}"));
    let refusals = counts.refusals.iter();
    let refusals = refusals.map(|(cause, count)| format!("{count} {cause}"));
    let reached = counts.reached.iter();
    let reached = reached.map(|(reached, count)| format!("{count} {reached:?}"));
    say!("operations: {}", operations.collect::<Vec<_>>().join(", "));
    say!("outcomes: {}", reached.collect::<Vec<_>>().join(", "));
    say!("refusals: {}", refusals.collect::<Vec<_>>().join(", "));
    say!(
        "{} accesses by an earlier layout, {} coordinator restarts, {} kills of nodes, {} operations in doubt, \
         {} comparisons of everything",
        counts.old_handle_count,
        counts.coordinator_restart_count,
        counts.node_kill_count,
        counts.doubt_count,
        counts.comparison_count
    );
}

/// The number of operations and the first seed; none if the arguments are invalid.
fn parse_model(arguments: &[String]) -> Option<(u64, u64)> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match *words {
        ["--model", operation_count, "--seed", first]
        | ["--seed", first, "--model", operation_count] => {
            Some((operation_count.parse().ok()?, first.parse().ok()?))
        }
        _ => None,
    }
}

/// The runs to execute; none if the arguments are invalid.
fn parse(arguments: &[String]) -> Option<Arguments> {
    let (mut first, mut count, mut scheme, mut lines) = (None, 1, None, None);
    let mut has_hostile_peers = false;
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if word == "--hostile" {
            has_hostile_peers = true;
            continue;
        }
        let value = words.next()?;
        match word.as_str() {
            "--seed" => first = Some(value.parse().ok()?),
            "--count" => count = value.parse().ok()?,
            "--scheme" => {
                scheme = Some(value.parse().ok().filter(|one| is_simulated(*one))?);
            }
            "--lines" => lines = Some(value.parse().ok()?),
            _ => return None,
        }
    }
    Some(Arguments {
        first: first?,
        count,
        scheme,
        lines,
        has_hostile_peers,
    })
}

/// Whether any seed's pool has the scheme.
fn is_simulated(scheme: UpdateScheme) -> bool {
    (0..64).any(|seed| scheme_of(seed) == scheme)
}
