//! Racks of nodes with limited links on one machine, for as long as a command runs.
//!
//! Nothing of a testbed can be left over, because all of it is inside namespaces. The command runs
//! twice. The outer process starts itself again as the first process of new network, mount and
//! process namespaces. The inner one builds everything there and starts the given command. When the
//! inner one ends in any way, the kernel kills all processes inside, and removes the namespaces,
//! links, limits and mounts with the last of them. It ends when its command has ended, and is
//! killed when the outer one dies, even by SIGKILL.

use super::limits::{Limits, Uplink, rate_text, regions_text};
use super::network;
use super::seats::{CLIENT, SHAPE_VARIABLE, Seats, command_in};
use crate::error::{Context, TestbedError};
use crate::signals::EndSignals;
use rustix::process::{WaitOptions, WaitStatus, wait};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use tokio::process::{Child, Command};

/// Racks of nodes, and the speeds of their links.
#[derive(Clone, Debug)]
pub struct Testbed {
    seats: Seats,
    limits: Limits,
}

impl Testbed {
    /// Equal racks. Each node's link carries `node_bytes_per_s` in each direction; 0 is unlimited. Fair
    /// links serve their connections in turn instead of in one queue.
    #[must_use]
    pub fn of_racks(seats: Seats, node_bytes_per_s: u64, uplink: Uplink, is_fair: bool) -> Self {
        let limits = Limits::Racks {
            node: node_bytes_per_s,
            uplink,
            is_fair,
        };
        Self { seats, limits }
    }

    /// Regions with the rates in a file: a line for each sender, rates with units separated by blanks,
    /// and comments that begin with `#`. The diagonal is each node's own link.
    ///
    /// # Errors
    /// [`TestbedError::Cannot`] if the file cannot be read, [`TestbedError::Regions`] if it is no such
    /// matrix.
    pub fn of_regions(file: &Path, nodes_per_rack: u32) -> Result<Self, TestbedError> {
        let limits = Limits::read_regions(file)?;
        let seats = Seats {
            rack_count: limits.region_count().unwrap_or(1),
            nodes_per_rack,
        };
        Ok(Self { seats, limits })
    }

    /// As [`Self::of_regions`] with these rates in bytes a second, where 0 is unlimited. They are written
    /// into the file first.
    ///
    /// # Errors
    /// [`TestbedError::Cannot`] if the file cannot be written.
    pub fn of_rates(
        rows: &[Vec<u64>],
        file: &Path,
        nodes_per_rack: u32,
    ) -> Result<Self, TestbedError> {
        fs::write(file, regions_text(rows)).context(format!("write {}", file.display()))?;
        Self::of_regions(file, nodes_per_rack)
    }

    /// The arguments of `gabion lab testbed` for this testbed.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let mut arguments = vec![format!("--nodes-per-rack={}", self.seats.nodes_per_rack).into()];
        match &self.limits {
            Limits::Regions { file, .. } => arguments.extend(["--regions".into(), file.into()]),
            Limits::Racks {
                node,
                uplink,
                is_fair,
            } => {
                arguments.push(format!("--racks={}", self.seats.rack_count).into());
                arguments.push(format!("--inner={}", rate_text(*node)).into());
                arguments.push(format!("--cross={}", rate_text(uplink.rate)).into());
                arguments.extend(uplink.spares_core.then(|| "--spare-core".into()));
                arguments.extend(is_fair.then(|| "--fair".into()));
            }
        }
        arguments
    }

    /// Makes the testbed, runs a command in it as the client, and removes everything. Returns the exit
    /// code of this program's inner process, which has reported any failure.
    ///
    /// # Errors
    /// If something is missing for a testbed on this machine, or a signal ends it.
    pub async fn run(&self, command: &[OsString]) -> Result<i32, TestbedError> {
        require_nothing_missing()?;
        // Installed first: from here on no signal ends this process before the other.
        let mut signals = EndSignals::listen()?;
        let mut inner = self.start_inner(command)?;
        let ended = tokio::select! {
            ended = inner.wait() => Some(ended.context("wait for the testbed")?),
            () = signals.recv() => None,
        };
        let Some(ended) = ended else {
            inner.kill().await.context("end the testbed")?;
            return Err(TestbedError::Interrupted);
        };
        ended.code().ok_or(TestbedError::Ended(ended))
    }

    /// Starts this program again in new namespaces.
    fn start_inner(&self, command: &[OsString]) -> Result<Child, TestbedError> {
        let program = std::env::current_exe().context("find this program's file")?;
        let mut inner = Command::new("setpriv");
        // The death of this process kills `unshare`, whose death kills the first process inside.
        inner.args(["--pdeathsig", "KILL", "unshare"]);
        inner.args(["--net", "--mount", "--pid", "--fork"]);
        inner.args(["--kill-child=KILL", "--mount-proc", "--"]);
        inner.arg(program).args(["lab", "testbed", "--inside"]);
        inner.args(self.arguments()).arg("--").args(command);
        inner.spawn().context("start the testbed")
    }

    /// Builds the testbed, runs the command in it and waits for it, as the first process inside.
    ///
    /// # Errors
    /// If this process is not that, the network cannot be built, or the command fails.
    ///
    /// # Panics
    /// If the command is empty.
    pub fn run_inside(&self, command: &[OsString]) -> Result<(), TestbedError> {
        if std::process::id() != 1 {
            return Err(TestbedError::NotInside);
        }
        network::make(self.seats, &self.limits)?;
        let (program, arguments) = command.split_first().expect("a command has a program");
        let child = command_in(CLIENT, program)
            .args(arguments)
            .env(SHAPE_VARIABLE, self.seats.text())
            .spawn()
            .context("start the command")?;
        let status = wait_for(child.id())?;
        if status.success() {
            return Ok(());
        }
        Err(TestbedError::CommandFailed(status))
    }
}

/// Reports in one sentence the missing prerequisites of a testbed.
fn require_nothing_missing() -> Result<(), TestbedError> {
    if Seats::of_this_process()?.is_some() {
        return Err(TestbedError::Nested);
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
            return Err(TestbedError::NoProgram { program, package });
        }
    }
    let tried = std::process::Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "true"])
        .stderr(Stdio::null())
        .status();
    if tried.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    Err(TestbedError::NotRoot)
}

/// Waits for one process, and reaps all others that end in the meantime: orphans become children of
/// the first process.
fn wait_for(id: u32) -> Result<ExitStatus, TestbedError> {
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
