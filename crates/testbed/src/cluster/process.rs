//! One process of a cluster on this machine: its identity, and its end.

use crate::error::{Context, TestbedError};
use crate::processor_time;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
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
}

impl Running {
    /// The process with this pid now; none if it is gone.
    pub(super) fn of(pid: i32) -> Option<Self> {
        let started_ticks = started_ticks(pid)?;
        Some(Self { pid, started_ticks })
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
        let give_up_at = Instant::now() + END_DEADLINE;
        while self.is_alive() {
            if Instant::now() >= give_up_at {
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
