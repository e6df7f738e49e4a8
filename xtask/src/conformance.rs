//! `cargo xtask conformance`: suites that others wrote, and programs that people use, on mounts and images of a real
//! cluster. Each suite is a script in `xtask/conformance`; this file builds the command and the suites' crates, runs
//! the scripts, and prints a table.

use std::fs;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::steps::{self, Step};

/// One suite.
pub(crate) struct Suite {
    /// Its name, which is that of its script.
    pub(crate) name: &'static str,
    /// Programs without which it cannot run, and the packages of Debian that have them.
    programs: &'static [(&'static str, &'static str)],
    /// The crate that it runs, with its version.
    package: Option<(&'static str, &'static str)>,
    /// Whether it mounts.
    mounts: bool,
    /// Whether it boots a kernel of its own.
    boots: bool,
}

/// All suites, in the order of their runs.
pub(crate) const SUITES: [Suite; 9] = [
    Suite {
        name: "pjdfstest",
        programs: &[],
        package: Some(("pjdfstest", "0.2.2")),
        mounts: true,
        boots: false,
    },
    Suite {
        name: "fsx",
        programs: &[("python3", "python3")],
        package: Some(("fsx", "0.3.2")),
        mounts: true,
        boots: false,
    },
    Suite {
        name: "fio",
        programs: &[("fio", "fio")],
        package: None,
        mounts: true,
        boots: false,
    },
    Suite {
        name: "programs",
        programs: &[
            ("fs_mark", "fsmark"),
            ("dbench", "dbench"),
            ("bonnie++", "bonnie++"),
        ],
        package: None,
        mounts: true,
        boots: false,
    },
    Suite {
        name: "git",
        programs: &[("git", "git")],
        package: None,
        mounts: true,
        boots: false,
    },
    Suite {
        name: "sqlite",
        programs: &[("sqlite3", "sqlite3")],
        package: None,
        mounts: true,
        boots: false,
    },
    Suite {
        name: "postgresql",
        programs: &[("pgbench", "postgresql-15"), ("runuser", "util-linux")],
        package: None,
        mounts: true,
        boots: false,
    },
    Suite {
        name: "nbd",
        programs: &[
            ("nbdcopy", "libnbd-bin"),
            ("qemu-img", "qemu-utils"),
            ("fio", "fio"),
        ],
        package: None,
        mounts: false,
        boots: false,
    },
    Suite {
        name: "guest",
        programs: &[
            ("qemu-system-x86_64", "qemu-system-x86"),
            ("busybox", "busybox-static"),
            ("nbd-client", "nbd-client"),
            ("mke2fs", "e2fsprogs"),
            ("cpio", "cpio"),
        ],
        package: None,
        mounts: false,
        boots: true,
    },
];

/// The options of `cargo xtask conformance`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Minutes instead of an hour or two.
    pub(crate) is_short: bool,
    /// Mounts have a cache, which stores bytes later.
    pub(crate) is_cached: bool,
    /// The suites; all if none is named.
    pub(crate) names: Vec<String>,
}

/// The end of a suite.
enum Verdict {
    /// Its last line: checks that passed, failed, and could not be made.
    Counted([u64; 3]),
    /// It did not run, for this reason.
    Skipped(String),
    /// It ended without its last line.
    Broken(&'static str),
}

/// Most time of a suite.
const SHORT_LIMIT: Duration = Duration::from_mins(15);
const WHOLE_LIMIT: Duration = Duration::from_hours(4);
/// Interval of looking at a running suite.
const POLL: Duration = Duration::from_millis(100);

/// Runs the suites; `false` means that a check failed.
pub(crate) fn run(root: &Path, choice: &Choice) -> anyhow::Result<bool> {
    let build = Step::Cargo(&["build", "--release", "-p", "gabion"]);
    if !steps::run(root, &[build])? {
        return Ok(false);
    }
    let kept = root.join("target/conformance");
    fs::create_dir_all(&kept).context("make the directory of the results")?;
    let mut table = Vec::new();
    let mut is_good = true;
    let chosen = |suite: &&Suite| {
        choice.names.is_empty() || choice.names.iter().any(|name| name == suite.name)
    };
    for suite in SUITES.iter().filter(chosen) {
        eprintln!("\n=== {}", suite.name);
        let begun = Instant::now();
        let verdict = match missing(root, suite)? {
            Some(reason) => Verdict::Skipped(reason),
            None => run_script(root, &kept, suite, choice)?,
        };
        let seconds = begun.elapsed().as_secs();
        let said = match verdict {
            Verdict::Counted([passed, failed, skipped]) => {
                is_good &= failed == 0;
                format!("{passed} passed, {failed} failed, {skipped} skipped, in {seconds} s")
            }
            Verdict::Skipped(reason) => format!("skipped: {reason}"),
            Verdict::Broken(reason) => {
                is_good = false;
                format!("BROKEN after {seconds} s: {reason}")
            }
        };
        table.push(format!("{:<12} {said}", suite.name));
    }
    let cached = if choice.is_cached {
        ", mounts with a cache"
    } else {
        ""
    };
    println!(
        "\nconformance, {} form{cached}:\n{}",
        scale(choice),
        table.join("\n")
    );
    println!(
        "reports: {}",
        kept.strip_prefix(root).unwrap_or(&kept).display()
    );
    Ok(is_good)
}

/// The length of the run, as the suites know it.
const fn scale(choice: &Choice) -> &'static str {
    if choice.is_short { "short" } else { "whole" }
}

