//! `gabion lab testbed`: racks of nodes with limited links on one machine, for as long as a command
//! runs (CAU section 5.3, `RackCU` section V-B).
//!
//! Nothing of a testbed can be left over, because all of it is inside namespaces. The command runs
//! twice. The outer process starts itself again as the first process of new network, mount and
//! process namespaces. The inner one builds everything there and starts the given command. When the
//! inner one ends in any way, the kernel kills all processes inside, and removes the namespaces,
//! links, limits and mounts with the last of them. It ends when its command has ended, and is
//! killed when the outer one dies, even by SIGKILL.

use crate::arguments::TestbedOptions;
use crate::failure::{Context, Failure};
use crate::testbed::limits::Limits;
use crate::testbed::{CLIENT, SHAPE_VARIABLE, Shape, command_in, network};
use rustix::process::{WaitOptions, WaitStatus, wait};
use std::process::{ExitStatus, Stdio};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

pub(super) async fn run(options: TestbedOptions) -> Result<(), Failure> {
    let limits = match &options.regions {
        Some(path) => Limits::read_regions(path)?,
        None => Limits::racks(
            options.inner.as_deref(),
            options.cross.as_deref(),
            options.spare_core,
            options.fair,
        )?,
    };
    let shape = Shape {
        rack_count: limits.region_count().unwrap_or(options.racks),
        nodes_per_rack: options.nodes_per_rack,
    };
    if options.inside {
        return inside(shape, &limits, &options);
    }
    require_nothing_missing()?;
    outside(&options).await
}

/// Reports in one sentence the missing prerequisites of a testbed.
fn require_nothing_missing() -> Result<(), Failure> {
    if Shape::of_this_process()?.is_some() {
        return Err(Failure::usage(
            "this is a testbed already, and testbeds do not nest",
        ));
    }
    for (program, package) in [
        ("ip", "iproute2"),
        ("tc", "iproute2"),
        ("unshare", "util-linux"),
        ("nsenter", "util-linux"),
        ("setpriv", "util-linux"),
    ] {
        let asked = std::process::Command::new(program)
            .arg("-V")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if asked.is_err() {
            return Err(Failure::failed(format!(
                "a testbed needs the program '{program}'; install the package {package}"
            )));
        }
    }
    let tried = std::process::Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "true"])
        .stderr(Stdio::null())
        .status();
    if tried.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    Err(Failure::failed(
        "a testbed needs root (CAP_NET_ADMIN and CAP_SYS_ADMIN) to make network namespaces; run \
         'gabion lab testbed' as root",
    ))
}

/// Starts this command again in new namespaces, and waits for it or for a signal.
async fn outside(options: &TestbedOptions) -> Result<(), Failure> {
    // Installed first: from here on no signal ends this process before the other.
    let mut interrupted = signal(SignalKind::interrupt()).context("listen for signals")?;
    let mut terminated = signal(SignalKind::terminate()).context("listen for signals")?;
    let mut hung_up = signal(SignalKind::hangup()).context("listen for signals")?;
    let mut inner = start_inner(options)?;
    let ended = tokio::select! {
        ended = inner.wait() => Some(ended.context("wait for the testbed")?),
        _ = interrupted.recv() => None,
        _ = terminated.recv() => None,
        _ = hung_up.recv() => None,
    };
    let Some(ended) = ended else {
        inner.kill().await.context("end the testbed")?;
        return Err(Failure::failed("interrupted; the testbed is removed"));
    };
    match ended.code() {
        Some(0) => Ok(()),
        Some(code) => Err(Failure::said_elsewhere(code == 2)),
        None => Err(Failure::failed(format!("the testbed was ended by {ended}"))),
    }
}

fn start_inner(options: &TestbedOptions) -> Result<Child, Failure> {
    let program = std::env::current_exe().context("find this program's file")?;
    let mut command = Command::new("setpriv");
    // The death of this process kills `unshare`, whose death kills the first process inside.
    command.args(["--pdeathsig", "KILL", "unshare"]);
    command.args(["--net", "--mount", "--pid", "--fork"]);
    command.args(["--kill-child=KILL", "--mount-proc", "--"]);
    command.arg(program).args(["lab", "testbed", "--inside"]);
    command.arg(format!("--nodes-per-rack={}", options.nodes_per_rack));
    if let Some(regions) = &options.regions {
        command.arg("--regions").arg(regions);
    } else {
        command.arg(format!("--racks={}", options.racks));
    }
    for (name, rate) in [("inner", &options.inner), ("cross", &options.cross)] {
        command.args(rate.as_ref().map(|rate| format!("--{name}={rate}")));
    }
    command.args(options.spare_core.then_some("--spare-core"));
    command.args(options.fair.then_some("--fair"));
    command.arg("--").args(&options.command);
    command.spawn().context("start the testbed")
}

/// Builds the testbed, runs the command in it and waits for it, as the first process inside.
fn inside(shape: Shape, limits: &Limits, options: &TestbedOptions) -> Result<(), Failure> {
    if std::process::id() != 1 {
        return Err(Failure::usage("--inside is for 'gabion lab testbed' alone"));
    }
    network::make(shape, limits)?;
    let (program, arguments) = options.command.split_first().expect("clap requires one");
    let child = command_in(CLIENT, program)
        .args(arguments)
        .env(SHAPE_VARIABLE, shape.text())
        .spawn()
        .context("start the command")?;
    let status = wait_for(child.id())?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "the testbed's command failed: {status}"
    )))
}

/// Waits for one process, and reaps all others that end in the meantime: orphans become children of
/// the first process.
fn wait_for(id: u32) -> Result<ExitStatus, Failure> {
    use std::os::unix::process::ExitStatusExt as _;
    loop {
        let ended = match wait(WaitOptions::empty()) {
            Err(rustix::io::Errno::INTR) => continue,
            ended => ended.context("wait for the command")?,
        };
        let of_it = ended.filter(|(ended, _)| ended.as_raw_pid() as u32 == id);
        if let Some((_, status)) = of_it {
            return Ok(ExitStatus::from_raw(WaitStatus::as_raw(status)));
        }
    }
}
