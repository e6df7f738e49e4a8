//! Measures pools of a running cluster under synthetic requests: a file of each pool, one workload after another, with
//! the pools in turn.
//!
//! The requests are those of [`replay`](crate::replay): the same engine keeps the order of requests to the same bytes
//! and knows the contents of each file, which are compared after the measurements.

mod cost;
mod workload;

pub use cost::Cost;
pub use workload::{Order, Workload};

use crate::cluster::{LocalCluster, Started};
use crate::contents::{Contents, INITIAL, Initial};
use crate::error::TestbedError;
use crate::progress::{Bars, Unit};
use crate::replay::{Access, Engine, Measured, Target};
use cost::Meters;
use futures::future::join_all;
use futures::io::AllowStdIo;
use gabion_client::Client;
use gabion_layout::ByteRange;
use std::cell::Cell;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// Bytes of the file that measures the disk alone.
const PLAIN_BYTES: usize = 4 << 10;
/// Measurements of the disk alone.
const PLAIN_COUNT: u64 = 50;
/// Reads that open the connections of a file before anything is measured.
const WARM_UP_COUNT: u64 = 16;
/// Writes at once while the cluster takes notice of a killed node.
const NOTICE_DEPTH: usize = 16;
/// Interval at which the state of repairs is asked.
const REPAIR_POLL: Duration = Duration::from_millis(100);
/// A repair that repairs no chunk for this long is not waited for.
const REPAIR_STALL: Duration = Duration::from_secs(30);

/// The parameters of a benchmark.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Names of the pools, each once.
    pub pools: Vec<String>,
    /// Bytes of the file in each of them.
    pub file_bytes: NonZeroU64,
    /// The workloads, in their order.
    pub workloads: Vec<Workload>,
    /// Time of each measurement.
    pub time: Duration,
    /// Rounds of each workload on each pool, which are added up.
    pub round_count: u32,
    /// Seed of the places of random requests, which are the same in all pools.
    pub seed: u64,
    /// The node that is killed after the first measurements, and started again at the end.
    pub node: Option<u32>,
}

/// The state of the cluster during a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// As it was found.
    Found,
    /// A node was killed, and its chunks are not repaired.
    Degraded,
    /// Its chunks are being repaired.
    Repairing,
}

impl State {
    /// A word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Found => "as found",
            Self::Degraded => "degraded",
            Self::Repairing => "during repair",
        }
    }
}

/// The measurements of one workload on one pool.
#[derive(Clone, Debug)]
pub struct Line {
    /// Name of the pool.
    pub pool: String,
    /// State of the cluster.
    pub state: State,
    /// The workload.
    pub workload: Workload,
    /// Time from the first request to the last reply, of all rounds.
    pub seconds: f64,
    /// The requests.
    pub measured: Measured,
    /// Their cost.
    pub cost: Cost,
}

impl Line {
    /// Whether both are of one pool, state and workload.
    fn is_of_same(&self, other: &Self) -> bool {
        self.pool == other.pool && self.state == other.state && self.workload == other.workload
    }

    /// Adds a further round.
    fn add(&mut self, round: &Self) {
        self.seconds += round.seconds;
        self.measured.bytes += round.measured.bytes;
        self.measured.latencies.merge(&round.measured.latencies);
        self.cost.add(&round.cost);
    }
}

/// All measurements.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// One for each workload and pool in each state.
    pub lines: Vec<Line>,
    /// The longest wait of a write in milliseconds, of one in every stripe right after a node was killed.
    pub longest_wait_ms: Option<f64>,
    /// Seconds of the repair of the killed node, if one was killed.
    pub repair_seconds: Option<f64>,
    /// Reasons for which measurements were left out.
    pub left_out: Vec<String>,
    /// Bytes that were compared at the end.
    pub verified_bytes: u64,
    /// Median of a plain write and sync of 4 KiB on the disk of the cluster's directory, in milliseconds, if
    /// the cluster has one.
    pub plain_write_ms: Option<f64>,
}

/// A pool under measurement.
struct Subject {
    pool: String,
    file: String,
    stripe_bytes: NonZeroU64,
    engine: Engine,
}

/// A bench of a cluster.
pub struct Bench<'a> {
    client: &'a Client,
    setting: &'a Setting,
    /// The cluster of this machine, if the client's is one.
    local: Option<&'a LocalCluster>,
    bars: Bars,
    subjects: Vec<Subject>,
    outcome: Outcome,
}

impl<'a> Bench<'a> {
    /// Names the files that the bench makes: `tag` must be different for benches that run at the same time.
    #[must_use]
    pub fn file_names(setting: &Setting, tag: &str) -> Vec<String> {
        let pools = setting.pools.iter();
        pools.map(|pool| format!("bench-{pool}-{tag}")).collect()
    }

