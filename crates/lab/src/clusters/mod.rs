//! Clusters of real processes for experiments: started in a directory, used by several clients at
//! once, and killed at the end.

mod encodings;
mod repairs;
mod updates;

pub use encodings::inside as encodings_inside;
pub use repairs::inside as repairs_inside;
pub use updates::inside as updates_inside;

use crate::LabError;
use crate::experiments::{
    CacheEffect, Clusters, EncodeBench, Encodings, Overwrite, OverwriteSetting, RepairBench, Sent,
    TestbedSetting, Throughput, TransferSetting, Transfers, TrialTime,
};
use futures::future::try_join_all;
use futures::io::AsyncReadExt;
use futures::stream::{self, TryStreamExt as _};
use gabion_client::{Client, ClientOptions, Progress};
use gabion_codec::Code;
use gabion_layout::{Survive, UpdateScheme};
use gabion_protocol::message::{PoolWish, Purpose};
use gabion_testbed::{Behaviour, ClusterOptions, Engine, LocalCluster, Merging, TestbedError};
use gabion_wire::{LinkTable, Options};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Starts clusters of this program's own processes.
pub struct LocalClusters;

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
}

fn block_on<T>(work: impl Future<Output = Result<T, LabError>>) -> Result<T, LabError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| LabError::Cluster(error.to_string()))?;
    let done = runtime.block_on(work);
    done.map_err(|error| LabError::Cluster(error.to_string()))
}

/// Progress of single files is not shown.
struct Silent;

impl Progress for Silent {
    fn advanced(&self, _: u64, _: u64) {}
}

/// Creates a cluster's directory.
fn create(directory: &Path) -> Result<(), LabError> {
    fs::create_dir_all(directory).map_err(|source| LabError::File {
        operation: "create",
        path: directory.display().to_string(),
        source,
    })
}

/// The options of an experiment's cluster.
fn up_options(racks: u32, nodes_per_rack: u32, node_bytes_per_s: u64) -> ClusterOptions {
    ClusterOptions {
        racks,
        nodes_per_rack,
        node_bytes_per_s,
        rack_bytes_per_s: 0,
        // A busy machine may delay a node; none of them may be declared failed.
        behaviour: Behaviour {
            lease_ms: 10_000,
            grace_s: 3600,
            repair_parallel: 1,
        },
        merging: Merging::default(),
        engine: Engine::default(),
        given: Vec::new(),
    }
}

/// Waits until nodes that have just started know each other: they learn of others with their next
/// heartbeat, of which there are four in a lease.
async fn until_all_know_all(behaviour: &Behaviour) {
    let heartbeat = Duration::from_millis(behaviour.lease_ms / 4);
    tokio::time::sleep(heartbeat.mul_f64(1.5)).await;
}

/// Uses a cluster until the work is done or interrupted, and stops it.
async fn use_and_stop<T>(
    mut cluster: LocalCluster,
    work: impl AsyncFnOnce(&mut LocalCluster) -> Result<T, LabError>,
) -> Result<T, LabError> {
    let interrupted = tokio::signal::ctrl_c();
    let done = tokio::select! {
        done = work(&mut cluster) => done,
        _ = interrupted => Err(TestbedError::Stopped.into()),
    };
    let stopped = cluster.stop().await;
    let result = done?;
    stopped?;
    Ok(result)
}

async fn transfer(setting: &TransferSetting) -> Result<Transfers, LabError> {
    let up = up_options(1, setting.node_count, setting.link_bytes_per_s);
    let cluster = LocalCluster::open_or_make(&setting.directory, &up)?;
    use_and_stop(cluster, async |cluster| measure(cluster, setting).await).await
}

/// The parameters of an experiment's pool.
fn pool(name: String, code: &Code, chunk_bytes: u64, update: UpdateScheme) -> PoolWish {
    PoolWish {
        name,
        survive: Survive::Nodes(2),
        code: Some(code.to_string()),
        chunk_bytes,
        update,
        reserve: None,
        append: None,
        lifecycle: None,
    }
}

async fn overwrite(
    setting: &OverwriteSetting,
    overwrites: &[Overwrite],
) -> Result<Vec<CacheEffect>, LabError> {
    let up = up_options(setting.rack_count, setting.nodes_per_rack, 0);
    let cluster = LocalCluster::open_or_make(&setting.directory, &up)?;
    use_and_stop(cluster, async |cluster| {
        cluster.start(|| ()).await?;
        let mut effects = Vec::with_capacity(overwrites.len());
        for (at, overwrite) in overwrites.iter().enumerate() {
            let name = format!("lab-{at}");
            let client =
                gabion_wire::connect(cluster.coordinator()?, ClientOptions::default()).await?;
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

/// Stores a file in a pool.
async fn put(client: &Client, pool: &str, name: &str, size_bytes: u64) -> Result<(), LabError> {
    let data = AsyncReadExt::take(futures::io::repeat(1), size_bytes);
    let stored = client.put(name, Some(pool), data, size_bytes, &Silent);
    stored.await?;
    Ok(())
}

/// Sends the writes from a client of its own, until all of them are durable.
async fn send(
    cluster: &LocalCluster,
    name: &str,
    depth: usize,
    cache_bytes: u64,
    overwrite: &Overwrite,
) -> Result<Sent, LabError> {
    let options = ClientOptions {
        cache_bytes,
        ..ClientOptions::default()
    };
    let client = gabion_wire::connect(cluster.coordinator()?, options).await?;
    let file = client.open_cached(name).await?;
    let before = cross_rack_bytes(&client).await?;
    let begun = Instant::now();
    // Each run and each write has distinct bytes, so that no delta is zero.
    let first = u8::from(cache_bytes > 0);
    let writes = overwrite.writes.iter().zip(0_usize..).map(|(range, at)| {
        let byte = (at % 127) as u8 * 2 + first + 2;
        let bytes = vec![byte; range.length as usize];
        file.write(range.offset, bytes.into())
    });
    stream::iter(writes.map(Ok))
        .try_for_each_concurrent(depth, |write| write)
        .await?;
    file.flush().await?;
    let seconds = begun.elapsed().as_secs_f64();
    let counts = client.cache_counts();
    Ok(Sent {
        update_count: counts.update_count + counts.write_through_count,
        seconds,
        cross_rack_bytes: cross_rack_bytes(&client).await?.saturating_sub(before),
    })
}

/// Bytes sent between racks so far, by all senders.
async fn cross_rack_bytes(client: &Client) -> Result<u64, LabError> {
    let meter = client.meters().await?.sum();
    let bytes = Purpose::ALL.map(|purpose| meter.cross_rack(purpose));
    Ok(bytes.into_iter().sum())
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
        ..Options::default()
    };
    let mut clients = Vec::new();
    for _ in 0..setting.client_count {
        let (coordinator, options) = (cluster.coordinator()?, ClientOptions::default());
        clients.push(gabion_wire::connect_with(coordinator, wire.clone(), options).await?);
    }
    let first = clients.first().expect("experiments have a client");
    let wish = pool(
        "lab".to_owned(),
        &setting.code,
        setting.chunk_bytes,
        UpdateScheme::Fo,
    );
    first.create_pool(wish).await?;
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
