//! Times repairs on a testbed: outside, makes the testbed and starts this program in it; inside,
//! starts the cluster, stores stripes, and has a client run the plans of each trial. `ecpipe`
//! defines the trials and their plans.

use super::steps::{Silent, pool, run_or_remove, until_all_know_all, up_options, use_and_stop};
use crate::LabError;
use crate::experiments::{BenchLinks, RepairBench, Stored, TrialTime};
use futures::io::AllowStdIo;
use gabion_client::{Client, ClientOptions};
use gabion_codec::Code;
use gabion_layout::{NodePlace, StripeRecord, Topology, UpdateScheme};
use gabion_plan::{Cost, Plan};
use gabion_planner::PlanError;
use gabion_testbed::LocalCluster;
use gabion_testbed::namespaces::{Seats, Testbed, Uplink, read_job};
use gabion_wire::Role;
use std::io::{self, Read};
use std::path::Path;

/// The stored file.
const FILE: &str = "bench";
const GIB: f64 = (1_u64 << 30) as f64;

/// Runs a bench on a testbed of its own.
pub(super) async fn on_testbed(bench: &RepairBench) -> Result<Vec<TrialTime>, LabError> {
    let (racks, per_rack) = bench.links.shape();
    let testbed = match &bench.links {
        BenchLinks::Racks {
            node_bytes_per_s,
            rack_bytes_per_s,
            ..
        } => {
            let seats = Seats {
                rack_count: racks,
                nodes_per_rack: per_rack,
            };
            let uplink = Uplink {
                rate: *rack_bytes_per_s,
                spares_core: false,
            };
            Testbed::of_racks(seats, *node_bytes_per_s, uplink, false)
        }
        BenchLinks::Pairs(rows) => {
            Testbed::of_rates(rows, &bench.directory.join("regions.txt"), per_rack)?
        }
    };
    run_or_remove(testbed.run_job("bench", bench, &bench.directory)).await
}

/// Runs the bench of a job on the testbed of this process.
///
/// # Errors
/// [`LabError::Testbed`] if the job cannot be read or the cluster fails, and whatever keeps a trial from
/// being planned.
pub async fn inside(file: &Path) -> Result<Vec<TrialTime>, LabError> {
    let bench: RepairBench = read_job(file)?;
    let (racks, per_rack) = bench.links.shape();
    let up = up_options(racks, per_rack, 0, Some(bench.placement_seed));
    let cluster = LocalCluster::open_or_make(&bench.directory.join("cluster"), &up)?;
    use_and_stop(cluster, async |cluster| {
        let early_count = cluster.node_count() - bench.late_count;
        cluster.start_first(early_count).await?;
        let client = gabion_wire::connect(
            cluster.coordinator()?,
            cluster.security()?,
            ClientOptions::default(),
        )
        .await?;
        store(&client, &bench).await?;
        cluster.start(|| ()).await?;
        until_all_know_all(&up.behaviour).await;
        let security = cluster.security_as(Role::Coordinator)?;
        let repairer =
            gabion_wire::connect(cluster.coordinator()?, security, ClientOptions::default());
        time_all(cluster, (&client, &repairer.await?), &bench).await
    })
    .await
}

async fn store(client: &Client, bench: &RepairBench) -> Result<(), LabError> {
    let code: Code = bench.code.parse().map_err(PlanError::from)?;
    let request = pool(FILE.to_owned(), &code, bench.chunk_bytes, UpdateScheme::Fo);
    client.create_pool(request).await?;
    let size_bytes = bench.stripe_count * code.k() as u64 * bench.chunk_bytes;
    let data = AllowStdIo::new(Pattern {
        left_bytes: size_bytes,
    });
    client
        .put(FILE, Some(FILE), data, size_bytes, &Silent)
        .await?;
    // Otherwise dirty pages of the put would be written back during timed repairs.
    rustix::fs::sync();
    Ok(())
}

async fn time_all(
    cluster: &LocalCluster,
    (client, repairer): (&Client, &Client),
    bench: &RepairBench,
) -> Result<Vec<TrialTime>, LabError> {
    let code: Code = bench.code.parse().map_err(PlanError::from)?;
    let layout = client.layout(FILE).await?;
    let places = layout.nodes.iter().map(|status| NodePlace {
        node: status.node,
        rack: status.rack,
    });
    let topology = Topology::new(places)?;
    let stored = Stored {
        code: &code,
        stripes: &layout.stripes,
        topology: &topology,
    };
    let mut times = Vec::with_capacity(bench.trials.len());
    for trial in &bench.trials {
        let plans = bench.plans(trial, &stored)?;
        let sent = |(_, plan): &(usize, Plan)| {
            let links = Cost::of(plan, &topology).links;
            links.iter().map(|link| link.bytes).sum::<u64>()
        };
        let sent_bytes = plans.iter().map(sent).sum();
        let links_s = bench.links_s(trial, &plans, &topology);
        let repairs: Vec<(&StripeRecord, Plan)> = plans
            .into_iter()
            .map(|(at, plan)| (&layout.stripes[at], plan))
            .collect();
        let rounds = Rounds {
            cluster,
            client: repairer,
            code: &code,
            count: bench.round_count,
        };
        let (seconds, processor_s) = rounds.time(&repairs).await?;
        let all_gib = sent_bytes as f64 * f64::from(bench.round_count) / GIB;
        times.push(TrialTime {
            name: trial.name.clone(),
            links_s,
            cores: processor_s / seconds.iter().sum::<f64>(),
            core_s_per_gib: processor_s / all_gib,
            seconds,
            sent_bytes,
        });
    }
    Ok(times)
}

/// Repeats of a trial.
struct Rounds<'a> {
    cluster: &'a LocalCluster,
    /// A client in the coordinator's role: it removes the chunks that it has repaired.
    client: &'a Client,
    code: &'a Code,
    count: u32,
}

impl Rounds<'_> {
    /// Seconds of each round, and the processor time of all of them.
    async fn time(&self, repairs: &[(&StripeRecord, Plan)]) -> Result<(Vec<f64>, f64), LabError> {
        let mut seconds = Vec::new();
        let mut processor_s = 0.0;
        for _ in 0..self.count {
            let before_s = self.cluster.processor_s();
            let taken = self.client.time_repairs(self.code, repairs).await?;
            // The time to read the chunks back is included; it is much smaller.
            processor_s += self.cluster.processor_s() - before_s;
            seconds.push(taken.as_secs_f64());
        }
        Ok((seconds, processor_s))
    }
}

/// A pattern of varying bytes.
struct Pattern {
    left_bytes: u64,
}

impl Read for Pattern {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.left_bytes.min(into.len() as u64);
        for (byte, past) in into.iter_mut().zip(0..count) {
            let at = self.left_bytes - past;
            *byte = (at ^ (at >> 11)) as u8;
        }
        self.left_bytes -= count;
        Ok(count as usize)
    }
}
