//! `gabion-sim`: runs seeds one after another and stops at the first broken promise, with its event log and
//! the command that reproduces it. `cargo xtask sim` runs it.

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

use gabion_layout::UpdateScheme;
use gabion_planner::update::SCHEMES;
use gabion_sim::race::{Kind, Operation, Race};
use gabion_sim::{Coverage, FaultCounts, Options, scheme_of, simulate};
use std::io::Write as _;
use std::process::ExitCode;

/// A run allocates like a server, mostly for its copies of disks.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "Usage: gabion-sim --seed N [--count K] [--scheme SCHEME] [--lines L] [--hostile]
       gabion-sim --races

Runs K seeds from N on (1 by default; with SCHEME only seeds of a pool with that update scheme) and
stops at the first failure. Prints the last 2000 lines of the failed run's event log. With --lines, it
prints L lines of the last run's log, even without a failure. If no seed fails, it prints their totals.
With --hostile, peers send altered messages too, and only a panic or an endless loop is a failure.
With --races, it runs every two operations on one file, the second one at every step of the first.";

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
                    Err((step, raced)) => {
                        for line in &raced.log {
                            say!("{line}");
                        }
                        say!("{race:?} at step {step} failed: {:?}", raced.failure);
                        return ExitCode::FAILURE;
                    }
                }
            }
            say!("{scheme}, {kind:?}, {first:?}: {run_count} races");
        }
    }
    ExitCode::SUCCESS
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
