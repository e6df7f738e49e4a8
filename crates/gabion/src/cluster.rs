//! A cluster of processes on this machine: its members, and starting and stopping them.
//!
//! The directory holds `cluster.json` (the shape, fixed when the cluster is made), `coordinator/`,
//! `nodes/N/`, `links/`, `made/` with an empty file for each process that has data of its own, and
//! `run/` with one file a live process. A process reports on its stdout when it is ready; a start
//! waits only for that line.

mod process;
mod readiness;

use self::process::Running;
pub(crate) use self::readiness::READY;
use self::readiness::{NotReady, START_DEADLINE, last_line, until_it_waits, wait_until_ready};
use crate::arguments::{Behaviour, EngineName, Merging, UpOptions};
use crate::failure::{Context, Failure};
use crate::output::bytes;
use crate::processor_time;
use crate::testbed;
use gabion_layout::NodeId;
use gabion_protocol::message::JoinProgress;
use gabion_wire::{LinkSpec, LinkTable, parse_rate};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::{Child, Command};

/// Ports below those that systems assign by themselves; their number is prime.
const LASTING_PORTS: std::ops::Range<u16> = 20_011..29_984;
/// Devices of a node's array, and bytes of each.
const TRIAL_DEVICES: u32 = 4;
const TRIAL_DEVICE_BYTES: u64 = 1 << 30;

/// The shape of a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Shape {
    pub(crate) racks: u32,
    pub(crate) nodes_per_rack: u32,
    /// 0 means unlimited.
    pub(crate) node_bytes_per_s: u64,
    /// 0 means unlimited.
    pub(crate) rack_bytes_per_s: u64,
    /// Options of the nodes' start. Clusters made before these options existed have none.
    #[serde(default)]
    pub(crate) merging: Merging,
    /// Storage engine of nodes; files for clusters made before there was a choice.
    #[serde(default)]
    pub(crate) engine: EngineName,
    /// Options of the coordinator's start.
    pub(crate) behaviour: Behaviour,
    /// The coordinator's address; nodes and clients depend on it, so it stays.
    pub(crate) coordinator: Option<String>,
}

/// The state of a started node's process.
#[derive(Clone, Debug)]
pub(crate) enum Started {
    /// It serves, as far as it knows.
    Serves,
    /// It waits for the operator before it joins.
    Waits(JoinProgress),
}

/// A cluster in a directory.
#[derive(Clone, Debug)]
pub(crate) struct LocalCluster {
    directory: PathBuf,
    pub(crate) shape: Shape,
}

