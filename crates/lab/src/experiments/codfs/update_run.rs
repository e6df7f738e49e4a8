//! Shared parts of the experiments on update schemes (`CodFS` thesis, sections 5.2 and 5.3.1): put
//! segments, update them at random or after a trace, read them, lose two nodes and recover, on this
//! machine's disk and on the model of the thesis's.
//!
//! Each phase runs on real stores with one thread a client, and each store's disk operations drive
//! one disk model a node. On the model the phase takes as long as its busiest disk: this assumes
//! clients that keep all disks busy, and a network that is not a bottleneck.

use crate::disk_model::{DiskModel, Drive, ST1000DM003};
use crate::error::LabError;
use crate::experiment::{Finding, Report, Scale, Session, Table};
use crate::plot::Plot;
use crate::storage::{IoCount, Shape, Storage, replay, replay_unsynced};
use gabion_layout::{ByteRange, ChunkIndex, NodeId, UpdateScheme};
use gabion_store::{Options, StoreCounts};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub(super) const MIB: u64 = 1 << 20;
/// Nodes and clients of the thesis.
pub(super) const NODE_COUNT: u32 = 10;
const CLIENT_COUNT: u64 = 10;
/// Random updates of a chunk's bytes: 128 KiB where chunks have 4 MiB, as in the thesis.
pub(super) const UPDATES_PER_CHUNK: u64 = 32;
/// Chunk bytes that each node of the thesis held in its synthetic test: 10 clients wrote 2 GB each,
/// half as much again for parity, on 10 nodes.
const THESIS_NODE_BYTES: u64 = 3 << 30;
/// Bytes of a journal segment.
const JOURNAL_SEGMENT_BYTES: u64 = 16 * MIB;

/// One part of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Phase {
    /// Bytes put, updated, read or recovered.
    pub(super) bytes: u64,
    /// Operations of clients.
    pub(super) operations: u64,
    /// Time on this machine, of the busiest modelled disk, and of that if nothing is synced, in seconds.
    pub(super) seconds: Rates,
    /// The operations of all stores on their disks.
    pub(super) io: IoCount,
}

impl Phase {
    /// Megabytes a second.
    pub(super) fn mb_per_s(&self) -> Rates {
        self.seconds
            .map(|seconds| self.bytes as f64 / 1e6 / seconds.max(1e-9))
    }

    /// Operations a second, with the time of their background work included.
    pub(super) fn per_s(&self, settle: &Self) -> Rates {
        let seconds = [0, 1, 2].map(|at: usize| self.seconds[at] + settle.seconds[at]);
        seconds.map(|seconds| self.operations as f64 / seconds.max(1e-9))
    }
}

/// A value on this machine, on the model, and on the model if nothing is synced.
pub(super) type Rates = [f64; 3];
/// The position of the last of them.
pub(super) const UNSYNCED: usize = 2;

/// An update: stripe, offset in it, and length.
pub(super) type Update = (u64, u64, u64);

/// A cluster's storage under test, with a model of each node's disk.
pub(super) struct Bench {
    pub(super) storage: Storage,
    models: Vec<DiskModel>,
    /// The same drives under stores that never sync.
    unsynced: Vec<DiskModel>,
    stripe_count: u64,
    seed: u64,
}

impl Bench {
    /// Empty stores for `stripe_count` stripes of `code` under a scheme. The space behind each
    /// parity chunk is one chunk, as in the thesis; logs are merged only on reads.
    pub(super) fn new(
        session: &Session<'_>,
        code: &str,
        chunk_bytes: u64,
        scheme: UpdateScheme,
        stripe_count: u64,
    ) -> Result<Self, LabError> {
        let code = code
            .parse()
            .expect("the experiments name codes that there are");
        let shape = Shape {
            code,
            chunk_bytes,
            scheme,
            reserve_bytes: chunk_bytes,
            node_count: NODE_COUNT,
            stripe_count,
            options: Options {
                segment_bytes: JOURNAL_SEGMENT_BYTES,
                free_bytes: 0,
                segment_count_max: usize::MAX,
                log_bytes: u64::MAX,
            },
        };
        let stored_bytes = stripe_count * shape.code.n() as u64 * chunk_bytes;
        let directory = session.empty_directory(&format!("{scheme}"))?;
        let storage = Storage::create(&directory, shape)?;
        let model = DiskModel::new(drive(stored_bytes / u64::from(NODE_COUNT)));
        Ok(Self {
            models: vec![model.clone(); NODE_COUNT as usize],
            unsynced: vec![model; NODE_COUNT as usize],
            storage,
            stripe_count,
            seed: session.seed,
        })
    }

