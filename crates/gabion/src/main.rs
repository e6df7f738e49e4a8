//! The `gabion` command: clusters, pools, files, faults, repair and the lab.
//!
//! This crate makes no decisions. Each command is a file in `commands/` that calls a library and
//! prints the result. Exit codes: 0 success, 1 failure, 2 usage error, 141 the reader of the output
//! closed the pipe.

// First: all other modules use its macros for stdout.
#[macro_use]
mod output;

mod arguments;
mod commands;
mod failure;
mod logging;
mod output_file;

use arguments::{Arguments, Command, Place};
use failure::Failure;
use logging::Log;
use output::Format;
use std::process::ExitCode;

/// An update allocates dozens of futures and buffers. The per-thread caches of glibc are too small for them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = match Arguments::of_this_process() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version go to stdout and are no failure; clap distinguishes them.
            if error.use_stderr() {
                let rendered = error.render().to_string();
                let said = plain(&rendered);
                let fits = output::wrapped_lines(&said, 2);
                if fits == rendered {
                    // With colours, on a terminal.
                    let _ = error.print();
                } else {
                    output::complain(format_args!("{fits}"));
                }
                return ExitCode::from(error.exit_code() as u8);
            }
            let printed = error.print();
            let printed = printed.map_err(|error| output::write_failure(&"stdout", &error));
            return exit(printed.and_then(|()| output::written()));
        }
    };
    exit(run(arguments).and_then(|()| output::written()))
}

/// The standard library's messages for text that is not a number, and the same for people.
const PLAIN: [(&str, &str); 4] = [
    ("invalid digit found in string", "write a whole number"),
    (
        "cannot parse integer from empty string",
        "write a whole number",
    ),
    (
        "number too large to fit in target type",
        "the number is too large",
    ),
    (
        "number too small to fit in target type",
        "the number is too small",
    ),
];

/// The message of a wrong argument, without phrases of the standard library.
fn plain(said: &str) -> String {
    PLAIN
        .iter()
        .fold(said.to_owned(), |said, (from, to)| said.replace(from, to))
}

/// Prints the reason of a command's failure, if there is one and stderr still works.
fn exit(done: Result<(), Failure>) -> ExitCode {
    let Err(failure) = done else {
        return ExitCode::SUCCESS;
    };
    if !failure.is_said() {
        output::say_failure(&failure);
    }
    failure.exit_code()
}

/// Maximum number of threads that wait for disks; further work queues.
const BLOCKING_THREAD_COUNT_MAX: usize = 256;

fn run(arguments: Arguments) -> Result<(), Failure> {
    let log = Log::start(&arguments.command.log_options());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(BLOCKING_THREAD_COUNT_MAX)
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("cannot start: {error}")))?;
    let format = arguments.format;
    let place = arguments.place;
    let command = arguments.command;
    let done = runtime.block_on(async {
        if command.is_server() {
            log.follow_signal()?;
        }
        carry_out(command, place, format).await
    });
    // Blocking work that outlives its command, such as a sync, must not hold the process.
    runtime.shutdown_background();
    done
}

async fn carry_out(command: Command, place: Place, format: Format) -> Result<(), Failure> {
    match command {
        Command::Coordinator(options) => commands::serve::coordinator(options, &place).await,
        Command::Node(arguments) => commands::node::run(arguments, &place, format).await,
        Command::Metadata(command) => commands::metadata::run(command, &place, format).await,
        Command::Cluster(command) => commands::cluster::run(command, place, format).await,
        Command::Init(options) => commands::cert::init(&options, format),
        Command::Cert(command) => commands::cert::run(command, &place, format),
        Command::Pool(command) => commands::pool::run(command, &place, format).await,
        Command::Put(options) => commands::files::put(options, &place, format).await,
        Command::Get(options) => commands::files::get(options, &place, format).await,
        Command::Write(options) => commands::files::write(options, &place, format).await,
        Command::Append(options) => commands::resize::append(options, &place, format).await,
        Command::Create(options) => commands::resize::create(options, &place, format).await,
        Command::Truncate { name, size } => {
            commands::resize::truncate(&name, size, &place, format).await
        }
        Command::Punch(options) => commands::resize::punch(&options, &place, format).await,
        Command::Ls(options) => commands::files::ls(options, &place, format).await,
        Command::Mkdir { path } => commands::files::mkdir(&path, &place, format).await,
        Command::Rmdir { path } => commands::files::rmdir(&path, &place, format).await,
        Command::Cp(options) => commands::copy::cp(options, &place, format).await,
        Command::Snapshot(options) => commands::snapshot::snapshot(&options, &place, format).await,
        Command::Clone(options) => commands::snapshot::clone(&options, &place, format).await,
        Command::Ln(options) => commands::links::ln(options, &place, format).await,
        Command::Mv(options) => commands::files::mv(&options, &place, format).await,
        Command::Rm { names, prefix } => commands::files::rm(names, prefix, &place, format).await,
        Command::Explain { what } => commands::explain::run(&what, &place, format).await,
        Command::Health => commands::health::run(&place, format).await,
        Command::Quota(options) => commands::quota::run(options, &place, format).await,
        Command::Df => commands::df::run(&place, format).await,
        Command::Events(options) => commands::events::run(options, &place, format).await,
        Command::Audit(options) => commands::audit::run(&options, &place, format),
        Command::Top(options) => commands::top::run(options, &place, format).await,
        Command::Console(arguments) => commands::console::run(arguments, &place).await,
        Command::Bench(options) => commands::bench::run(options, &place, format).await,
        Command::Chmod { mode, names } => {
            commands::attributes::chmod(mode, &names, &place, format).await
        }
        Command::Chown { owner, names } => {
            commands::attributes::chown(owner, &names, &place, format).await
        }
        Command::Stat { name } => commands::stat::stat(&name, &place, format).await,
        Command::Image(command) => commands::image::run(command, &place, format).await,
        Command::Nbd(command) => commands::nbd::run(command, &place).await,
        Command::HdfsAgent(options) => commands::hdfs::run(options, format).await,
        Command::Mount(arguments) => commands::mount::run(arguments, place).await,
        Command::Umount(arguments) => commands::mount::umount(&arguments),
        Command::Chaos(command) => commands::chaos::run(command, &place, format).await,
        Command::Repair(options) => commands::repair::repair(options, &place, format).await,
        Command::Scrub => commands::repair::scrub(&place, format).await,
        Command::Plan(command) => commands::plan::run(command, &place, format).await,
        Command::Lab(command) => commands::lab::run(command, &place, format).await,
        Command::Demo(options) => commands::demo::run(options, format).await,
    }
}