impl LocalCluster {
    /// Opens a cluster that was made before.
    pub(crate) fn open(directory: &Path) -> Result<Self, Failure> {
        let path = directory.join("cluster.json");
        let text = fs::read_to_string(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Failure::usage(format!(
                "there is no cluster in {}; start one with 'gabion cluster up --dir {0}'",
                directory.display()
            )),
            _ => Failure::failed(format!("cannot read {}: {error}", path.display())),
        })?;
        let shape = serde_json::from_str(&text).context(format!(
            "understand {}; is it of another release?",
            path.display()
        ))?;
        Ok(Self {
            directory: directory.to_owned(),
            shape,
        })
    }

    /// Opens the cluster in the directory, or creates one.
    pub(crate) fn open_or_make(directory: &Path, options: &UpOptions) -> Result<Self, Failure> {
        if directory.join("cluster.json").exists() {
            let mut cluster = Self::open(directory)?;
            cluster.adopt(options)?;
            return Ok(cluster);
        }
        let shape = Shape {
            racks: options.racks,
            nodes_per_rack: options.nodes_per_rack,
            node_bytes_per_s: rate(options.inner.as_ref())?,
            rack_bytes_per_s: rate(options.cross.as_ref())?,
            merging: options.merging,
            engine: options.engine,
            behaviour: options.behaviour,
            coordinator: None,
        };
        let is_empty = fs::read_dir(directory).map_or(true, |mut entries| entries.next().is_none());
        if !is_empty {
            return Err(Failure::usage(format!(
                "{} is not empty and holds no cluster; name a new or empty directory",
                directory.display()
            )));
        }
        let cluster = Self {
            directory: directory.to_owned(),
            shape,
        };
        cluster.testbed()?;
        for part in ["coordinator", "nodes", "links", "made", "run", "logs"] {
            let path = directory.join(part);
            fs::create_dir_all(&path).context(format!("create {}", path.display()))?;
        }
        let spec = LinkSpec {
            node_bytes_per_s: cluster.shape.node_bytes_per_s,
            rack_bytes_per_s: cluster.shape.rack_bytes_per_s,
        };
        LinkTable::create(
            &directory.join("links"),
            spec,
            cluster.node_count(),
            options.racks,
        )
        .map_err(Failure::failed)?;
        cluster.save()?;
        Ok(cluster)
    }

    /// Applies the given options. Those of a cluster's shape cannot change, and those of the
    /// coordinator only while it does not run.
    fn adopt(&mut self, options: &UpOptions) -> Result<(), Failure> {
        let shape = &self.shape;
        let fixed = [
            ("racks", shape.racks.to_string(), options.racks.to_string()),
            (
                "nodes_per_rack",
                shape.nodes_per_rack.to_string(),
                options.nodes_per_rack.to_string(),
            ),
            (
                "inner",
                speed(shape.node_bytes_per_s),
                speed(rate(options.inner.as_ref())?),
            ),
            (
                "cross",
                speed(shape.rack_bytes_per_s),
                speed(rate(options.cross.as_ref())?),
            ),
            (
                "log_limit",
                bytes(shape.merging.log_limit),
                bytes(options.merging.log_limit),
            ),
            (
                "reserve_budget",
                bytes(shape.merging.reserve_budget),
                bytes(options.merging.reserve_budget),
            ),
            ("engine", name_of(shape.engine), name_of(options.engine)),
        ];
        self.refuse_other(options, fixed, "make another cluster in a new directory")?;
        let (had, wanted) = (shape.behaviour, options.behaviour);
        if self.running("coordinator").is_some() {
            let changeable = [
                (
                    "lease_ms",
                    had.lease_ms.to_string(),
                    wanted.lease_ms.to_string(),
                ),
                (
                    "grace_s",
                    had.grace_s.to_string(),
                    wanted.grace_s.to_string(),
                ),
                (
                    "repair_parallel",
                    had.repair_parallel.to_string(),
                    wanted.repair_parallel.to_string(),
                ),
            ];
            let remedy = "stop the cluster first with 'gabion cluster down'";
            return self.refuse_other(options, changeable, remedy);
        }
        let behaviour = &mut self.shape.behaviour;
        if options.is_given("lease_ms") {
            behaviour.lease_ms = wanted.lease_ms;
        }
        if options.is_given("grace_s") {
            behaviour.grace_s = wanted.grace_s;
        }
        if options.is_given("repair_parallel") {
            behaviour.repair_parallel = wanted.repair_parallel;
        }
        self.save()
    }

    /// Refuses a given option that differs from the cluster's.
    fn refuse_other(
        &self,
        options: &UpOptions,
        rows: impl IntoIterator<Item = (&'static str, String, String)>,
        remedy: &str,
    ) -> Result<(), Failure> {
        let other =
            |(name, has, wants): &(&str, String, String)| options.is_given(name) && has != wants;
        let Some((name, has, wants)) = rows.into_iter().find(other) else {
            return Ok(());
        };
        let (option, directory) = (name.replace('_', "-"), self.directory.display());
        Err(Failure::usage(format!(
            "the cluster in {directory} has --{option} {has}, not {wants}; omit the option, or {remedy}"
        )))
    }

    /// The coordinator's address.
    pub(crate) fn coordinator(&self) -> Result<&str, Failure> {
        let never = || {
            let directory = self.directory.display();
            Failure::usage(format!(
                "the cluster in {directory} was never started; run 'gabion cluster up --dir {directory}'"
            ))
        };
        self.shape.coordinator.as_deref().ok_or_else(never)
    }

    pub(crate) fn node_count(&self) -> u32 {
        self.shape.racks * self.shape.nodes_per_rack
    }

    /// Starts all processes that are not running; `progress` is called for each. After the first
    /// time, nodes start even if others cannot.
    pub(crate) async fn start(&mut self, mut progress: impl FnMut()) -> Result<(), Failure> {
        let was_made_before = self.shape.coordinator.is_some();
        if self.running("coordinator").is_none() {
            let address = self.start_coordinator().await?;
            self.shape.coordinator = Some(address);
            self.save()?;
        }
        progress();
        let nodes: Vec<u32> = (0..self.node_count()).collect();
        if was_made_before {
            let starts = nodes.iter().map(|&node| self.start_node(node));
            let started = futures::future::join_all(starts).await.into_iter();
            Failure::of_several(started.filter_map(Result::err).collect())?;
        } else {
            // Sequentially, so that the coordinator's ids are in the order of the racks.
            for &node in &nodes {
                self.start_node(node).await?;
                progress();
            }
        }
        Ok(())
    }

    /// Starts the coordinator and the first `node_count` nodes sequentially, so that their ids are
    /// those of their places.
    pub(crate) async fn start_first(&mut self, node_count: u32) -> Result<(), Failure> {
        if self.running("coordinator").is_none() {
            self.shape.coordinator = Some(self.start_coordinator().await?);
            self.save()?;
        }
        for node in 0..node_count {
            self.start_node(node).await?;
        }
        Ok(())
    }

    /// Processor time of all running processes, in seconds.
    pub(crate) fn processor_s(&self) -> f64 {
        let nodes = (0..self.node_count()).map(|node| format!("node-{node}"));
        let names = nodes.chain(["coordinator".to_owned()]);
        processor_time::of_processes(names.filter_map(|name| Some(self.running(&name)?.pid)))
    }

    async fn start_coordinator(&self) -> Result<String, Failure> {
        let behaviour = &self.shape.behaviour;
        let listen = match (&self.shape.coordinator, self.testbed()?) {
            (Some(address), _) => address.clone(),
            (None, Some(_)) => testbed::coordinator_listen(),
            (None, None) => free_address()?,
        };
        let arguments = [
            "coordinator".to_owned(),
            format!("--listen={listen}"),
            format!("--data={}", self.directory.join("coordinator").display()),
            format!("--lease-ms={}", behaviour.lease_ms),
            format!("--grace-s={}", behaviour.grace_s),
            format!("--repair-parallel={}", behaviour.repair_parallel),
        ];
        self.spawn_with_data("coordinator", testbed::COORDINATOR, arguments.to_vec())
            .await
    }

    /// Starts a process that keeps data. Only the first start of each may create it: lost data is
    /// reported, and not created again.
    async fn spawn_with_data(
        &self,
        name: &str,
        seat: &str,
        mut arguments: Vec<String>,
    ) -> Result<String, Failure> {
        let made = self.directory.join("made").join(name);
        if !made.exists() {
            arguments.push("--init".to_owned());
        }
        let ready = self.spawn(name, seat, &arguments).await?;
        fs::write(&made, "").context(format!("write {}", made.display()))?;
        Ok(ready)
    }

    /// The testbed of this process, if any; it must have a seat for each node.
    fn testbed(&self) -> Result<Option<testbed::Shape>, Failure> {
        let testbed = testbed::Shape::of_this_process()?;
        if let Some(testbed) = testbed {
            testbed.require(self.shape.racks, self.shape.nodes_per_rack)?;
        }
        Ok(testbed)
    }

    /// Starts a node unless it runs.
    pub(crate) async fn start_node(&self, node: u32) -> Result<Started, Failure> {
        self.check_node(node)?;
        let name = format!("node-{node}");
        if self.running(&name).is_some() {
            return Ok(Started::Serves);
        }
        let rack = node / self.shape.nodes_per_rack;
        let index = node % self.shape.nodes_per_rack;
        let mut arguments = vec![
            "node".to_owned(),
            format!("--rack={rack}"),
            format!("--join={}", self.coordinator()?),
            format!("--data={}", self.node_directory(node).display()),
            // Many nodes share this machine's disk.
            "--journal-segment=32MiB".to_owned(),
            format!("--log-limit={}", self.shape.merging.log_limit),
            format!("--reserve-budget={}", self.shape.merging.reserve_budget),
        ];
        if self.shape.node_bytes_per_s > 0 || self.shape.rack_bytes_per_s > 0 {
            arguments.push(format!(
                "--links={}",
                self.directory.join("links").display()
            ));
        }
        if self.testbed()?.is_some() {
            arguments.push(format!("--listen={}:0", testbed::node_address(rack, index)));
        }
        if self.shape.engine == EngineName::Tween {
            arguments.extend(self.array_arguments(node)?);
        }
        let seat = testbed::node_seat(rack, index);
        let coordinator = self.coordinator()?;
        tokio::select! {
            ready = self.spawn_with_data(&name, &seat, arguments) => ready.map(|_| Started::Serves),
            // The process continues by itself once the operator has agreed.
            join = until_it_waits(coordinator, NodeId(node)) => Ok(Started::Waits(join)),
        }
    }

    /// The arguments of a node on an array. For a new one, creates the files of its devices; they
    /// take space as they fill, since no trial fills those of all nodes.
    fn array_arguments(&self, node: u32) -> Result<Vec<String>, Failure> {
        let directory = self.node_directory(node).join("devices");
        let device = |index: u32| directory.join(index.to_string());
        let devices: Vec<PathBuf> = (0..TRIAL_DEVICES).map(device).collect();
        if !directory.exists() {
            let make = |path: &PathBuf| fs::File::create(path)?.set_len(TRIAL_DEVICE_BYTES);
            fs::create_dir_all(&directory)
                .and_then(|()| devices.iter().try_for_each(make))
                .context(format!("make devices in {}", directory.display()))?;
        }
        let names: Vec<String> = devices.iter().map(|p| p.display().to_string()).collect();
        Ok(vec![
            "--engine=tween".to_owned(),
            format!("--devices={}", names.join(",")),
            format!("--device-size={TRIAL_DEVICE_BYTES}"),
            "--stripe=1MiB".to_owned(),
        ])
    }

    /// The directory of a node.
    pub(crate) fn node_directory(&self, node: u32) -> PathBuf {
        self.directory.join("nodes").join(node.to_string())
    }

    /// Kills one node at once, like a power failure.
    pub(crate) async fn kill_node(&self, node: u32) -> Result<(), Failure> {
        self.check_node(node)?;
        self.kill(&format!("node-{node}"), &format!("node {node}"))
            .await
    }

    /// Kills the coordinator at once.
    pub(crate) async fn kill_coordinator(&self) -> Result<(), Failure> {
        self.kill("coordinator", "the coordinator").await
    }

    async fn kill(&self, name: &str, what: &str) -> Result<(), Failure> {
        let running = self
            .running(name)
            .ok_or_else(|| Failure::failed(format!("{what} is not running")))?;
        running.kill(what).await
    }

    /// Kills all processes at once and waits until they are gone. A killed process loses nothing
    /// that it has acknowledged, so there is no gentler way to stop.
    pub(crate) async fn stop(&self) -> Result<u32, Failure> {
        let mut stopped = 0;
        let nodes = (0..self.node_count()).map(|node| format!("node-{node}"));
        for name in nodes.chain(["coordinator".to_owned()]) {
            if let Some(running) = self.running(&name) {
                running.kill(&name).await?;
                stopped += 1;
            }
            let _ = fs::remove_file(self.run_file(&name));
        }
        Ok(stopped)
    }

    /// Starts a process of this program, in a testbed at its seat, and waits until it is ready. Its
    /// stderr goes to `logs/`.
    async fn spawn(&self, name: &str, seat: &str, arguments: &[String]) -> Result<String, Failure> {
        let program = std::env::current_exe().context("find this program's file")?;
        let log_path = self.log_path(name);
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log_path);
        let log = log.context(format!("open {}", log_path.display()))?;
        let mut command = match self.testbed()? {
            Some(_) => testbed::command_in(seat, program),
            None => std::process::Command::new(program),
        };
        // A group of its own, so that Ctrl-C in the terminal does not reach it.
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        command.process_group(0);
        let mut child = Command::from(command)
            .spawn()
            .context(format!("start {name}"))?;
        // Recorded before any wait, so that a concurrent stop finds the process.
        self.note_running(name, &child)?;
        let stdout = child.stdout.take().expect("stdout is piped");
        match wait_until_ready(stdout).await {
            Ok(address) => Ok(address),
            Err(NotReady::Late) => Err(Failure::failed(format!(
                "{name} is not ready after {} s ({}) and keeps trying; see {}",
                START_DEADLINE.as_secs(),
                last_line(&log_path).unwrap_or_default(),
                log_path.display()
            ))),
            Err(NotReady::Gone(why)) => {
                let _ = child.kill().await;
                let _ = fs::remove_file(self.run_file(name));
                let why = last_line(&log_path).unwrap_or_else(|| why.to_owned());
                let log_path = log_path.display();
                Err(Failure::failed(format!(
                    "{name} did not start ({why}); see {log_path}"
                )))
            }
        }
    }

    /// Path of a process's log, such as that of `coordinator` or `node-3`.
    pub(crate) fn log_path(&self, name: &str) -> PathBuf {
        self.directory.join("logs").join(format!("{name}.log"))
    }

    fn note_running(&self, name: &str, child: &Child) -> Result<(), Failure> {
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        // A process that has ended is not running; its log has the reason.
        let Some(running) = pid.and_then(Running::of) else {
            return Ok(());
        };
        let text = serde_json::to_string(&running).context("note the process")?;
        let path = self.run_file(name);
        fs::write(&path, text).context(format!("write {}", path.display()))
    }

    fn running(&self, name: &str) -> Option<Running> {
        let text = fs::read_to_string(self.run_file(name)).ok()?;
        let running: Running = serde_json::from_str(&text).ok()?;
        running.is_alive().then_some(running)
    }

    fn run_file(&self, name: &str) -> PathBuf {
        self.directory.join("run").join(name)
    }

    fn save(&self) -> Result<(), Failure> {
        let path = self.directory.join("cluster.json");
        let text = serde_json::to_string_pretty(&self.shape).context("write the shape")?;
        let temporary = self.directory.join("cluster.json.new");
        fs::write(&temporary, text + "\n")
            .and_then(|()| fs::rename(&temporary, &path))
            .context(format!("write {}", path.display()))
    }

    /// Refuses a node that the cluster does not have.
    pub(crate) fn check_node(&self, node: u32) -> Result<(), Failure> {
        let last = self.node_count() - 1;
        if node <= last {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "there is no node {node}; this cluster has nodes 0 to {last}"
        )))
    }
}

