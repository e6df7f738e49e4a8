//! Directories rolled back: copies of a stopped process's directory, used later.

use super::Tools;
use crate::cluster::{Cluster, Process, tool};
use crate::stop::{Context, Stop};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time for which an old database is in use.
const OLD_DATABASE_FOR: Duration = Duration::from_secs(6);
/// Limit until the client of whole files has ended its operation.
const REST_LIMIT: Duration = Duration::from_mins(5);

/// Copies a process's directory. The process is stopped and started for that, so the copy is
/// consistent.
pub(super) fn take(cluster: &Cluster, process: Process) -> Result<PathBuf, Stop> {
    let name = match process {
        Process::Coordinator => "old-coordinator".to_owned(),
        Process::Node(node) => format!("old-{node}"),
    };
    let copy = cluster.beside(&name);
    duplicate(cluster, process, &copy)?;
    cluster.start(process)?;
    Ok(copy)
}

/// Stops a process and copies its directory.
pub(super) fn duplicate(cluster: &Cluster, process: Process, copy: &Path) -> Result<(), Stop> {
    cluster.kill(process)?;
    remove(copy)?;
    let directory = cluster.directory_of(process);
    tool(
        "cp",
        ["-a".as_ref(), directory.as_os_str(), copy.as_os_str()],
    )
}

/// Removes a copy, if it exists.
pub(super) fn remove(copy: &Path) -> Result<(), Stop> {
    match fs::remove_dir_all(copy) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).context(&format!("remove {}", copy.display()))
        }
        _ => Ok(()),
    }
}

/// Replaces a stopped process's directory by a copy; the directory is lost.
pub(super) fn put_back(cluster: &Cluster, process: Process, copy: &Path) -> Result<(), Stop> {
    let directory = cluster.directory_of(process);
    remove(&directory)?;
    fs::rename(copy, &directory).context("put a copy back")
}

/// Starts the coordinator with an old database, and after some seconds with the newer one again. It
/// may refuse the old one. No file is stored or removed in between: replacing a database discards
/// the changes that only it knows.
pub(super) fn use_old_database(tools: Tools<'_>, copy: &Path) -> Result<String, Stop> {
    let (cluster, signals) = (tools.cluster, tools.signals);
    let process = Process::Coordinator;
    signals.names_rest.store(true, Ordering::SeqCst);
    let begun = Instant::now();
    while !signals.are_at_rest() {
        if begun.elapsed() > REST_LIMIT {
            return Err(Stop::Broken("a put or a removal does not end".to_owned()));
        }
        cluster.wait(Duration::from_millis(20))?;
    }
    cluster.kill(process)?;
    let (directory, newer) = (cluster.directory_of(process), cluster.beside("newer"));
    fs::rename(&directory, &newer).context("move the newer database")?;
    fs::rename(copy, &directory).context("put the old database back")?;
    let started = cluster.try_up()?.status.success();
    cluster.wait(OLD_DATABASE_FOR)?;
    let runs = cluster.runs(process);
    cluster.kill(process)?;
    remove(&directory)?;
    fs::rename(&newer, &directory).context("put the newer database back")?;
    cluster.start(process)?;
    signals.names_rest.store(false, Ordering::Release);
    let said = match (started, runs) {
        (false, _) => "refused the old database",
        (true, false) => "started with the old database and ended",
        (true, true) => "ran with the old database",
    };
    Ok(format!("{said}, then got the newer one"))
}
