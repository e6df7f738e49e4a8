//! A cluster of the shipped binary: its commands, its processes by pid, its directories.

use crate::network::Seat;
use crate::stop::{Context, Stop};
use gabion_wire::trust::Security;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Limit of a command of the binary.
const COMMAND_LIMIT: Duration = Duration::from_mins(3);
const POLL: Duration = Duration::from_millis(20);
/// Limit until a killed process is gone.
const DEATH_LIMIT: Duration = Duration::from_secs(20);

/// A grace period longer than any fault.
pub(crate) const GRACE_MAX_S: u64 = 3600;
/// Racks, and nodes in each.
pub(crate) const RACKS: u32 = 3;
/// Nodes in each rack.
pub(crate) const NODES_PER_RACK: u32 = 3;
/// All nodes.
pub(crate) const NODES: u32 = RACKS * NODES_PER_RACK;

/// A process of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Process {
    Coordinator,
    Node(u32),
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Coordinator => write!(f, "the coordinator"),
            Self::Node(node) => write!(f, "node {node}"),
        }
    }
}

impl Process {
    /// Its file in the directory of running processes.
    fn name(self) -> String {
        match self {
            Self::Coordinator => "coordinator".to_owned(),
            Self::Node(node) => format!("node-{node}"),
        }
    }
}

/// Options of the cluster's start.
#[derive(Clone, Debug)]
pub(crate) struct Behaviour {
    pub(crate) lease_ms: u64,
    pub(crate) grace_s: u64,
    pub(crate) engine: &'static str,
}

/// A cluster in a directory of its own.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) gabion: PathBuf,
    pub(crate) directory: PathBuf,
    pub(crate) behaviour: Behaviour,
    /// Whether each process has a network namespace of its own.
    pub(crate) is_testbed: bool,
    interrupted: Arc<AtomicBool>,
    /// Whether a node was started with an earlier copy of its directory.
    went_back: AtomicBool,
}

impl Cluster {
    /// A cluster that is not started yet.
    pub(crate) fn new(
        gabion: &Path,
        directory: PathBuf,
        behaviour: Behaviour,
        is_testbed: bool,
        interrupted: Arc<AtomicBool>,
    ) -> Self {
        Self {
            gabion: gabion.to_owned(),
            directory,
            behaviour,
            is_testbed,
            interrupted,
            went_back: AtomicBool::new(false),
        }
    }

    /// Starts all processes that do not run.
    pub(crate) fn up(&self) -> Result<(), Stop> {
        let output = self.try_up()?;
        require("gabion cluster up", &output)
    }

    /// Like [`Cluster::up`], but the coordinator may refuse to start.
    pub(crate) fn try_up(&self) -> Result<Output, Stop> {
        let behaviour = &self.behaviour;
        let (racks, nodes) = (RACKS.to_string(), NODES_PER_RACK.to_string());
        let (lease, grace) = (
            behaviour.lease_ms.to_string(),
            behaviour.grace_s.to_string(),
        );
        let arguments = [
            "cluster",
            "up",
            "--no-console",
            "--racks",
            &racks,
            "--nodes-per-rack",
            &nodes,
            "--lease-ms",
            &lease,
            "--grace-s",
            &grace,
            "--engine",
            behaviour.engine,
        ];
        self.output(&arguments)
    }

