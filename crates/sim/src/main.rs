//! `gabion-sim`: runs seeds one after another and stops at the first broken promise, with its event
//! log and the command that shows it again. `cargo xtask sim` runs it.

use gabion_sim::{Options, simulate};
use std::process::ExitCode;

const USAGE: &str = "Usage: gabion-sim --seed N [--count K] [--lines L]

Runs seeds N, N + 1, ... (1 of them unless K says more) and prints the last L lines (2000) of a
failed run's event log.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((first, count, lines)) = parse(&arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let options = Options {
        kept_line_count: lines as usize,
        ..Options::default()
    };
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
        if let Some(failure) = report.failure {
            for line in &report.log {
                println!("{line}");
            }
            println!("seed {seed} failed: {failure}");
            println!("run it again with: cargo xtask sim --seed {seed}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// First seed, count and lines, unless the arguments mean nothing.
fn parse(arguments: &[String]) -> Option<(u64, u64, u64)> {
    let (mut first, mut count, mut lines) = (None, 1, 2_000);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let value: u64 = words.next()?.parse().ok()?;
        match word.as_str() {
            "--seed" => first = Some(value),
            "--count" => count = value,
            "--lines" => lines = value,
            _ => return None,
        }
    }
    Some((first?, count, lines))
}
