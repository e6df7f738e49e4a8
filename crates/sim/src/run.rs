//! One run: a cluster drawn from a seed, storms and calms, and what came of it.

use crate::client::SimClient;
use crate::cluster::Cluster;
use crate::deeds::Deeds;
use crate::dice::Dice;
use crate::faults::FaultCounts;
use crate::verify::verify;
use crate::weather::Weather;
use crate::workload::{Files, prepare, start_worker};
use crate::world::World;
use gabion_codec::Code;
use gabion_layout::{
    AppendSpec, EncodeAfter, GroupingRule, ReplicaPlacement, Survive, UpdateScheme,
};
use gabion_planner::update::{SCHEMES, descriptor, phase_survives};
use gabion_protocol::limits::Limits;
use gabion_protocol::message::LifecycleWish;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

/// What a run is like apart from its seed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Storms of a run; after each, the cluster must become whole.
    pub storm_count: u32,
    /// Virtual milliseconds of a storm.
    pub storm_ms: u64,
    /// Last lines of the event log to keep.
    pub kept_line_count: usize,
    /// Clients make each acknowledged write once more, later: the checker must find out.
    pub writes_twice: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            storm_count: 2,
            storm_ms: 20_000,
            kept_line_count: 2_000,
            writes_twice: false,
        }
    }
}

/// What came of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The broken promise, if one was.
    pub failure: Option<String>,
    /// The last events, oldest first.
    pub log: Vec<String>,
    /// How many events there were, and a digest of them all.
    pub digest: (u64, u64),
    /// The cluster in a few words.
    pub cluster: String,
    /// Updates that were acknowledged.
    pub acknowledged_count: u64,
    /// Reads that were checked.
    pub read_count: u64,
    /// Faults that were injected.
    pub faults: FaultCounts,
    /// What was done beside plain updates and reads.
    pub deeds: Deeds,
    /// Virtual time.
    pub elapsed_ms: u64,
}

/// The cluster of a seed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub(crate) rack_count: u32,
    pub(crate) node_count: usize,
    pub(crate) client_count: usize,
    pub(crate) code: String,
    pub(crate) survive: Survive,
    /// Losses that the pool promises to survive.
    pub(crate) survived_count: usize,
    pub(crate) chunk_bytes: u64,
    pub(crate) update: UpdateScheme,
    pub(crate) append: Option<AppendSpec>,
    /// How blocks are replicated at first, if they are.
    pub(crate) lifecycle: Option<LifecycleWish>,
    pub(crate) stripe_bytes: u64,
    /// In a storm, one message in this many arrives twice; 0 is never.
    pub(crate) repeat_one_in: u64,
    /// Whether bytes of repairs take long to arrive.
    pub(crate) is_thin: bool,
    /// What nodes keep at most.
    pub(crate) limits: Limits,
    /// See [`Options::writes_twice`].
    pub(crate) writes_twice: bool,
}

/// Codes of the simulated pools.
const CODES: [&str; 8] = [
    "rs(2,1)",
    "rs(2,2)",
    "rs(3,2)",
    "cauchy(2,2)",
    "rdp(2)",
    "rdp(3)",
    "evenodd(2)",
    "rep(3)",
];

/// Codes of pools whose chunks move: it gains nothing where a stripe has few of them.
const GROUPED_CODES: [&str; 3] = ["rs(4,3)", "rs(6,3)", "rs(4,4)"];

/// When chunks of the pools of CAU move.
const GROUPING: [Option<GroupingRule>; 4] = {
    use GroupingRule::{Algorithm1, Authors};
    [None, Some(Algorithm1), Some(Authors), Some(Authors)]
};

/// The update scheme of a seed's pool: each in turn, and the default once more.
pub fn scheme_of(seed: u64) -> UpdateScheme {
    let turn = seed as usize % (SCHEMES.len() + 1);
    SCHEMES
        .get(turn)
        .map_or_else(UpdateScheme::default, |known| known.scheme)
}

