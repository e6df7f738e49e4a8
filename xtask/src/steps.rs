//! Steps of a check, run one after another with a header and a time for each.
//!
//! A failed step does not stop the ones after it: one run reports all failures.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::cargo::cargo;
use crate::{page, test_programs, tidy};

/// One step: a run of Cargo, of what Cargo has built, or this program's own tidy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step<'a> {
    /// `cargo` with these arguments, in the workspace's directory.
    Cargo(&'a [&'a str]),
    /// A program that lies beside this one, because Cargo has built it in the same directory, with its arguments.
    Built(&'a str, &'a [&'a str]),
    /// Maven's `verify` of the Java in this directory, with the `gabion` that Cargo has built beside this program.
    Maven(&'a str),
    /// [`page::test`].
    Page,
    /// [`test_programs::run`].
    Tests,
    /// [`tidy::run`].
    Tidy,
    /// Several steps at the same time. They wait for most of their time, and say little unless they fail.
    Together(&'a [Step<'a>]),
}

/// The steps of `cargo xtask lint`.
pub(crate) const LINT: [Step<'static>; 3] = [
    Step::Cargo(&["fmt", "--all", "--check"]),
    Step::Cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "--deny",
        "warnings",
    ]),
    Step::Tidy,
];

/// The step of `cargo xtask test`.
pub(crate) const TEST: Step<'static> = Step::Tests;

/// The step that tests what runs in Hadoop's processes. The command is built by the tests before it.
pub(crate) const HDFS: Step<'static> = Step::Maven("hdfs");

/// The step that builds the console's page, compares it, and drives it in a browser.
pub(crate) const PAGE: Step<'static> = Step::Page;

impl fmt::Display for Step<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cargo(words) => write!(formatter, "cargo {}", words.join(" ")),
            Self::Built(program, words) => write!(formatter, "{program} {}", words.join(" ")),
            Self::Maven(directory) => write!(formatter, "mvn verify in {directory}"),
            Self::Page => write!(formatter, "the console's page"),
            Self::Tests => write!(formatter, "every test of the workspace"),
            Self::Tidy => write!(formatter, "tidy"),
            Self::Together(steps) => {
                let names: Vec<String> = steps.iter().map(ToString::to_string).collect();
                formatter.write_str(&names.join(", and beside it "))
            }
        }
    }
}

/// The outcome of one step.
struct Outcome<'a> {
    step: Step<'a>,
    passed: bool,
    elapsed: Duration,
    /// Its failures in detail, so that the end of the output tells them.
    failures: Vec<String>,
}

/// Runs every step and prints what each took; `false` means that at least one failed.
pub(crate) fn run(root: &Path, steps: &[Step<'_>]) -> anyhow::Result<bool> {
    let mut outcomes = Vec::with_capacity(steps.len());
    for (index, &step) in steps.iter().enumerate() {
        eprintln!("\n=== step {} of {}: {step}", index + 1, steps.len());
        outcomes.extend(take(root, step)?);
    }
    eprintln!("\n=== summary");
    for failure in outcomes.iter().flat_map(|outcome| &outcome.failures) {
        eprintln!("FAILED {failure}");
    }
    for outcome in &outcomes {
        eprintln!("{}", summary(outcome));
    }
    Ok(outcomes.iter().all(|outcome| outcome.passed))
}

/// Takes one step, or several at the same time.
fn take<'a>(root: &Path, step: Step<'a>) -> anyhow::Result<Vec<Outcome<'a>>> {
    let start = Instant::now();
    let mut failures = Vec::new();
    let passed = match step {
        Step::Cargo(words) => succeeds(root, cargo(), words)?,
        Step::Built(program, words) => succeeds(root, Command::new(beside_this(program)?), words)?,
        Step::Maven(directory) => maven(&root.join(directory))?,
        Step::Page => page::test(root, &beside_this("gabion")?)?,
        Step::Tests => {
            failures = test_programs::run(root, &test_threads())?;
            failures.is_empty()
        }
        Step::Tidy => tidy::run(root)?,
        Step::Together(steps) => {
            return thread::scope(|scope| {
                let taking = steps
                    .iter()
                    .map(|&step| scope.spawn(move || take(root, step)));
                let taking: Vec<_> = taking.collect();
                let mut outcomes = Vec::with_capacity(steps.len());
                for taken in taking {
                    outcomes.extend(taken.join().expect("a step does not panic")?);
                }
                Ok(outcomes)
            });
        }
    };
    Ok(vec![Outcome {
        step,
        passed,
        elapsed: start.elapsed(),
        failures,
    }])
}

fn summary(outcome: &Outcome<'_>) -> String {
    let verdict = if outcome.passed { "ok" } else { "FAILED" };
    format!(
        "{verdict:<6} {:>7.1} s  {}",
        outcome.elapsed.as_secs_f64(),
        outcome.step
    )
}

/// Runs a program in `root`; `false` means that it ended with a failure.
///
/// Standard input is closed, so that a step that reads input fails.
fn succeeds(root: &Path, mut program: Command, words: &[&str]) -> anyhow::Result<bool> {
    program.args(words);
    let status = program
        .env("RUST_TEST_THREADS", test_threads())
        .current_dir(root)
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot start {program:?}"))?;
    Ok(status.success())
}

/// How many tests of a binary run at the same time: two for each processor, since most tests of processes wait for
/// them.
fn test_threads() -> OsString {
    let chosen = env::var_os("RUST_TEST_THREADS");
    chosen.unwrap_or_else(|| {
        let processors = thread::available_parallelism().map_or(2, NonZero::get);
        (2 * processors).to_string().into()
    })
}

/// Runs Maven's `verify` in a directory. Without Maven it is passed over, with one line.
fn maven(directory: &Path) -> anyhow::Result<bool> {
    if Command::new("mvn").arg("-v").output().is_err() {
        eprintln!(
            "skipped: Maven is not installed; the packages are maven and default-jdk-headless"
        );
        return Ok(true);
    }
    let binary = format!("-Dgabion.binary={}", beside_this("gabion")?.display());
    succeeds(
        directory,
        Command::new("mvn"),
        &["-q", "-B", "verify", &binary],
    )
}

/// The file of a program in the directory of this one.
fn beside_this(program: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    Ok(own.with_file_name(program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_says_what_failed_and_how_long_it_took() {
        let mut outcome = Outcome {
            step: TEST,
            passed: false,
            elapsed: Duration::from_millis(1540),
            failures: Vec::new(),
        };
        assert_eq!(
            summary(&outcome),
            "FAILED     1.5 s  every test of the workspace"
        );
        outcome.passed = true;
        outcome.step = Step::Tidy;
        assert_eq!(summary(&outcome), "ok         1.5 s  tidy");
    }

    #[test]
    fn a_failed_step_fails_the_run_but_not_the_steps_after_it() {
        let root = Path::new(".");
        let good = Step::Cargo(&["--version"]);
        let bad = Step::Cargo(&["no-such-subcommand"]);
        assert!(run(root, &[good]).expect("cargo is there"));
        assert!(!run(root, &[bad, good]).expect("cargo is there"));
        assert!(run(root, &[Step::Together(&[good, good])]).expect("cargo is there"));
        let beside = [Step::Together(&[good, bad, good]), good];
        assert!(!run(root, &beside).expect("cargo is there"));
    }
}
