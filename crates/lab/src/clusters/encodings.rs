//! Times encodings on a testbed: outside, makes the testbed and starts this program in it; inside,
//! starts the cluster, stores files as replicas, has them encoded, and reports the times and all
//! placements. `ear` compares them.

use super::steps::{create, put, run_or_remove, until_all_know_all, up_options, use_and_stop};
use crate::LabError;
use crate::experiments::{EncodeBench, EncodeTime, EncodeTrial, Encodings, PutTime, SegmentPlaces};
use futures::future::try_join_all;
use gabion_client::{Client, ClientOptions};
use gabion_codec::Code;
use gabion_layout::{EncodeAfter, NodeId, ReplicaPlacement, StripeRecord, Survive, UpdateScheme};
use gabion_planner::PlanError;
use gabion_protocol::coordinator::CoordinatorOptions;
use gabion_protocol::message::{FormOrder, LifecycleRequest, PoolRequest, Purpose};
use gabion_testbed::namespaces::{Seats, Testbed, Uplink, put_in_memory, read_job};
use gabion_testbed::{LocalCluster, processor_time};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Interval of checking whether files are encoded.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Size of nearly empty blocks.
const IDLE_CHUNK_BYTES: u64 = 4 << 10;
/// Segments of such blocks.
const IDLE_SEGMENT_COUNT: u64 = 10;

/// Runs a bench on a testbed of its own.
pub(super) async fn on_testbed(bench: &EncodeBench) -> Result<Encodings, LabError> {
    let seats = Seats {
        rack_count: bench.rack_count,
        nodes_per_rack: bench.nodes_per_rack,
    };
    let uplink = Uplink {
        rate: bench.rack_bytes_per_s,
        spares_core: true,
    };
    let testbed = Testbed::of_racks(seats, bench.node_bytes_per_s, uplink, bench.is_fair);
    run_or_remove(testbed.run_job("encodings", bench, &bench.directory)).await
}

/// Runs the bench of a job on the testbed of this process.
///
/// # Errors
/// [`LabError::Testbed`] if the job cannot be read or the cluster fails.
pub async fn inside(file: &Path) -> Result<Encodings, LabError> {
    let bench: EncodeBench = read_job(file)?;
    let directory = bench.directory.join("cluster");
    create(&directory)?;
    put_in_memory(&directory).await?;
    let up = up_options(bench.rack_count, bench.nodes_per_rack, 0, None);
    let cluster = LocalCluster::open_or_make(&directory, &up)?;
    use_and_stop(cluster, async |cluster| {
        cluster.start(|| ()).await?;
        let client = gabion_wire::connect(
            cluster.coordinator()?,
            cluster.security()?,
            ClientOptions::default(),
        )
        .await?;
        until_all_know_all(&up.behaviour).await;
        let hands = Hands {
            cluster,
            client: &client,
            bench: &bench,
        };
        hands.time_all().await
    })
    .await
}

/// The parts of a trial.
struct Hands<'a> {
    cluster: &'a LocalCluster,
    client: &'a Client,
    bench: &'a EncodeBench,
}

