//! One process of a cluster on this machine: its identity, and its end.

use crate::error::{Context, TestbedError};
use crate::processor_time;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// Interval of checking whether a killed process has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Time limit for a process to end after SIGKILL: one that waits for a disk ends when that answers.
const END_DEADLINE: Duration = Duration::from_secs(30);

/// A live process, as recorded in its file in `run/`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Running {
    pub(super) pid: i32,
    /// When the kernel started it, in clock ticks since boot: pids are reused.
    started_ticks: u64,
    /// The address of its metrics, once it is ready.
    #[serde(default)]
    pub(super) metrics: Option<String>,
    /// The address of its page, once it is ready.
    #[serde(default)]
    pub(super) url: Option<String>,
}

impl Running {
    /// The process with this pid now; none if it is gone.
    pub(super) fn of(pid: i32) -> Option<Self> {
        let started_ticks = started_ticks(pid)?;
        Some(Self {
            pid,
            started_ticks,
            metrics: None,
            url: None,
        })
    }

    /// The processes whose `--data` is this directory. A start that was killed may not have noted the process that it
    /// had just started.
    pub(super) fn of_data(directory: &Path) -> Vec<Self> {
        let Some(directory) = without_links(directory) else {
            return Vec::new();
        };
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let of_it = pids.filter(|pid| data_of(*pid).is_some_and(|data| data == directory));
        of_it.filter_map(Self::of).collect()
    }

    /// Whether the same process still exists and is not a zombie.
    pub(super) fn is_alive(&self) -> bool {
        started_ticks(self.pid) == Some(self.started_ticks)
    }

    /// Kills the process at once and returns when it is gone, so that its successor finds neither
    /// it nor its port.
    ///
    /// # Errors
    /// If it cannot be killed, or has not ended in 30 s.
    pub(super) async fn kill(&self, what: &str) -> Result<(), TestbedError> {
        match Pid::from_raw(self.pid).map(|pid| kill_process(pid, Signal::KILL)) {
            // It has ended by itself.
            None | Some(Err(Errno::SRCH)) => return Ok(()),
            Some(killed) => killed.context(format!("kill {what}"))?,
        }
        self.ended(what).await
    }

    /// Whether it has been killed, and still exists: the kernel frees its memory before it is gone.
    pub(super) fn is_ending(&self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid));
        self.is_alive() && status.is_ok_and(|status| shows_end(&status))
    }

    /// Waits until it is gone.
    ///
    /// # Errors
    /// If it has not ended in 30 s.
    pub(super) async fn ended(&self, what: &str) -> Result<(), TestbedError> {
        let deadline = Instant::now() + END_DEADLINE;
        while self.is_alive() {
            if Instant::now() >= deadline {
                return Err(TestbedError::Lingers {
                    what: what.to_owned(),
                    after_s: END_DEADLINE.as_secs(),
                });
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }
}

/// The directory that a process has been given by `--data`; none if there is no such process or no directory around it.
fn data_of(pid: i32) -> Option<PathBuf> {
    let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut words = words.split(|byte| *byte == 0);
    let data = words.find_map(|word| word.strip_prefix(b"--data="))?;
    let work_directory = PathBuf::from(format!("/proc/{pid}/cwd"));
    without_links(&work_directory.join(OsStr::from_bytes(data)))
}

/// A path without symbolic links, also if its last part does not exist yet.
fn without_links(path: &Path) -> Option<PathBuf> {
    if let Ok(path) = fs::canonicalize(path) {
        return Some(path);
    }
    let parent = fs::canonicalize(path.parent()?).ok()?;
    Some(parent.join(path.file_name()?))
}

/// Whether a process's status file has SIGKILL pending, or its first thread as a zombie.
fn shows_end(status: &str) -> bool {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()
    };
    let has_kill = |name| {
        let pending = field(name).and_then(|mask| u64::from_str_radix(mask, 16).ok());
        pending.is_some_and(|mask| mask >> (Signal::KILL.as_raw() - 1) & 1 == 1)
    };
    has_kill("ShdPnd:") || has_kill("SigPnd:") || field("State:") == Some("Z")
}

/// Whether a process is gone. A zombie that has no other thread left holds nothing any more.
pub fn process_has_ended(pid: i32) -> bool {
    started_ticks(pid).is_none()
}

/// When the kernel started a process; none if it is gone. If only the first thread of a process has
/// ended, it looks like a zombie, but the others may still hold its port and its files.
fn started_ticks(pid: i32) -> Option<u64> {
    let fields = processor_time::stat_fields(pid)?;
    let is_only_thread = fields.get(17).is_some_and(|count| count == "1");
    if fields.first()? == "Z" && is_only_thread {
        return None;
    }
    fields.get(19)?.parse().ok()
}

/// Whether a path is a file or a directory with entries: an unmounted disk leaves neither.
pub(super) fn holds_anything(path: &Path) -> bool {
    path.is_file() || fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_by_its_data_directory() {
        let parent = tempfile::tempdir().unwrap();
        let (own, other) = (parent.path().join("own"), parent.path().join("other"));
        fs::create_dir(&own).unwrap();
        fs::create_dir(&other).unwrap();
        // A shell ignores the words behind its script.
        let mut child = std::process::Command::new("sh")
            .args(["-c", "echo; read line", "name", "--data=own"])
            .current_dir(parent.path())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // The process runs its own program once it prints.
        let mut printed = [0; 1];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut printed).unwrap();
        let pids = |directory: &Path| -> Vec<i32> {
            let found = Running::of_data(directory);
            found.iter().map(|running| running.pid).collect()
        };
        assert_eq!(pids(&own), [child.id().cast_signed()]);
        assert!(pids(&other).is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(pids(&own).is_empty());
    }

    #[test]
    fn a_process_is_ending_once_it_is_killed() {
        let of = |state: &str, own: &str, shared: &str| {
            shows_end(&format!(
                "Name:\tgabion\nState:\t{state}\nThreads:\t4\nSigPnd:\t{own}\nShdPnd:\t{shared}\n"
            ))
        };
        let [none, kill, hangup] = ["0000000000000000", "0000000000000100", "0000000000000001"];
        assert!(!of("S (sleeping)", none, none));
        assert!(!of("S (sleeping)", hangup, hangup), "it may ignore that");
        assert!(of("D (disk sleep)", none, kill));
        assert!(of("D (disk sleep)", kill, none));
        assert!(of("Z (zombie)", none, none));
    }
}
