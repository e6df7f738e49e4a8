//! `gabion demo`: a whole cluster of real processes with real data, faults, repair, and
//! measurements. It needs only a temporary directory and leaves nothing behind.

mod data;
mod forms;
mod report;
mod steps;

use crate::arguments::DemoOptions;
use crate::failure::{Context, Failure};
use crate::output::Format;
use gabion_testbed::{Behaviour, ClusterOptions, LocalCluster, Merging};
use report::Report;
use std::path::{Path, PathBuf};
use steps::Demo;

/// Emulated links: slow enough that they, and not this machine's cores, limit repairs.
const NODE_BYTES_PER_S: u64 = 50_000_000;
const RACK_BYTES_PER_S: u64 = 100_000_000;

pub(crate) async fn run(options: DemoOptions, format: Format) -> Result<(), Failure> {
    let scratch = Scratch::new()?;
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
        engine: options.engine.into(),
        given: Vec::new(),
    };
    let mut cluster = LocalCluster::open_or_make(&scratch.0, &up)?;
    let interrupted = tokio::signal::ctrl_c();
    let done = tokio::select! {
        report = demonstrate(&mut cluster, &options) => report,
        _ = interrupted => Err(Failure::failed("interrupted; everything was cleaned up")),
    };
    let stopped = cluster.stop().await;
    let report = done?;
    stopped?;
    report.print(format)
}

async fn demonstrate(cluster: &mut LocalCluster, options: &DemoOptions) -> Result<Report, Failure> {
    let mut demo = Demo::start(cluster, options.size).await?;
    demo.store().await?;
    demo.update(options.trace.as_deref()).await?;
    demo.time_direct_send().await?;
    demo.change_forms().await?;
    demo.lose_and_repair("pipeline").await?;
    demo.lose_and_repair("conventional").await?;
    demo.finish().await
}

/// A directory that is deleted when the demo ends in any way.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("gabion-demo-{}", std::process::id()));
        std::fs::create_dir(&path).context(format!("create {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_dir_all(path) {
        eprintln!("gabion: cannot delete {}: {error}", path.display());
    }
}
