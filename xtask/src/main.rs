//! The project's own chores, run as `cargo xtask <command>`.
//!
//! All checks of the code that a machine can do are here and nowhere else, so that a developer's `cargo xtask ci` and
//! the real one cannot disagree. It is not a build system: Cargo builds, and this only says in which order and with
//! which arguments.
//!
//! The exit code is 0 when all is well, 1 when a check failed and 2 when the command line was wrong.

mod benches;
mod cargo;
mod command_line;
mod conformance;
mod fuzz;
mod mutants;
mod page;
mod sim;
mod steps;
mod test_programs;
mod tidy;
mod torture;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

use crate::command_line::{Command, USAGE};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let command = match command_line::parse(&arguments) {
        Ok(command) => command,
        Err(error) => {
            eprintln!("error: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs `command`; `false` means that it ran and found something wrong.
fn run(command: &Command) -> anyhow::Result<bool> {
    let root = workspace_root()?;
    match command {
        Command::Help => {
            println!("{USAGE}");
            Ok(true)
        }
        Command::Tidy => tidy::run(&root),
        Command::Lint => steps::run(&root, &steps::LINT),
        Command::Test => steps::run(&root, &[steps::TEST]),
        Command::Ci => {
            let beside = [steps::HDFS, steps::PAGE, torture::TWO_MINUTES];
            let last = [torture::BUILD, steps::Step::Together(&beside)];
            steps::run(&root, &[&steps::LINT[..], &[steps::TEST], &last].concat())
        }
        Command::Page { checks } => page::run(&root, *checks),
        Command::Sim(runs) => sim::run(&root, *runs),
        Command::Torture(arguments) => torture::run(&root, arguments),
        Command::Conformance(choice) => conformance::run(&root, choice),
        Command::Fuzz(choice) => fuzz::run(&root, choice),
        Command::Mutants(choice) => mutants::run(&root, choice),
        Command::Bench { benches, arguments } => benches::run(&root, benches, arguments),
    }
}

/// The workspace's directory: the parent of this package's.
///
/// Asked of Cargo at run time, because a path compiled in would go stale when a checkout moves.
fn workspace_root() -> anyhow::Result<PathBuf> {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .context("CARGO_MANIFEST_DIR is not set; run this as `cargo xtask <command>`")?;
    let root = Path::new(&package)
        .parent()
        .context("the xtask package is not in a workspace")?;
    Ok(root.to_path_buf())
}