impl Shape {
    fn draw(seed: u64, dice: &mut Dice) -> Self {
        let update = scheme_of(seed);
        let grouping = if descriptor(update).appends_by_rack() {
            *dice.pick(&GROUPING)
        } else {
            None
        };
        let (codes, rack_count) = match grouping {
            None => (&CODES[..], 3),
            Some(_) => (&GROUPED_CODES[..], dice.between(3, 5) as u32),
        };
        let name = *dice.pick(codes);
        let code: Code = name.parse().expect("these codes exist");
        let survived_count = code.failures_survived();
        // Racks that grouping is about would have to be enough for replicas, too.
        let lifecycle = match grouping {
            None => lifecycle_of(seed, survived_count),
            Some(_) => None,
        };
        // Phases end for each of the reasons that they can end for.
        let append = descriptor(update).appends().then(|| AppendSpec {
            replicas: dice.between(1, survived_count as u64) as u8,
            stripes_max: dice.between(1, 4),
            log_bytes_max: dice.between(1, 32) << 10,
            age_max_s: dice.between(1, 20),
            grouping,
        });
        let survived_count = phase_survives(update, append, &code).unwrap_or(survived_count);
        let chunk_bytes = 4096 * dice.between(1, 2);
        let chunk_bytes = chunk_bytes.next_multiple_of(code.sub_chunks() as u64);
        Self {
            rack_count,
            // Losses take nodes for good until the next calm, and repairs need others.
            node_count: code.n() + dice.between(1, 3) as usize,
            client_count: dice.between(1, 4) as usize,
            code: name.to_owned(),
            survive: Survive::Nodes(code.failures_survived() as u32),
            survived_count,
            chunk_bytes,
            update,
            append,
            lifecycle,
            stripe_bytes: chunk_bytes * code.k() as u64,
            repeat_one_in: *dice.pick(&[0, 0, 30, 300]),
            // A long chain of helpers would never come to its end.
            is_thin: dice.one_in(2) && grouping.is_none(),
            limits: limits_of(seed, chunk_bytes),
            writes_twice: false,
        }
    }
}

/// How a seed's blocks are replicated at first, if they are: one seed in four, under every update scheme. No
/// dice are thrown for it, so that the other seeds are what they were without it.
fn lifecycle_of(seed: u64, survived_count: usize) -> Option<LifecycleWish> {
    let placements = [ReplicaPlacement::Ear, ReplicaPlacement::Rr];
    let times = [
        EncodeAfter::Asked,
        EncodeAfter::Full,
        EncodeAfter::Age(8),
        EncodeAfter::Idle(2),
    ];
    let turn = seed / SCHEMES.len() as u64;
    turn.is_multiple_of(4).then(|| LifecycleWish {
        replica_count: survived_count + 1,
        after: times[(turn / 4 % 4) as usize],
        placement: placements[(turn / 16 % 2) as usize],
    })
}

/// What nodes keep at most: in two of five runs a few stripes as primaries, or few staged bytes, so that the limits are
/// reached. One update has room for its bytes at any
/// node, also where that stands in for another. No dice are thrown for it.
fn limits_of(seed: u64, chunk_bytes: u64) -> Limits {
    let mut limits = Limits::default();
    match seed % 5 {
        1 => limits.primary_stripe_count = 1 + (seed / 5 % 3) as usize,
        2 => {
            limits.staged_bytes = 3 * chunk_bytes;
            limits.client_bytes = 2 * chunk_bytes;
        }
        _ => {}
    }
    limits
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
    if catch_unwind(AssertUnwindSafe(|| world.run(script))).is_err() {
        world.fail("a process panicked; its message is on standard error".to_owned());
    }
    let failure = world.failure();
    let elapsed_ms = world.now_us() / 1000;
    let deeds = cluster.deeds();
    world.end();
    cluster.network.clear();
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
        deeds,
        elapsed_ms,
    }
}

/// Starts the coordinator and all nodes, and gives the operator's client.
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
    for number in 0..cluster.shape.client_count {
        start_worker(&cluster, &files, number);
    }
    let weather = Weather::new(
        Arc::clone(&cluster),
        operator.clone(),
        Arc::clone(&files),
        world.begin(),
    );
    for storm in 0..options.storm_count {
        weather.storm(options.storm_ms).await;
        *crate::world::lock(&faults) = weather.counts();
        if storm + 1 == options.storm_count {
            files.close();
        }
        weather.calm().await;
    }
    // The last requests of the clients have met their deadlines by then.
    world.sleep(20_000_000).await;
    verify(&cluster, &operator).await;
}
