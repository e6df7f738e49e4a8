//! Updates on testbeds: the outer half starts this program in a testbed and passes the job in a file; the
//! inner half runs the cluster and returns its measurements.

use super::steps::{create, pool, put, run_or_remove, send, up_options, use_and_stop};
use crate::LabError;
use crate::experiments::{Overwrite, TestbedLimits, TestbedSetting, Throughput};
use gabion_client::ClientOptions;
use gabion_codec::Code;
use gabion_layout::RackId;
use gabion_planner::PlanError;
use gabion_protocol::message::Meter;
use gabion_testbed::namespaces::{Seats, Testbed, Uplink, put_in_memory, read_job};
use gabion_testbed::{LocalCluster, processor_time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// The job of the inner half.
#[derive(Serialize, Deserialize)]
struct Job {
    setting: TestbedSetting,
    overwrites: Vec<Overwrite>,
}

/// Makes a testbed, runs the work in it, and returns the measurements.
pub(super) async fn on_testbed(
    setting: &TestbedSetting,
    overwrites: &[Overwrite],
) -> Result<Vec<Throughput>, LabError> {
    let job = Job {
        setting: setting.clone(),
        overwrites: overwrites.to_vec(),
    };
    let (rack_count, nodes_per_rack) = (setting.rack_count, setting.nodes_per_rack);
    let testbed = match setting.limits {
        TestbedLimits::Uplinks { bytes_per_s } => {
            let seats = Seats {
                rack_count,
                nodes_per_rack,
            };
            let uplink = Uplink {
                rate: bytes_per_s,
                spares_core: true,
            };
            Testbed::of_racks(seats, 0, uplink, false)
        }
        TestbedLimits::Regions {
            inner_bytes_per_s,
            cross_bytes_per_s,
        } => {
            let rows = regions(rack_count, inner_bytes_per_s, cross_bytes_per_s);
            Testbed::of_rates(
                &rows,
                &setting.directory.join("regions.txt"),
                nodes_per_rack,
            )?
        }
    };
    run_or_remove(testbed.run_job("in-testbed", &job, &setting.directory)).await
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

/// Makes the updates of a job on the testbed of this process.
///
/// # Errors
/// [`LabError::Testbed`] if the job cannot be read or the cluster fails.
pub async fn inside(file: &Path) -> Result<Vec<Throughput>, LabError> {
    let Job {
        setting,
        overwrites,
    } = read_job(file)?;
    let directory = setting.directory.join("cluster");
    create(&directory)?;
    if setting.is_in_memory {
        put_in_memory(&directory).await?;
    }
    let up = up_options(
        setting.rack_count,
        setting.nodes_per_rack,
        0,
        Some(setting.placement_seed),
    );
    let cluster = LocalCluster::open_or_make(&directory, &up)?;
    use_and_stop(cluster, async |cluster| {
        cluster.start(|| ()).await?;
        let mut measured = Vec::with_capacity(overwrites.len());
        for (at, overwrite) in overwrites.iter().enumerate() {
            let name = format!("lab-{at}");
            measured.push(measure(cluster, &setting, name, overwrite).await?);
        }
        Ok(measured)
    })
    .await
}

async fn measure(
    cluster: &LocalCluster,
    setting: &TestbedSetting,
    name: String,
    overwrite: &Overwrite,
) -> Result<Throughput, LabError> {
    let code: Code = setting.code.parse().map_err(PlanError::from)?;
    let client = gabion_wire::connect(
        cluster.coordinator()?,
        cluster.security()?,
        ClientOptions::default(),
    )
    .await?;
    let mut request = pool(name.clone(), &code, setting.chunk_bytes, overwrite.scheme);
    request.append = overwrite.append;
    client.create_pool(request).await?;
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
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
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
        assert_eq!(regions(2, 10, 1), [[10, 1], [1, 10]]);
    }
}
