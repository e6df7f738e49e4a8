//! A mount of a local cluster: a process of this program that serves a directory of this machine.

use super::process::Running;
use super::{LocalCluster, namespaces};
use crate::error::{Context, TestbedError};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// The name of the mount's process.
const MOUNT: &str = "mount";
/// Time limit of an unmount: the kernel writes what waits first.
const UNMOUNT_LIMIT: Duration = Duration::from_mins(1);
/// Time limit of a killed process to end.
const KILL_LIMIT: Duration = Duration::from_secs(2);
/// Interval of checking whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The kernel's number of the capability to mount.
const CAP_SYS_ADMIN: u32 = 21;

/// A mounted directory. Dropped, it is unmounted at once and its process is killed.
pub struct ClusterMount<'a> {
    cluster: &'a LocalCluster,
    directory: PathBuf,
}

impl LocalCluster {
    /// Why this process cannot mount the cluster, in a sentence; none if it can.
    ///
    /// # Errors
    /// If the cluster's own files cannot be read.
    pub fn lack_of_mounts(&self) -> Result<Option<String>, TestbedError> {
        if self.testbed()?.is_some() {
            return Ok(Some(
                "processes in a testbed see their own mounts only".to_owned(),
            ));
        }
        if !may_mount() {
            return Ok(Some("a mount needs root".to_owned()));
        }
        let fuse = fs::File::options().read(true).write(true).open("/dev/fuse");
        Ok(fuse
            .err()
            .map(|error| format!("a mount needs /dev/fuse, which cannot be opened: {error}")))
    }

    /// Mounts a pool on the directory `mount` of the cluster's own directory. It needs root.
    ///
    /// # Errors
    /// If the directory cannot be made, or the process does not start.
    pub async fn mount(&self, pool: &str) -> Result<ClusterMount<'_>, TestbedError> {
        let directory = self.directory().join(MOUNT);
        fs::create_dir_all(&directory).context(format!("create {}", directory.display()))?;
        let mount = ClusterMount {
            cluster: self,
            directory,
        };
        let arguments = [
            MOUNT.to_owned(),
            pool.to_owned(),
            mount.directory.display().to_string(),
            "--foreground".to_owned(),
            format!("--dir={}", self.directory().display()),
        ];
        self.spawn(MOUNT, namespaces::COORDINATOR, &arguments)
            .await?;
        Ok(mount)
    }
}

/// Whether this process has the capability to mount: root in a container may lack it.
fn may_mount() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let mask = lines.find_map(|line| line.strip_prefix("CapEff:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> CAP_SYS_ADMIN & 1 == 1)
}

impl ClusterMount<'_> {
    /// The mounted directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Unmounts, and waits until the process has ended.
    ///
    /// # Errors
    /// If a process uses the mount, or the unmount does not end.
    pub async fn end(self) -> Result<(), TestbedError> {
        let directory = self.directory.clone();
        let unmounting =
            tokio::task::spawn_blocking(move || unmount(&directory, UnmountFlags::NOFOLLOW));
        let unmounted = match timeout(UNMOUNT_LIMIT, unmounting).await {
            Ok(unmounted) => unmounted.map_err(io::Error::other),
            Err(late) => Err(late.into()),
        };
        unmounted
            .and_then(|unmounted| Ok(unmounted?))
            .context(format!("unmount {}", self.directory.display()))?;
        match self.cluster.running(MOUNT) {
            Some(process) => process.ended("the mount's process").await,
            None => Ok(()),
        }
    }
}

impl Drop for ClusterMount<'_> {
    fn drop(&mut self) {
        let process = self.cluster.running(MOUNT);
        if let Some(process) = &process
            && let Some(pid) = Pid::from_raw(process.pid)
        {
            let _ = kill_process(pid, Signal::KILL);
        }
        // A process that is mounting at this moment ends behind that.
        let begun = Instant::now();
        while process.as_ref().is_some_and(Running::is_alive) && begun.elapsed() < KILL_LIMIT {
            std::thread::sleep(LOOK_EVERY);
        }
        let _ = unmount(
            &self.directory,
            UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
        );
    }
}
