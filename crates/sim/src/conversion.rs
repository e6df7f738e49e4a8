//! One conversion with one incident, at any of its steps: a test can try all steps, where seeds try only
//! some. A step is the arrival of a message or the start of a disk operation.
//!
//! The cluster is small, and the rest of the run is the same each time: a file of one segment, of two
//! blocks with two replicas each, becomes a stripe of `rs(2,1)` or blocks again. With constant writes, the
//! blocks have three replicas and the stripe is of `rs(2,2)`. The redundancy checks run as in every run.

use crate::cells::cell_count;
use crate::client::SimClient;
use crate::cluster::Cluster;
use crate::parties::Slot;
use crate::run::{Ran, run_script, start};
use crate::shape::Shape;
use crate::steps::Act;
use crate::verify::verify;
use crate::workload::create_pool;
use crate::world::{ProcessId, lock};
use futures::FutureExt;
use gabion_layout::{
    ChunkId, ChunkIndex, EncodeAfter, ReplicaPlacement, StripeId, StripeRecord, Survive,
    UpdateScheme,
};
use gabion_protocol::limits::Limits;
use gabion_protocol::message::{FormOrder, LifecycleRequest, Purpose};
use gabion_store::chunk_path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

const SEED: u64 = 1;
/// Machines with nodes; the coordinator's is another.
pub const NODE_COUNT: usize = 5;
/// Blocks of the segment.
const BLOCK_COUNT: u64 = 2;
/// The file whose one segment is converted.
const FILE: &str = "file";
/// Virtual time limit of the segment's conversion, and of the recovery after it.
const WAIT_MS_MAX: u64 = 120_000;
/// Interval of the check for its end.
const LOOK_EVERY_MS: u64 = 50;

/// The form of conversion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Task {
    /// Whether blocks become a stripe. Otherwise a stripe becomes blocks.
    pub encodes: bool,
    /// Writes of a client during the conversion.
    pub writes: Writes,
}

/// When a client updates the segment, after the order of its conversion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writes {
    /// Never.
    None,
    /// One update.
    Once,
    /// Repeated until the segment is converted, over links on which an attempt takes longer than an update.
    Always,
}

/// The process that ends, with the loss of unsynced writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Victim {
    /// The coordinator.
    Coordinator,
    /// The node on a machine, from 1 to [`NODE_COUNT`].
    Node(usize),
}

/// The incident before a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Incident {
    /// A crash. The victim starts again after this many virtual milliseconds.
    Crash(Victim, u64),
    /// Must be detected: a chunk of the old form is removed, as if its removal did not wait for the commit.
    RemoveOld,
    /// Must be detected once the chunk was read back: a bit of a chunk of the new form flips, if there is
    /// one.
    SpoilNew,
}

/// The result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// The broken promise, if one was.
    pub failure: Option<String>,
    /// The last events, oldest first.
    pub log: Vec<String>,
    /// Steps from the order to the end of the conversion.
    pub step_count: u64,
    /// Whether the incident has changed anything.
    pub has_happened: bool,
    /// Updates of the old stripes that were acknowledged before the first attempt to make new ones began,
    /// before the second, and so on.
    pub acknowledged_counts: Vec<u64>,
    /// Attempts that began.
    pub attempt_count: usize,
    /// Of these, the ones that were discarded because of updates. Known if updates never end.
    pub outrun_count: u64,
}

/// The counts during the conversion.
#[derive(Default)]
struct Notes {
    step_count: u64,
    has_happened: bool,
    acknowledged_counts: Vec<u64>,
    attempt_count: usize,
    outrun_count: u64,
}

/// Converts a segment, with an incident before the step of the number given.
pub fn convert(task: Task, incident: Option<(u64, Incident)>) -> Ended {
    let Ran {
        failure,
        log,
        notes,
    } = run_script(SEED, shape(task.writes), |cluster, notes| {
        script(cluster, task, incident, notes)
    });
    Ended {
        failure,
        log,
        step_count: notes.step_count,
        has_happened: notes.has_happened,
        acknowledged_counts: notes.acknowledged_counts,
        attempt_count: notes.attempt_count,
        outrun_count: notes.outrun_count,
    }
}

