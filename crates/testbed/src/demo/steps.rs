//! The demo's steps, in the order in which they run.

use super::Script;
use super::data::{Expected, Verifier};
use super::report::{Degraded, Repair, Report, Updates};
use crate::cluster::LocalCluster;
use crate::error::TestbedError;
use crate::progress::{Bars, Unit};
use crate::size::bytes;
use gabion_client::{Client, ClientOptions};
use gabion_layout::{ByteRange, NodeId, RackId, Survive, UpdateScheme};
use gabion_planner::repair::Scheme;
use gabion_protocol::message::{Liveness, NodeStatus, PoolRequest, Purpose};
use std::cmp::Reverse;
use std::time::{Duration, Instant};

const POOL: &str = "vm";
const FILE: &str = "disk";
pub(super) const CHUNK_BYTES: u64 = 4 << 20;
/// Number of writes while a node is lost, and the size of each.
const DEGRADED_WRITES: u64 = 200;
const DEGRADED_WRITE_BYTES: u64 = 4096;
/// Interval of polling the coordinator's view.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A pool that survives any one rack; without a code the coordinator chooses one.
pub(super) fn pool(name: &str, code: Option<String>, chunk_bytes: u64) -> PoolRequest {
    PoolRequest {
        name: name.to_owned(),
        survive: Survive::Racks(1),
        code,
        chunk_bytes,
        update: UpdateScheme::default(),
        reserve: None,
        append: None,
        inline_bytes: 0,
        lifecycle: None,
    }
}

/// A running demo.
pub(super) struct Demo<'a> {
    pub(super) cluster: &'a LocalCluster,
    pub(super) client: Client,
    expected: Expected,
    pub(super) report: Report,
    pub(super) bars: Bars,
    /// Data bytes of a stripe of the pool.
    pub(super) stripe_bytes: u64,
}

impl<'a> Demo<'a> {
    /// Starts the cluster and creates the pool.
    pub(super) async fn start(
        cluster: &'a mut LocalCluster,
        size: u64,
        bars: Bars,
    ) -> Result<Self, TestbedError> {
        let begun = Instant::now();
        let count = u64::from(cluster.node_count()) + 1;
        let progress = bars(
            "starting 1 coordinator and 12 nodes in 3 racks",
            Unit::Items,
        );
        let mut started = 0;
        let start = cluster.start(|| {
            started += 1;
            progress.advanced(started, count);
        });
        start.await?;
        drop(progress);
        let client = gabion_wire::connect(
            cluster.coordinator()?,
            cluster.security()?,
            ClientOptions::default(),
        )
        .await?;
        let pool = client.create_pool(pool(POOL, None, CHUNK_BYTES)).await?;
        let geometry = pool.spec.geometry();
        let geometry = geometry.map_err(|error| TestbedError::Wrong(error.to_string()))?;
        let report = Report {
            code: pool.spec.code,
            chunk_bytes: CHUNK_BYTES,
            file_bytes: size,
            node_bytes_per_s: cluster.options().node_bytes_per_s,
            rack_bytes_per_s: cluster.options().rack_bytes_per_s,
            start_s: begun.elapsed().as_secs_f64(),
            ..Report::default()
        };
        Ok(Self {
            cluster,
            client,
            expected: Expected::new(size),
            report,
            bars,
            stripe_bytes: geometry.stripe_bytes(),
        })
    }

    /// Stores the file.
    pub(super) async fn store(&mut self) -> Result<(), TestbedError> {
        let size = self.expected.size_bytes;
        let begun = Instant::now();
        let source = self.expected.initial();
        let progress = (self.bars)("storing", Unit::Bytes);
        self.client
            .put(FILE, Some(POOL), source, size, &*progress)
            .await?;
        drop(progress);
        self.report.put_s = begun.elapsed().as_secs_f64();
        Ok(())
    }

    /// Makes the writes of the script.
    pub(super) async fn update(&mut self, script: &Script) -> Result<(), TestbedError> {
        let source = script.source.clone();
        let updates = self.overwrite(source, &script.writes, "updating in place");
        self.report.updates = updates.await?;
        Ok(())
    }

