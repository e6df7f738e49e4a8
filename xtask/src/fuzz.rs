//! `cargo xtask fuzz`: builds the fuzz targets with coverage for libFuzzer, runs them one after another, and prints a
//! table.
//!
//! The compiler is the pinned stable one: coverage is a pass of LLVM that needs no nightly flag. The build has a
//! directory of its own, `target/fuzz`, which also keeps each target's corpus between runs and the inputs that failed.
//! libFuzzer needs a C++ compiler; nothing else of the project does.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// The file that lists the targets.
const TARGETS_FILE: &str = "crates/fuzz/corpus/TARGETS";
/// Flags that make the compiler count edges and compare operands.
const COVERAGE: &str = "-Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    --cfg fuzzing";
/// The longest time of one input, in seconds.
const INPUT_SECONDS: u64 = 20;
/// The most memory of the process, in MiB: targets have limits of their own, so this is for what their allocator
/// misses.
const PROCESS_MIB: u64 = 3072;
/// Time between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);

/// The work of the command.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Choice {
    /// Print the targets.
    List,
    /// Run targets, all of them if none is named, for this time each.
    Run { names: Vec<String>, minutes: f64 },
}

/// The result of one target.
struct Outcome {
    name: String,
    input_count: u64,
    edge_count: u64,
    has_failed: bool,
}

/// Runs the chosen targets; `false` means that an input failed.
pub(crate) fn run(root: &Path, choice: &Choice) -> anyhow::Result<bool> {
    let known = targets(root)?;
    let (names, minutes) = match choice {
        Choice::List => {
            println!("{}", known.join("\n"));
            return Ok(true);
        }
        Choice::Run { names, minutes } if names.is_empty() => (&known, *minutes),
        Choice::Run { names, minutes } => (names, *minutes),
    };
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        bail!(
            "there is no fuzz target `{unknown}`; use some of: {}",
            known.join(", ")
        );
    }
    let program = build(root)?;
    let mut outcomes = Vec::new();
    for name in names {
        outcomes.push(run_target(root, &program, name, minutes)?);
    }
    println!("\n| target | inputs | edges | result |\n|---|---|---|---|");
    for outcome in &outcomes {
        println!("{}", row(outcome));
    }
    Ok(!outcomes.iter().any(|outcome| outcome.has_failed))
}

/// The names of all targets; a test of `gabion-fuzz` compares the file with the code.
fn targets(root: &Path) -> anyhow::Result<Vec<String>> {
    let path = root.join(TARGETS_FILE);
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Builds the program with coverage, and returns its file.
fn build(root: &Path) -> anyhow::Result<PathBuf> {
    let host = host()?;
    let directory = root.join("target/fuzz");
    let status = Command::new("cargo")
        .args(["build", "--package", "gabion-fuzz", "--bin", "gabion-fuzz"])
        .args(["--features", "guided", "--profile", "fuzz"])
        // With a target, build scripts and macros are compiled without the flags.
        .args(["--target", &host])
        .arg("--target-dir")
        .arg(&directory)
        .env("RUSTFLAGS", COVERAGE)
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .current_dir(root)
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("the fuzz targets cannot be built; libFuzzer needs a C++ compiler (g++ in Debian)");
    }
    Ok(directory.join(host).join("fuzz/gabion-fuzz"))
}

/// The name of this machine's platform, as the compiler has it.
fn host() -> anyhow::Result<String> {
    let said = Command::new("rustc").arg("-vV").output();
    let said = String::from_utf8(said.context("cannot start rustc")?.stdout)?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc names no host")?.to_owned())
}

