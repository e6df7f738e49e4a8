//! A tour of a whole cluster with real data: store, update, convert, lose nodes, repair, run a database on a mount, and
//! compare every byte after each step. Each step is measured.

mod data;
mod database;
mod forms;
mod report;
mod steps;

pub use report::{Database, DatabaseStep, Degraded, Form, Repair, Report, Updates};

use crate::cluster::{Behaviour, ClusterOptions, Engine, LocalCluster, Merging};
use crate::error::TestbedError;
use crate::progress::{Bars, Unit};
use crate::signals::EndSignals;
use crate::size::bytes;
use crate::space::require_free;
use gabion_layout::ByteRange;
use gabion_planner::repair::Scheme;
use std::path::Path;
use steps::Demo;

/// Seed of a calibrated workload on the file.
pub const SEED: u64 = 1;
/// Emulated links: slow enough that they, and not this machine's cores, limit repairs.
const NODE_BYTES_PER_S: u64 = 50_000_000;
const RACK_BYTES_PER_S: u64 = 100_000_000;

/// The least bytes of the demo's file: one chunk, of which it times a read.
pub const FILE_BYTES_MIN: u64 = steps::CHUNK_BYTES;

/// The sizes and writes of a demo.
#[derive(Clone, Debug)]
pub struct Script {
    /// Storage engine of nodes.
    pub engine: Engine,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// The source of the writes, for the report.
    pub source: String,
    /// Writes within the file, in their order.
    pub writes: Vec<ByteRange>,
}

/// Bytes on disk for each byte of the file: its stripes have half as many parity chunks as data chunks, and repairs
/// make lost chunks again.
const DISK_BYTES_PER_BYTE: u64 = 2;
/// Bytes on disk besides the file's: journals, and the file that changes its form.
const DISK_BYTES_BESIDES: u64 = 2 << 30;

impl Script {
    /// Refuses a file for which the disk has no room.
    fn check_space(&self, directory: &Path) -> Result<(), TestbedError> {
        let needed = self.file_bytes.saturating_mul(DISK_BYTES_PER_BYTE);
        let needed = needed.saturating_add(DISK_BYTES_BESIDES);
        let what = format!("a demo with a file of {}", bytes(self.file_bytes));
        let advice = "choose a smaller --size, or set TMPDIR to a directory on a larger disk";
        require_free(directory, needed, what, advice)
    }
}

/// Runs the demo on a new cluster in an empty directory, and stops the cluster in the end, also after one of the
/// signals.
///
/// # Errors
/// [`TestbedError::NoSpace`] if the file does not fit, before anything starts; why the cluster does not start, stop or
/// answer; [`TestbedError::Wrong`] for a result that a correct cluster cannot have; [`TestbedError::Stopped`] after a
/// signal.
pub async fn run(
    directory: &Path,
    script: &Script,
    bars: Bars,
    mut signals: EndSignals,
) -> Result<Report, TestbedError> {
    script.check_space(directory)?;
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
        metadata: None,
        metadata_log: None,
        no_console: true,
        insecure: false,
        coordinators: 1,
        given: Vec::new(),
    };
    let mut cluster = LocalCluster::open_or_make(directory, &up)?;
    let done = tokio::select! {
        report = demonstrate(&mut cluster, script, bars) => report,
        () = signals.recv() => Err(TestbedError::Stopped),
    };
    let stopping = bars("stopping the cluster", Unit::Unknown);
    let stopped = cluster.stop().await;
    drop(stopping);
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
    demo.lose_and_repair(Scheme::default()).await?;
    demo.lose_and_repair(Scheme::Conventional).await?;
    demo.run_database().await?;
    demo.finish().await
}
