//! All tests of the workspace: Cargo builds every test program, then two lanes run them side by side.
//!
//! Cargo runs one test program after another. The tests of processes wait for most of their time and those of the
//! simulator compute, so the longest program has a lane of its own and all others share the second one. Documentation
//! tests end that lane. A program's output is printed when it ends, so that the lanes do not mix their lines.

use crate::cargo::cargo;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::Value;

/// The package whose integration tests take longest: it tests clusters of processes.
const LONGEST: &str = "gabion";

/// A test program that Cargo has built.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TestProgram {
    /// The package's name, then the target's: `gabion-meta integration`.
    name: String,
    executable: PathBuf,
    /// The package's directory, in which Cargo runs its tests.
    directory: PathBuf,
}

impl TestProgram {
    /// The test program that one line of Cargo's JSON messages tells of, if it does.
    fn of(message: &Value) -> Option<Self> {
        let is_test = message["profile"]["test"].as_bool()?;
        let executable = message["executable"].as_str()?;
        let directory = Path::new(message["manifest_path"].as_str()?).parent()?;
        let package = directory.file_name()?.to_str()?;
        let target = message["target"]["name"].as_str()?;
        is_test.then(|| Self {
            name: format!("{package} {target}"),
            executable: executable.into(),
            directory: directory.into(),
        })
    }

    fn is_longest(&self) -> bool {
        self.name == format!("{LONGEST} integration")
    }

    fn command(&self, threads: &OsStr) -> Command {
        let mut command = Command::new(&self.executable);
        command
            .current_dir(&self.directory)
            .env("CARGO_MANIFEST_DIR", &self.directory)
            .env("RUST_TEST_THREADS", threads);
        command
    }
}

/// Most lines of a failed program's output that its failure repeats.
const REPEATED_LINES_MAX: usize = 60;

/// Builds and runs every test. Gives the failures: each program that failed, with what its tests said last; one if the
/// tests do not compile.
///
/// `threads` is how many tests of one program run at the same time.
///
/// # Errors
///
/// If Cargo or a test program cannot be started.
pub(crate) fn run(root: &Path, threads: &OsStr) -> anyhow::Result<Vec<String>> {
    let begun = Instant::now();
    let Some(programs) = build(root)? else {
        return Ok(vec!["the tests do not compile".to_owned()]);
    };
    eprintln!(
        "built {} test programs in {:.1} s; they run in two lanes, and each prints its output when it ends",
        programs.len(),
        begun.elapsed().as_secs_f64()
    );
    let (longest, others): (Vec<_>, Vec<_>) =
        programs.into_iter().partition(TestProgram::is_longest);
    let report = Report::default();
    thread::scope(|scope| {
        let beside = scope.spawn(|| lane(&longest, threads, &report));
        lane(&others, threads, &report)?;
        let mut documentation = cargo();
        documentation
            .args(["test", "--workspace", "--doc", "--no-fail-fast"])
            .current_dir(root);
        report.run("documentation tests", documentation)?;
        beside.join().expect("a lane does not panic")
    })?;
    Ok(report.failures())
}

/// Runs test programs one after another, also after a failure.
fn lane(programs: &[TestProgram], threads: &OsStr, report: &Report) -> anyhow::Result<()> {
    for program in programs {
        report.run(&program.name, program.command(threads))?;
    }
    Ok(())
}

