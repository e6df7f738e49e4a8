//! The files in `run/`, one a live process: its identity, and where it serves its metrics or its page.

use super::LocalCluster;
use super::process::Running;
use crate::error::{Context, TestbedError};
use std::fs;
use std::path::PathBuf;
use tokio::process::Child;

impl LocalCluster {
    pub(super) fn note_running(&self, name: &str, child: &Child) -> Result<(), TestbedError> {
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        // A process that has ended is not running; its log has the reason.
        let Some(running) = pid.and_then(Running::of) else {
            return Ok(());
        };
        self.write_run_file(name, &running)
    }

    /// Notes where a process that is ready serves its metrics.
    pub(super) fn note_metrics(
        &self,
        name: &str,
        metrics: Option<String>,
    ) -> Result<(), TestbedError> {
        let Some(mut running) = self.running(name) else {
            return Ok(());
        };
        running.metrics = metrics;
        self.write_run_file(name, &running)
    }

    /// Notes where a process that is ready serves its page.
    pub(super) fn note_url(&self, name: &str, url: &str) -> Result<(), TestbedError> {
        let Some(mut running) = self.running(name) else {
            return Ok(());
        };
        running.url = Some(url.to_owned());
        self.write_run_file(name, &running)
    }

    /// Returns the last address of the page of a process, which may have ended.
    pub(super) fn last_url(&self, name: &str) -> Option<String> {
        self.noted(name)?.url
    }

    /// Returns the address of the metrics of a running process, such as `coordinator` or `node-3`.
    #[must_use]
    pub fn metrics_url(&self, name: &str) -> Option<String> {
        self.running(name)?.metrics
    }

    fn write_run_file(&self, name: &str, running: &Running) -> Result<(), TestbedError> {
        let text = serde_json::to_string(running).context("note the process")?;
        let path = self.run_file(name);
        fs::write(&path, text).context(format!("write {}", path.display()))
    }

    /// The running process of this name. Waits for the end of one that was killed just now: its port and its files
    /// are its own until then.
    pub(super) async fn staying(&self, name: &str) -> Result<Option<Running>, TestbedError> {
        let Some(running) = self.running(name) else {
            return Ok(None);
        };
        if running.is_ending() {
            running.ended(name).await?;
        }
        Ok(self.running(name))
    }

    pub(super) fn running(&self, name: &str) -> Option<Running> {
        self.noted(name).filter(Running::is_alive)
    }

    /// A process that may have ended.
    fn noted(&self, name: &str) -> Option<Running> {
        let text = fs::read_to_string(self.run_file(name)).ok()?;
        serde_json::from_str(&text).ok()
    }

    pub(super) fn run_file(&self, name: &str) -> PathBuf {
        self.directory.join("run").join(name)
    }
}
