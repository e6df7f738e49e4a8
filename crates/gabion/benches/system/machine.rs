//! Measurements of the machine: plain writes to its disk, and processor time as the kernel counts it.

use anyhow::Context;
use std::fs::{self, File};
use std::io::Write as _;
use std::ops::Sub;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Instant;

/// The kernel's clock ticks a second in `/proc`: the same on all its current architectures.
const TICKS_PER_S: f64 = 100.0;
/// Bytes of one plain write.
const WRITE_BYTES: u64 = 4 << 20;

/// Seconds to write a new file of `file_bytes` in sequence and sync it once; the file is deleted
/// afterwards.
pub(crate) fn plain_write_s(path: &Path, file_bytes: u64) -> anyhow::Result<f64> {
    let doing = || format!("write {}", path.display());
    let bytes = pattern(WRITE_BYTES as usize, 7);
    let begun = Instant::now();
    let mut file = File::create(path).with_context(doing)?;
    let mut left = file_bytes;
    while left > 0 {
        let count = left.min(WRITE_BYTES);
        file.write_all(&bytes[..count as usize])
            .with_context(doing)?;
        left -= count;
    }
    file.sync_all().with_context(doing)?;
    let elapsed_s = begun.elapsed().as_secs_f64();
    fs::remove_file(path).context("delete what was written")?;
    Ok(elapsed_s)
}

/// Writes of a page to one place of a new file a second, each synced before the next; the file is deleted afterwards.
pub(crate) fn syncs_a_second(path: &Path, count: u32) -> anyhow::Result<f64> {
    let doing = || format!("write {}", path.display());
    let page = pattern(4 << 10, 1);
    let file = File::create(path).with_context(doing)?;
    file.write_all_at(&page, 0).with_context(doing)?;
    file.sync_all().with_context(doing)?;
    let begun = Instant::now();
    for _ in 0..count {
        file.write_all_at(&page, 0).with_context(doing)?;
        file.sync_data().with_context(doing)?;
    }
    let rate = f64::from(count) / begun.elapsed().as_secs_f64();
    fs::remove_file(path).context("delete what was written")?;
    Ok(rate)
}

/// Processor time in seconds.
#[derive(Clone, Copy, Default)]
pub(crate) struct ProcessorTime {
    /// In the program.
    pub(crate) user_s: f64,
    /// In the kernel for it.
    pub(crate) system_s: f64,
}

impl ProcessorTime {
    /// Both together.
    pub(crate) fn sum_s(self) -> f64 {
        self.user_s + self.system_s
    }

    fn of_ticks(user: u64, system: u64) -> Self {
        Self {
            user_s: user as f64 / TICKS_PER_S,
            system_s: system as f64 / TICKS_PER_S,
        }
    }
}

impl Sub for ProcessorTime {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            user_s: self.user_s - earlier.user_s,
            system_s: self.system_s - earlier.system_s,
        }
    }
}

/// Returns the processor time that some processes have used together so far.
pub(crate) fn used_by(pids: &[u64]) -> anyhow::Result<ProcessorTime> {
    let (mut user, mut system) = (0, 0);
    for pid in pids {
        let [own_user, own_system, ..] = process_ticks(&pid.to_string())?;
        user += own_user;
        system += own_system;
    }
    Ok(ProcessorTime::of_ticks(user, system))
}

/// Whether a process runs. One that has ended may stay listed until its parent has asked how.
pub(crate) fn is_running(pid: u64) -> bool {
    fs::read_to_string(format!("/proc/{pid}/status"))
        .is_ok_and(|status| !status.contains("\nState:\tZ"))
}

/// Bytes of memory that a process has, from which on [`peak_bytes`] counts.
pub(crate) fn reset_peak(pid: u64) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/clear_refs");
    fs::write(&path, "5").with_context(|| format!("write {path}"))?;
    memory_bytes(pid, "VmRSS:")
}

/// The most bytes of memory that a process has had at a time.
pub(crate) fn peak_bytes(pid: u64) -> anyhow::Result<u64> {
    memory_bytes(pid, "VmHWM:")
}

fn memory_bytes(pid: u64, name: &str) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.with_context(|| format!("no {name} in {path}"))? << 10)
}

/// Returns the processor time of the children of this process that have ended and been waited for.
pub(crate) fn used_by_ended_children() -> anyhow::Result<ProcessorTime> {
    let [.., user, system] = process_ticks("self")?;
    Ok(ProcessorTime::of_ticks(user, system))
}

/// Ticks of a process in user and kernel mode, then of its ended children.
fn process_ticks(process: &str) -> anyhow::Result<[u64; 4]> {
    let path = format!("/proc/{process}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    // The name in parentheses may hold spaces; what follows it does not.
    let fields = stat.rsplit_once(')').context("no name in it")?.1;
    let ticks: Result<Vec<u64>, _> = fields
        .split_whitespace()
        .skip(11)
        .take(4)
        .map(str::parse)
        .collect();
    let ticks = ticks.with_context(|| format!("understand {path}"))?;
    ticks.try_into().ok().context("too few fields in it")
}

/// The whole machine's processors, all together.
#[derive(Clone, Copy)]
pub(crate) struct Machine {
    /// Ticks that passed.
    passed: u64,
    /// Of those, ticks in which nothing ran; waiting for the disk counts as that.
    idle: u64,
}

impl Machine {
    /// So far, since the machine started.
    pub(crate) fn now() -> anyhow::Result<Self> {
        let stat = fs::read_to_string("/proc/stat").context("read /proc/stat")?;
        let line = stat.lines().next().context("/proc/stat is empty")?;
        // The last two fields are counted in the first two already.
        let ticks: Result<Vec<u64>, _> = line
            .split_whitespace()
            .skip(1)
            .take(8)
            .map(str::parse)
            .collect();
        let ticks = ticks.context("understand /proc/stat")?;
        let idle = ticks.get(3..5).context("too few fields in /proc/stat")?;
        Ok(Self {
            passed: ticks.iter().sum(),
            idle: idle.iter().sum(),
        })
    }

    /// The share of time since `earlier` in which processors had nothing to do.
    pub(crate) fn idle_share_since(self, earlier: Self) -> f64 {
        let passed = self.passed.saturating_sub(earlier.passed).max(1);
        self.idle.saturating_sub(earlier.idle) as f64 / passed as f64
    }
}

/// Returns the number of processors.
pub(crate) fn processor_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Numbers that differ from each other and are the same in each run.
pub(crate) fn numbers(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// Bytes that no disk or file system can shrink.
pub(crate) fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut next = numbers(seed);
    let mut bytes: Vec<u8> = Vec::with_capacity(length.next_multiple_of(8));
    while bytes.len() < length {
        bytes.extend(next().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
