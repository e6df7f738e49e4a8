//! What notices a mutant: a named test or the simulator.

use super::copy::Copy;
use anyhow::Context;
use std::fmt;
use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Seeds that the simulator may take to notice a mutant.
const SEED_COUNT: &str = "300";
/// A check that takes longer hangs, which counts as a failure.
const DEADLINE: Duration = Duration::from_mins(20);
/// How often a process is asked whether it has ended.
const POLL: Duration = Duration::from_millis(50);

/// What has to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Check {
    /// Seeds 0 to 299 of the simulator.
    Simulator,
    /// One test of a package.
    Test {
        /// The package.
        package: &'static str,
        /// The file below `tests`, or `lib` for the package's unit tests.
        target: &'static str,
        /// The test's whole name.
        name: &'static str,
    },
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simulator => write!(f, "{SEED_COUNT} seeds"),
            Self::Test {
                package,
                target,
                name,
            } => write!(f, "{package}, {target}: `{name}`"),
        }
    }
}

/// How a check has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing was noticed.
    Passed,
    /// It failed, as it says itself.
    Failed(String),
    /// It did not end in time.
    Hung,
    /// The code did not compile.
    NotCompiled,
    /// The mutant's text is not there exactly once.
    NotApplicable,
}

impl Verdict {
    /// Whether the mutant was noticed by the check and not by the compiler.
    pub(crate) fn is_noticed(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Hung)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("SURVIVED"),
            Self::Failed(how) => write!(f, "caught: {how}"),
            Self::Hung => f.write_str("caught: it never ended"),
            Self::NotCompiled => f.write_str("DOES NOT COMPILE"),
            Self::NotApplicable => f.write_str("TEXT NOT FOUND ONCE"),
        }
    }
}

impl Check {
    /// Builds and runs the check.
    pub(crate) fn run(self, copy: &Copy) -> anyhow::Result<Verdict> {
        let (build, run, name) = match self {
            Self::Simulator => {
                let package = ["--quiet", "--release", "--package", "gabion-sim"];
                let seeds = ["--", "--seed", "0", "--count", SEED_COUNT];
                let build = [&["build"], &package[..]].concat();
                (build, [&["run"], &package[..], &seeds].concat(), "")
            }
            Self::Test {
                package,
                target,
                name,
            } => {
                let mut words = vec!["test", "--quiet", "--package", package];
                match target {
                    "lib" => words.push("--lib"),
                    file => words.extend(["--test", file]),
                }
                let build = [&words[..], &["--no-run"]].concat();
                (build, [&words[..], &["--", "--exact", name]].concat(), name)
            }
        };
        if !copy.cargo(&build).stdin(Stdio::null()).status()?.success() {
            return Ok(Verdict::NotCompiled);
        }
        let (ended, said) = end(copy.cargo(&run), copy)?;
        Ok(match ended {
            None => Verdict::Hung,
            Some(true) if !name.is_empty() && said.contains("0 passed") => {
                anyhow::bail!("{self}: there is no such test")
            }
            Some(true) => Verdict::Passed,
            Some(false) if name.is_empty() => Verdict::Failed(failed_seed(&said)),
            Some(false) => Verdict::Failed("the test".to_owned()),
        })
    }
}

/// Runs a command to its end or its deadline. Whether it succeeded, and what it said.
fn end(mut command: Command, copy: &Copy) -> anyhow::Result<(Option<bool>, String)> {
    // A file never fills up as a pipe would.
    let path = copy.output();
    let output = File::create(&path).with_context(|| path.display().to_string())?;
    let mut child = command
        .stdin(Stdio::null())
        .stderr(output.try_clone()?)
        .stdout(output)
        .spawn()?;
    let begun = Instant::now();
    let ended = loop {
        match child.try_wait()? {
            Some(status) => break Some(status.success()),
            None if begun.elapsed() > DEADLINE => {
                child.kill()?;
                child.wait()?;
                break None;
            }
            None => thread::sleep(POLL),
        }
    };
    Ok((ended, fs::read_to_string(&path)?))
}

/// The line with which the simulator says what is wrong, cut to a table's cell.
fn failed_seed(said: &str) -> String {
    let line = said
        .lines()
        .find(|line| line.starts_with("seed ") && line.contains(" failed: "));
    let line = line.or_else(|| said.lines().find(|line| line.contains("panicked at")));
    line.map_or("the simulator".to_owned(), |line| {
        line.chars().take(100).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_that_failed_is_named() {
        let said = "seed 0: fine\nseed 1 failed: a read went back\nmore\n";
        assert_eq!(failed_seed(said), "seed 1 failed: a read went back");
        assert_eq!(
            failed_seed("thread 'main' panicked at x.rs:1\n"),
            "thread 'main' panicked at x.rs:1"
        );
        assert_eq!(failed_seed(""), "the simulator");
    }

    #[test]
    fn only_a_check_that_fails_notices() {
        assert!(Verdict::Failed(String::new()).is_noticed());
        assert!(Verdict::Hung.is_noticed());
        for not in [
            Verdict::Passed,
            Verdict::NotCompiled,
            Verdict::NotApplicable,
        ] {
            assert!(!not.is_noticed(), "{not}");
        }
    }
}
