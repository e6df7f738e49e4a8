//! Clusters of real processes for experiments: started in a directory, used by several clients at
//! once, and killed at the end.

mod encodings;
mod hdfs;
mod repairs;
mod steps;
mod updates;

pub use encodings::inside as encodings_inside;
pub use repairs::inside as repairs_inside;
pub use steps::end_clusters;
pub use updates::inside as updates_inside;

use crate::LabError;
use crate::experiments::{
    CacheEffect, Clusters, EncodeBench, Encodings, HdfsBench, HdfsTimes, Overwrite,
    OverwriteSetting, RepairBench, TestbedSetting, Throughput, TransferSetting, Transfers,
    TrialTime,
};
use futures::future::try_join_all;
use gabion_client::ClientOptions;
use gabion_layout::UpdateScheme;
use gabion_testbed::{LocalCluster, TestbedError};
use gabion_wire::{LinkTable, Options};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use steps::{Silent, pool, put, send, up_options, use_and_stop};

/// Starts clusters of this program's own processes.
pub struct LocalClusters {
    /// The Maven project of HDFS's plugin, for measurements on HDFS: `hdfs` of Gabion's sources.
    pub hdfs: PathBuf,
}

impl Clusters for LocalClusters {
    fn transfer(&self, setting: &TransferSetting) -> Result<Transfers, LabError> {
        block_on(transfer(setting))
    }

    fn overwrite(
        &self,
        setting: &OverwriteSetting,
        overwrites: &[Overwrite],
    ) -> Result<Vec<CacheEffect>, LabError> {
        block_on(overwrite(setting, overwrites))
    }

    fn update_on_testbed(
        &self,
        setting: &TestbedSetting,
        overwrites: &[Overwrite],
    ) -> Result<Vec<Throughput>, LabError> {
        block_on(updates::on_testbed(setting, overwrites))
    }

    fn repairs(&self, bench: &RepairBench) -> Result<Vec<TrialTime>, LabError> {
        block_on(repairs::on_testbed(bench))
    }

    fn encodings(&self, bench: &EncodeBench) -> Result<Encodings, LabError> {
        block_on(encodings::on_testbed(bench))
    }

    fn hdfs_missing(&self) -> Option<String> {
        hdfs::missing(&self.hdfs)
    }

    fn hdfs(&self, bench: &HdfsBench) -> Result<HdfsTimes, LabError> {
        block_on(hdfs::measure(&self.hdfs, bench))
    }
}

fn block_on<T>(work: impl Future<Output = Result<T, LabError>>) -> Result<T, LabError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| LabError::Cluster(error.to_string()))?;
    let done = runtime.block_on(work);
    done.map_err(|error| LabError::Cluster(error.to_string()))
}

async fn transfer(setting: &TransferSetting) -> Result<Transfers, LabError> {
    let up = up_options(1, setting.node_count, setting.link_bytes_per_s, None);
    let cluster = LocalCluster::open_or_make(&setting.directory, &up)?;
    use_and_stop(cluster, async |cluster| measure(cluster, setting).await).await
}

async fn overwrite(
    setting: &OverwriteSetting,
    overwrites: &[Overwrite],
) -> Result<Vec<CacheEffect>, LabError> {
    let up = up_options(
        setting.rack_count,
        setting.nodes_per_rack,
        0,
        Some(setting.placement_seed),
    );
    let cluster = LocalCluster::open_or_make(&setting.directory, &up)?;
    use_and_stop(cluster, async |cluster| {
        cluster.start(|| ()).await?;
        let mut effects = Vec::with_capacity(overwrites.len());
        for (at, overwrite) in overwrites.iter().enumerate() {
            let name = format!("lab-{at}");
            let client = gabion_wire::connect(
                cluster.coordinator()?,
                cluster.security()?,
                ClientOptions::default(),
            )
            .await?;
            let pool = pool(
                name.clone(),
                &setting.code,
                setting.chunk_bytes,
                overwrite.scheme,
            );
            client.create_pool(pool).await?;
            put(&client, &name, &name, overwrite.file_bytes).await?;
            let off = send(cluster, &name, setting.depth, 0, overwrite).await?;
            let on = send(
                cluster,
                &name,
                setting.depth,
                setting.cache_bytes,
                overwrite,
            )
            .await?;
            effects.push(CacheEffect { off, on });
        }
        Ok(effects)
    })
    .await
}

async fn measure(
    cluster: &mut LocalCluster,
    setting: &TransferSetting,
) -> Result<Transfers, LabError> {
    cluster.start(|| ()).await?;
    // Clients are in no rack and have no link of their own, but they use the nodes' links.
    let links = LinkTable::open(&setting.directory.join("links")).map_err(TestbedError::from)?;
    let wire = Options {
        links: Some(Arc::new(links)),
        security: cluster.security()?,
        ..Options::default()
    };
    let mut clients = Vec::new();
    for _ in 0..setting.client_count {
        let (coordinator, options) = (cluster.coordinator()?, ClientOptions::default());
        clients.push(gabion_wire::connect_with(coordinator, wire.clone(), options).await?);
    }
    let first = clients.first().expect("experiments have a client");
    let request = pool(
        "lab".to_owned(),
        &setting.code,
        setting.chunk_bytes,
        UpdateScheme::Fo,
    );
    first.create_pool(request).await?;
    let data: Vec<u8> = (0..setting.file_bytes)
        .map(|at| (at ^ (at >> 11)) as u8)
        .collect();
    let begun = Instant::now();
    let puts = clients.iter().enumerate().map(|(at, client)| {
        let name = format!("file-{at}");
        let data = data.as_slice();
        async move {
            client
                .put(&name, Some("lab"), data, setting.file_bytes, &Silent)
                .await
        }
    });
    try_join_all(puts).await?;
    let write_s = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let gets = clients.iter().enumerate().map(|(at, client)| {
        let name = format!("file-{at}");
        async move { client.get(&name, futures::io::sink(), &Silent).await }
    });
    try_join_all(gets).await?;
    let read_s = begun.elapsed().as_secs_f64();
    Ok(Transfers { write_s, read_s })
}
