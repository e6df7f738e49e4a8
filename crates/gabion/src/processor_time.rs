//! Processor time as the kernel counts it: of processes, and of the whole machine.

use crate::failure::{Context, Failure};
use std::fs;

/// The unit in which Linux tells programs of processor time, whatever its own clock is.
const TICKS_PER_S: f64 = 100.0;

/// Seconds that processes have worked so far, for themselves and in the kernel. One that is gone counts no more.
pub(crate) fn of_processes(pids: impl Iterator<Item = i32>) -> f64 {
    pids.filter_map(used_ticks).sum::<u64>() as f64 / TICKS_PER_S
}

/// Seconds that all processes have worked so far that this one sees.
pub(crate) fn of_all_processes() -> Result<f64, Failure> {
    let entries = fs::read_dir("/proc").context("list processes")?.flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(of_processes(pids))
}

/// Seconds for which all processors of this machine have worked so far, added up.
pub(crate) fn of_processors() -> Result<f64, Failure> {
    let text = fs::read_to_string("/proc/stat").context("read processor times")?;
    let times = text.lines().next().unwrap_or("").split_whitespace().skip(1);
    let ticks: Vec<f64> = times.filter_map(|time| time.parse().ok()).collect();
    // The fourth and fifth are those of waiting.
    let busy = ticks
        .iter()
        .enumerate()
        .filter(|(at, _)| !(3..5).contains(at));
    Ok(busy.map(|(_, ticks)| ticks).sum::<f64>() / TICKS_PER_S)
}

/// What the kernel says of a process, behind its name.
pub(crate) fn stat_fields(pid: i32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold spaces; what follows it does not.
    let fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some(fields.map(str::to_owned).collect())
}

/// Clock ticks that a process has worked, for itself and in the kernel.
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
