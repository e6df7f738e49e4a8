//! One conversion with one incident, at each of its steps, where seeds try only some. A step is the arrival of a
//! message or the start of a disk operation. Nothing is lost, and no stripe that counts ever has less than it
//! promises. Other tests hold the watch that says so to finding what a worse coordinator would do.
//!
//! The cluster is small, and the rest of the run is the same each time: a file of one segment, of two
//! blocks with two replicas each, becomes a stripe of `rs(2,1)` or blocks again. With constant writes, the
//! blocks have three replicas and the stripe is of `rs(2,2)`. The redundancy checks run as in every run.

use crate::cells::cell_count;
use crate::client::SimClient;
use crate::cluster::Cluster;
use crate::crash::{LOOK_EVERY_MS, Victim, crash, is_whole, until};
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
const NODE_COUNT: usize = 5;
/// Blocks of the segment.
const BLOCK_COUNT: u64 = 2;
/// The file whose one segment is converted.
const FILE: &str = "file";

/// The form of conversion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Task {
    /// Whether blocks become a stripe. Otherwise a stripe becomes blocks.
    encodes: bool,
    /// Writes of a client during the conversion.
    writes: Writes,
}

/// When a client updates the segment, after the order of its conversion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Writes {
    /// Never.
    None,
    /// One update.
    Once,
    /// Repeated until the segment is converted, over links on which an attempt takes longer than an update.
    Always,
}

/// The incident before a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Incident {
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
struct Ended {
    /// The broken promise, if one was.
    failure: Option<String>,
    /// The last events, oldest first.
    log: Vec<String>,
    /// Steps from the order to the end of the conversion.
    step_count: u64,
    /// Whether the incident has changed anything.
    has_happened: bool,
    /// Updates of the old stripes that were acknowledged before the first attempt to make new ones began,
    /// before the second, and so on.
    acknowledged_counts: Vec<u64>,
    /// Attempts that began.
    attempt_count: usize,
    /// Of these, the ones that were discarded because of updates. Known if updates never end.
    outrun_count: u64,
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
fn convert(task: Task, incident: Option<(u64, Incident)>) -> Ended {
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

/// Whether the file has a form, and no garbage of the other form is left.
fn has_form(cluster: &Cluster, is_encoded: bool) -> bool {
    let garbage = cluster.observer.garbage(None, 1);
    let garbage = garbage.expect("onlookers can read");
    (cluster.stripes().len() == 1) == is_encoded && garbage.is_empty()
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

/// A crash that ends before the node is declared failed.
const SHORT_MS: u64 = 300;
/// One that is not: what the victim had is made elsewhere.
const LONG_MS: u64 = 9_000;

fn describe(ended: &Ended, what: &str) -> String {
    let reason = ended.failure.as_deref().unwrap_or("no failure");
    format!("{}\n{what}: {reason}", ended.log.join("\n"))
}

/// Tries a crash of everybody before every step.
fn crash_everywhere(task: Task, down_ms: u64) {
    let quiet = convert(task, None);
    assert_eq!(quiet.failure, None, "{}", describe(&quiet, "no incident"));
    assert!(quiet.step_count > 50, "{} steps", quiet.step_count);
    let nodes = (1..=NODE_COUNT).map(Victim::Node);
    for victim in nodes.chain([Victim::Coordinator]) {
        for step in 0..quiet.step_count {
            let ended = convert(task, Some((step, Incident::Crash(victim, down_ms))));
            let what = || describe(&ended, &format!("{task:?}, {victim:?} before step {step}"));
            assert!(ended.has_happened, "{}", what());
            assert_eq!(ended.failure, None, "{}", what());
        }
    }
}

const ENCODE: Task = Task {
    encodes: true,
    writes: Writes::None,
};
const PROMOTE: Task = Task {
    encodes: false,
    writes: Writes::None,
};

#[test]
fn crashes_at_every_step_of_an_encoding() {
    crash_everywhere(ENCODE, SHORT_MS);
}

#[test]
fn crashes_at_every_step_of_a_promotion() {
    crash_everywhere(PROMOTE, SHORT_MS);
}

#[test]
fn failures_at_every_step_of_an_encoding() {
    crash_everywhere(ENCODE, LONG_MS);
}

#[test]
fn failures_at_every_step_of_a_promotion() {
    crash_everywhere(PROMOTE, LONG_MS);
}

#[test]
fn crashes_at_every_step_of_an_encoding_with_an_update() {
    let writes = Writes::Once;
    crash_everywhere(Task { writes, ..ENCODE }, SHORT_MS);
}

/// A coordinator that removed old chunks before its commit would be caught at once, whenever it did.
#[test]
fn old_chunks_that_go_too_early_are_missed() {
    for task in [ENCODE, PROMOTE] {
        let step_count = convert(task, None).step_count;
        let mut missed_count = 0;
        for step in 0..step_count {
            let ended = convert(task, Some((step, Incident::RemoveOld)));
            let why = ended.failure.as_deref().unwrap_or_default();
            assert_eq!(
                ended.has_happened,
                why.contains("may not have it after a crash"),
                "{}",
                describe(&ended, &format!("{task:?}, step {step}"))
            );
            missed_count += u64::from(ended.has_happened);
        }
        assert!(
            missed_count > step_count / 2,
            "{missed_count} of {step_count}"
        );
    }
}

/// A coordinator that committed what was not read back would be caught when it did: chunks that are spoiled
/// before they are read back are made anew, and those that are spoiled between that and the commit are found by
/// the watch. Behind the commit a bit that rots is a loss like any other, and not the watch's to find.
#[test]
fn new_chunks_that_are_not_whole_are_missed() {
    for task in [ENCODE, PROMOTE] {
        let step_count = convert(task, None).step_count;
        let (mut mended_count, mut missed_count) = (0, 0);
        for step in 0..step_count {
            let ended = convert(task, Some((step, Incident::SpoilNew)));
            let why = ended.failure.as_deref().unwrap_or_default();
            mended_count += u64::from(ended.has_happened && why.is_empty());
            missed_count += u64::from(why.contains("after a loss of power"));
        }
        assert!(
            mended_count > 0 && missed_count > 0,
            "{task:?}: {mended_count}, {missed_count}"
        );
    }
}

/// If a segment is updated continually, two conversions of it fail. The third attempt keeps the leases: updates wait
/// until it ends, and go on in the new stripes. An attempt that loses a message fails, too, and begins the count anew.
#[test]
fn updates_without_end_wait_once() {
    for task in [ENCODE, PROMOTE] {
        let writes = Writes::Always;
        let ended = convert(Task { writes, ..task }, None);
        assert_eq!(ended.failure, None, "{}", describe(&ended, "no incident"));
        let counts = &ended.acknowledged_counts;
        let attempt_count = ended.attempt_count;
        assert!(
            attempt_count >= 3 && counts.len() == attempt_count,
            "{task:?}: {attempt_count} attempts; acknowledged before the first, in it, and so on, but not in the last: \
            {counts:?}"
        );
        assert_eq!(ended.outrun_count, 2, "{task:?}: {counts:?}");
        let outrun = &counts[attempt_count - 2..];
        assert!(
            outrun.iter().all(|&count| count > 0),
            "{task:?}: {counts:?}"
        );
    }
}
