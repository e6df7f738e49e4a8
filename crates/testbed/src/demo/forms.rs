//! The demo's step in which replicated blocks become a stripe and blocks again, during writes.

use super::report::Form;
use super::steps::{CHUNK_BYTES, Demo, pool};
use crate::error::TestbedError;
use crate::progress::Unit;
use gabion_layout::{ByteRange, EncodeAfter, ReplicaPlacement};
use gabion_protocol::message::{FormOrder, LifecycleRequest, PoolRequest, Purpose};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::{Duration, Instant};

const POOL: &str = "new";
const FILE: &str = "log";
const REPLICA_COUNT: usize = 3;
/// Segments of the file.
const SEGMENT_COUNT: u64 = 2;
const WRITE_BYTES: usize = 4096;
/// Interval between writes, which make the file hot.
const WRITE_EVERY: Duration = Duration::from_millis(100);
const SEED: u64 = 6;

impl Demo<'_> {
    /// Stores a file as replicas, has it encoded and replicated again during writes and reads, and
    /// compares every byte after each change.
    pub(super) async fn change_forms(&mut self) -> Result<(), TestbedError> {
        let request = PoolRequest {
            lifecycle: Some(LifecycleRequest {
                replica_count: REPLICA_COUNT,
                after: EncodeAfter::Asked,
                placement: ReplicaPlacement::Ear,
            }),
            ..pool(POOL, Some(self.report.code.clone()), CHUNK_BYTES)
        };
        self.client.create_pool(request).await?;
        let size = SEGMENT_COUNT * self.stripe_bytes;
        let mut random = ChaCha8Rng::seed_from_u64(SEED);
        let mut expected = vec![0; size as usize];
        random.fill_bytes(&mut expected);
        let progress = (self.bars)("storing three replicas of each block", Unit::Bytes);
        let put = self
            .client
            .put(FILE, Some(POOL), &*expected, size, &*progress);
        put.await?;
        drop(progress);
        for is_encoded in [true, false] {
            let form = self
                .change_form(is_encoded, &mut expected, &mut random)
                .await?;
            self.report.forms.push(form);
        }
        Ok(self.client.rm(FILE).await?)
    }

    async fn change_form(
        &self,
        is_encoded: bool,
        expected: &mut [u8],
        random: &mut ChaCha8Rng,
    ) -> Result<Form, TestbedError> {
        let name = if is_encoded { "encode" } else { "promote" };
        let waiting = (self.bars)(&format!("{name}: writing on"), Unit::Unknown);
        let before = self.client.status().await?.lifecycle;
        let metered_before = self.metered(Purpose::Encode).await?;
        let order = FormOrder {
            pool: POOL.to_owned(),
            file: Some(FILE.to_owned()),
            is_encoded,
        };
        let begun = Instant::now();
        self.client.order_form(order).await?;
        let file = self.client.open(FILE).await?;
        let (mut write_count, mut slowest_s) = (0, 0.0_f64);
        while !self.client.layout(FILE).await?.has_form(is_encoded) {
            let mut new = vec![0; WRITE_BYTES];
            random.fill_bytes(&mut new);
            let at = random.random_range(0..=expected.len() - WRITE_BYTES);
            let sent = Instant::now();
            file.write(at as u64, new.clone().into()).await?;
            slowest_s = slowest_s.max(sent.elapsed().as_secs_f64());
            expected[at..at + WRITE_BYTES].copy_from_slice(&new);
            write_count += 1;
            tokio::time::sleep(WRITE_EVERY).await;
        }
        let seconds = begun.elapsed().as_secs_f64();
        drop(waiting);
        let read = file.read(ByteRange::new(0, expected.len() as u64)).await?;
        if read != expected {
            let wrong = format!("after {name}, {FILE} differs from the written bytes");
            return Err(TestbedError::Wrong(wrong));
        }
        let after = self.client.status().await?.lifecycle;
        let planned = |count: fn(&gabion_protocol::message::LifecycleStatus) -> u64| {
            count(&after) - count(&before)
        };
        Ok(Form {
            name: name.to_owned(),
            bytes: expected.len() as u64,
            seconds,
            write_count,
            slowest_write_ms: slowest_s * 1e3,
            begun_anew_count: planned(|status| status.outrun_count),
            data_cross_rack_bytes: planned(|status| status.planned_download_cross_rack_bytes),
            planned_cross_rack_bytes: planned(|status| {
                status.planned_encode_cross_rack_bytes + status.planned_promote_cross_rack_bytes
            }),
            metered_cross_rack_bytes: self.metered(Purpose::Encode).await? - metered_before,
        })
    }
}
