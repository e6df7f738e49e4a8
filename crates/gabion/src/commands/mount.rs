//! `gabion mount` and `gabion umount`: the cluster's files as a file system of this machine.
//!
//! Its own process serves each mount. Without `--foreground` this is a second run of the same command, detached from
//! the terminal. The first run waits until the second is ready, and reports its failure.

use super::connect_gateway;
use super::serve::{listen_on, raise_descriptor_limit, ready};
use crate::arguments::{MountArguments, Place, UmountArguments, coordinator_addresses, own_words};
use crate::failure::{Context, Failure};
use gabion_fuse::{Mount, MountError, MountOptions, MountSettings, UnmountError, unmount};
use gabion_gateway::serve_metrics;
use gabion_testbed::{EndSignals, READY};
use rustix::process::setsid;
use rustix::stdio::{dup2_stderr, dup2_stdout};
use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

pub(crate) async fn run(arguments: MountArguments, place: Place) -> Result<(), Failure> {
    let mut options = MountOptions::default();
    for words in &arguments.options {
        options = options.with(words).map_err(Failure::usage)?;
    }
    if let Some(coordinator) = &options.coordinator {
        check_coordinator(coordinator)?;
    }
    if arguments.foreground || arguments.detached {
        serve(arguments, options, place).await
    } else {
        start_in_background().await
    }
}

/// Checks the address of `-o coordinator=` as that of `--coordinator`.
fn check_coordinator(address: &str) -> Result<(), Failure> {
    let checked = coordinator_addresses(address);
    checked.map(drop).map_err(|form| {
        Failure::usage(format!(
            "'{address}' is not the address of a coordinator; {form}"
        ))
    })
}

pub(crate) fn umount(arguments: &UmountArguments) -> Result<(), Failure> {
    match unmount(&arguments.directory, arguments.lazy) {
        Ok(()) => Ok(()),
        Err(error @ UnmountError::NotMounted(_)) => Err(Failure::usage(error)),
        Err(error) => Err(Failure::failed(error)),
    }
}

/// Runs this command again as a separate process, and waits until that process serves the mount.
async fn start_in_background() -> Result<(), Failure> {
    let program = std::env::current_exe().context("find this program")?;
    let mut child = Command::new(program)
        .args(own_words().into_iter().skip(1))
        .arg("--detached")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("start the process of the mount")?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (stdout, mut stderr) = stdout.zip(stderr).expect("both are piped");
    let complain = async move {
        let _ = tokio::io::copy(&mut stderr, &mut tokio::io::stderr()).await;
    };
    let listen = async move {
        let (mut lines, mut is_ready) = (BufReader::new(stdout).lines(), false);
        // It closes both when it leaves the terminal, or ends.
        while let Ok(Some(line)) = lines.next_line().await {
            is_ready |= line.starts_with(READY);
            println!("{line}");
        }
        is_ready
    };
    let ((), is_ready) = tokio::join!(complain, listen);
    if is_ready {
        return Ok(());
    }
    let ended = child.wait().await.context("wait for the mount")?;
    // It has said why.
    Err(Failure::said_elsewhere(ended.code() == Some(2)))
}

/// Mounts, and serves until the end.
async fn serve(
    arguments: MountArguments,
    options: MountOptions,
    mut place: Place,
) -> Result<(), Failure> {
    raise_descriptor_limit();
    if options.coordinator.is_some() {
        place.coordinator.clone_from(&options.coordinator);
    }
    if let Some(directory) = &options.tls {
        place.tls = Some(directory.into());
    }
    let log = log(arguments.log.as_deref())?;
    let client = connect_gateway(&place).await?;
    let metrics = match &arguments.metrics {
        Some(address) => Some(listen_on(address, "--metrics").await?),
        None => None,
    };
    let mut ends = EndSignals::listen()?;
    let settings = MountSettings {
        source: arguments.source,
        directory: arguments.directory,
        options,
    };
    let mount = Mount::start(client, settings).await?;
    if let Some(listener) = metrics {
        let address = listener.local_addr().context("get the metrics' address")?;
        ready(&format!("http://{address}/metrics"));
        tokio::spawn(serve_metrics(listener, mount.metrics()));
    }
    if arguments.detached {
        leave_terminal(&log)?;
    }
    ready(&mount.directory().display().to_string());
    if arguments.detached {
        close_stdout()?;
    }
    let served = mount.serve(async move { ends.recv().await }).await;
    served.context("talk to the kernel")
}

/// The file of the log; without a path, the null device.
fn log(path: Option<&Path>) -> Result<File, Failure> {
    let path = path.unwrap_or(Path::new("/dev/null"));
    let file = File::options().append(true).create(true).open(path);
    file.context(format!("write the log {}", path.display()))
}

/// Lets the process live on without the terminal and the process that started it.
fn leave_terminal(log: &File) -> Result<(), Failure> {
    setsid().context("leave the terminal")?;
    std::env::set_current_dir("/").context("leave the directory")?;
    dup2_stderr(log).context("write the log")
}

/// Closes stdout. The process that started this one waits for that.
fn close_stdout() -> Result<(), Failure> {
    let nothing = File::options().write(true).open("/dev/null");
    dup2_stdout(nothing.context("open /dev/null")?).context("close stdout")
}

impl From<MountError> for Failure {
    fn from(error: MountError) -> Self {
        match error {
            MountError::Client(error) => error.into(),
            error => Self::failed(error),
        }
    }
}
