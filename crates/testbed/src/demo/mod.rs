//! A tour of a whole cluster with real data: store, update, convert, lose nodes, repair, and compare every byte after
//! each step. Each step is measured.

mod data;
mod forms;
mod report;
mod steps;

pub use report::{Degraded, Form, Repair, Report, Updates};

use crate::cluster::{Behaviour, ClusterOptions, Engine, LocalCluster, Merging};
use crate::error::TestbedError;
use crate::progress::Bars;
use gabion_layout::ByteRange;
use std::path::Path;
use steps::Demo;

/// Seed of the file's contents, and of a calibrated workload on it.
pub const SEED: u64 = 1;
/// Emulated links: slow enough that they, and not this machine's cores, limit repairs.
const NODE_BYTES_PER_S: u64 = 50_000_000;
const RACK_BYTES_PER_S: u64 = 100_000_000;

/// The sizes and writes of a demo.
#[derive(Clone, Debug)]
pub struct Script {
    /// Storage engine of nodes.
    pub engine: Engine,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Where the writes come from, for the report.
    pub source: String,
    /// Writes within the file, in their order.
    pub writes: Vec<ByteRange>,
}

/// Runs the demo on a new cluster in an empty directory, and stops the cluster in the end, also when it is
/// interrupted.
///
/// # Errors
/// Why the cluster does not start, stop or answer; [`TestbedError::Wrong`] for a result that a correct cluster cannot
/// have, or after an interrupt.
pub async fn run(directory: &Path, script: &Script, bars: Bars) -> Result<Report, TestbedError> {
    let up = ClusterOptions {
        racks: 3,
        nodes_per_rack: 4,
        node_bytes_per_s: NODE_BYTES_PER_S,
        rack_bytes_per_s: RACK_BYTES_PER_S,
        // Repair begins when the demo starts it, and one chunk at a time for timing.
        behaviour: Behaviour {
            lease_ms: 1500,
            grace_s: 3600,
            repair_parallel: 1,
            placement_seed: None,
        },
        merging: Merging::default(),
        engine: script.engine,
        given: Vec::new(),
    };
    let mut cluster = LocalCluster::open_or_make(directory, &up)?;
    let interrupted = tokio::signal::ctrl_c();
    let done = tokio::select! {
        report = demonstrate(&mut cluster, script, bars) => report,
        _ = interrupted => Err(TestbedError::Wrong("interrupted; everything was cleaned up".to_owned())),
    };
    let stopped = cluster.stop().await;
    let report = done?;
    stopped?;
    Ok(report)
}

async fn demonstrate(
    cluster: &mut LocalCluster,
    script: &Script,
    bars: Bars,
) -> Result<Report, TestbedError> {
    let mut demo = Demo::start(cluster, script.file_bytes, bars).await?;
    demo.store().await?;
    demo.update(script).await?;
    demo.time_direct_send().await?;
    demo.change_forms().await?;
    demo.lose_and_repair("pipeline").await?;
    demo.lose_and_repair("conventional").await?;
    demo.finish().await
}
