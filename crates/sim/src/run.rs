//! One run: a cluster drawn from a seed, fault periods and recoveries, and the result.

use crate::client::SimClient;
use crate::cluster::Cluster;
use crate::coverage::Coverage;
use crate::fault_injector::FaultInjector;
use crate::faults::FaultCounts;
use crate::shape::Shape;
use crate::verify::verify;
use crate::workload::{Files, prepare, start_worker};
use crate::world::World;
use futures::future::select;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex};

/// The options of a run, apart from its seed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Fault periods of a run; after each, the cluster must become whole.
    pub fault_period_count: u32,
    /// Virtual milliseconds of a fault period.
    pub fault_period_ms: u64,
    /// Last lines of the event log to keep.
    pub kept_line_count: usize,
    /// Clients repeat each acknowledged write later: the checker must detect it.
    pub writes_twice: bool,
    /// Peers send altered messages beside their own, for as long as the fault periods last, and half of the runs have
    /// no faults. Then only a panic or an endless loop is a failure.
    pub has_hostile_peers: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            fault_period_count: 2,
            fault_period_ms: 20_000,
            kept_line_count: 2_000,
            writes_twice: false,
            has_hostile_peers: false,
        }
    }
}

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The broken promise, if there is one.
    pub failure: Option<String>,
    /// The last events, oldest first.
    pub log: Vec<String>,
    /// The number of events, and a digest of them all.
    pub digest: (u64, u64),
    /// A short description of the cluster.
    pub cluster: String,
    /// Updates that were acknowledged.
    pub acknowledged_count: u64,
    /// Reads that were checked.
    pub read_count: u64,
    /// Faults that were injected.
    pub faults: FaultCounts,
    /// Counts of the states and events that the run reached.
    pub coverage: Coverage,
    /// Virtual time.
    pub elapsed_ms: u64,
    /// Messages that hostile peers have altered.
    pub altered_count: u64,
}

/// Runs a seed. Equal seeds and options give equal reports.
pub fn simulate(seed: u64, options: &Options) -> Report {
    let world = World::new(seed, options.kept_line_count);
    let mut shape = world.roll(|dice| Shape::draw(seed, dice));
    shape.writes_twice = options.writes_twice;
    let cluster_name = format!(
        "{} with {} on {} nodes, {} bytes a chunk, {} clients",
        shape.code, shape.update, shape.node_count, shape.chunk_bytes, shape.client_count
    );
    let cluster_name = match &shape.lifecycle {
        Some(lifecycle) => format!(
            "{cluster_name}, of blocks with {} replicas, encoded {}",
            lifecycle.replica_count, lifecycle.after
        ),
        None => cluster_name,
    };
    world.note(&cluster_name);
    let cluster = Cluster::new(&world, shape);
    let faults = Arc::new(Mutex::new(FaultCounts::new()));
    let script = script(Arc::clone(&cluster), options.clone(), Arc::clone(&faults));
    let failure = execute(&cluster, script);
    let elapsed_ms = world.now_us() / 1000;
    let altered_count = cluster.network.altered_count().unwrap_or(0);
    let coverage = cluster.coverage();
    end(&cluster);
    let (acknowledged_count, read_count) = cluster.ledger.counts();
    let journal = world.take_journal();
    let faults = std::mem::take(&mut *crate::world::lock(&faults));
    Report {
        seed,
        failure,
        digest: journal.digest(),
        log: journal.into_lines(),
        cluster: cluster_name,
        acknowledged_count,
        read_count,
        faults,
        coverage,
        elapsed_ms,
        altered_count,
    }
}

/// Events that the log of a script keeps.
const KEPT_LINE_COUNT: usize = 2_000;

/// The end of a script on a cluster of its own.
pub(crate) struct Ran<T> {
    /// The broken promise, if one was.
    pub(crate) failure: Option<String>,
    /// The last events, oldest first.
    pub(crate) log: Vec<String>,
    /// The notes of the script.
    pub(crate) notes: T,
}

/// Runs a script on a new cluster of a shape, in a world of a seed. The script takes its notes in the second argument.
pub(crate) fn run_script<T: Default, S: Future<Output = ()> + Send + 'static>(
    seed: u64,
    shape: Shape,
    script: impl FnOnce(Arc<Cluster>, Arc<Mutex<T>>) -> S,
) -> Ran<T> {
    let world = World::new(seed, KEPT_LINE_COUNT);
    let cluster = Cluster::new(&world, shape);
    let notes = Arc::new(Mutex::new(T::default()));
    let failure = execute(&cluster, script(Arc::clone(&cluster), Arc::clone(&notes)));
    end(&cluster);
    let notes = std::mem::take(&mut *crate::world::lock(&notes));
    Ran {
        failure,
        log: world.take_journal().into_lines(),
        notes,
    }
}

/// Runs a script in a cluster's world until it has ended, or a promise is broken. Returns the broken promise.
fn execute(cluster: &Cluster, script: impl Future<Output = ()> + Send + 'static) -> Option<String> {
    let world = &cluster.world;
    if catch_unwind(AssertUnwindSafe(|| world.run(script))).is_err() {
        world.stop("a process panicked; its message is on standard error".to_owned());
    }
    world.failure()
}

/// Ends everything in a cluster's world, so that only the owner keeps it alive.
fn end(cluster: &Cluster) {
    cluster.world.end();
    cluster.world.steps.end();
    cluster.network.clear();
}

/// Starts the coordinator and all nodes, and returns the operator's client.
pub(crate) async fn start(cluster: &Arc<Cluster>) -> SimClient {
    cluster.start_coordinator();
    for slot in cluster.node_slots() {
        cluster.start_node(slot);
    }
    cluster.operator().await
}

async fn script(cluster: Arc<Cluster>, options: Options, faults: Arc<Mutex<FaultCounts>>) {
    let world = Arc::clone(&cluster.world);
    let operator = start(&cluster).await;
    let files = Arc::new(Files::default());
    prepare(&cluster, &operator, &files).await;
    if options.has_hostile_peers {
        world.forgive();
        cluster.network.become_hostile();
        for slot in cluster.node_slots() {
            cluster.disk(slot).set_capacity(cluster.capacity_bytes());
        }
    }
    for number in 0..cluster.shape.client_count {
        start_worker(&cluster, &files, number);
    }
    let injector = FaultInjector::new(
        Arc::clone(&cluster),
        operator.clone(),
        Arc::clone(&files),
        world.begin(),
    );
    if options.has_hostile_peers {
        let time_ms = u64::from(options.fault_period_count) * options.fault_period_ms;
        let end = world.sleep(time_ms * 1000);
        // Without faults there are no joins and no repairs.
        if world.roll(|dice| dice.one_in(2)) {
            select(pin!(injector.inject(time_ms)), end).await;
        } else {
            end.await;
        }
        *crate::world::lock(&faults) = injector.counts();
        return;
    }
    for period in 0..options.fault_period_count {
        injector.inject(options.fault_period_ms).await;
        *crate::world::lock(&faults) = injector.counts();
        if period + 1 == options.fault_period_count {
            files.close();
        }
        injector.recover().await;
    }
    // The last requests of the clients have met their deadlines by then.
    world.sleep(20_000_000).await;
    verify(&cluster, &operator).await;
    if let Err(wrong) = files.snapshots.verify(&operator).await {
        world.fail(wrong);
    }
    let contradictions = cluster.observer.check().expect("onlookers can read");
    if !contradictions.is_empty() {
        world.fail(format!("the metadata: {}", contradictions.join("; ")));
    }
}