/// The cause if a suite cannot run here. Its crate is installed below `target`.
fn missing(root: &Path, suite: &Suite) -> anyhow::Result<Option<String>> {
    let is_root = Command::new("id").arg("-u").output();
    let is_root = is_root.is_ok_and(|output| output.stdout.trim_ascii() == b"0");
    if suite.mounts && !(is_root && Path::new("/dev/fuse").exists()) {
        return Ok(Some("it needs root and /dev/fuse".to_owned()));
    }
    if suite.boots && !has_kernel() {
        return Ok(Some(
            "install linux-image-cloud-amd64, which has a kernel to boot".to_owned(),
        ));
    }
    for (program, package) in suite.programs {
        let found = Command::new("which").arg(program).output();
        if !found.is_ok_and(|output| output.status.success()) {
            return Ok(Some(format!("install {package}, which has {program}")));
        }
    }
    if let Some((package, version)) = suite.package {
        let at = format!("--root={}", tools(root).display());
        let version = format!("--version={version}");
        let words = ["install", "--quiet", "--locked", &at, &version, package];
        if !steps::run(root, &[Step::Cargo(&words)])? {
            return Ok(Some(format!("{package} could not be installed")));
        }
    }
    Ok(None)
}

/// Whether the kernel that the suite `guest` boots is installed.
fn has_kernel() -> bool {
    let entries = fs::read_dir("/boot").into_iter().flatten().flatten();
    let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.any(|name| name.starts_with("vmlinuz-") && name.ends_with("-cloud-amd64"))
}

fn tools(root: &Path) -> PathBuf {
    root.join("target/conformance/tools")
}

/// Runs a suite's script in a temporary directory, and shows what it prints.
fn run_script(root: &Path, kept: &Path, suite: &Suite, choice: &Choice) -> anyhow::Result<Verdict> {
    let suites = root.join("xtask/conformance");
    let work = std::env::temp_dir().join(format!(
        "gabion-conformance-{}-{}",
        suite.name,
        std::process::id()
    ));
    fs::create_dir(&work).context("make a suite's directory")?;
    let report = kept.join(format!("{}.log", suite.name));
    let output = fs::File::create(&report).context("make a report")?;
    let mut command = Command::new("bash");
    command
        .arg(suites.join(format!("{}.sh", suite.name)))
        .env("GABION", root.join("target/release/gabion"))
        .env("TOOLS", tools(root).join("bin"))
        .env("SCALE", scale(choice))
        .env("CACHE", if choice.is_cached { "16MiB" } else { "" })
        .env("SUITES", &suites)
        .env("WORK", &work)
        .env("KEEP", kept)
        .env_remove("GABION_COORDINATOR")
        .stdin(Stdio::null())
        .stdout(output.try_clone().context("make a report")?)
        .stderr(output)
        // A group of its own, which ends as a whole.
        .process_group(0);
    let limit = if choice.is_short {
        SHORT_LIMIT
    } else {
        WHOLE_LIMIT
    };
    let ended = wait(command.spawn().context("start bash")?, limit)?;
    let mut said = String::new();
    let report = fs::File::open(&report).context("read a report")?;
    report
        .take(1 << 26)
        .read_to_string(&mut said)
        .context("read a report")?;
    eprint!("{said}");
    fs::remove_dir_all(&work).with_context(|| format!("remove {}", work.display()))?;
    if !ended {
        return Ok(Verdict::Broken("it took too long and was stopped"));
    }
    let last = said.lines().last().unwrap_or_default();
    Ok(counts(last).map_or(
        Verdict::Broken("it ended before its result"),
        Verdict::Counted,
    ))
}

/// Waits for a suite; `false` means that its time was over. Then its group is told to end, so that it cleans up.
fn wait(mut child: Child, limit: Duration) -> anyhow::Result<bool> {
    let begun = Instant::now();
    let mut is_told = false;
    loop {
        if child.try_wait().context("wait for a suite")?.is_some() {
            return Ok(!is_told);
        }
        if begun.elapsed() > limit && !is_told {
            is_told = true;
            let group = format!("-{}", child.id());
            let told = Command::new("kill").args(["-TERM", "--", &group]).status();
            if !told.context("stop a suite")?.success() {
                bail!("a suite cannot be stopped");
            }
        }
        std::thread::sleep(POLL);
    }
}

/// Returns the counts in the last line of a suite.
fn counts(line: &str) -> Option<[u64; 3]> {
    let (passed, rest) = line.split_once(" passed, ")?;
    let (failed, rest) = rest.split_once(" failed, ")?;
    let skipped = rest.strip_suffix(" skipped")?;
    Some([
        passed.parse().ok()?,
        failed.parse().ok()?,
        skipped.parse().ok()?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_a_suite_is_understood() {
        assert_eq!(counts("12 passed, 3 failed, 0 skipped"), Some([12, 3, 0]));
        for line in [
            "",
            "12 passed, 3 failed",
            "cannot mount",
            "a passed, 0 failed, 0 skipped",
        ] {
            assert_eq!(counts(line), None, "{line}");
        }
    }

    #[test]
    fn every_suite_has_its_script() {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance");
        for suite in &SUITES {
            assert!(
                scripts.join(format!("{}.sh", suite.name)).exists(),
                "{}",
                suite.name
            );
        }
        // Besides: the part that all of them source, the guest's first process, and the model of two mounts.
        assert_eq!(fs::read_dir(scripts).unwrap().count(), SUITES.len() + 3);
    }
}
