//! Misplaced processes: a node with another cluster, and a second one with a copied identity.

use super::copies;
use crate::cluster::{Cluster, Process, wait_for};
use crate::network::Seat;
use crate::stop::{Context, Stop};
use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time for a node that is started with the wrong cluster to end.
const STRAY_FOR: Duration = Duration::from_secs(5);
const START_LIMIT: Duration = Duration::from_secs(30);

/// A process of this program, killed when dropped.
#[derive(Debug)]
pub(super) struct OwnProcess(Child);

impl OwnProcess {
    fn start(mut command: Command, log: &Path) -> Result<Self, Stop> {
        let log = File::options().create(true).append(true).open(log);
        let log = log.context("open a log")?;
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        child.map(Self).context("start a process")
    }

    /// Whether it still runs.
    pub(super) fn runs(&mut self) -> Result<bool, Stop> {
        self.0
            .try_wait()
            .map(|ended| ended.is_none())
            .context("look at a process")
    }
}

impl Drop for OwnProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The arguments of a running node, and its directory.
fn arguments(cluster: &Cluster, node: u32) -> Result<Vec<String>, Stop> {
    let pid = cluster.pid(Process::Node(node))?.as_raw_pid();
    let line = fs::read(format!("/proc/{pid}/cmdline")).context("read a node's arguments")?;
    let words = line
        .split(|&byte| byte == 0)
        .filter(|word| !word.is_empty());
    let words = words.map(|word| String::from_utf8_lossy(word).into_owned());
    Ok(words.skip(1).collect())
}

/// Stops a node and starts it with the coordinator of an empty cluster for some time. It stays
/// stopped.
pub(super) fn join_another(cluster: &Cluster, node: u32) -> Result<String, Stop> {
    let (mut command, address) = another_coordinator(cluster)?;
    let data = cluster.beside("other");
    copies::remove(&data)?;
    command.args([format!("--data={}", data.display()), "--init".to_owned()]);
    let log = cluster
        .directory
        .join("logs")
        .join("another-coordinator.log");
    let _other = OwnProcess::start(command, &log)?;
    let begun = Instant::now();
    while TcpStream::connect(&address).is_err() {
        if begun.elapsed() > START_LIMIT {
            return Err(Stop::Failed(
                "another coordinator does not start".to_owned(),
            ));
        }
        cluster.wait(Duration::from_millis(20))?;
    }
    let mut words = arguments(cluster, node)?;
    cluster.kill(Process::Node(node))?;
    for word in words.iter_mut().filter(|word| word.starts_with("--join=")) {
        *word = format!("--join={address}");
    }
    let mut command = cluster.command_at(node);
    command.args(words);
    let log = cluster
        .directory
        .join("logs")
        .join(format!("stray-{node}.log"));
    let mut stray = OwnProcess::start(command, &log)?;
    let ended = wait_for(&mut stray.0, STRAY_FOR)?;
    let said = ended.map_or("ran until it was killed", |_| "was refused");
    Ok(format!("it {said}"))
}

/// A coordinator of another cluster, not started yet, and its address.
fn another_coordinator(cluster: &Cluster) -> Result<(Command, String), Stop> {
    let host = if cluster.is_testbed {
        Seat::Client.address()
    } else {
        "127.0.0.1".to_owned()
    };
    let free = TcpListener::bind((host.as_str(), 0)).context("find a free port")?;
    let address = free.local_addr().context("find a free port")?.to_string();
    let mut command = Command::new(&cluster.gabion);
    command.args(["coordinator", &format!("--listen={address}")]);
    Ok((command, address))
}

/// Starts a second process with a copy of a node's directory.
pub(super) fn twin(cluster: &Cluster, node: u32) -> Result<OwnProcess, Stop> {
    let process = Process::Node(node);
    let words = arguments(cluster, node)?;
    let copy = cluster.beside("twin");
    copies::duplicate(cluster, process, &copy)?;
    cluster.start(process)?;
    let (own, copied) = (cluster.directory_of(process), copy);
    let (own, copied) = (own.display().to_string(), copied.display().to_string());
    let mut command = cluster.command_at(node);
    let listen = |word: &str| {
        let (host, _) = word.strip_prefix("--listen=")?.rsplit_once(':')?;
        Some(format!("--listen={host}:0"))
    };
    // The first process has its port.
    let words = words.iter();
    let words = words.map(|word| listen(word).unwrap_or_else(|| word.replace(&own, &copied)));
    command.args(words);
    let log = cluster
        .directory
        .join("logs")
        .join(format!("twin-{node}.log"));
    OwnProcess::start(command, &log)
}
