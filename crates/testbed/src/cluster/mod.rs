//! A cluster of processes on this machine: its members, and starting and stopping them.
//!
//! The directory holds `cluster.json` (the shape, fixed when the cluster is made), `coordinator/` (with the
//! cluster's certificate authority in `ca/` and the credentials of clients in `operator/`), `nodes/N/`, `links/`,
//! `made/` with an empty file for each process that has data of its own, and `run/` with one file a live process
//! (`run_files`). A process reports on its stdout when it is ready; a start waits only for that line.

mod address;
mod console;
mod coordinators;
pub mod mount;
mod process;
mod readiness;
mod run_files;
mod shape;

use self::address::{NODE_PORTS, free_addresses, is_free};
use self::console::CONSOLE;
pub use self::console::OpenConsole;
use self::coordinators::{COORDINATOR, coordinator_names};
pub use self::process::process_has_ended;
use self::process::{Running, holds_anything};
pub use self::readiness::{LISTENING, READY, STANDBY, Started};
use self::readiness::{
    NotReady, Ready, START_DEADLINE, last_line, record_of, state_of, until_it_waits,
    wait_until_ready,
};
use self::shape::Shape;
pub use self::shape::{Behaviour, ClusterOptions, Engine, Merging};
use crate::error::{Context, TestbedError};
use crate::namespaces::{self, Seats};
use crate::processor_time;
use gabion_layout::NodeId;
use gabion_protocol::message::Departure;
use gabion_wire::trust::{Authority, Name, Security};
use gabion_wire::{LinkSpec, LinkTable, Role};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::Command;

/// Devices of a node's array, and bytes of each.
const TRIAL_DEVICES: u32 = 4;
const TRIAL_DEVICE_BYTES: u64 = 1 << 30;

/// A cluster in a directory.
#[derive(Clone, Debug)]
pub struct LocalCluster {
    directory: PathBuf,
    shape: Shape,
}

