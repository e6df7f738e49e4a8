//! Experiments on testbeds: the outer half starts `gabion lab testbed` with the inner half as its
//! command, and passes the job in a file; the inner half runs the cluster and prints its
//! measurements.

use super::clusters::{pool, put, send, up_options, use_and_stop};
use crate::failure::{Context, Failure};
use gabion_client::ClientOptions;
use gabion_codec::Code;
use gabion_lab::experiments::{Overwrite, TestbedLimits, TestbedSetting, Throughput};
use gabion_layout::RackId;
use gabion_protocol::message::Meter;
use gabion_testbed::{LocalCluster, processor_time};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;
use tokio::process::Command;

/// The job of the inner half.
#[derive(Serialize, Deserialize)]
struct Job {
    setting: TestbedSetting,
    overwrites: Vec<Overwrite>,
}

/// Makes a testbed, runs the work in it, and returns the measurements.
pub(super) async fn start(
    setting: &TestbedSetting,
    overwrites: &[Overwrite],
) -> Result<Vec<Throughput>, Failure> {
    let job = Job {
        setting: setting.clone(),
        overwrites: overwrites.to_vec(),
    };
    let outer = Outer::new(&setting.directory, setting.nodes_per_rack);
    let outer = match setting.limits {
        TestbedLimits::Uplinks { bytes_per_s } => outer
            .with("--spare-core")
            .with(format!("--racks={}", setting.rack_count))
            .with(format!("--cross={}", rate_text(bytes_per_s))),
        TestbedLimits::Regions {
            inner_bytes_per_s,
            cross_bytes_per_s,
        } => {
            let rows = regions(setting.rack_count, inner_bytes_per_s, cross_bytes_per_s);
            outer.with_regions(&rows)?
        }
    };
    outer.run("in-testbed", &job).await
}

/// Rates from each rack of a setting's regions to each, in bytes a second; the diagonal is a node's
/// link.
fn regions(rack_count: u32, inner_bytes_per_s: u64, cross_bytes_per_s: u64) -> Vec<Vec<u64>> {
    let rate = |from, to| {
        if from == to {
            inner_bytes_per_s
        } else {
            cross_bytes_per_s
        }
    };
    let row = |from| (0..rack_count).map(|to| rate(from, to)).collect();
    (0..rack_count).map(row).collect()
}

/// A testbed for a job of this program.
pub(super) struct Outer<'a> {
    /// Directory of the job file; otherwise empty, except for the job's own files.
    directory: &'a Path,
    /// Arguments of `gabion lab testbed`.
    arguments: Vec<OsString>,
}

impl<'a> Outer<'a> {
    pub(super) fn new(directory: &'a Path, nodes_per_rack: u32) -> Self {
        Self {
            directory,
            arguments: vec![format!("--nodes-per-rack={nodes_per_rack}").into()],
        }
    }

    pub(super) fn with(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Makes racks regions: rates from each to each, in bytes a second, where 0 is unlimited.
    pub(super) fn with_regions(self, rows: &[Vec<u64>]) -> Result<Self, Failure> {
        let path = self.directory.join("regions.txt");
        fs::write(&path, regions_text(rows)).context(format!("write {}", path.display()))?;
        Ok(self.with("--regions").with(path))
    }

    /// Makes the testbed, runs `gabion lab HALF JOB` of this program in it, and returns the output.
    pub(super) async fn run<J: Serialize, M: DeserializeOwned>(
        self,
        half: &str,
        job: &J,
    ) -> Result<M, Failure> {
        let path = self.directory.join("job.json");
        let text = serde_json::to_vec(job).context("write the job as JSON")?;
        fs::write(&path, text).context(format!("write {}", path.display()))?;
        let program = std::env::current_exe().context("find this program's file")?;
        let mut command = Command::new(&program);
        command.args(["lab", "testbed"]).args(self.arguments);
        command.arg("--").arg(&program).args(["lab", half]);
        command.arg(&path);
        // When this process dies, the testbed's process is killed, and everything inside with it.
        command.stdin(Stdio::null()).kill_on_drop(true);
        let output = command.output().await.context("start the testbed")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            // The innermost process reports first.
            let why = said.lines().find(|line| line.starts_with("gabion: "));
            return Err(Failure::failed(why.unwrap_or(said.trim())));
        }
        serde_json::from_slice(&output.stdout).context("understand what was measured")
    }
}

/// Reads the job from the outer half.
pub(super) fn job<J: DeserializeOwned>(file: &Path) -> Result<J, Failure> {
    let text = fs::read(file).context(format!("read {}", file.display()))?;
    serde_json::from_slice(&text).context("understand the job")
}

/// The file of a matrix of rates.
fn regions_text(rows: &[Vec<u64>]) -> String {
    let row = |row: &Vec<u64>| {
        let rates: Vec<String> = row.iter().map(|&rate| rate_text(rate)).collect();
        rates.join(" ") + "\n"
    };
    rows.iter().map(row).collect()
}

pub(super) fn rate_text(bytes_per_s: u64) -> String {
    if bytes_per_s == 0 {
        "unlimited".to_owned()
    } else {
        format!("{}bit", bytes_per_s * 8)
    }
}

