//! A cluster of processes in a temporary directory, run by the built command, and gone at the end.

use anyhow::{Context, ensure};
use gabion_testbed::LocalCluster;
use gabion_wire::trust::Security;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::process::Command;

/// Interval of looking at the coordinator's view while waiting for it.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time limit of a wait for the coordinator's view.
const WAIT_DEADLINE: Duration = Duration::from_mins(1);

/// A running cluster, stopped and deleted when this is dropped.
pub(crate) struct Trial {
    /// Holds the cluster and whatever is measured beside it, in one file system.
    directory: tempfile::TempDir,
    coordinator: String,
}

impl Trial {
    /// Starts a cluster; `further` are arguments of `gabion cluster up`.
    pub(crate) async fn start(further: &[&str]) -> anyhow::Result<Self> {
        let mut trial = Self {
            directory: tempfile::tempdir().context("make a temporary directory")?,
            coordinator: String::new(),
        };
        trial.up(further).await?;
        Ok(trial)
    }

    async fn up(&mut self, further: &[&str]) -> anyhow::Result<()> {
        let mut arguments = vec!["cluster", "up", "--lease-ms=1500", "--grace-s=3600"];
        arguments.extend(further);
        let up = self.json(&arguments).await?;
        text(&up, "coordinator")?.clone_into(&mut self.coordinator);
        Ok(())
    }

    /// Stops the cluster, changes the file of its metadata, and starts it again as it was started.
    pub(crate) async fn restart(
        &mut self,
        further: &[&str],
        change: impl FnOnce(&Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.run(&["cluster", "down"]).await?;
        change(&self.data().join("coordinator/metadata.redb"))?;
        self.up(further).await
    }

    /// Returns the coordinator's address.
    pub(crate) fn coordinator(&self) -> &str {
        &self.coordinator
    }

    /// Returns the clients' proof that they belong to the cluster.
    pub(crate) fn security(&self) -> anyhow::Result<Security> {
        Ok(LocalCluster::open(&self.data())?.security()?)
    }

    /// A path beside the cluster's directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn data(&self) -> PathBuf {
        self.path("cluster")
    }

    /// Runs the command on this cluster and gives what it prints as JSON.
    pub(crate) async fn json(&self, arguments: &[&str]) -> anyhow::Result<Value> {
        let printed = self.run(&[&["--format=json"], arguments].concat()).await?;
        serde_json::from_str(&printed).with_context(|| format!("understand {arguments:?}"))
    }

    /// Runs the command on this cluster and gives what it prints.
    pub(crate) async fn run(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let output = Command::from(self.command(arguments)).output();
        let output = output.await.context("start the command")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "gabion {arguments:?}: {stderr}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The command on this cluster, for a caller that runs it.
    pub(crate) fn command(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_gabion"));
        command.args(arguments).env("GABION_DIR", self.data());
        command.env_remove("GABION_COORDINATOR");
        command
    }

    /// The ids of the processes of a cluster of which none was killed.
    ///
    /// `gabion cluster up` notes each process it starts in a file of its directory.
    pub(crate) fn processes(&self) -> anyhow::Result<Vec<u64>> {
        let mut processes = Vec::new();
        for entry in std::fs::read_dir(self.data().join("run")).context("list the processes")? {
            let entry = entry.context("list the processes")?;
            let noted = std::fs::read_to_string(entry.path()).context("read a process's file")?;
            let noted: Value = serde_json::from_str(&noted).context("understand it")?;
            processes.push(number(&noted, "pid")?);
        }
        Ok(processes)
    }

    /// Waits until the coordinator counts exactly these nodes as failed.
    pub(crate) async fn wait_until_failed(&self, expected: &[u64]) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            let status = self.json(&["cluster", "status"]).await?;
            let nodes = status["nodes"].as_array().context("nodes")?;
            let failed = nodes.iter().filter(|node| node["state"] == "failed");
            let failed: Vec<u64> = failed.filter_map(|node| node["node"].as_u64()).collect();
            if failed == expected {
                return Ok(());
            }
            ensure!(
                begun.elapsed() < WAIT_DEADLINE,
                "{failed:?} are failed, not {expected:?}"
            );
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        let down = std::process::Command::new(env!("CARGO_BIN_EXE_gabion"))
            .args(["cluster", "down", "--dir"])
            .arg(self.data())
            .output();
        match down {
            Ok(output) if output.status.success() => {}
            Ok(output) => eprintln!("{}", String::from_utf8_lossy(&output.stderr).trim_end()),
            Err(error) => eprintln!("cannot stop the cluster: {error}"),
        }
    }
}

/// A number in what the command printed.
pub(crate) fn number(value: &Value, name: &str) -> anyhow::Result<u64> {
    value[name]
        .as_u64()
        .with_context(|| format!("{name} is no number in {value}"))
}

/// A text in what the command printed.
fn text<'a>(value: &'a Value, name: &str) -> anyhow::Result<&'a str> {
    value[name]
        .as_str()
        .with_context(|| format!("{name} is no text in {value}"))
}

/// A path as an argument.
pub(crate) fn argument(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("the temporary directory's name")
}
