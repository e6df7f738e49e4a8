//! Processor time of processes and of the whole machine, as counted by the kernel.

use crate::error::{Context, TestbedError};
use std::fs;

/// Unit of processor time in Linux's interfaces, for any clock of its own.
const TICKS_PER_S: f64 = 100.0;

/// Processor time of processes so far in seconds, in user and kernel mode. Ended ones are not
/// included.
pub fn of_processes(pids: impl Iterator<Item = i32>) -> f64 {
    pids.filter_map(used_ticks).sum::<u64>() as f64 / TICKS_PER_S
}

/// Processor time so far of all visible processes, in seconds.
///
/// # Errors
/// [`TestbedError::Cannot`] if the kernel's list of processes cannot be read.
pub fn of_all_processes() -> Result<f64, TestbedError> {
    let entries = fs::read_dir("/proc").context("list processes")?.flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(of_processes(pids))
}

/// Processor time so far of all processors of this machine, in seconds.
///
/// # Errors
/// [`TestbedError::Cannot`] if the kernel's count cannot be read.
pub fn of_processors() -> Result<f64, TestbedError> {
    let text = fs::read_to_string("/proc/stat").context("read processor times")?;
    let times = text.lines().next().unwrap_or("").split_whitespace().skip(1);
    let ticks: Vec<f64> = times.filter_map(|time| time.parse().ok()).collect();
    // The fourth and fifth count idle time.
    let busy = ticks
        .iter()
        .enumerate()
        .filter(|(at, _)| !(3..5).contains(at));
    Ok(busy.map(|(_, ticks)| ticks).sum::<f64>() / TICKS_PER_S)
}

/// The fields of a process's stat file behind its name.
pub(crate) fn stat_fields(pid: i32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold spaces; the following fields do not.
    let fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some(fields.map(str::to_owned).collect())
}

/// Clock ticks of a process, in user and kernel mode.
fn used_ticks(pid: i32) -> Option<u64> {
    let fields = stat_fields(pid)?;
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(ticks(11)? + ticks(12)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_taken_time() {
        let begun = std::time::Instant::now();
        let before = of_all_processes().unwrap();
        while of_all_processes().unwrap() <= before {
            assert!(begun.elapsed().as_secs() < 60, "no process takes time");
        }
    }
}