    /// Stores a file in each pool, under the names of [`Self::file_names`], and removes none of them.
    ///
    /// # Errors
    /// [`TestbedError::Client`] if a file cannot be stored; [`TestbedError::NoBench`] for a block that is larger than
    /// the file, or a node to kill without a cluster of this machine.
    pub async fn prepare(
        client: &'a Client,
        setting: &'a Setting,
        local: Option<&'a LocalCluster>,
        files: &[String],
        bars: Bars,
    ) -> Result<Self, TestbedError> {
        check(setting, local)?;
        let mut bench = Self {
            client,
            setting,
            local,
            bars,
            subjects: Vec::new(),
            outcome: Outcome::default(),
        };
        for (pool, file) in setting.pools.iter().zip(files) {
            let subject = bench.subject(pool, file).await?;
            bench.subjects.push(subject);
        }
        Ok(bench)
    }

    async fn subject(&self, pool: &str, name: &str) -> Result<Subject, TestbedError> {
        let size = self.setting.file_bytes.get();
        let progress = (self.bars)(&format!("storing a file in {pool}"), Unit::Bytes);
        let source = AllowStdIo::new(Initial::new(size));
        let put = self
            .client
            .put(name, Some(pool), source, size, &*progress)
            .await?;
        let geometry = put.pool.spec.geometry();
        let geometry = geometry.map_err(|error| TestbedError::Wrong(error.to_string()))?;
        let mut contents = Contents::default();
        contents.overwrite(ByteRange::new(0, size), INITIAL);
        let stripe_bytes = NonZeroU64::new(geometry.stripe_bytes()).expect("a stripe has bytes");
        let target = Target::Direct {
            file: self.client.open(name).await?,
            stripe_bytes,
        };
        let mut engine = Engine::new(target, contents, 1, false);
        for turn in 0..WARM_UP_COUNT {
            let offset = size / WARM_UP_COUNT * turn;
            let range = ByteRange::new(offset, (size - offset).min(PLAIN_BYTES as u64));
            engine.start(Access::Read, range, None).await?;
        }
        engine.settle().await?;
        Ok(Subject {
            pool: pool.to_owned(),
            file: name.to_owned(),
            stripe_bytes,
            engine,
        })
    }

    /// Measures everything, then compares the files with what was written.
    ///
    /// # Errors
    /// [`TestbedError::Differs`] for wrong bytes; [`TestbedError::Client`] for a request that failed; those of killing
    /// and starting a node, which is started again after an error too.
    pub async fn run(mut self) -> Result<Outcome, TestbedError> {
        if let Some(local) = self.local {
            let median = cost::plain_write_ms(local.directory(), PLAIN_BYTES, PLAIN_COUNT)?;
            self.outcome.plain_write_ms = Some(median);
        }
        self.measure_all(State::Found).await?;
        if let (Some(node), Some(local)) = (self.setting.node, self.local) {
            local.kill_node(node).await?;
            let measured = self.measure_loss(node).await;
            let started = local.start_node(node).await;
            measured?;
            if !matches!(started?, Started::Serves | Started::Waits(_)) {
                let note = format!("node {node} was restarted and has not joined");
                self.outcome.left_out.push(note);
            }
        }
        self.verify().await?;
        Ok(self.outcome)
    }

    /// Writes once into every stripe, so that the cluster takes notice of the killed node.
    async fn meet_loss(&mut self) -> Result<(), TestbedError> {
        let size = self.setting.file_bytes.get();
        let mut longest_ms: f64 = 0.0;
        for subject in &mut self.subjects {
            subject.engine.set_depth(NOTICE_DEPTH);
            for offset in (0..size).step_by(subject.stripe_bytes.get() as usize) {
                let range = ByteRange::new(offset, (size - offset).min(PLAIN_BYTES as u64));
                subject.engine.start(Access::Write, range, None).await?;
            }
            let (writes, _) = subject.engine.settle().await?;
            longest_ms = longest_ms.max(writes.latencies.rank_ms(1.0));
        }
        self.outcome.longest_wait_ms = Some(longest_ms);
        Ok(())
    }

    /// Measures with a node killed: degraded, then during the repair of its chunks.
    async fn measure_loss(&mut self, node: u32) -> Result<(), TestbedError> {
        self.meet_loss().await?;
        self.measure_all(State::Degraded).await?;
        let progress = (self.bars)("measuring until the repair ends", Unit::Unknown);
        self.client.repair_now(None).await?;
        let is_over = Cell::new(false);
        let client = self.client;
        let repaired = async {
            let done = repaired(client).await;
            is_over.set(true);
            done
        };
        let measured = self.measure_while(&is_over);
        let (repaired, measured) = futures::future::join(repaired, measured).await;
        drop(progress);
        measured?;
        match repaired? {
            Repaired::Whole(seconds) => self.outcome.repair_seconds = Some(seconds),
            Repaired::Stalled(reason) => {
                let sentence = format!("the repair of node {node} did not end: {reason}");
                self.outcome.left_out.push(sentence);
            }
        }
        Ok(())
    }

