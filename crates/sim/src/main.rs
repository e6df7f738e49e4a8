//! `gabion-sim`: runs seeds one after another and stops at the first broken promise, with its event
//! log and the command that shows it again. `cargo xtask sim` runs it.

use gabion_sim::{Deeds, Options, simulate};
use std::process::ExitCode;

const USAGE: &str = "Usage: gabion-sim --seed N [--count K] [--lines L]

Runs seeds N, N + 1, ... (1 of them unless K says more) up to the first that fails, and prints the
last 2000 lines of its event log, or L lines of the last run's whether it fails or not. If none fails,
it says what they did in all.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((first, count, lines)) = parse(&arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let options = Options {
        kept_line_count: lines.unwrap_or(2_000) as usize,
        ..Options::default()
    };
    let mut deeds = Deeds::default();
    let last = first.wrapping_add(count.saturating_sub(1));
    for seed in (0..count).map(|more| first.wrapping_add(more)) {
        let report = simulate(seed, &options);
        let (line_count, digest) = report.digest;
        println!(
            "seed {seed}: {}; {} updates, {} reads, {} faults, {} s; {line_count} events, {digest:016x}",
            report.cluster,
            report.acknowledged_count,
            report.read_count,
            report.fault_count,
            report.elapsed_ms / 1000,
        );
        deeds += report.deeds;
        let is_wanted = report.failure.is_some() || lines.is_some() && seed == last;
        for line in report.log.iter().filter(|_| is_wanted) {
            println!("{line}");
        }
        if let Some(failure) = report.failure {
            println!("seed {seed} failed: {failure}");
            println!("run it again with: cargo xtask sim --seed {seed}");
            return ExitCode::FAILURE;
        }
    }
    let rows = deeds.rows();
    let rows: Vec<String> = rows.map(|(what, count)| format!("{count} {what}")).into();
    println!("{count} seeds: {}", rows.join(", "));
    ExitCode::SUCCESS
}

/// First seed, count and lines (if given), unless the arguments mean nothing.
fn parse(arguments: &[String]) -> Option<(u64, u64, Option<u64>)> {
    let (mut first, mut count, mut lines) = (None, 1, None);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let value: u64 = words.next()?.parse().ok()?;
        match word.as_str() {
            "--seed" => first = Some(value),
            "--count" => count = value,
            "--lines" => lines = Some(value),
            _ => return None,
        }
    }
    Some((first?, count, lines))
}
