//! Clusters of real processes for experiments: started in a directory, used by several clients at once,
//! and killed again.

use crate::arguments::{Behaviour, UpOptions};
use crate::cluster::LocalCluster;
use crate::failure::Failure;
use futures::future::try_join_all;
use gabion_client::{Client, ClientOptions, Progress};
use gabion_lab::LabError;
use gabion_lab::experiments::{Clusters, TransferSetting, Transfers};
use gabion_layout::UpdateScheme;
use gabion_protocol::message::PoolWish;
use gabion_wire::LinkTable;
use std::sync::Arc;
use std::time::Instant;

/// Starts clusters of this program's own processes.
pub(super) struct LocalClusters;

impl Clusters for LocalClusters {
    fn transfer(&self, setting: &TransferSetting) -> Result<Transfers, LabError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| LabError::Cluster(error.to_string()))?;
        let done = runtime.block_on(transfer(setting));
        done.map_err(|failure| LabError::Cluster(failure.to_string()))
    }
}

/// Nobody watches single files.
struct Silent;

impl Progress for Silent {
    fn advanced(&self, _: u64, _: u64) {}
}

async fn transfer(setting: &TransferSetting) -> Result<Transfers, Failure> {
    let up = UpOptions {
        racks: 1,
        nodes_per_rack: setting.node_count,
        inner: Some(format!("{}bit", setting.link_bytes_per_s * 8)),
        cross: None,
        // A busy machine may keep a node waiting; none of them is to be declared failed.
        behaviour: Behaviour {
            lease_ms: 10_000,
            grace_s: 3600,
            repair_parallel: 1,
        },
    };
    let mut cluster = LocalCluster::open_or_make(&setting.directory, &up)?;
    let interrupted = tokio::signal::ctrl_c();
    let done = tokio::select! {
        done = measure(&mut cluster, &up, setting) => done,
        _ = interrupted => Err(Failure::failed("interrupted; its processes were stopped")),
    };
    let stopped = cluster.stop().await;
    let transfers = done?;
    stopped?;
    Ok(transfers)
}

async fn measure(
    cluster: &mut LocalCluster,
    up: &UpOptions,
    setting: &TransferSetting,
) -> Result<Transfers, Failure> {
    cluster.start(&up.behaviour, || ()).await?;
    // Clients are in no rack and have no link of their own, but they pay for the nodes' links.
    let links = LinkTable::open(&setting.directory.join("links")).map_err(Failure::failed)?;
    let mut options = ClientOptions::default();
    options.wire.links = Some(Arc::new(links));
    let mut clients = Vec::new();
    for _ in 0..setting.client_count {
        clients.push(Client::connect(cluster.coordinator()?, options.clone()).await?);
    }
    let first = clients
        .first()
        .ok_or_else(|| Failure::usage("there must be a client"))?;
    let survive = "2-nodes".parse().map_err(Failure::failed)?;
    first
        .create_pool(PoolWish {
            name: "lab".to_owned(),
            survive,
            code: Some(setting.code.to_string()),
            chunk_bytes: setting.chunk_bytes,
            update: UpdateScheme::Fo,
            reserve: None,
        })
        .await?;
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
        async move { client.get(&name, &mut tokio::io::sink(), &Silent).await }
    });
    try_join_all(gets).await?;
    let read_s = begun.elapsed().as_secs_f64();
    Ok(Transfers { write_s, read_s })
}