fn shape(writes: Writes) -> Shape {
    let chunk_bytes = 4096;
    // One parity chunk may be made on its own node; of two, one has to be sent.
    let (code, survived_count) = match writes {
        Writes::Always => ("rs(2,2)", 2),
        Writes::None | Writes::Once => ("rs(2,1)", 1),
    };
    Shape {
        rack_count: 3,
        node_count: NODE_COUNT,
        client_count: 1,
        code: code.to_owned(),
        survive: Survive::Nodes(survived_count as u32),
        survived_count,
        chunk_bytes,
        update: UpdateScheme::default(),
        append: None,
        lifecycle: Some(LifecycleRequest {
            replica_count: survived_count + 1,
            after: EncodeAfter::Asked,
            placement: ReplicaPlacement::Ear,
        }),
        stripe_bytes: BLOCK_COUNT * chunk_bytes,
        repeat_one_in: 0,
        is_thin: false,
        limits: Limits::default(),
        writes_twice: false,
        inline_bytes: 0,
        shrinks: false,
        window_stripe_count: 3,
    }
}

async fn script(
    cluster: Arc<Cluster>,
    task: Task,
    incident: Option<(u64, Incident)>,
    notes: Arc<Mutex<Notes>>,
) {
    let world = Arc::clone(&cluster.world);
    let client = start(&cluster).await;
    create_pool(&cluster, &client).await;
    let cells = cell_count(cluster.shape.stripe_bytes);
    while client.put(FILE, cells).await.is_err() {
        world.sleep(LOOK_EVERY_MS * 1000).await;
    }
    while !update(&client).await {
        world.sleep(LOOK_EVERY_MS * 1000).await;
    }
    if !task.encodes {
        order(&client, true).await;
        until(&cluster, "the segment is not encoded", |c| {
            has_form(c, true)
        })
        .await;
    }
    if task.writes == Writes::Always {
        cluster.network.thin_out(Purpose::Encode);
    }
    let act = incident.map(|(step, incident)| {
        let script = world.begin();
        let old = cluster.stripes();
        (step, act(&cluster, script, incident, old, &notes))
    });
    world.steps.count(act);
    order(&client, task.encodes).await;
    let writer = Arc::new(Writer::new(&cluster, &notes, task));
    let work = Arc::clone(&writer).write(client.clone());
    world.spawn(client.party.process, work.boxed());
    until(&cluster, "the segment is not converted", |cluster| {
        has_form(cluster, task.encodes)
    })
    .await;
    lock(&notes).step_count = world.steps.end();
    lock(&notes).attempt_count = writer.attempt_count();
    writer.is_over.store(true, Ordering::Relaxed);
    until(&cluster, "the cluster does not become whole", |cluster| {
        is_whole(cluster) && writer.is_done.load(Ordering::Relaxed)
    })
    .await;
    verify(&cluster, &client).await;
    if task.writes == Writes::Always {
        lock(&notes).outrun_count = outrun_count(&client).await;
    }
}

/// Conversions that the coordinator has discarded because of updates.
async fn outrun_count(client: &SimClient) -> u64 {
    loop {
        if let Ok(status) = client.client.status().await {
            return status.lifecycle.outrun_count;
        }
    }
}

/// A writer that updates the segment while it is converted.
struct Writer {
    cluster: Arc<Cluster>,
    notes: Arc<Mutex<Notes>>,
    task: Task,
    /// The stripes that counted at first.
    old: Vec<StripeId>,
    /// The number of started conversions at that time.
    begun_count: u64,
    is_over: AtomicBool,
    is_done: AtomicBool,
}

impl Writer {
    fn new(cluster: &Arc<Cluster>, notes: &Arc<Mutex<Notes>>, task: Task) -> Self {
        let old = cluster.stripes().iter().map(|stripe| stripe.id).collect();
        Self {
            cluster: Arc::clone(cluster),
            notes: Arc::clone(notes),
            task,
            old,
            begun_count: cluster.tally.coverage().conversion_count,
            is_over: AtomicBool::new(false),
            is_done: AtomicBool::new(false),
        }
    }

    /// Attempts that began so far.
    fn attempt_count(&self) -> usize {
        let begun = self.cluster.tally.coverage().conversion_count - self.begun_count;
        let of_attempt = if self.task.encodes { 1 } else { BLOCK_COUNT };
        begun.div_ceil(of_attempt) as usize
    }

    async fn write(self: Arc<Self>, client: SimClient) {
        let mut is_enough = self.task.writes == Writes::None;
        while !is_enough {
            if !update(&client).await {
                continue;
            }
            // The update was of an old stripe if that stripe still counts.
            let stripes = self.cluster.stripes();
            if stripes.iter().any(|stripe| self.old.contains(&stripe.id)) {
                let attempt_count = self.attempt_count();
                let counts = &mut lock(&self.notes).acknowledged_counts;
                counts.resize(counts.len().max(attempt_count + 1), 0);
                counts[attempt_count] += 1;
            }
            is_enough = self.task.writes == Writes::Once || self.is_over.load(Ordering::Relaxed);
        }
        self.is_done.store(true, Ordering::Relaxed);
    }
}