    /// Writes new bytes in place, one write after the other.
    async fn overwrite(
        &mut self,
        source: String,
        writes: &[ByteRange],
        what: &str,
    ) -> Result<Updates, TestbedError> {
        let progress = (self.bars)(what, Unit::Items);
        let file = self.client.open(FILE).await?;
        let metered_before = self.metered(Purpose::Update).await?;
        let planned_before = self.planned(Purpose::Update).await?;
        let begun = Instant::now();
        let mut latencies_ms = Vec::with_capacity(writes.len());
        for (done, write) in (1..).zip(writes) {
            let new = self.expected.overwrite(*write);
            let sent = Instant::now();
            file.write(write.offset, new.into()).await?;
            latencies_ms.push(sent.elapsed().as_secs_f64() * 1e3);
            progress.advanced(done, writes.len() as u64);
        }
        drop(progress);
        let seconds = begun.elapsed().as_secs_f64();
        latencies_ms.sort_by(f64::total_cmp);
        let rank = |share: f64| {
            let at = (latencies_ms.len() as f64 * share) as usize;
            latencies_ms
                .get(at.min(latencies_ms.len().saturating_sub(1)))
                .copied()
                .unwrap_or(0.0)
        };
        Ok(Updates {
            source,
            count: writes.len() as u64,
            bytes: writes.iter().map(|write| write.length).sum(),
            seconds,
            p50_ms: rank(0.50),
            p99_ms: rank(0.99),
            planned_cross_rack_bytes: self.planned(Purpose::Update).await? - planned_before,
            metered_cross_rack_bytes: self.metered(Purpose::Update).await? - metered_before,
        })
    }

