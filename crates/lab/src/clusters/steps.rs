//! Steps that experiments on clusters have in common: starting and stopping a cluster, making its pool, storing
//! and overwriting a file.

use crate::LabError;
use crate::experiments::{Overwrite, Sent};
use futures::io::AsyncReadExt;
use futures::stream::{self, TryStreamExt as _};
use gabion_client::{Client, ClientOptions, Progress};
use gabion_codec::Code;
use gabion_layout::{Survive, UpdateScheme};
use gabion_protocol::message::{PoolRequest, Purpose};
use gabion_testbed::{
    Behaviour, ClusterOptions, EndSignals, Engine, LocalCluster, Merging, TestbedError,
};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, MutexGuard, watch};
use tokio::time::timeout;

/// Progress of single files is not shown.
pub(super) struct Silent;

impl Progress for Silent {
    fn advanced(&self, _: u64, _: u64) {}
}

/// Creates a cluster's directory.
pub(super) fn create(directory: &Path) -> Result<(), LabError> {
    fs::create_dir_all(directory).map_err(|source| LabError::File {
        operation: "create",
        path: directory.display().to_string(),
        source,
    })
}

/// The options of an experiment's cluster.
pub(super) fn up_options(
    racks: u32,
    nodes_per_rack: u32,
    node_bytes_per_s: u64,
    placement_seed: Option<u64>,
) -> ClusterOptions {
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
            placement_seed,
        },
        merging: Merging::default(),
        engine: Engine::default(),
        metadata: None,
        metadata_log: None,
        no_console: true,
        insecure: false,
        coordinators: 1,
        given: Vec::new(),
    }
}

/// Waits until nodes that have just started know each other: they learn of others with their next
/// heartbeat, of which there are four in a lease.
pub(super) async fn until_all_know_all(behaviour: &Behaviour) {
    let heartbeat = Duration::from_millis(behaviour.lease_ms / 4);
    tokio::time::sleep(heartbeat.mul_f64(1.5)).await;
}

/// Locked while a cluster of this process or a testbed runs.
static IN_USE: Mutex<()> = Mutex::const_new(());

/// Whether the process is about to end.
static IS_ENDING: LazyLock<watch::Sender<bool>> = LazyLock::new(|| watch::Sender::new(false));

/// Stops the cluster or the testbed that runs, and lets no other one start. Returns whether it has stopped in time.
pub async fn end_clusters(limit: Duration) -> bool {
    IS_ENDING.send_replace(true);
    timeout(limit, IN_USE.lock()).await.is_ok()
}

/// The turn of a cluster or a testbed: a process has one at a time.
pub(super) struct Turn {
    signals: EndSignals,
    is_ending: watch::Receiver<bool>,
    _used: MutexGuard<'static, ()>,
}

impl Turn {
    pub(super) async fn begin() -> Result<Self, TestbedError> {
        Ok(Self {
            signals: EndSignals::listen()?,
            is_ending: IS_ENDING.subscribe(),
            _used: IN_USE.lock().await,
        })
    }

    /// Waits for a signal that ends this process, or for [`end_clusters`].
    pub(super) async fn ended(&mut self) {
        tokio::select! {
            () = self.signals.recv() => {}
            // The sender is never dropped.
            _ = self.is_ending.wait_for(|is_ending| *is_ending) => {}
        }
    }
}

/// Uses a cluster until the work is done or interrupted, and stops it.
pub(super) async fn use_and_stop<T>(
    mut cluster: LocalCluster,
    work: impl AsyncFnOnce(&mut LocalCluster) -> Result<T, LabError>,
) -> Result<T, LabError> {
    let mut turn = Turn::begin().await?;
    let done = tokio::select! {
        biased;
        () = turn.ended() => Err(TestbedError::Stopped.into()),
        done = work(&mut cluster) => done,
    };
    let stopped = cluster.stop().await;
    let result = done?;
    stopped?;
    Ok(result)
}

/// Runs a job on a testbed until it is done or interrupted. Dropping the job removes the testbed.
pub(super) async fn run_or_remove<T>(
    job: impl Future<Output = Result<T, TestbedError>>,
) -> Result<T, LabError> {
    let mut turn = Turn::begin().await?;
    tokio::select! {
        biased;
        () = turn.ended() => Err(TestbedError::Stopped.into()),
        done = job => Ok(done?),
    }
}

/// The parameters of an experiment's pool.
pub(super) fn pool(
    name: String,
    code: &Code,
    chunk_bytes: u64,
    update: UpdateScheme,
) -> PoolRequest {
    PoolRequest {
        name,
        survive: Survive::Nodes(2),
        code: Some(code.to_string()),
        chunk_bytes,
        update,
        reserve: None,
        append: None,
        inline_bytes: 0,
        lifecycle: None,
    }
}

/// Stores a file in a pool.
pub(super) async fn put(
    client: &Client,
    pool: &str,
    name: &str,
    size_bytes: u64,
) -> Result<(), LabError> {
    let data = AsyncReadExt::take(futures::io::repeat(1), size_bytes);
    let stored = client.put(name, Some(pool), data, size_bytes, &Silent);
    stored.await?;
    Ok(())
}

/// Sends the writes from a client of its own, until all of them are durable.
pub(super) async fn send(
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
    let client = gabion_wire::connect(cluster.coordinator()?, cluster.security()?, options).await?;
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