/// Updates the file's first block. Returns whether it is known to have succeeded.
async fn update(client: &SimClient) -> bool {
    let Ok(file) = client.open(FILE).await else {
        return false;
    };
    client.write(&file, &(3..20)).await.is_ok()
}

async fn order(client: &SimClient, is_encoded: bool) {
    let order = FormOrder {
        pool: "pool".to_owned(),
        file: Some(FILE.to_owned()),
        is_encoded,
    };
    while client.client.order_form(order.clone()).await.is_err() {}
}

async fn until(cluster: &Cluster, otherwise: &str, is_so: impl Fn(&Cluster) -> bool) {
    for _ in 0..WAIT_MS_MAX / LOOK_EVERY_MS {
        if is_so(cluster) {
            return;
        }
        cluster.world.sleep(LOOK_EVERY_MS * 1000).await;
    }
    cluster.world.fail(otherwise.to_owned());
}

/// Whether the file has a form, and no garbage of the other form is left.
fn has_form(cluster: &Cluster, is_encoded: bool) -> bool {
    let garbage = cluster.observer.garbage(None, 1);
    let garbage = garbage.expect("onlookers can read");
    (cluster.stripes().len() == 1) == is_encoded && garbage.is_empty()
}

/// Whether all nodes are up and all chunks count.
fn is_whole(cluster: &Cluster) -> bool {
    let mut slots = cluster.node_slots().into_iter();
    let mut stripes = cluster.stripes().into_iter();
    slots.all(|slot| cluster.sound_store(slot).is_some())
        && cluster.failed().is_empty()
        && stripes.all(|stripe| stripe.stale.is_empty())
}

/// The event before a step.
fn act(
    cluster: &Arc<Cluster>,
    script: ProcessId,
    incident: Incident,
    old: Vec<StripeRecord>,
    notes: &Arc<Mutex<Notes>>,
) -> Act {
    let (cluster, notes) = (Arc::clone(cluster), Arc::clone(notes));
    Box::new(move || {
        let has_happened = match incident {
            Incident::Crash(victim, down_ms) => {
                crash(&cluster, script, victim, down_ms);
                true
            }
            Incident::RemoveOld => remove(&cluster, &old[0]),
            Incident::SpoilNew => spoil(&cluster, &old),
        };
        lock(&notes).has_happened = has_happened;
    })
}

fn crash(cluster: &Arc<Cluster>, script: ProcessId, victim: Victim, down_ms: u64) {
    match victim {
        Victim::Coordinator => cluster.kill_coordinator(),
        Victim::Node(machine) => cluster.kill_node(Slot(machine), true),
    }
    let cluster = Arc::clone(cluster);
    let world = Arc::clone(&cluster.world);
    let again = async move {
        cluster.world.sleep(down_ms * 1000).await;
        match victim {
            Victim::Coordinator => cluster.start_coordinator(),
            Victim::Node(machine) => cluster.start_node(Slot(machine)),
        }
    };
    world.spawn(script, again.boxed());
}

/// Removes the first chunk of a stripe while the stripe counts. Returns whether it did.
fn remove(cluster: &Cluster, stripe: &StripeRecord) -> bool {
    let chunk = ChunkId {
        stripe: stripe.id,
        index: ChunkIndex(0),
    };
    let counts = cluster.stripes().iter().any(|known| known.id == stripe.id);
    let slot = cluster.slot_of(stripe.nodes[0]);
    let store = slot.and_then(|slot| cluster.sound_store(slot));
    let is_removed = counts && store.is_some_and(|store| store.remove(chunk).is_ok());
    cluster.world.steps.changed();
    is_removed
}

/// Flips a bit of the data of a chunk that belongs to none of these stripes. Returns whether there was one.
fn spoil(cluster: &Cluster, old: &[StripeRecord]) -> bool {
    let of_old = |path: &String| {
        let chunks = old.iter().flat_map(|stripe| {
            let id = stripe.id;
            stripe
                .chunks()
                .map(move |index| ChunkId { stripe: id, index })
        });
        let mut paths = chunks.map(chunk_path);
        paths.any(|known| known == *path)
    };
    for slot in cluster.node_slots() {
        let disk = cluster.disk(slot);
        let mut files = disk.files().into_iter();
        let new =
            files.find(|path| path.starts_with("chunks/") && path.contains('-') && !of_old(path));
        if let Some(path) = new {
            let length = disk.contents(&path).map_or(0, |bytes| bytes.len() as u64);
            // The data is last but for a reserve; its first block begins behind header and checksums.
            disk.flip_bit(&path, (length.min(2 * 4096 + 1) - 1) * 8);
            return length > 0;
        }
    }
    false
}
