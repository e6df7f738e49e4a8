//! Two operations of two clients on one file. The second one begins before any step of the first, and may interrupt it:
//! a test can try all steps, where seeds try only some. A step is the arrival of a message or the start of a disk
//! operation.
//!
//! There are no faults. So each operation must succeed, unless the other one removes its file, and the checkers of
//! every run must find that the file has the bytes of both, in one order or the other.

use crate::cells::{CELL_BYTES, cell_count};
use crate::client::SimClient;
use crate::cluster::Cluster;
use crate::race_operations::{CHUNK_BYTES, CHUNK_COUNT, FILE_CELLS, INLINE_CELLS};
use crate::run::{Ran, run_script, start};
use crate::shape::Shape;
use crate::snapshots::{Snapshots, make};
use crate::steps::Act;
use crate::verify::verify;
use crate::workload::create_pool;
use crate::world::{World, lock};
use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::join;
use gabion_client::{ClientError, ClientOptions, File, TakeOver};
use gabion_layout::{AppendSpec, ByteRange, Survive, UpdateScheme};
use gabion_meta::Inode;
use gabion_planner::update::descriptor;
use gabion_protocol::limits::Limits;
use gabion_protocol::message::Cause;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

pub use crate::race_operations::{Kind, Operation, WITHIN};
pub(crate) use crate::race_operations::{STRIPE_CELLS, second_stripe};

const SEED: u64 = 1;
const NODE_COUNT: usize = 4;
/// The longest pause of the first client, in virtual milliseconds. It holds leases that the other one may have to wait
/// for.
pub const PAUSE_MS: u64 = 5_000;
/// Cells before and behind those that are written through the cache, which the client reads too.
const AROUND_CELLS: u64 = 30;
/// The number of the first client.
const FIRST: usize = 0;
/// A client's cache.
const CACHE_BYTES: u64 = 1 << 20;
pub(crate) const FILE: &str = "file";
const FORMER: &str = "former";
/// Interval of repeated attempts before the race.
const PAUSE_US: u64 = 50_000;

/// The fate of the first client at the step at which the second operation begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interruption {
    /// None.
    None,
    /// It stands still until the second operation has ended, or for [`PAUSE_MS`].
    Pause,
    /// It is killed.
    Kill,
}

impl Interruption {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::None, Self::Pause, Self::Kill];
}

/// Whether the file shares stripes with a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// It has no snapshot and never had one.
    Never,
    /// A snapshot has all of its stripes.
    Now,
    /// The snapshot is removed, so that the stripes are in no other file any more.
    Before,
}

impl Sharing {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Never, Self::Now, Self::Before];
}

/// Two operations, and the file that they meet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Race {
    /// The operation whose steps are counted.
    pub first: Operation,
    /// The operation of the other client.
    pub second: Operation,
    /// The fate of the first client at the step.
    pub interruption: Interruption,
    /// Whether the file shares its stripes.
    pub sharing: Sharing,
    /// The place of its bytes.
    pub kind: Kind,
    /// How updates of stripes are made.
    pub scheme: UpdateScheme,
}

impl Race {
    /// All races that begin with an operation.
    pub fn of((scheme, kind): (UpdateScheme, Kind), first: &Operation) -> Vec<Self> {
        let mut races = Vec::new();
        for second in Operation::all(kind) {
            for sharing in Sharing::ALL {
                for interruption in Interruption::ALL {
                    races.push(Self {
                        first: first.clone(),
                        second: second.clone(),
                        interruption,
                        sharing,
                        kind,
                        scheme,
                    });
                }
            }
        }
        races
    }

    /// Runs it with the second operation behind the first one, and before every `stride`-th step of that from one on,
    /// and before one step at least. Returns the number of runs.
    ///
    /// # Errors
    /// The first run that fails, and its step.
    pub fn run_at(&self, from: usize, stride: usize) -> Result<u64, (u64, Raced)> {
        let last = run_race(self, u64::MAX);
        if last.failure.is_some() || last.step_count == 0 {
            return Err((u64::MAX, last));
        }
        let from = from % stride.min(last.step_count as usize);
        let mut run_count = 1;
        for step in (0..last.step_count).skip(from).step_by(stride) {
            let raced = run_race(self, step);
            if raced.failure.is_some() {
                return Err((step, raced));
            }
            run_count += 1;
        }
        Ok(run_count)
    }
}

/// The result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Raced {
    /// The broken promise, if one was.
    pub failure: Option<String>,
    /// The last events, oldest first.
    pub log: Vec<String>,
    /// Steps from the call of the first operation to its end.
    pub step_count: u64,
}