    /// Measures the random workloads until the repair is over.
    async fn measure_while(&mut self, is_over: &Cell<bool>) -> Result<(), TestbedError> {
        let all = self.setting.workloads.iter();
        let mut random: Vec<Workload> = all.filter(|w| w.order == Order::Random).copied().collect();
        // A repair may be short, so the usual depth goes first.
        random.sort_by_key(|workload| workload.depth != 16);
        for &workload in &random {
            for at in 0..self.subjects.len() {
                if is_over.get() {
                    let note =
                        "some workloads are missing, because the repair ended before their start";
                    self.outcome.left_out.push(note.to_owned());
                    return Ok(());
                }
                let state = (State::Repairing, 0);
                self.measure(at, workload, state, || is_over.get()).await?;
            }
        }
        Ok(())
    }

    /// Measures each workload on each pool, in rounds. Degraded measurements end when a repair begins.
    async fn measure_all(&mut self, state: State) -> Result<(), TestbedError> {
        let rounds = u64::from(self.setting.round_count);
        let count = rounds * (self.setting.workloads.len() * self.subjects.len()) as u64;
        let progress = (self.bars)(&format!("measuring, {}", state.name()), Unit::Items);
        let mut done = 0;
        for round in 0..rounds {
            for &workload in &self.setting.workloads {
                for at in 0..self.subjects.len() {
                    if state == State::Degraded && self.repair_has_begun().await? {
                        let note = "degraded workloads are missing, because the coordinator began to repair";
                        self.outcome.left_out.push(note.to_owned());
                        return Ok(());
                    }
                    self.measure(at, workload, (state, round), || false).await?;
                    done += 1;
                    progress.advanced(done, count);
                }
            }
        }
        Ok(())
    }

    async fn repair_has_begun(&self) -> Result<bool, TestbedError> {
        let status = self.client.status().await?;
        Ok(status.repair.running_count > 0)
    }

    /// Measures one workload on one pool, for the setting's time or until it is over, and adds it to its line.
    async fn measure(
        &mut self,
        at: usize,
        workload: Workload,
        (state, round): (State, u64),
        is_over: impl Fn() -> bool,
    ) -> Result<(), TestbedError> {
        let before = Meters::read(self.client, self.local).await?;
        let subject = &mut self.subjects[at];
        let mut places = workload.places(self.setting.file_bytes, self.setting.seed + round);
        subject.engine.set_depth(workload.depth);
        let begun = Instant::now();
        while begun.elapsed() < self.setting.time && !is_over() {
            let range = places();
            subject.engine.start(workload.access, range, None).await?;
        }
        let (writes, reads) = subject.engine.settle().await?;
        let line = Line {
            pool: subject.pool.clone(),
            state,
            workload,
            seconds: begun.elapsed().as_secs_f64(),
            measured: match workload.access {
                Access::Read => reads,
                Access::Write => writes,
            },
            cost: Meters::read(self.client, self.local).await?.since(&before),
        };
        let mut lines = self.outcome.lines.iter_mut();
        match lines.find(|other| other.is_of_same(&line)) {
            Some(same) => same.add(&line),
            None => self.outcome.lines.push(line),
        }
        Ok(())
    }

    async fn verify(&mut self) -> Result<(), TestbedError> {
        let progress = (self.bars)("comparing the files with the written bytes", Unit::Bytes);
        let files = self.subjects.iter().map(|subject| async {
            let file = self.client.open(&subject.file).await?;
            let contents = subject.engine.contents();
            contents
                .verify(&file, |done, all| progress.advanced(done, all))
                .await
        });
        for verified in join_all(files).await {
            self.outcome.verified_bytes += verified?;
        }
        Ok(())
    }
}

/// Refuses what cannot be measured.
fn check(setting: &Setting, local: Option<&LocalCluster>) -> Result<(), TestbedError> {
    let largest = setting.workloads.iter().map(|w| w.block_bytes.get()).max();
    if largest.is_some_and(|largest| largest > setting.file_bytes.get()) {
        return Err(TestbedError::NoBench(
            "a block is larger than the file; choose a smaller --block or a larger --size",
        ));
    }
    match (setting.node, local) {
        (Some(node), Some(local)) => local.check_node(node),
        (Some(_), None) => Err(TestbedError::NoBench(
            "only nodes of a cluster on this machine can be killed; name the cluster's directory with --dir",
        )),
        (None, _) => Ok(()),
    }
}

/// The end of a repair.
enum Repaired {
    /// No chunk is lost, after these seconds.
    Whole(f64),
    /// Chunks stay lost, for this reason.
    Stalled(String),
}

/// Waits until no chunk is lost, as long as chunks are repaired.
async fn repaired(client: &Client) -> Result<Repaired, TestbedError> {
    let begun = Instant::now();
    let mut last = (u64::MAX, begun);
    loop {
        let status = client.status().await?;
        let repair = status.repair;
        let left = status.lost_chunk_count + repair.queued_chunk_count + repair.running_count;
        if left == 0 {
            return Ok(Repaired::Whole(begun.elapsed().as_secs_f64()));
        }
        if left != last.0 {
            last = (left, Instant::now());
        } else if last.1.elapsed() > REPAIR_STALL {
            let reason = repair.last_error.unwrap_or_else(|| {
                format!("no chunk was repaired for {} s", REPAIR_STALL.as_secs())
            });
            return Ok(Repaired::Stalled(reason));
        }
        tokio::time::sleep(REPAIR_POLL).await;
    }
}
