//! Experiments on testbeds: the outer half starts `gabion lab testbed` with the inner half as its command,
//! and hands the work over as a file; the inner half runs the cluster and prints what it measured.

use super::clusters::{pool, put, send, up_options, use_and_stop};
use crate::cluster::LocalCluster;
use crate::failure::{Context, Failure};
use gabion_client::{Client, ClientOptions};
use gabion_codec::Code;
use gabion_lab::experiments::{Overwrite, TestbedSetting, Throughput};
use gabion_layout::RackId;
use gabion_protocol::message::Meter;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use tokio::process::Command;

/// What the inner half is to do.
#[derive(Serialize, Deserialize)]
struct Job {
    setting: TestbedSetting,
    overwrites: Vec<Overwrite>,
}

/// Makes a testbed, has the work done in it, and gives what was measured.
pub(super) async fn start(
    setting: &TestbedSetting,
    overwrites: &[Overwrite],
) -> Result<Vec<Throughput>, Failure> {
    let job = Job {
        setting: setting.clone(),
        overwrites: overwrites.to_vec(),
    };
    let path = setting.directory.join("job.json");
    let text = serde_json::to_vec(&job).context("write the job as JSON")?;
    fs::write(&path, text).context(format!("write {}", path.display()))?;
    let program = std::env::current_exe().context("find this program's file")?;
    let mut command = Command::new(&program);
    command.args(["lab", "testbed", "--spare-core"]);
    command.arg(format!("--racks={}", setting.rack_count));
    command.arg(format!("--nodes-per-rack={}", setting.nodes_per_rack));
    command.arg(format!("--cross={}bit", setting.uplink_bytes_per_s * 8));
    command.arg("--").arg(&program).args(["lab", "in-testbed"]);
    command.arg(&path);
    // When this process dies, the testbed's process is killed, and with it all that is inside.
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await.context("start the testbed")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::failed(said.trim()));
    }
    serde_json::from_slice(&output.stdout).context("understand what was measured")
}

/// Does the work inside a testbed.
pub(super) async fn run(job: &Path) -> Result<(), Failure> {
    let text = fs::read(job).context(format!("read {}", job.display()))?;
    let Job {
        setting,
        overwrites,
    } = serde_json::from_slice(&text).context("understand the job")?;
    let directory = setting.directory.join("cluster");
    fs::create_dir_all(&directory).context(format!("create {}", directory.display()))?;
    let up = up_options(setting.rack_count, setting.nodes_per_rack, None);
    let cluster = LocalCluster::open_or_make(&directory, &up)?;
    let measured = use_and_stop(cluster, async |cluster| {
        cluster.start(&up.behaviour, || ()).await?;
        let mut measured = Vec::with_capacity(overwrites.len());
        for overwrite in &overwrites {
            measured.push(measure(cluster, &setting, overwrite).await?);
        }
        Ok(measured)
    })
    .await?;
    crate::output::print_json(&measured)
}

async fn measure(
    cluster: &LocalCluster,
    setting: &TestbedSetting,
    overwrite: &Overwrite,
) -> Result<Throughput, Failure> {
    let name = overwrite.scheme.to_string();
    let code: Code = setting.code.parse().map_err(Failure::failed)?;
    let client = Client::connect(cluster.coordinator()?, ClientOptions::default()).await?;
    let wish = pool(name.clone(), &code, setting.chunk_bytes, overwrite.scheme)?;
    client.create_pool(wish).await?;
    put(&client, &name, overwrite.file_bytes).await?;
    let (before, worked_before_s) = (client.meters().await?.sum(), processor_seconds()?);
    let sent = send(cluster, &name, setting.depth, 0, overwrite).await?;
    let (after, worked_s) = (client.meters().await?.sum(), processor_seconds()?);
    let busiest = busiest_uplink_bytes(&before, &after) as f64;
    let processors = std::thread::available_parallelism().context("count processors")?;
    let processors = processors.get() as f64;
    Ok(Throughput {
        seconds: sent.seconds,
        cross_rack_bytes: sent.cross_rack_bytes,
        uplink_share: busiest / sent.seconds / setting.uplink_bytes_per_s as f64,
        processor_share: (worked_s - worked_before_s) / sent.seconds / processors,
    })
}

/// The most payload that one rack has sent to other racks, or got from them, between two readings.
fn busiest_uplink_bytes(before: &Meter, after: &Meter) -> u64 {
    let mut sums: BTreeMap<(RackId, bool), u64> = BTreeMap::new();
    for (place, &bytes) in &after.bytes {
        if let (Some(from), Some(to), _) = *place
            && from != to
        {
            let moved = bytes - before.bytes.get(place).copied().unwrap_or(0);
            *sums.entry((from, true)).or_default() += moved;
            *sums.entry((to, false)).or_default() += moved;
        }
    }
    sums.into_values().max().unwrap_or(0)
}

/// Processor time that all processes of the testbed have taken so far; it has a process namespace of its
/// own, so there are no others.
fn processor_seconds() -> Result<f64, Failure> {
    /// What the kernel's times are in, on every system since Linux 2.6.
    const TICKS_PER_S: f64 = 100.0;
    let mut ticks = 0;
    for entry in fs::read_dir("/proc").context("list processes")?.flatten() {
        // A process that ends meanwhile counts no more.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        // Fields are counted behind the name, which may hold anything.
        let Some((_, fields)) = stat.rsplit_once(") ") else {
            continue;
        };
        let times = fields.split(' ').skip(11).take(2);
        ticks += times
            .filter_map(|time| time.parse::<u64>().ok())
            .sum::<u64>();
    }
    Ok(ticks as f64 / TICKS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_protocol::message::Purpose;

    #[test]
    fn the_busiest_uplink_counts_both_ways_and_no_client() {
        let rack = |number| Some(RackId(number));
        let mut before = Meter::default();
        before.count(rack(0), rack(1), Purpose::Update, 5);
        let mut after = before.clone();
        after.count(rack(0), rack(1), Purpose::Update, 10);
        after.count(rack(2), rack(1), Purpose::Repair, 7);
        after.count(rack(1), rack(1), Purpose::Update, 100);
        after.count(None, rack(1), Purpose::Encode, 100);
        assert_eq!(busiest_uplink_bytes(&before, &after), 17);
    }

    #[test]
    fn this_process_has_taken_time() {
        let begun = std::time::Instant::now();
        let before = processor_seconds().unwrap();
        while processor_seconds().unwrap() <= before {
            assert!(begun.elapsed().as_secs() < 60, "no process takes time");
        }
    }
}
