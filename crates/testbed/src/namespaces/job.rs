//! A job of this program inside a testbed: the outer half passes it in a file, the inner half prints what it
//! measured as JSON.

use super::command::Testbed;
use crate::error::{Context, TestbedError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use tokio::process::Command;

impl Testbed {
    /// Makes the testbed, runs `gabion lab HALF FILE` of this program in it, where the file has the job, and
    /// returns what that prints. The directory is empty, except for the job's own files.
    ///
    /// # Errors
    /// [`TestbedError::Inner`] with the reason that the inner half gives, or whatever keeps it from
    /// running.
    pub async fn run_job<J: Serialize, M: DeserializeOwned>(
        &self,
        half: &str,
        job: &J,
        directory: &Path,
    ) -> Result<M, TestbedError> {
        let path = directory.join("job.json");
        let text = serde_json::to_vec(job).context("write the job as JSON")?;
        fs::write(&path, text).context(format!("write {}", path.display()))?;
        let program = std::env::current_exe().context("find this program's file")?;
        let mut command = Command::new(&program);
        command.args(["lab", "testbed"]).args(self.arguments());
        command.arg("--").arg(&program).args(["lab", half]);
        command.arg(&path);
        // If this future is dropped, the testbed's process is killed, and everything inside with it.
        command.stdin(Stdio::null()).kill_on_drop(true);
        let output = command.output().await.context("start the testbed")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            // The innermost process reports first.
            let why = said.lines().find(|line| line.starts_with("gabion: "));
            return Err(TestbedError::Inner(why.unwrap_or(said.trim()).to_owned()));
        }
        serde_json::from_slice(&output.stdout).context("read the measurements")
    }
}

/// Reads the job of the inner half.
///
/// # Errors
/// [`TestbedError::Cannot`] if the file cannot be read, or has no such job.
pub fn read_job<J: DeserializeOwned>(file: &Path) -> Result<J, TestbedError> {
    let text = fs::read(file).context(format!("read {}", file.display()))?;
    serde_json::from_slice(&text).context("understand the job")
}

/// Mounts a directory in memory, for the processes of this testbed only: it has a mount namespace
/// of its own, and the contents end with it.
///
/// # Errors
/// [`TestbedError::NoMemory`] if it cannot be mounted.
pub async fn put_in_memory(directory: &Path) -> Result<(), TestbedError> {
    let mut command = Command::new("mount");
    command.args(["-t", "tmpfs", "testbed"]).arg(directory);
    let status = command.status().await.context("start 'mount'")?;
    if status.success() {
        return Ok(());
    }
    Err(TestbedError::NoMemory)
}