/// Runs a race. The second operation begins before this step of the first one, or behind its end if it has fewer steps.
pub fn run_race(race: &Race, step: u64) -> Raced {
    let shape = Shape {
        inline_bytes: match race.kind {
            Kind::InStripes => 0,
            Kind::Inline => STRIPE_CELLS * CELL_BYTES,
        },
        ..shape(race.scheme)
    };
    let ran = run_script(SEED, shape, |cluster, step_count| {
        script(cluster, race.clone(), (step, step_count))
    });
    ran.into()
}

impl From<Ran<u64>> for Raced {
    fn from(ran: Ran<u64>) -> Self {
        Self {
            failure: ran.failure,
            log: ran.log,
            step_count: ran.notes,
        }
    }
}

/// Those of a race's clients.
pub(crate) fn options() -> ClientOptions {
    ClientOptions {
        cache_bytes: CACHE_BYTES,
        ..ClientOptions::default()
    }
}

/// The cluster of a race.
pub(crate) fn shape(scheme: UpdateScheme) -> Shape {
    Shape {
        rack_count: 2,
        node_count: NODE_COUNT,
        client_count: 2,
        code: "rs(2,1)".to_owned(),
        survive: Survive::Nodes(1),
        survived_count: 1,
        chunk_bytes: CHUNK_BYTES,
        update: scheme,
        append: descriptor(scheme).appends().then_some(AppendSpec {
            replicas: 1,
            stripes_max: 2,
            log_bytes_max: 32 << 10,
            age_max_s: 10,
            grouping: None,
        }),
        lifecycle: None,
        stripe_bytes: CHUNK_COUNT * CHUNK_BYTES,
        repeat_one_in: 0,
        is_thin: false,
        limits: Limits::default(),
        writes_twice: false,
        inline_bytes: 0,
        shrinks: true,
        window_stripe_count: 2,
    }
}

async fn script(cluster: Arc<Cluster>, race: Race, (step, step_count): (u64, Arc<Mutex<u64>>)) {
    let world = Arc::clone(&cluster.world);
    let snapshots = Arc::new(Snapshots::default());
    let (operator, former) = prepare(&cluster, (race.sharing, &snapshots)).await;
    let first = Runner::new(&cluster, FIRST, &snapshots, options()).await;
    let second = Runner::new(&cluster, 1, &snapshots, options()).await;
    let (begin, is_time) = oneshot::channel();
    let first_process = first.client.party.process;
    let is_killed = Arc::new(AtomicBool::new(false));
    let act: Act = Box::new({
        let (cluster, interruption) = (Arc::clone(&cluster), race.interruption);
        let is_killed = Arc::clone(&is_killed);
        move || {
            let world = Arc::clone(&cluster.world);
            match interruption {
                Interruption::None => {}
                Interruption::Pause => {
                    world.pause(first_process, true);
                    let stopped = Arc::clone(&world);
                    world.after(PAUSE_MS * 1000, move || stopped.resume(first_process));
                }
                Interruption::Kill => {
                    is_killed.store(true, Ordering::Relaxed);
                    // The step may be one of its own.
                    world.after(0, move || cluster.kill_client(FIRST));
                }
            }
            begin.send(()).unwrap_or(());
        }
    });
    world.steps.count(Some((step, act)));
    let counted = Arc::clone(&world);
    let first_work = first.spawn(&race.first, &race.second, move || {
        // The second operation begins now if its step has not come.
        *lock(&step_count) = counted.steps.end();
    });
    let resumed = Arc::clone(&world);
    let second_work = async {
        is_time.await.unwrap_or(());
        let resume = move || resumed.resume(first_process);
        second.spawn(&race.second, &race.first, resume).await;
    };
    join(first_work, second_work).await;
    // The operation of a client that was killed has no end.
    world.steps.end();
    let may_be_gone = race.first.replaces() || race.second.replaces();
    let dead = is_killed.load(Ordering::Relaxed).then_some(FIRST);
    let may_be_away = dead.is_some() && race.first == Operation::Rename;
    for (number, runner) in [first, second].into_iter().enumerate() {
        if Some(number) != dead {
            runner.read_known_again(may_be_gone).await;
            runner.read_name_again(may_be_away).await;
        }
    }
    if let Some(former) = former {
        former.check(&world).await;
    }
    verify(&cluster, &operator).await;
    if let Err(wrong) = snapshots.verify(&operator).await {
        world.fail(wrong);
    }
}