fn run_target(root: &Path, program: &Path, name: &str, minutes: f64) -> anyhow::Result<Outcome> {
    let directory = root.join("target/fuzz");
    let corpus = directory.join("corpus").join(name);
    let seeds = directory.join("seeds").join(name);
    let failures = directory.join("failures").join(name);
    // Seeds of an earlier version may be gone.
    let _ = fs::remove_dir_all(&seeds);
    for path in [&corpus, &seeds, &failures] {
        fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))?;
    }
    let log = directory.join(format!("{name}.log"));
    let output = File::create(&log).with_context(|| format!("cannot make {}", log.display()))?;
    let seconds = (minutes * 60.0).ceil() as u64;
    eprintln!("{name}: {seconds} s, log in {}", log.display());
    let mut child = Command::new(program)
        .args([&corpus, &seeds])
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={INPUT_SECONDS}"))
        .arg(format!("-rss_limit_mb={PROCESS_MIB}"))
        .arg(format!("-artifact_prefix={}/", failures.display()))
        .args(["-max_len=4096", "-print_final_stats=1"])
        .env("GABION_FUZZ_TARGET", name)
        .env("GABION_FUZZ_SEEDS", &seeds)
        .stdout(Stdio::null())
        .stderr(output)
        .current_dir(root)
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let has_failed = !watch(&mut child, name, &log)?;
    let said = read(&log)?;
    if has_failed {
        eprintln!("{name}: FAILED; its input is in {}", failures.display());
    }
    Ok(Outcome {
        name: name.to_owned(),
        input_count: input_count(&said),
        edge_count: number_behind(&said, "cov: "),
        has_failed,
    })
}

/// Waits for libFuzzer, with a line of progress now and then; `false` means that it failed.
fn watch(child: &mut Child, name: &str, log: &Path) -> anyhow::Result<bool> {
    let mut last = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        thread::sleep(Duration::from_millis(200));
        if last.elapsed() >= PROGRESS {
            last = Instant::now();
            let said = read(log)?;
            let (inputs, edges) = (input_count(&said), number_behind(&said, "cov: "));
            eprintln!("{name}: {inputs} inputs, {edges} edges");
        }
    }
}

/// The text of a log. Panics may print any bytes.
fn read(log: &Path) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    File::open(log)
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .with_context(|| format!("cannot read {}", log.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The number of inputs that a log of libFuzzer says last: `#123 ` begins its lines of progress.
fn input_count(said: &str) -> u64 {
    let lines = said.lines().rev();
    let counted = lines.filter_map(|line| line.strip_prefix('#'));
    let mut numbers = counted.filter_map(|rest| {
        let digits = rest.split(|letter: char| !letter.is_ascii_digit()).next();
        digits?.parse().ok()
    });
    let last = numbers.next().unwrap_or(0);
    last.max(number_behind(said, "stat::number_of_executed_units: "))
}

/// The last number behind a label; 0 if there is none.
fn number_behind(said: &str, label: &str) -> u64 {
    let rest = said.rsplit_once(label).map_or("", |(_, rest)| rest);
    let digits = rest.trim_start();
    let end = digits.find(|letter: char| !letter.is_ascii_digit());
    digits[..end.unwrap_or(digits.len())].parse().unwrap_or(0)
}

fn row(outcome: &Outcome) -> String {
    let result = if outcome.has_failed { "FAILED" } else { "ok" };
    let Outcome {
        name,
        input_count,
        edge_count,
        ..
    } = outcome;
    format!("| {name} | {input_count} | {edge_count} | {result} |")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "INFO: seed corpus\n#12\tINITED cov: 90 ft: 300 corp: 5/40b\n#4096\tpulse  cov: 120 ft: 410\n\
        thread panicked: #7 cov\nDone\nstat::number_of_executed_units: 5000\nstat::slowest_unit_time_sec:  0\n";

    #[test]
    fn inputs_and_edges_are_read_from_the_log() {
        assert_eq!(input_count(LOG), 5000);
        assert_eq!(number_behind(LOG, "cov: "), 120);
        let cut = LOG.split("Done").next().expect("a first part");
        assert_eq!(input_count(cut), 4096);
        assert_eq!((input_count(""), number_behind("", "cov: ")), (0, 0));
    }

    #[test]
    fn a_row_says_whether_an_input_failed() {
        let mut outcome = Outcome {
            name: "hello".to_owned(),
            input_count: 7,
            edge_count: 9,
            has_failed: false,
        };
        assert_eq!(row(&outcome), "| hello | 7 | 9 | ok |");
        outcome.has_failed = true;
        assert_eq!(row(&outcome), "| hello | 7 | 9 | FAILED |");
    }
}
