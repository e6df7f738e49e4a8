//! The outer process: a directory, a testbed if possible, and the inner process in it.

use crate::Arguments;
use crate::cluster::{NODES_PER_RACK, RACKS, output_of, wait_for};
use crate::stop::{Context, Stop};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Limit for the inner process to end after a signal.
const END_LIMIT: Duration = Duration::from_mins(1);

/// Bytes that must be free on the disk of the clusters.
const ROOM_BYTES: u64 = 4 << 30;

/// Runs everything. Returns whether no problem was found.
pub(crate) fn run(arguments: &Arguments) -> Result<bool, Stop> {
    let interrupted = Arc::new(AtomicBool::new(false));
    crate::listen_for_signals(Arc::clone(&interrupted))?;
    let seed = match arguments.seed {
        Some(seed) => seed,
        // Any number that differs from run to run.
        None => SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .context("read the clock")?
            .as_secs(),
    };
    let directory = tempfile::Builder::new()
        .prefix("gabion-torture-")
        .tempdir()
        .context("make a temporary directory")?;
    require_room(directory.path())?;
    let own = std::env::current_exe().context("find this program's file")?;
    let gabion = binary(arguments)?;
    let is_testbed = can_make_testbed();
    let mut command = Command::new(if is_testbed { &gabion } else { &own });
    if is_testbed {
        command.args(["lab", "testbed"]);
        command.arg(format!("--racks={RACKS}"));
        command.arg(format!("--nodes-per-rack={NODES_PER_RACK}"));
        command.arg("--").arg(&own).arg("--testbed");
    }
    command
        .args(std::env::args_os().skip(1))
        .arg("--inside")
        .arg(directory.path());
    if arguments.seed.is_none() {
        command.arg(format!("--seed={seed}"));
    }
    let mut child = command.spawn().context("start the inner process")?;
    let succeeded = wait(&mut child, &interrupted)?;
    let is_interrupted = interrupted.load(Ordering::Acquire);
    if succeeded || is_interrupted {
        return Ok(succeeded);
    }
    let kept = directory.keep();
    eprintln!(
        "the clusters' directories and logs are kept in {}",
        kept.display()
    );
    Ok(false)
}

/// The binary under test.
pub(crate) fn binary(arguments: &Arguments) -> Result<PathBuf, Stop> {
    if let Some(binary) = &arguments.gabion {
        return std::fs::canonicalize(binary).context("find the binary");
    }
    let own = std::env::current_exe().context("find this program's file")?;
    let beside = own.with_file_name("gabion");
    if beside.exists() {
        return Ok(beside);
    }
    Err(Stop::Failed(format!(
        "there is no {}; build it with 'cargo build', or name another with --gabion",
        beside.display()
    )))
}

/// Refuses a nearly full disk: its nodes would report that, and no cluster would become green.
fn require_room(directory: &Path) -> Result<(), Stop> {
    let space = rustix::fs::statvfs(directory).context("query the free space of a disk")?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let used = (space.f_blocks - space.f_bfree).saturating_mul(space.f_frsize);
    // Nodes count as full at 95 %, and the clusters' own writes come on top.
    if free < ROOM_BYTES || used / 9 > free {
        let free_gib = free >> 30;
        return Err(Stop::Failed(format!(
            "the disk of {} has only {free_gib} GiB left; it needs {} GiB and a tenth of its size free; name another \
            directory with TMPDIR",
            directory.display(),
            ROOM_BYTES >> 30
        )));
    }
    Ok(())
}

/// Whether testbeds are possible here: as root, with the required programs.
fn can_make_testbed() -> bool {
    let succeeds = |program: &str, arguments: &[&str]| {
        let tried = output_of(
            Command::new(program).args(arguments),
            Duration::from_secs(10),
        );
        tried.is_ok_and(|output| output.status.success())
    };
    succeeds("unshare", &["--net", "--mount", "--pid", "--fork", "true"])
        && succeeds("ip", &["-V"])
        && succeeds("tc", &["-V"])
        && succeeds("mkfs.ext4", &["-V"])
}

/// Waits for the inner process, and forwards a signal to it.
fn wait(child: &mut Child, interrupted: &AtomicBool) -> Result<bool, Stop> {
    loop {
        if let Some(status) = child.try_wait().context("wait for the inner process")? {
            return Ok(status.success());
        }
        if interrupted.load(Ordering::Acquire) {
            if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                // It may have received the same signal, and be gone.
                let _ = kill_process(pid, Signal::TERM);
            }
            let ended = wait_for(child, END_LIMIT)?;
            return Ok(ended.is_some_and(|status| status.success()));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