/// Kills the coordinator at a step, and starts it again after this time.
#[cfg(test)]
pub(crate) fn coordinator_restarts(cluster: &Arc<Cluster>, down_us: u64) -> Act {
    let cluster = Arc::clone(cluster);
    Box::new(move || {
        let world = Arc::clone(&cluster.world);
        // The step may be one of its own.
        world.after(0, move || {
            cluster.kill_coordinator();
            let world = Arc::clone(&cluster.world);
            world.after(down_us, move || cluster.start_coordinator());
        });
    })
}

/// Cells of the file at first.
fn file_cells(cluster: &Cluster) -> u64 {
    match cluster.shape.inline_bytes {
        0 => FILE_CELLS,
        _ => INLINE_CELLS,
    }
}

/// Starts everything, and stores the file.
pub(crate) async fn prepare(
    cluster: &Arc<Cluster>,
    (sharing, snapshots): (Sharing, &Snapshots),
) -> (SimClient, Option<Former>) {
    let operator = start(cluster).await;
    create_pool(cluster, &operator).await;
    while operator.put(FILE, file_cells(cluster)).await.is_err() {
        cluster.world.sleep(PAUSE_US).await;
    }
    let former = share(cluster, &operator, (sharing, snapshots)).await;
    (operator, former)
}

/// A removed snapshot that a client still has open.
pub(crate) struct Former {
    file: File,
    bytes: Vec<u8>,
}

impl Former {
    /// It shows its own bytes or nothing.
    async fn check(&self, world: &World) {
        let all = ByteRange::new(0, self.bytes.len() as u64);
        if let Ok(read) = self.file.read(all).await
            && read != self.bytes
        {
            world.fail("a removed snapshot shows bytes that it never had".to_owned());
        }
    }
}

/// Makes the file share its stripes, or have shared them.
async fn share(
    cluster: &Arc<Cluster>,
    operator: &SimClient,
    (sharing, snapshots): (Sharing, &Snapshots),
) -> Option<Former> {
    match sharing {
        Sharing::Never => None,
        Sharing::Now => {
            let made = make(cluster, operator, (FILE, snapshots)).await;
            made.expect("the cluster is whole");
            None
        }
        Sharing::Before => {
            let file = operator.open(FILE).await.expect("the cluster is whole");
            cluster.ledger.shared(file.put_id());
            let made = operator
                .client
                .snapshot(Inode::File(file.put_id()), FORMER, true)
                .await;
            made.expect("the cluster is whole");
            let opened = operator.client.open(FORMER).await;
            let opened = opened.expect("the cluster is whole");
            let all = ByteRange::new(0, opened.size_bytes());
            let bytes = opened.read(all).await.expect("the cluster is whole");
            let removed = operator.client.rm(FORMER).await;
            removed.expect("the cluster is whole");
            let shared_count = || {
                cluster
                    .observer
                    .file(FILE)
                    .map(|file| file.shared_stripe_count)
            };
            while shared_count() != Ok(0) {
                cluster.world.sleep(PAUSE_US).await;
            }
            Some(Former {
                file: opened,
                bytes,
            })
        }
    }
}

/// A client that has the file open, and knows its layout.
#[derive(Clone)]
pub(crate) struct Runner {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) client: SimClient,
    snapshots: Arc<Snapshots>,
    pub(crate) file: File,
}

impl Runner {
    pub(crate) async fn new(
        cluster: &Arc<Cluster>,
        number: usize,
        snapshots: &Arc<Snapshots>,
        options: ClientOptions,
    ) -> Self {
        let party = cluster.begin_client(number);
        let client = cluster.client(party, options).await;
        loop {
            if let Ok(file) = client.open(FILE).await
                && client.read(&file, &(0..file_cells(cluster))).await.is_ok()
            {
                return Self {
                    cluster: Arc::clone(cluster),
                    client,
                    snapshots: Arc::clone(snapshots),
                    file,
                };
            }
            cluster.world.sleep(PAUSE_US).await;
        }
    }

    #[cfg(test)]
    pub(crate) async fn open_cached(&self) -> crate::cached::Cached {
        let cached = self.client.open_cached(FILE).await;
        cached.expect("the cluster is whole")
    }