impl Hands<'_> {
    async fn time_all(&self) -> Result<Encodings, LabError> {
        let (idle_put_s, idle_encode_s) = self.time_idle().await?;
        let mut trials = Vec::with_capacity(self.bench.trials.len());
        for (at, trial) in self.bench.trials.iter().enumerate() {
            trials.push(self.time(&format!("trial-{at}"), trial).await?);
        }
        // The coordinator of this program is started with these options.
        let usual = CoordinatorOptions::default();
        Ok(Encodings {
            idle_encode_s,
            idle_put_s,
            conversions_at_once: usual.convert_parallel,
            slice_bytes: usual.slice_bytes,
            trials,
        })
    }

    /// The time of puts and encodings of nearly empty segments.
    async fn time_idle(&self) -> Result<(f64, f64), LabError> {
        let pool = "idle";
        self.create_pool(pool, ReplicaPlacement::Ear, IDLE_CHUNK_BYTES)
            .await?;
        let segment_bytes = self.segment_bytes(IDLE_CHUNK_BYTES)?;
        let begun = Instant::now();
        for at in 0..IDLE_SEGMENT_COUNT {
            put(self.client, pool, &format!("idle-{at}"), segment_bytes).await?;
        }
        let put_s = begun.elapsed().as_secs_f64() / IDLE_SEGMENT_COUNT as f64;
        let begun = Instant::now();
        for at in 0..IDLE_SEGMENT_COUNT {
            let file = format!("idle-{at}");
            self.order(pool, Some(file.clone())).await?;
            self.until_encoded(&[file], Duration::from_millis(1))
                .await?;
        }
        let encode_s = begun.elapsed().as_secs_f64() / IDLE_SEGMENT_COUNT as f64;
        Ok((put_s, encode_s))
    }

    async fn time(&self, pool: &str, trial: &EncodeTrial) -> Result<EncodeTime, LabError> {
        let bench = self.bench;
        self.create_pool(pool, trial.placement, bench.chunk_bytes)
            .await?;
        let size_bytes = bench.segments_per_file * self.segment_bytes(bench.chunk_bytes)?;
        let files: Vec<String> = (0..bench.file_count)
            .map(|at| format!("{pool}-{at:04}"))
            .collect();
        let puts = files
            .iter()
            .map(|file| put(self.client, pool, file, size_bytes));
        try_join_all(puts).await?;
        let mut before = Vec::new();
        for file in &files {
            before.extend(self.client.layout(file).await?.stripes);
        }
        let sent_before = self.encode_cross_rack_bytes().await?;
        let (worked_before_s, busy_before_s) =
            (self.cluster.processor_s(), processor_time::of_processors()?);
        let begun = Instant::now();
        let is_over = AtomicBool::new(false);
        let encoding = async {
            self.order(pool, None).await?;
            self.until_encoded(&files, LOOK_EVERY).await?;
            is_over.store(true, Ordering::Relaxed);
            Ok::<_, LabError>(begun.elapsed().as_secs_f64())
        };
        let puts = (trial.puts_at_s.iter().enumerate())
            .map(|(at, &at_s)| self.put_at(pool, at, (begun, at_s), &is_over));
        let (seconds, puts) = futures::try_join!(encoding, try_join_all(puts))?;
        let passed_s = begun.elapsed().as_secs_f64();
        let worked_s = self.cluster.processor_s() - worked_before_s;
        let others_s = processor_time::of_processors()? - busy_before_s - worked_s;
        let mut after = Vec::new();
        for file in &files {
            after.extend(self.client.layout(file).await?.stripes);
        }
        Ok(EncodeTime {
            seconds,
            segments: segments(&before, &after)?,
            puts: puts.into_iter().flatten().collect(),
            encode_cross_rack_bytes: self.encode_cross_rack_bytes().await? - sent_before,
            cores: worked_s / passed_s,
            other_cores: others_s / passed_s,
        })
    }

    /// Puts a segment at its time, unless everything is encoded by then.
    async fn put_at(
        &self,
        pool: &str,
        number: usize,
        (begun, at_s): (Instant, f64),
        is_over: &AtomicBool,
    ) -> Result<Option<PutTime>, LabError> {
        while begun.elapsed().as_secs_f64() < at_s {
            if is_over.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let left = Duration::from_secs_f64(at_s).saturating_sub(begun.elapsed());
            tokio::time::sleep(left.min(LOOK_EVERY)).await;
        }
        if is_over.load(Ordering::Relaxed) {
            return Ok(None);
        }
        // It has connections of its own, like another client.
        let client = gabion_wire::connect(
            self.cluster.coordinator()?,
            self.cluster.security()?,
            ClientOptions::default(),
        )
        .await?;
        let size_bytes = self.segment_bytes(self.bench.chunk_bytes)?;
        let file = format!("{pool}-put-{number}");
        let sent = Instant::now();
        put(&client, pool, &file, size_bytes).await?;
        let seconds = sent.elapsed().as_secs_f64();
        Ok(Some(PutTime {
            replicas: nodes_of(&client.layout(&file).await?.stripes),
            at_s,
            seconds,
        }))
    }

    async fn create_pool(
        &self,
        name: &str,
        placement: ReplicaPlacement,
        chunk_bytes: u64,
    ) -> Result<(), LabError> {
        let request = PoolRequest {
            name: name.to_owned(),
            survive: Survive::Racks(1),
            code: Some(self.bench.code.clone()),
            chunk_bytes,
            update: UpdateScheme::Fo,
            reserve: None,
            append: None,
            inline_bytes: 0,
            lifecycle: Some(LifecycleRequest {
                replica_count: self.bench.replica_count,
                after: EncodeAfter::Asked,
                placement,
            }),
        };
        self.client.create_pool(request).await?;
        Ok(())
    }

    fn segment_bytes(&self, chunk_bytes: u64) -> Result<u64, LabError> {
        let code: Code = self.bench.code.parse().map_err(PlanError::from)?;
        Ok(code.k() as u64 * chunk_bytes)
    }

    async fn order(&self, pool: &str, file: Option<String>) -> Result<(), LabError> {
        let order = FormOrder {
            pool: pool.to_owned(),
            file,
            is_encoded: true,
        };
        Ok(self.client.order_form(order).await?)
    }

    async fn until_encoded(&self, files: &[String], every: Duration) -> Result<(), LabError> {
        for file in files {
            while !self.client.layout(file).await?.has_form(true) {
                tokio::time::sleep(every).await;
            }
        }
        Ok(())
    }

    async fn encode_cross_rack_bytes(&self) -> Result<u64, LabError> {
        // Puts are metered as encodings too, but clients are in no rack.
        let meters = self.client.meters().await?;
        Ok(meters.sum().cross_rack(Purpose::Encode))
    }
}

fn nodes_of(stripes: &[StripeRecord]) -> Vec<Vec<NodeId>> {
    stripes.iter().map(|stripe| stripe.nodes.clone()).collect()
}

/// Former and current places of segments: the same number of blocks for each stripe.
fn segments(
    before: &[StripeRecord],
    after: &[StripeRecord],
) -> Result<Vec<SegmentPlaces>, LabError> {
    let block_count = before.len().checked_div(after.len()).unwrap_or(0);
    if block_count * after.len() != before.len() || block_count == 0 {
        return Err(LabError::NotBySegment);
    }
    let places = before.chunks(block_count).zip(after);
    Ok(places
        .map(|(blocks, stripe)| SegmentPlaces {
            replicas: nodes_of(blocks),
            placement: stripe.nodes.clone(),
        })
        .collect())
}