/// Mounts a directory in memory, for the processes of this testbed only: it has a mount namespace
/// of its own, and the contents end with it.
pub(super) async fn put_in_memory(directory: &Path) -> Result<(), Failure> {
    let mut command = Command::new("mount");
    command.args(["-t", "tmpfs", "testbed"]).arg(directory);
    let status = command.status().await.context("start 'mount'")?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::failed("a directory in memory cannot be mounted"))
}

/// Does the work inside a testbed.
pub(super) async fn run(file: &Path) -> Result<(), Failure> {
    let Job {
        setting,
        overwrites,
    } = job(file)?;
    let directory = setting.directory.join("cluster");
    fs::create_dir_all(&directory).context(format!("create {}", directory.display()))?;
    if setting.is_in_memory {
        put_in_memory(&directory).await?;
    }
    let up = up_options(setting.rack_count, setting.nodes_per_rack, 0);
    let cluster = LocalCluster::open_or_make(&directory, &up)?;
    let measured = use_and_stop(cluster, async |cluster| {
        cluster.start(|| ()).await?;
        let mut measured = Vec::with_capacity(overwrites.len());
        for (at, overwrite) in overwrites.iter().enumerate() {
            let name = format!("lab-{at}");
            measured.push(measure(cluster, &setting, name, overwrite).await?);
        }
        Ok(measured)
    })
    .await?;
    crate::output::print_json(&measured)
}

async fn measure(
    cluster: &LocalCluster,
    setting: &TestbedSetting,
    name: String,
    overwrite: &Overwrite,
) -> Result<Throughput, Failure> {
    let code: Code = setting.code.parse().map_err(Failure::failed)?;
    let client = gabion_wire::connect(cluster.coordinator()?, ClientOptions::default()).await?;
    let mut wish = pool(name.clone(), &code, setting.chunk_bytes, overwrite.scheme)?;
    wish.append = overwrite.append;
    client.create_pool(wish).await?;
    put(&client, &name, &name, overwrite.file_bytes).await?;
    // The testbed has a process namespace of its own, so there are no others.
    let (before, worked_before_s) = (
        client.meters().await?.sum(),
        processor_time::of_all_processes()?,
    );
    let sent = send(cluster, &name, setting.depth, 0, overwrite).await?;
    let begun = Instant::now();
    client.commit_pool(&name).await?;
    let commit_seconds = begun.elapsed().as_secs_f64();
    let (after, worked_s) = (
        client.meters().await?.sum(),
        processor_time::of_all_processes()?,
    );
    let processors = std::thread::available_parallelism().context("count processors")?;
    let processors = processors.get() as f64;
    let seconds = sent.seconds + commit_seconds;
    let moved = moved_bytes(&before, &after);
    Ok(Throughput {
        seconds,
        commit_seconds,
        cross_rack_bytes: moved.values().sum(),
        uplink_share: uplink_share(&moved, setting.limits, seconds),
        processor_share: (worked_s - worked_before_s) / seconds / processors,
    })
}

/// Payload from each rack to other racks between two readings.
fn moved_bytes(before: &Meter, after: &Meter) -> BTreeMap<(RackId, RackId), u64> {
    let mut moved = BTreeMap::new();
    for (place, &bytes) in &after.bytes {
        if let (Some(from), Some(to), _) = *place
            && from != to
        {
            let earlier = before.bytes.get(place).copied().unwrap_or(0);
            *moved.entry((from, to)).or_default() += bytes - earlier;
        }
    }
    moved
}

/// Load of the busiest link between racks, as a share of its limit.
fn uplink_share(
    moved: &BTreeMap<(RackId, RackId), u64>,
    limits: TestbedLimits,
    seconds: f64,
) -> f64 {
    let (busiest_bytes, limit) = match limits {
        TestbedLimits::Uplinks { bytes_per_s } => {
            let mut sums: BTreeMap<(RackId, bool), u64> = BTreeMap::new();
            for (&(from, to), &bytes) in moved {
                *sums.entry((from, true)).or_default() += bytes;
                *sums.entry((to, false)).or_default() += bytes;
            }
            (sums.into_values().max(), bytes_per_s)
        }
        TestbedLimits::Regions {
            cross_bytes_per_s, ..
        } => (moved.values().max().copied(), cross_bytes_per_s),
    };
    busiest_bytes.unwrap_or(0) as f64 / seconds / limit as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_protocol::message::Purpose;

    #[test]
    fn the_busiest_link_counts_both_ways_and_no_client() {
        let rack = |number| Some(RackId(number));
        let mut before = Meter::default();
        before.count(rack(0), rack(1), Purpose::Update, 5);
        let mut after = before.clone();
        after.count(rack(0), rack(1), Purpose::Update, 10);
        after.count(rack(2), rack(1), Purpose::Repair, 7);
        after.count(rack(1), rack(1), Purpose::Update, 100);
        after.count(None, rack(1), Purpose::Encode, 100);
        let moved = moved_bytes(&before, &after);
        assert_eq!(moved.values().sum::<u64>(), 17);
        let uplinks = TestbedLimits::Uplinks { bytes_per_s: 2 };
        assert!((uplink_share(&moved, uplinks, 17.0) - 0.5).abs() < 1e-9);
        let regions = TestbedLimits::Regions {
            inner_bytes_per_s: 9,
            cross_bytes_per_s: 2,
        };
        assert!((uplink_share(&moved, regions, 10.0) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn regions_are_fast_within_and_slow_between() {
        assert_eq!(regions_text(&regions(2, 10, 1)), "80bit 8bit\n8bit 80bit\n");
    }
}