    /// Writes all stripes.
    pub(super) fn put(&mut self) -> Result<Phase, LabError> {
        let stripe_bytes = self.storage.geometry().stripe_bytes();
        let data: Vec<u8> = (0..stripe_bytes).map(|at| (at ^ (at >> 9)) as u8).collect();
        let count = self.stripe_count;
        self.phase(count, stripe_bytes * count, |storage, stripe| {
            storage.put(stripe, &data)
        })
    }

    /// Overwrites each stripe's bytes once, in records and in random order.
    pub(super) fn update_at_random(&mut self) -> Result<Phase, LabError> {
        let stripe_bytes = self.storage.geometry().stripe_bytes();
        let record_bytes = self.storage.geometry().chunk_bytes() / UPDATES_PER_CHUNK;
        let updates = random_updates(self.stripe_count, stripe_bytes, record_bytes, self.seed);
        self.update(&updates)
    }

    /// Makes updates in their order, as far as clients that work side by side keep it, with nothing in
    /// memory at first.
    pub(super) fn update(&mut self, updates: &[Update]) -> Result<Phase, LabError> {
        self.drop_caches()?;
        let bytes = updates.iter().map(|&(_, _, length)| length).sum();
        let longest = updates.iter().map(|&(_, _, length)| length).max();
        let new = vec![0xa5; longest.unwrap_or(0) as usize + 255];
        self.phase(updates.len() as u64, bytes, |storage, at| {
            let (stripe, offset, length) = updates[at as usize];
            // Other bytes each time, so that deltas are not zero.
            let from = (at % 255) as usize;
            storage.update(stripe, offset, &new[from..from + length as usize])
        })
    }

    /// Brings data chunks up to date that are updated in place, which clients do not wait for.
    pub(super) fn settle(&mut self) -> Result<Phase, LabError> {
        self.phase(1, 0, |storage, _| storage.apply_in_place())
    }

    /// Reads all data, with nothing in memory at first.
    pub(super) fn read(&mut self) -> Result<Phase, LabError> {
        self.drop_caches()?;
        let all = ByteRange::new(0, self.storage.geometry().stripe_bytes());
        let count = self.stripe_count;
        self.phase(count, all.length * count, |storage, stripe| {
            storage.read(stripe, all, &[]).map(drop)
        })
    }

    /// Recovers what two nodes held, with nothing in memory at first.
    pub(super) fn recover(&mut self) -> Result<Phase, LabError> {
        self.drop_caches()?;
        let failed = [NodeId(0), NodeId(2)];
        let recovered_bytes = AtomicU64::new(0);
        let mut phase = self.phase(self.stripe_count, 0, |storage, stripe| {
            let bytes = storage.recover(stripe, &failed)?;
            recovered_bytes.fetch_add(bytes, Ordering::Relaxed);
            Ok(())
        })?;
        phase.bytes = recovered_bytes.into_inner();
        Ok(phase)
    }