/// Locks the cluster in a directory against starting and stopping processes, until dropped.
///
/// # Errors
/// If another command holds the lock.
pub(crate) fn lock(directory: &Path) -> Result<fs::File, Failure> {
    let shown = directory.display();
    let file = fs::File::open(directory).context(format!("open {shown}"))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(Failure::failed(format!(
            "another command is starting or stopping the cluster in {shown}; retry when it has ended"
        ))),
        Err(error) => Err(error).context(format!("lock {shown}")),
    }
}

/// Bytes a second of an optional rate; 0 is unlimited.
fn rate(rate: Option<&String>) -> Result<u64, Failure> {
    rate.map_or(Ok(0), |text| parse_rate(text).map_err(Failure::usage))
}

/// The command line name of an engine.
fn name_of(engine: EngineName) -> String {
    format!("{engine:?}").to_lowercase()
}

/// The command line form of a rate.
fn speed(bytes_per_s: u64) -> String {
    match bytes_per_s {
        0 => "unlimited".to_owned(),
        some => format!("{}Mbit", some as f64 / 125_000.0),
    }
}

/// An address for a coordinator, which must get it again at every start. So its port is not one
/// that the system assigns to other processes.
fn free_address() -> Result<String, Failure> {
    let count = LASTING_PORTS.end - LASTING_PORTS.start;
    // Clusters that start at the same time try different ones first.
    let first = std::process::id() % u32::from(count);
    let ports = (0..u32::from(count))
        .map(|step| LASTING_PORTS.start + ((first + step * 7) % u32::from(count)) as u16);
    let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let port = ports.into_iter().find(is_free);
    let port = port.ok_or_else(|| Failure::failed("no port is free for a coordinator"))?;
    Ok(format!("127.0.0.1:{port}"))
}