    /// Times one chunk from one node over one link, as the baseline of repairs.
    pub(super) async fn time_direct_send(&mut self) -> Result<(), TestbedError> {
        let _waiting = (self.bars)("reading one chunk over one link", Unit::Unknown);
        let mut times = Vec::new();
        let file = self.client.open(FILE).await?;
        for _ in 0..3 {
            let begun = Instant::now();
            file.read(ByteRange::new(0, CHUNK_BYTES)).await?;
            times.push(begun.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        self.report.direct_send_s = times[1];
        Ok(())
    }

    /// Kills the node that holds most of the file, continues writing, reads everything degraded,
    /// and repairs by the given scheme.
    pub(super) async fn lose_and_repair(&mut self, scheme: Scheme) -> Result<(), TestbedError> {
        let node = self.fullest_node(FILE).await?;
        self.cluster.kill_node(node).await?;
        let what = format!("killed node {node}; waiting until it is declared failed");
        let waiting = (self.bars)(&what, Unit::Unknown);
        self.wait_until_failed(NodeId(node)).await?;
        drop(waiting);
        let failures_left = self.fewest_failures_left().await?;
        let writes = self.spread_writes();
        let source = format!("evenly spread, without node {node}");
        let updates = self.overwrite(source, &writes, "updating without the node");
        let updates = updates.await?;
        let seconds = self
            .read_back("reading everything back degraded (MiB)")
            .await?;
        self.report.degraded.push(Degraded {
            node,
            failures_left,
            updates,
            seconds,
        });
        let repair = self.repair(scheme).await?;
        self.report.repairs.push(repair);
        Ok(())
    }

    /// Small writes all over the file, so that nearly every chunk gets some, lost ones too. None
    /// spans stripes: such a write would replace both, and less would be left to repair.
    fn spread_writes(&self) -> Vec<ByteRange> {
        let size = self.expected.size_bytes;
        let stride = (size / DEGRADED_WRITES)
            .max(1)
            .next_multiple_of(DEGRADED_WRITE_BYTES);
        (0..size / stride)
            .map(|at| ByteRange::new(at * stride, DEGRADED_WRITE_BYTES))
            .collect()
    }

    /// Reads everything once more, now from repaired chunks.
    pub(super) async fn finish(mut self) -> Result<Report, TestbedError> {
        self.report.final_read_s = self.read_back("reading everything back").await?;
        self.report.failures_left = self.fewest_failures_left().await?;
        let waiting = (self.bars)("comparing checksums of all chunks", Unit::Unknown);
        let scrub = self.client.scrub().await?;
        drop(waiting);
        if !scrub.damage.is_empty() {
            let damage = format!("scrub found damage: {:?}", scrub.damage);
            return Err(TestbedError::Wrong(damage));
        }
        self.report.scrubbed_bytes = scrub.bytes;
        Ok(self.report)
    }

    /// The node with most chunks of a file, among racks where all nodes are up: a rack that has
    /// lost two nodes could not take back its share of a stripe. Of equals, the first.
    pub(super) async fn fullest_node(&self, file: &str) -> Result<u32, TestbedError> {
        let layout = self.client.stat(file).await?.layout;
        let is_down = |n: &NodeStatus| n.liveness != Liveness::Up;
        let hurt: Vec<RackId> = layout
            .nodes
            .iter()
            .filter(|n| is_down(n))
            .map(|n| n.rack)
            .collect();
        let up = layout.nodes.iter().filter(|n| !hurt.contains(&n.rack));
        let count = |node| {
            layout
                .stripes
                .iter()
                .filter(|s| s.chunk_on(node).is_some())
                .count()
        };
        let fullest = up
            .map(|n| n.node)
            .max_by_key(|&node| (count(node), Reverse(node)));
        fullest
            .map(|node| node.0)
            .ok_or_else(|| TestbedError::Wrong("every rack has lost a node".to_owned()))
    }

    pub(super) async fn repair(&self, scheme: Scheme) -> Result<Repair, TestbedError> {
        let before = self.client.status().await?;
        let metered_before = self.metered(Purpose::Repair).await?;
        let what = format!("repairing chunks, {}", scheme.name());
        let progress = (self.bars)(&what, Unit::Items);
        let (begun, mut seconds) = (Instant::now(), None);
        self.client.repair_now(Some(scheme.name())).await?;
        loop {
            let status = self.client.status().await?;
            let left = status.lost_chunk_count;
            let all = before.lost_chunk_count;
            progress.advanced(all.saturating_sub(left), all);
            if left == 0 {
                seconds.get_or_insert_with(|| begun.elapsed().as_secs_f64());
            }
            // The counters are final once no repair is running.
            if let Some(seconds) = seconds.filter(|_| status.repair.running_count == 0) {
                let metered = self.metered(Purpose::Repair).await?;
                let (now, then) = (&status.repair, &before.repair);
                return Ok(Repair {
                    scheme: scheme.name().to_owned(),
                    chunk_count: now.repaired_chunk_count - then.repaired_chunk_count,
                    bytes: now.repaired_bytes - then.repaired_bytes,
                    seconds,
                    busy_s: (now.busy_ms - then.busy_ms) as f64 / 1e3,
                    planned_cross_rack_bytes: now.planned_cross_rack_bytes
                        - then.planned_cross_rack_bytes,
                    metered_cross_rack_bytes: metered - metered_before,
                });
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn read_back(&self, what: &str) -> Result<f64, TestbedError> {
        let size = self.expected.size_bytes;
        let begun = Instant::now();
        let mut verifier = Verifier::new(&self.expected);
        let progress = (self.bars)(what, Unit::Bytes);
        self.client.get(FILE, &mut verifier, &*progress).await?;
        if !verifier.is_complete() {
            let short = format!("the file is shorter than {}", bytes(size));
            return Err(TestbedError::Wrong(short));
        }
        Ok(begun.elapsed().as_secs_f64())
    }

    /// Cross-rack bytes that nodes have sent for a purpose.
    pub(super) async fn metered(&self, purpose: Purpose) -> Result<u64, TestbedError> {
        Ok(self.client.meters().await?.sum().cross_rack(purpose))
    }

    /// Cross-rack bytes planned for a purpose.
    async fn planned(&self, purpose: Purpose) -> Result<u64, TestbedError> {
        Ok(self.client.meters().await?.planned.cross_rack(purpose))
    }

    async fn wait_until_failed(&self, node: NodeId) -> Result<(), TestbedError> {
        loop {
            let nodes = self.client.nodes().await?;
            if nodes
                .iter()
                .any(|n| n.node == node && n.liveness == Liveness::Failed)
            {
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn fewest_failures_left(&self) -> Result<i32, TestbedError> {
        let status = self.client.status().await?;
        Ok(status
            .stripes_by_failures_left
            .keys()
            .next()
            .copied()
            .unwrap_or(0))
    }
}