    /// Runs a command of the binary on this cluster; it must succeed.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<String, Stop> {
        let output = self.output(arguments)?;
        require(&format!("gabion {}", arguments.join(" ")), &output)?;
        Ok(text(&output.stdout))
    }

    /// Runs a command of the binary on this cluster.
    pub(crate) fn output(&self, arguments: &[&str]) -> Result<Output, Stop> {
        output_of(&mut self.command(arguments), COMMAND_LIMIT)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.gabion);
        command
            .args(arguments)
            .env("GABION_DIR", &self.directory)
            .env_remove("GABION_COORDINATOR");
        command
    }

    /// Queries figures; none if the output is empty.
    pub(crate) fn json(&self, arguments: &[&str]) -> Result<Option<Value>, Stop> {
        let mut command = Command::new(&self.gabion);
        command
            .args(["--format", "json"])
            .args(arguments)
            .env("GABION_DIR", &self.directory)
            .env_remove("GABION_COORDINATOR");
        let output = output_of(&mut command, COMMAND_LIMIT)?;
        Ok(serde_json::from_slice(&output.stdout).ok())
    }

    /// The coordinator's address.
    pub(crate) fn coordinator(&self) -> Result<String, Stop> {
        let path = self.directory.join("cluster.json");
        let shape = fs::read(&path).context("read the cluster's shape")?;
        let shape: Value = serde_json::from_slice(&shape).context("read the cluster's shape")?;
        let address = shape["coordinator"].as_str();
        let address = address.ok_or_else(|| Stop::Failed("no coordinator was started".to_owned()));
        address.map(str::to_owned)
    }

    /// Returns the clients' proof that they belong to the cluster.
    pub(crate) fn security(&self) -> Result<Security, Stop> {
        let opened = Security::open(&self.directory.join("coordinator/operator"));
        opened.map_err(|error| Stop::Failed(error.to_string()))
    }

    /// The directory of a process.
    pub(crate) fn directory_of(&self, process: Process) -> PathBuf {
        match process {
            Process::Coordinator => self.directory.join("coordinator"),
            Process::Node(node) => self.directory.join("nodes").join(node.to_string()),
        }
    }

    /// A path beside the cluster's own files.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.directory.with_extension(name)
    }

    /// The pid of a running process.
    pub(crate) fn pid(&self, process: Process) -> Result<Pid, Stop> {
        let path = self.directory.join("run").join(process.name());
        let doing = format!("find the pid of {process}");
        let running = fs::read(path).context(&doing)?;
        let running: Value = serde_json::from_slice(&running).context(&doing)?;
        let pid = running["pid"]
            .as_i64()
            .and_then(|pid| i32::try_from(pid).ok());
        let pid = pid.and_then(Pid::from_raw);
        pid.ok_or_else(|| Stop::Failed(format!("cannot {doing}")))
    }

    /// Whether a process runs.
    pub(crate) fn runs(&self, process: Process) -> bool {
        self.pid(process).is_ok_and(is_alive)
    }

    /// Sends a signal to a process; ignores one that has ended.
    pub(crate) fn signal(&self, process: Process, signal: Signal) -> Result<(), Stop> {
        // A process that did not come up after its last start has no pid.
        if !self.runs(process) {
            return Ok(());
        }
        let pid = self.pid(process)?;
        match kill_process(pid, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error).context(&format!("signal {process}")),
        }
    }

    /// Kills a process and waits until it is gone.
    pub(crate) fn kill(&self, process: Process) -> Result<(), Stop> {
        self.signal(process, Signal::KILL)?;
        let begun = Instant::now();
        while self.runs(process) {
            if begun.elapsed() > DEATH_LIMIT {
                return Err(Stop::Failed(format!("{process} does not die")));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Starts a stopped process. All other stopped processes start with the coordinator, if they
    /// can: some of them may have dead disks.
    pub(crate) fn start(&self, process: Process) -> Result<(), Stop> {
        match process {
            Process::Coordinator => {
                let output = self.try_up()?;
                if self.runs(process) {
                    return Ok(());
                }
                require("gabion cluster up", &output)
            }
            Process::Node(node) => self.start_and_accept(node).map(drop),
        }
    }

    /// Notes that a node starts with an earlier copy of its directory.
    pub(crate) fn note_rollback(&self) {
        self.went_back.store(true, Ordering::Relaxed);
    }

    /// Accepts the requests of joining nodes to the operator, as the status shows them. Nodes that
    /// were away longer than the grace period, or have an earlier copy of their directory, find
    /// chunks of files that were removed since; a request of any other node is wrong. Returns
    /// whether there was one.
    pub(crate) fn accept(&self, troubles: &[String]) -> Result<bool, Stop> {
        let asks = |trouble: &String| {
            let (_, node) = trouble.split_once("'gabion node accept ")?;
            Some(node.trim_end_matches('\'').to_owned())
        };
        let asking: Vec<String> = troubles.iter().filter_map(asks).collect();
        let may_ask =
            self.behaviour.grace_s < GRACE_MAX_S || self.went_back.load(Ordering::Relaxed);
        if let Some(node) = asking.first().filter(|_| !may_ask) {
            return Err(Stop::Broken(format!(
                "node {node} asks the operator for its admission, although its absence was within the grace period and \
                it has its own directory"
            )));
        }
        for node in &asking {
            // The node may have failed since.
            self.output(&["node", "accept", node])?;
        }
        Ok(!asking.is_empty())
    }

    /// Starts a node as an operator who accepts its findings: unknown chunks are set aside when it
    /// asks. Returns whether it has asked.
    pub(crate) fn start_and_accept(&self, node: u32) -> Result<bool, Stop> {
        let node = node.to_string();
        let mut command = self.command(&["chaos", "start-node", &node]);
        let starting = command.stdout(Stdio::null()).spawn();
        let mut starting = starting.context("start a node")?;
        let mut has_asked = false;
        loop {
            if let Some(status) = starting.try_wait().context("wait for a node's start")? {
                let stop = || Stop::Broken(format!("node {node} did not start"));
                status.success().then_some(()).ok_or_else(stop)?;
                // The start ends by itself once the node is known to wait.
                return Ok(has_asked | self.accept(&self.troubles()?)?);
            }
            has_asked |= self.accept(&self.troubles()?)?;
            self.wait(Duration::from_millis(100))?;
        }
    }

    /// A further process of the binary at a node's place in the network, not started yet.
    pub(crate) fn command_at(&self, node: u32) -> Command {
        if !self.is_testbed {
            return Command::new(&self.gabion);
        }
        let mut command = Command::new("nsenter");
        let seat = Seat::Node(node).name();
        command.arg(format!("--net=/run/netns/{seat}"));
        command.arg("--").arg(&self.gabion);
        command
    }

    /// Waits, unless a signal ends the run.
    pub(crate) fn wait(&self, time: Duration) -> Result<(), Stop> {
        let begun = Instant::now();
        while begun.elapsed() < time {
            if self.interrupted.load(Ordering::Acquire) {
                return Err(Stop::Interrupted);
            }
            std::thread::sleep(POLL.min(time));
        }
        Ok(())
    }

    /// The problems in the status; none if every node is up and every chunk is valid. No answer is
    /// a problem.
    pub(crate) fn troubles(&self) -> Result<Vec<String>, Stop> {
        let Some(status) = self.json(&["cluster", "status"])? else {
            return Ok(vec!["the coordinator does not answer".to_owned()]);
        };
        let list = |name: &str| status[name].as_array().map_or(&[][..], Vec::as_slice);
        let troubles = list("troubles").iter().filter_map(Value::as_str);
        let mut troubles: Vec<String> = troubles.map(str::to_owned).collect();
        let nodes = list("nodes").iter();
        let up_count = nodes.filter(|node| node["state"] == "up").count();
        if up_count != NODES as usize {
            troubles.push(format!("{up_count} of {NODES} nodes are up"));
        }
        if troubles.is_empty() && status["light"] != "green" {
            troubles.push(format!("the light is {}", status["light"]));
        }
        Ok(troubles)
    }

    /// Stops all processes; files stay.
    pub(crate) fn down(&self) -> Result<(), Stop> {
        self.run(&["cluster", "down"]).map(drop)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // A stopped process also dies by SIGKILL, so no fault must be undone before.
        let _ = self.down();
    }
}

fn require(what: &str, output: &Output) -> Result<(), Stop> {
    if output.status.success() {
        return Ok(());
    }
    let said = text(&output.stderr);
    Err(Stop::Broken(format!("'{what}' failed: {}", said.trim())))
}

/// Text of a command.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command with a limit of time.
pub(crate) fn output_of(command: &mut Command, limit: Duration) -> Result<Output, Stop> {
    let name = format!("{command:?}");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context(&format!("start {name}"))?;
    // Threads read the pipes, so that long output does not block the command.
    let stdout = child.stdout.take().map(read_all);
    let stderr = child.stderr.take().map(read_all);
    let status = wait_for(&mut child, limit)?;
    let Some(status) = status else {
        return Err(Stop::Broken(format!(
            "{name} hangs: it was killed after {} s",
            limit.as_secs()
        )));
    };
    let collected = |reader: Option<std::thread::JoinHandle<Vec<u8>>>| {
        reader
            .and_then(|reader| reader.join().ok())
            .unwrap_or_default()
    };
    Ok(Output {
        status,
        stdout: collected(stdout),
        stderr: collected(stderr),
    })
}

fn read_all(mut pipe: impl std::io::Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // The output before a failure is all there is to report.
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}

/// Waits for a child; kills it at the limit.
pub(crate) fn wait_for(
    child: &mut Child,
    limit: Duration,
) -> Result<Option<std::process::ExitStatus>, Stop> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().context("wait for a command")? {
            return Ok(Some(status));
        }
        if begun.elapsed() > limit {
            child.kill().context("kill a command")?;
            child.wait().context("wait for a command")?;
            return Ok(None);
        }
        std::thread::sleep(POLL);
    }
}

/// Runs a program of this machine, which must succeed.
pub(crate) fn tool<S: AsRef<OsStr>>(
    program: &str,
    arguments: impl IntoIterator<Item = S>,
) -> Result<(), Stop> {
    let mut command = Command::new(program);
    let output = output_of(command.args(arguments), Duration::from_mins(1))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Stop::Failed(format!(
        "'{command:?}' failed: {}",
        text(&output.stderr).trim()
    )))
}

/// Whether a process exists and is not a zombie. If only its first thread has ended, it looks like
/// a zombie, but the others may still hold its port and its files.
fn is_alive(pid: Pid) -> bool {
    let path = format!("/proc/{}/stat", pid.as_raw_pid());
    let Ok(stat) = fs::read_to_string(path) else {
        return false;
    };
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest)
        .split_whitespace()
        .collect();
    !(fields.first() == Some(&"Z") && fields.get(17) == Some(&"1"))
}