    /// Fragments of an up-to-date chunk beyond those of the chunk alone, on average: of data chunks and
    /// of parity chunks.
    pub(super) fn fragments(&self) -> Result<[f64; 2], LabError> {
        let k = self.storage.geometry().k();
        let (mut sums, mut counts) = ([0.0; 2], [0.0_f64; 2]);
        for store in self.storage.stores() {
            for info in store.chunks()? {
                let found = store.fragments(info.chunk)?;
                let kind = usize::from(info.chunk.index >= ChunkIndex::new(k));
                sums[kind] += found.total_count.saturating_sub(found.chunk_count) as f64;
                counts[kind] += 1.0;
            }
        }
        Ok([0, 1].map(|kind| sums[kind] / counts[kind].max(1.0)))
    }

    /// Updates whose record waited for a merge of its reserve, of all nodes.
    pub(super) fn stalled_count(&self) -> u64 {
        let stalled = |counts: StoreCounts| counts.stalled_append_count;
        self.storage
            .stores()
            .iter()
            .map(|store| stalled(store.counts()))
            .sum()
    }

    fn drop_caches(&mut self) -> Result<(), LabError> {
        self.storage.drop_caches()?;
        let models = self.models.iter_mut().chain(&mut self.unsynced);
        models.for_each(DiskModel::drop_caches);
        Ok(())
    }

    /// Runs operations `0..count` by all clients side by side, and their recording on the model.
    fn phase(
        &mut self,
        count: u64,
        bytes: u64,
        work: impl Fn(&Storage, u64) -> Result<(), LabError> + Sync,
    ) -> Result<Phase, LabError> {
        let storage = &self.storage;
        storage.take_recordings();
        let next = AtomicU64::new(0);
        let client = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= count {
                    return Ok(());
                }
                work(storage, at)?;
            }
        };
        let begun = Instant::now();
        let done = std::thread::scope(|scope| {
            let clients = (0..CLIENT_COUNT).map(|_| scope.spawn(client));
            let clients: Vec<_> = clients.collect();
            let join = |client: std::thread::ScopedJoinHandle<'_, Result<(), LabError>>| {
                client.join().expect("clients do not panic")
            };
            clients
                .into_iter()
                .map(join)
                .collect::<Result<Vec<()>, LabError>>()
        });
        let real_s = begun.elapsed().as_secs_f64();
        done?;
        let mut phase = Phase {
            bytes,
            operations: count,
            ..Phase::default()
        };
        let mut busiest_ns = [0; 2];
        let drives = self.models.iter_mut().zip(&mut self.unsynced);
        for ((model, unsynced), operations) in drives.zip(storage.take_recordings()) {
            phase.io.add(&operations);
            let times_ns = [
                replay(model, &operations),
                replay_unsynced(unsynced, &operations),
            ];
            for (busiest_ns, time_ns) in busiest_ns.iter_mut().zip(times_ns) {
                *busiest_ns = time_ns.max(*busiest_ns);
            }
        }
        let [model_s, unsynced_s] = busiest_ns.map(|ns| ns as f64 / 1e9);
        phase.seconds = [real_s, model_s, unsynced_s];
        Ok(phase)
    }
}

/// Updates that overwrite each stripe's bytes once, in records and in random order.
pub(super) fn random_updates(
    stripe_count: u64,
    stripe_bytes: u64,
    record_bytes: u64,
    seed: u64,
) -> Vec<Update> {
    let mut updates: Vec<Update> = Vec::new();
    for stripe in 0..stripe_count {
        let offsets = (0..stripe_bytes / record_bytes).map(|at| at * record_bytes);
        updates.extend(offsets.map(|offset| (stripe, offset, record_bytes)));
    }
    updates.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    updates
}

/// The thesis's drive, as much smaller as our data is, so that seeks are as long as the thesis's.
fn drive(node_bytes: u64) -> Drive {
    let share = (node_bytes as f64 / THESIS_NODE_BYTES as f64).clamp(0.001, 1.0);
    Drive {
        capacity_bytes: (ST1000DM003.capacity_bytes as f64 * share) as u64,
        ..ST1000DM003
    }
}

/// Segments of the synthetic test and bytes of their chunks.
pub(super) fn synthetic_size(scale: Scale) -> (u64, u64) {
    scale.pick((5, MIB / 2), (20, 4 * MIB), (200, 4 * MIB))
}

