//! Checks that notice a mutant: a named test or the simulator.

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
/// Characters of what a check says that the table shows.
const CELL_CHARS: usize = 90;
/// Interval of asking whether a process has ended.
const POLL: Duration = Duration::from_millis(50);

/// The check that has to fail.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Check {
    /// Seeds 0 to 299 of the simulator.
    Simulator,
    /// One test of a package.
    Test {
        /// The package.
        package: String,
        /// The binary below `tests`, `lib` for the library's unit tests or `bin` for the binary's.
        target: String,
        /// The test's whole name.
        name: String,
    },
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simulator => write!(f, "{SEED_COUNT} seeds"),
            Self::Test { package, name, .. } => write!(f, "{package}: `{name}`"),
        }
    }
}

/// The end of a check.
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
            Self::Failed(how) => f.write_str(how),
            Self::Hung => f.write_str("it never ended"),
            Self::NotCompiled => f.write_str("DOES NOT COMPILE"),
            Self::NotApplicable => f.write_str("TEXT NOT FOUND ONCE"),
        }
    }
}

impl Check {
    /// Reads a check of the table: `simulator`, or a package, a target and a test's name.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            ["simulator"] => Some(Self::Simulator),
            [package, target, name] => Some(Self::Test {
                package: package.to_owned(),
                target: target.to_owned(),
                name: name.to_owned(),
            }),
            _ => None,
        }
    }

    /// Builds and runs the check.
    pub(crate) fn run(&self, copy: &Copy) -> anyhow::Result<Verdict> {
        run_together(&[self], copy)
    }

    /// Returns the package and the target that Cargo builds for the check: one package's simulator or one binary of
    /// tests.
    pub(crate) fn binary(&self) -> (&str, &str) {
        match self {
            Self::Simulator => ("gabion-sim", ""),
            Self::Test {
                package, target, ..
            } => (package, target),
        }
    }

    fn name(&self) -> Option<&str> {
        match self {
            Self::Simulator => None,
            Self::Test { name, .. } => Some(name),
        }
    }
}

/// Builds the one binary of all these checks, and runs them in one process.
pub(crate) fn run_together(checks: &[&Check], copy: &Copy) -> anyhow::Result<Verdict> {
    let (package, target) = checks[0].binary();
    let names: Vec<&str> = checks.iter().filter_map(|check| check.name()).collect();
    let (build, run) = match (names.is_empty(), target) {
        // The profile of the tests is optimised enough, and its crates are built anyway.
        (true, _) => {
            let package = ["--quiet", "--profile", "test", "--package", package];
            let seeds = ["--", "--seed", "0", "--count", SEED_COUNT];
            let build = [&["build"], &package[..]].concat();
            (build, [&["run"], &package[..], &seeds].concat())
        }
        (false, target) => {
            let mut words = vec!["test", "--quiet", "--package", package];
            match target {
                "lib" => words.push("--lib"),
                "bin" => words.push("--bins"),
                file => words.extend(["--test", file]),
            }
            let build = [&words[..], &["--no-run"]].concat();
            (build, [&words[..], &["--", "--exact"], &names].concat())
        }
    };
    if !copy.cargo(&build).stdin(Stdio::null()).status()?.success() {
        return Ok(Verdict::NotCompiled);
    }
    let (ended, said) = end(copy.cargo(&run), copy)?;
    Ok(match ended {
        None => Verdict::Hung,
        Some(true) if !names.is_empty() && passed_count(&said) < names.len() => {
            let names = names.join(", ");
            anyhow::bail!("{package}, {target}: one of these is no test: {names}")
        }
        Some(true) => Verdict::Passed,
        Some(false) if names.is_empty() => Verdict::Failed(failed_seed(&said)),
        Some(false) => Verdict::Failed(failed_test(&said)),
    })
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

/// Returns the number of tests that have passed in one run.
fn passed_count(said: &str) -> usize {
    let results = said
        .lines()
        .filter(|line| line.starts_with("test result: "));
    let counts = results.filter_map(|line| {
        let (before, _) = line.split_once(" passed")?;
        before.rsplit(' ').next()?.parse::<usize>().ok()
    });
    counts.sum()
}

/// Returns the finding of a test: the first line of its panic that is no place in a file.
fn failed_test(said: &str) -> String {
    let mut lines = said
        .lines()
        .skip_while(|line| !line.contains("panicked at"));
    let found = lines.nth(1).map(str::trim).filter(|line| !line.is_empty());
    found.map_or("the test".to_owned(), cell)
}

/// A text that fits into a cell of a table.
fn cell(text: &str) -> String {
    let text: String = text.chars().take(CELL_CHARS).collect();
    text.replace('|', "/")
}

/// The line with which the simulator says what is wrong, cut to a table's cell.
fn failed_seed(said: &str) -> String {
    let line = said
        .lines()
        .find(|line| line.starts_with("seed ") && line.contains(" failed: "));
    let line = line.or_else(|| said.lines().find(|line| line.contains("panicked at")));
    line.map_or("the simulator".to_owned(), cell)
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
    fn a_test_is_known_by_what_it_says() {
        let said = "running 1 test\nthread 'a' (7) panicked at x.rs:1:2:\n  left | right\n";
        assert_eq!(failed_test(said), "left / right");
        assert_eq!(failed_test("signal: 6\n"), "the test");
        let said = "test result: ok. 2 passed; 0 failed\n\ntest result: ok. 1 passed; 0 failed";
        assert_eq!(passed_count(said), 3);
        assert_eq!(passed_count("test result: ok. 0 passed; 0 failed"), 0);
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