    /// Carries out an operation in the client's process, and calls `ended` behind it. It may fail only if the other one
    /// removes or renames the file, or fences this client out.
    async fn spawn(
        &self,
        operation: &Operation,
        other: &Operation,
        ended: impl FnOnce() + Send + 'static,
    ) {
        let (runner, operation) = (self.clone(), operation.clone());
        let accepted = operation.accepted_beside(other);
        let (end, has_ended) = oneshot::channel();
        let work = async move {
            let done = runner.run(&operation).await;
            ended();
            if let Err(error) = done
                && !accepted.contains(&error.cause())
            {
                runner.client.fail(format!("{operation:?} fails: {error}"));
            }
            end.send(()).unwrap_or(());
        };
        self.cluster
            .world
            .spawn(self.client.party.process, work.boxed());
        has_ended.await.unwrap_or(());
    }

    pub(crate) async fn run(&self, operation: &Operation) -> Result<(), ClientError> {
        let (client, file) = (&self.client, &self.file);
        let between = self.cluster.shape.cells_between_ends();
        match operation {
            Operation::Write(cells) => client.write(file, cells).await.map(drop),
            Operation::WritePieces(cells) => client.write_pieces(file, cells, between).await,
            Operation::Append(count) => client.append(file, *count, between).await,
            Operation::Grow(count) => client.grow(file, *count).await,
            Operation::Allocate(cells) => client.allocate(file, cells).await,
            Operation::Truncate(count) => client.truncate(file, *count).await,
            Operation::Punch(cells) => client.punch(file, cells).await,
            Operation::Cached(cells) => {
                let cached = client.open_cached(FILE).await?;
                // It fails if the other operation has truncated the file; what it shows is checked.
                let around = cells.start - AROUND_CELLS..cells.end + AROUND_CELLS;
                let _ = client.read_cached(&cached, &around).await;
                client.write_cached(&cached, cells).await?;
                client.flush(&cached).await?;
                let _ = client.read_cached(&cached, &around).await;
                Ok(())
            }
            Operation::Alone(cells) => {
                let sole = client.open_exclusive(FILE, TakeOver::Now).await?;
                client.write(&sole, cells).await?;
                sole.end_session().await
            }
            Operation::Snapshot => make(&self.cluster, client, (FILE, &self.snapshots)).await,
            Operation::Replace(count) => client.put_over(FILE, *count).await,
            Operation::Rename => {
                let away = self.own_name("away");
                client.rename(FILE, &away).await?;
                client.rename(&away, FILE).await
            }
            Operation::RenameOver(count) => {
                let new = self.own_name("new");
                client.put(&new, *count).await?;
                client.rename(&new, FILE).await
            }
            Operation::Open => {
                let opened = client.open(FILE).await?;
                let all = 0..cell_count(opened.size_bytes());
                client.read(&opened, &all).await
            }
        }
    }

    /// A name that no other client uses.
    fn own_name(&self, word: &str) -> String {
        format!("{word}{}", self.client.party.slot.0)
    }

    /// Reads the file that was opened before the race, by the layout that the client knows, and through the cache some
    /// cells of the file that has the name. The checkers see the bytes.
    #[cfg(test)]
    pub(crate) async fn read_again(&self, may_be_gone: bool) {
        self.read_known_again(may_be_gone).await;
        self.read_name_again(false).await;
    }

    /// Reads through the cache some cells of the file that has the name. There may be none if a client was killed
    /// while it had taken the name away.
    async fn read_name_again(&self, may_be_away: bool) {
        if let Err(error) = self.read_through_cache().await
            && !(may_be_away && error.cause() == Cause::NotFound)
        {
            let world = &self.cluster.world;
            world.fail(format!(
                "a read through the cache behind the race fails: {error}"
            ));
        }
    }

    /// Reads the file that was opened before the race, by the layout that the client knows.
    pub(crate) async fn read_known_again(&self, may_be_gone: bool) {
        let mut read = self.read_all().await;
        if read.is_err() {
            // The client may have known a larger size, and knows the new one now.
            read = self.read_all().await;
        }
        if let Err(error) = read
            && !(may_be_gone && error.cause() == Cause::Stale)
        {
            let world = &self.cluster.world;
            world.fail(format!("a read behind the race fails: {error}"));
        }
    }

    pub(crate) async fn read_through_cache(&self) -> Result<(), ClientError> {
        let cached = self.client.open_cached(FILE).await?;
        let end = cell_count(cached.file.size_bytes()).min(STRIPE_CELLS + 100);
        let around_border = STRIPE_CELLS.min(end) - 50..end;
        self.client.read_cached(&cached, &around_border).await
    }

    pub(crate) async fn read_all(&self) -> Result<(), ClientError> {
        let all = 0..cell_count(self.file.size_bytes());
        self.client.read(&self.file, &all).await
    }
}