/// The place of a measurement, and its position in a pair of rates.
pub(super) const PLACES: [(&str, usize); 2] = [("disk", 0), (MODEL, 1)];
/// The name of the place that is judged.
pub(super) const MODEL: &str = "model";

/// The reading of figures that were measured on this machine's disk.
const ON_THIS_DISK: &str = "this machine's disk instead of the thesis's";

/// Says which disk the experiment is judged by.
pub(super) fn choose_disk(report: &mut Report) {
    report.choose(
        "the disk",
        "the model of the thesis's drive",
        "the thesis measured on drives that seek, and its results show the cost of seeks; this machine's disk does not \
        seek",
    );
}

/// A finding of a place, and why it differs on the model. Those of this machine's disk are shown and not judged.
pub(super) fn explained(finding: Finding, place: &str, cause: &str) -> Finding {
    if place == "disk" {
        finding.reading(ON_THIS_DISK).because(DISK_DIFFERS)
    } else {
        finding.because(cause)
    }
}

/// Figures of the model as it is judged and with nothing synced, beside the thesis's.
pub(super) fn causes(rows: impl IntoIterator<Item = (String, [f64; 2], String)>) -> Table {
    let columns = ["figure", "every update synced", "nothing synced", "thesis"];
    let title =
        "Causes: the same operations on the model if updates wait in memory, as in the thesis";
    let mut table = Table::new(title, &columns);
    for (what, [synced, unsynced], thesis) in rows {
        table.row([what.into(), synced.into(), unsynced.into(), thesis.into()]);
    }
    table
}

/// Bars of the rates of all that was measured on this machine and on the model, side by side.
pub(super) fn bars<M>(
    (name, title): (String, &str),
    labels: [&str; 2],
    all: &[M],
    category: impl Fn(&M) -> String,
    rates: impl Fn(&M) -> Rates,
) -> Plot {
    let series = PLACES.map(|(place, at)| {
        let values = all.iter().map(|measured| rates(measured)[at]);
        (place.to_owned(), values.collect())
    });
    let categories = all.iter().map(category).collect();
    Plot::bars(name, title, labels, categories, series.into())
}

/// Returns notes on reading the model and the measurement, for every experiment that uses both.
pub(super) fn notes() -> Vec<String> {
    vec![
        "'disk' is this machine's disk: 10 stores in one process with 10 threads, every update durable; it shows \
        processor time and syncs more than seeks"
            .to_owned(),
        format!(
            "'model' is the thesis's Seagate ST1000DM003 per node, driven by the stores' disk operations: {:.1} ms \
            average seek, {:.1} ms to the next track, {:.2} ms a turn, {} MB/s; the drive is smaller than 1 TB in \
            proportion to the data, which the thesis has as 3 GiB on each node; a phase takes as long as its busiest \
            disk",
            ST1000DM003.average_seek_ns as f64 / 1e6,
            ST1000DM003.shortest_seek_ns as f64 / 1e6,
            ST1000DM003.rotation_ns as f64 / 1e6,
            ST1000DM003.bytes_per_s / 1_000_000
        ),
        "the thesis does not sync its updates; ours are durable at every participant before they are \
         acknowledged, and full overwrite goes through a journal so that a crash cannot tear it"
            .to_owned(),
    ]
}

/// Reasons why this machine's figures are not the thesis's.
const DISK_DIFFERS: &str = "this machine's disk does not seek, so schemes differ only by bytes, syncs and \
processor time, and by other load on the machine";

/// Parts of the thesis's test bed that the experiments omit.
pub(super) fn scaled(session: &Session<'_>) -> Vec<String> {
    let (segments, chunk_bytes) = synthetic_size(session.scale);
    vec![
        format!(
            "{segments} segments of {} MiB instead of 1280 of 16 MiB, and no network",
            (4 * chunk_bytes) as f64 / MIB as f64
        ),
        "clients are threads, nodes are stores in one process".to_owned(),
    ]
}