/// Builds every test program, and the binaries that integration tests start; `None` if that fails.
fn build(root: &Path) -> anyhow::Result<Option<Vec<TestProgram>>> {
    let mut cargo = cargo()
        .args(["test", "--workspace", "--no-run"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo")?;
    let messages = cargo.stdout.take().context("cargo has no output")?;
    let mut programs = Vec::new();
    for line in BufReader::new(messages).lines() {
        let line = line.context("cannot read cargo's messages")?;
        // Build scripts may print lines of their own.
        if let Ok(message) = serde_json::from_str(&line) {
            programs.extend(TestProgram::of(&message));
        }
    }
    let status = cargo.wait().context("cannot wait for cargo")?;
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(status.success().then_some(programs))
}

/// The outcomes of the programs that have ended, and the standard output that the lanes share.
#[derive(Debug, Default)]
struct Report {
    failed: Mutex<Vec<String>>,
}

impl Report {
    /// Runs one program to its end, prints its output and notes a failure.
    fn run(&self, name: &str, mut command: Command) -> anyhow::Result<()> {
        let begun = Instant::now();
        let output = command
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot start the tests of `{name}`"))?;
        // Both lanes print under this lock.
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        print(name, begun.elapsed(), &output).context("cannot print what tests have printed")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stdout);
            failed.push(format!(
                "{name}: {}{}",
                ending(output.status),
                failures_section(&said)
            ));
        }
        Ok(())
    }

    /// The programs that failed.
    fn failures(self) -> Vec<String> {
        self.failed
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The panics that a test program has printed at its end, each on a new line: the first lines of its section
/// "failures:".
fn failures_section(stdout: &str) -> String {
    let behind = stdout
        .lines()
        .skip_while(|line| *line != "failures:")
        .skip(1);
    let named = behind.filter(|line| !line.trim().is_empty());
    let lines = named.take(REPEATED_LINES_MAX);
    lines.fold(String::new(), |all, line| all + "\n  " + line)
}

fn print(name: &str, elapsed: Duration, output: &Output) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "\n--- {name}: {:.1} s", elapsed.as_secs_f64())?;
    stdout.write_all(&output.stdout)?;
    stdout.write_all(&output.stderr)?;
    stdout.flush()
}

fn ending(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("exit code {code}"),
        None => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn artifact(test: bool, executable: &Value) -> Value {
        json!({
            "reason": "compiler-artifact",
            "manifest_path": "/w/crates/gabion/Cargo.toml",
            "target": { "name": "integration" },
            "profile": { "test": test },
            "executable": executable,
        })
    }

    #[test]
    fn test_programs_are_found_among_cargos_messages() {
        let program = TestProgram::of(&artifact(true, &json!("/w/target/integration-1")));
        let program = program.expect("a test program");
        assert_eq!(program.name, "gabion integration");
        assert!(program.is_longest());
        assert_eq!(program.directory, Path::new("/w/crates/gabion"));
        assert_eq!(
            TestProgram::of(&artifact(false, &json!("/w/target/gabion"))),
            None
        );
        assert_eq!(TestProgram::of(&artifact(true, &Value::Null)), None);
        assert_eq!(
            TestProgram::of(&json!({ "reason": "build-finished" })),
            None
        );
    }

    #[test]
    fn a_failure_repeats_the_panics_and_nothing_else() {
        let said = "test a ... FAILED\n\nfailures:\n\n---- a stdout ----\nit panicked\n\nfailures:\n    a\n";
        assert_eq!(
            failures_section(said),
            "\n  ---- a stdout ----\n  it panicked\n  failures:\n      a"
        );
        assert_eq!(failures_section("test a ... ok\n"), "");
        let long = "failures:\n".to_owned() + &"line\n".repeat(REPEATED_LINES_MAX + 5);
        assert_eq!(
            failures_section(&long).lines().count(),
            REPEATED_LINES_MAX + 1
        );
    }

    #[test]
    fn a_failed_program_fails_the_run_but_not_the_programs_after_it() {
        let program = |name: &str, executable: &str| TestProgram {
            name: name.into(),
            executable: executable.into(),
            directory: ".".into(),
        };
        let report = Report::default();
        let programs = [program("bad", "false"), program("good", "true")];
        lane(&programs, OsStr::new("1"), &report).expect("both are started");
        assert_eq!(
            *report.failed.lock().expect("not poisoned"),
            ["bad: exit code 1"]
        );
        assert!(
            lane(
                &[program("none", "/no/such/program")],
                OsStr::new("1"),
                &Report::default()
            )
            .is_err()
        );
    }
}
