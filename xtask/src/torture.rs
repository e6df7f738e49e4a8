//! `cargo xtask torture`: builds the binary and the program that tortures it, and runs the second.

use std::path::Path;

use crate::steps::{self, Step};

const PROGRAM: &str = "gabion-torture";

/// Builds it, with the tests and for the whole workspace: Cargo chooses the features of dependencies by what it is
/// asked to build, so for this package and the command alone it would build most crates once more.
pub(crate) const BUILD: Step<'static> = Step::Cargo(&[
    "build",
    "--workspace",
    "--bins",
    "--tests",
    "--profile",
    "test",
]);

/// Two minutes of it on the binary that the tests have built. The seed is fixed: another choice of schemes
/// and faults belongs to a longer run. The kinds are those after which a cluster is green soon.
pub(crate) const TWO_MINUTES: Step<'static> = Step::Built(
    PROGRAM,
    &[
        "--minutes",
        "2",
        "--seed",
        "1",
        "--faults",
        "kill,stop,kill-coordinator,stop-coordinator,partition,one-way,full-disk,descriptors,wrong-cluster",
    ],
);

/// Runs it on release binaries; `false` means that it found something wrong.
pub(crate) fn run(root: &Path, arguments: &[String]) -> anyhow::Result<bool> {
    let build = ["build", "--release", "-p", "gabion", "-p", PROGRAM];
    if !steps::run(root, &[Step::Cargo(&build)])? {
        return Ok(false);
    }
    let mut words = vec!["run", "--quiet", "--release", "-p", PROGRAM, "--"];
    words.extend(arguments.iter().map(String::as_str));
    steps::run(root, &[Step::Cargo(&words)])
}