impl LocalCluster {
    /// Opens a cluster that was made before.
    ///
    /// # Errors
    /// [`TestbedError::NoCluster`] if there is none, [`TestbedError::Cannot`] if its shape cannot be read.
    pub fn open(directory: &Path) -> Result<Self, TestbedError> {
        let path = directory.join("cluster.json");
        let text = fs::read_to_string(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => TestbedError::NoCluster(directory.to_owned()),
            _ => TestbedError::Cannot {
                operation: format!("read {}", path.display()),
                source: error,
            },
        })?;
        let shape = serde_json::from_str(&text).context(format!(
            "read {}; check whether another release wrote it",
            path.display()
        ))?;
        Ok(Self {
            directory: directory.to_owned(),
            shape,
        })
    }

    /// Opens the cluster in the directory, or creates one.
    ///
    /// # Errors
    /// [`TestbedError::OtherOption`] if a given option differs from the cluster's, and cannot change now;
    /// [`TestbedError::NotEmpty`] if the directory holds something else; [`TestbedError::NotText`] if its path is not
    /// UTF-8; and all errors of its files.
    pub fn open_or_make(directory: &Path, options: &ClusterOptions) -> Result<Self, TestbedError> {
        if directory.to_str().is_none() {
            return Err(TestbedError::NotText(directory.to_owned()));
        }
        if directory.join("cluster.json").exists() {
            let mut cluster = Self::open(directory)?;
            let is_running = cluster.coordinator_runs();
            cluster
                .shape
                .options
                .adopt(options, directory, is_running)?;
            cluster.save()?;
            return Ok(cluster);
        }
        let is_empty = fs::read_dir(directory).map_or(true, |mut entries| entries.next().is_none());
        if !is_empty {
            return Err(TestbedError::NotEmpty(directory.to_owned()));
        }
        let cluster = Self {
            directory: directory.to_owned(),
            shape: Shape {
                options: options.clone(),
                coordinator: None,
            },
        };
        cluster.testbed()?;
        for part in ["coordinator", "nodes", "links", "made", "run", "logs"] {
            let path = directory.join(part);
            fs::create_dir_all(&path).context(format!("create {}", path.display()))?;
        }
        let spec = LinkSpec {
            node_bytes_per_s: cluster.shape.options.node_bytes_per_s,
            rack_bytes_per_s: cluster.shape.options.rack_bytes_per_s,
        };
        LinkTable::create(
            &directory.join("links"),
            spec,
            cluster.node_count(),
            options.racks,
        )?;
        cluster.save()?;
        Ok(cluster)
    }

    /// Returns the options with which it was made.
    #[must_use]
    pub fn options(&self) -> &ClusterOptions {
        &self.shape.options
    }

    /// The coordinator's address, or those of all coordinators, separated by commas.
    ///
    /// # Errors
    /// [`TestbedError::NeverStarted`] if it has none yet.
    pub fn coordinator(&self) -> Result<&str, TestbedError> {
        let never = || TestbedError::NeverStarted(self.directory.clone());
        self.shape.coordinator.as_deref().ok_or_else(never)
    }

    /// Returns the clients' proof of identity on this machine. Their certificate is made anew in time.
    ///
    /// # Errors
    /// If the certificates cannot be read or written.
    pub fn security(&self) -> Result<Security, TestbedError> {
        self.security_as(Role::Operator)
    }

    /// The same in another role than that of a person who runs the cluster.
    ///
    /// # Errors
    /// Those of [`LocalCluster::security`].
    pub fn security_as(&self, role: Role) -> Result<Security, TestbedError> {
        if self.shape.options.insecure {
            return Ok(Security::insecure());
        }
        let directory = match role {
            Role::Operator => self.directory.join("coordinator/operator"),
            role => self.directory.join(format!("tls/{role:?}").to_lowercase()),
        };
        if Authority::is_in(&self.authority_directory()) {
            let authority = Authority::open(&self.authority_directory())?;
            authority.refresh(&directory, Name::of(authority.cluster(), role))?;
        }
        Ok(Security::open(&directory)?)
    }

    /// Directory of the cluster's certificate authority; a cluster that is insecure has none.
    #[must_use]
    pub fn authority_directory(&self) -> PathBuf {
        self.directory.join("coordinator/ca")
    }

    /// Gives a node a certificate, or renews it. Returns the argument that names it.
    fn certify_node(&self, node: u32) -> Result<String, TestbedError> {
        if self.shape.options.insecure {
            return Ok("--insecure".to_owned());
        }
        let directory = self.node_directory(node).join("tls");
        let authority = Authority::open(&self.authority_directory())?;
        let name = Name::of_node(authority.cluster(), Some(NodeId(node)));
        authority.refresh(&directory, name)?;
        Ok(format!("--tls={}", directory.display()))
    }

    /// Nodes of all racks.
    #[must_use]
    pub fn node_count(&self) -> u32 {
        self.shape.options.racks * self.shape.options.nodes_per_rack
    }

    /// The names of the nodes' processes.
    fn node_names(&self) -> impl Iterator<Item = String> {
        (0..self.node_count()).map(|node| format!("node-{node}"))
    }

    /// Starts all processes that are not running; `progress` is called for each. Nodes that have
    /// been members start even if others cannot.
    ///
    /// # Errors
    /// If a process does not start; [`TestbedError::Several`] for several nodes.
    pub async fn start(&mut self, mut progress: impl FnMut()) -> Result<(), TestbedError> {
        self.end_unmade().await?;
        self.start_coordinators().await?;
        progress();
        let was_made = |node: &u32| self.was_made(&format!("node-{node}"));
        let (made, new): (Vec<u32>, Vec<u32>) = (0..self.node_count()).partition(was_made);
        let starts = made.iter().map(|&node| self.start_node(node));
        let started = futures::future::join_all(starts).await.into_iter();
        let failed: Vec<TestbedError> = started.filter_map(Result::err).collect();
        if !failed.is_empty() {
            return Err(TestbedError::Several(failed));
        }
        // Sequentially, so that the coordinator's ids are in the order of the racks.
        for node in new {
            self.start_node(node).await?;
            progress();
        }
        Ok(())
    }

    /// Ends processes whose first start was interrupted: the next start waits for each, so that ids are in
    /// the order of the racks and each is known to have made its data.
    async fn end_unmade(&self) -> Result<(), TestbedError> {
        let nodes = (0..self.node_count()).map(|node| self.node_directory(node));
        let directories = nodes.chain([self.directory.join(COORDINATOR)]);
        let names = self.node_names().chain([COORDINATOR.to_owned()]);
        for (name, data) in names.zip(directories) {
            if self.was_made(&name) {
                continue;
            }
            let noted = self.staying(&name).await?;
            for left in noted.into_iter().chain(Running::of_data(&data)) {
                left.kill(&name).await?;
            }
        }
        Ok(())
    }

    /// Starts the coordinator and the first `node_count` nodes sequentially, so that their ids are
    /// those of their places.
    ///
    /// # Errors
    /// If a process does not start.
    pub async fn start_first(&mut self, node_count: u32) -> Result<(), TestbedError> {
        self.start_coordinators().await?;
        for node in 0..node_count {
            self.start_node(node).await?;
        }
        Ok(())
    }

    /// Its directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Processor time of all running processes, in seconds.
    #[must_use]
    pub fn processor_s(&self) -> f64 {
        self.coordinator_processor_s() + self.nodes_processor_s()
    }

    /// Processor time of all running nodes, in seconds.
    #[must_use]
    pub fn nodes_processor_s(&self) -> f64 {
        let names = self.node_names();
        processor_time::of_processes(names.filter_map(|name| Some(self.running(&name)?.pid)))
    }

    /// The argument by which a process serves its metrics. In a testbed no other process could reach them.
    fn metrics_argument(&self) -> Result<Option<String>, TestbedError> {
        let is_alone = self.testbed()?.is_some();
        Ok((!is_alone).then(|| "--metrics=127.0.0.1:0".to_owned()))
    }

    /// Starts a process that keeps data, at this path. Only the first start of each may create it: lost data
    /// is reported, and not created again.
    async fn spawn_with_data(
        &self,
        name: &str,
        seat: &str,
        data: &Path,
        mut arguments: Vec<String>,
    ) -> Result<String, TestbedError> {
        let made = self.made_file(name);
        if !self.was_made(name) {
            arguments.push("--init".to_owned());
        } else if !holds_anything(data) {
            return Err(TestbedError::DataGone {
                name: name.to_owned(),
                path: data.to_owned(),
                advice: match name {
                    COORDINATOR => "mount its disk, or run 'gabion metadata restore'".to_owned(),
                    _ => format!(
                        "mount its disk, or delete {} and restart the node if its chunks are lost for good",
                        made.display()
                    ),
                },
            });
        }
        let ready = self.spawn(name, seat, &arguments).await?;
        fs::write(&made, "").context(format!("write {}", made.display()))?;
        Ok(ready)
    }

    /// The file that shows that a process has made its data.
    fn made_file(&self, name: &str) -> PathBuf {
        self.directory.join("made").join(name)
    }

    fn was_made(&self, name: &str) -> bool {
        self.made_file(name).exists()
    }

    /// The testbed of this process, if any; it must have a seat for each node.
    fn testbed(&self) -> Result<Option<Seats>, TestbedError> {
        let testbed = Seats::of_this_process()?;
        if let Some(testbed) = testbed {
            testbed.require(self.shape.options.racks, self.shape.options.nodes_per_rack)?;
        }
        Ok(testbed)
    }

    /// Starts a node unless it runs. For a process that runs, the coordinator is asked how far it is; if that does
    /// not answer, the node serves as far as it knows.
    ///
    /// # Errors
    /// [`TestbedError::NoNode`], or why the process does not start.
    pub async fn start_node(&self, node: u32) -> Result<Started, TestbedError> {
        self.check_node(node)?;
        let name = format!("node-{node}");
        if self.staying(&name).await?.is_some() {
            let known = state_of((self.coordinator()?, self.security()?), NodeId(node)).await;
            return Ok(known.unwrap_or(Started::Serves));
        }
        let mut last_address = None;
        if self.was_made(&name) {
            let known = record_of((self.coordinator()?, self.security()?), NodeId(node)).await;
            // It would leave again at once.
            if known
                .as_ref()
                .is_some_and(|known| known.departure == Departure::Drained)
            {
                return Ok(Started::HasLeft);
            }
            last_address = known.map(|known| known.address);
        }
        let rack = node / self.shape.options.nodes_per_rack;
        let index = node % self.shape.options.nodes_per_rack;
        let mut arguments = vec![
            "node".to_owned(),
            format!("--rack={rack}"),
            format!("--join={}", self.coordinator()?),
            format!("--data={}", self.node_directory(node).display()),
            // Many nodes share this machine's disk.
            "--journal-segment=32MiB".to_owned(),
            format!("--log-limit={}", self.shape.options.merging.log_limit),
            format!(
                "--reserve-budget={}",
                self.shape.options.merging.reserve_budget
            ),
        ];
        if self.shape.options.node_bytes_per_s > 0 || self.shape.options.rack_bytes_per_s > 0 {
            arguments.push(format!(
                "--links={}",
                self.directory.join("links").display()
            ));
        }
        arguments.extend(self.metrics_argument()?);
        if self.shape.options.engine == Engine::Tween {
            arguments.extend(self.array_arguments(node)?);
        }
        let seat = namespaces::node_seat(rack, index);
        let data = self
            .node_directory(node)
            .join(match self.shape.options.engine {
                Engine::Files => "store",
                Engine::Tween => "nvram",
            });
        // Nothing is written where a disk is missing; the start fails for that.
        if !self.was_made(&name) || holds_anything(&data) {
            arguments.push(self.certify_node(node)?);
        }
        let address = self.listen_address((&name, rack, index), last_address)?;
        let start = self.spawn_at(address, (&name, &seat, &data), arguments);
        let coordinator = (self.coordinator()?, self.security()?);
        tokio::select! {
            ready = start => ready.map(|_| Started::Serves),
            // The process continues by itself once the operator has agreed.
            join = until_it_waits(coordinator, NodeId(node)) => Ok(Started::Waits(join)),
        }
    }

    /// Starts the process of a node, which listens at this address if there is one and no other process takes its port.
    async fn spawn_at(
        &self,
        address: Option<String>,
        (name, seat, data): (&str, &str, &Path),
        arguments: Vec<String>,
    ) -> Result<String, TestbedError> {
        let listen = address.iter().map(|address| format!("--listen={address}"));
        let all = [arguments.clone(), listen.collect()].concat();
        let started = self.spawn_with_data(name, seat, data, all).await;
        // The node has ended. Another process may have taken the port since it was found free.
        if matches!(started, Err(TestbedError::Gone { .. }))
            && self.testbed()?.is_none()
            && address.is_some_and(|address| !is_free(&address))
        {
            return self.spawn_with_data(name, seat, data, arguments).await;
        }
        started
    }

    /// The address at which a node listens: the one that it had before, if that is free. At another address it may not
    /// join before its last lease has ended.
    fn listen_address(
        &self,
        (name, rack, index): (&str, u32, u32),
        last_address: Option<String>,
    ) -> Result<Option<String>, TestbedError> {
        if self.testbed()?.is_some() {
            return Ok(Some(namespaces::node_listen(rack, index)));
        }
        if !self.was_made(name) {
            return Ok(free_addresses(&NODE_PORTS, 1)?.pop());
        }
        Ok(last_address.filter(|address| is_free(address)))
    }

    /// The arguments of a node on an array. For a new one, creates the files of its devices; they
    /// take space as they fill, since no trial fills those of all nodes.
    fn array_arguments(&self, node: u32) -> Result<Vec<String>, TestbedError> {
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
    #[must_use]
    pub fn node_directory(&self, node: u32) -> PathBuf {
        self.directory.join("nodes").join(node.to_string())
    }

    /// Kills one node at once, like a power failure.
    ///
    /// # Errors
    /// [`TestbedError::NoNode`], [`TestbedError::NotRunning`], or why it does not end.
    pub async fn kill_node(&self, node: u32) -> Result<(), TestbedError> {
        self.check_node(node)?;
        self.kill(&format!("node-{node}"), &format!("node {node}"))
            .await
    }

    async fn kill(&self, name: &str, what: &str) -> Result<(), TestbedError> {
        let running = self
            .running(name)
            .ok_or_else(|| TestbedError::NotRunning(what.to_owned()))?;
        running.kill(what).await
    }

    /// Kills all processes at once and waits until they are gone. A killed process loses nothing
    /// that it has acknowledged, so there is no gentler way to stop. Returns how many there were.
    ///
    /// # Errors
    /// If a process does not end.
    pub async fn stop(&self) -> Result<u32, TestbedError> {
        let mut stopped = 0;
        let nodes = self.node_names();
        let coordinators = coordinator_names(self.shape.options.coordinators);
        for name in nodes.chain(coordinators).chain([CONSOLE.to_owned()]) {
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
    async fn spawn(
        &self,
        name: &str,
        seat: &str,
        arguments: &[String],
    ) -> Result<String, TestbedError> {
        let program = std::env::current_exe().context("find this program's file")?;
        let log_path = self.log_path(name);
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log_path);
        let log = log.context(format!("open {}", log_path.display()))?;
        let mut command = match self.testbed()? {
            Some(_) => namespaces::command_in(seat, program),
            None => std::process::Command::new(program),
        };
        // A group of its own, so that Ctrl-C in the terminal does not reach it.
        command
            .args(arguments)
            // Its certificate and its cluster are arguments. The user's variables may name another cluster.
            .env_remove("GABION_TLS")
            .env_remove("GABION_COORDINATOR")
            .env_remove("GABION_DIR")
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
            Ok(Ready { at, metrics }) => {
                self.note_metrics(name, metrics)?;
                Ok(at)
            }
            Err(NotReady::Late) => Err(TestbedError::Late {
                name: name.to_owned(),
                after_s: START_DEADLINE.as_secs(),
                said: last_line(&log_path).unwrap_or_default(),
                log: log_path,
            }),
            Err(NotReady::Gone(why)) => {
                let _ = child.kill().await;
                let _ = fs::remove_file(self.run_file(name));
                Err(TestbedError::Gone {
                    name: name.to_owned(),
                    why: last_line(&log_path).unwrap_or_else(|| why.to_owned()),
                    log: log_path,
                })
            }
        }
    }

    /// Path of a process's log, such as that of `coordinator` or `node-3`.
    #[must_use]
    pub fn log_path(&self, name: &str) -> PathBuf {
        self.directory.join("logs").join(format!("{name}.log"))
    }

    fn save(&self) -> Result<(), TestbedError> {
        let path = self.directory.join("cluster.json");
        let text = serde_json::to_string_pretty(&self.shape).context("write the shape")?;
        let temporary = self.directory.join("cluster.json.new");
        fs::write(&temporary, text + "\n")
            .and_then(|()| fs::rename(&temporary, &path))
            .context(format!("write {}", path.display()))
    }

    /// Refuses a node that the cluster does not have.
    ///
    /// # Errors
    /// [`TestbedError::NoNode`].
    pub fn check_node(&self, node: u32) -> Result<(), TestbedError> {
        let last = self.node_count() - 1;
        if node <= last {
            return Ok(());
        }
        Err(TestbedError::NoNode { node, last })
    }
}

/// Locks the cluster in a directory against starting and stopping processes, until dropped.
///
/// # Errors
/// [`TestbedError::Locked`] if another command holds the lock.
pub fn lock(directory: &Path) -> Result<fs::File, TestbedError> {
    let shown = directory.display();
    let file = fs::File::open(directory).context(format!("open {shown}"))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(TestbedError::Locked(directory.to_owned())),
        Err(error) => Err(error).context(format!("lock {shown}")),
    }
}
