//! One change of files by a client, and a crash at any of its steps: the coordinator or a node dies, and starts again
//! after a while. From that step on another client writes into a file that the change is about. A step is the arrival
//! of a message or the start of a disk operation, until the change is acknowledged and its garbage is removed.
//!
//! Seeds have such crashes too, but seldom at a given step. A change must succeed in the end: its client repeats it if
//! the cluster cannot do it now. If it is unknown whether an attempt was made, the next one may find that it was. Then
//! all garbage and all open puts must go, the names are those that the change gives, and the checkers of every run
//! look at the bytes, the sizes, the names, the snapshots and the chunks.

use crate::client::SimClient;
use crate::cluster::Cluster;
use crate::crash::{Victim, crash, is_whole, until};
use crate::race::{FILE, Raced, Runner, Sharing, options, prepare, second_stripe, shape};
use crate::race_operations::{FILE_CELLS, Operation, STRIPE_CELLS, WITHIN};
use crate::run::run_script;
use crate::snapshots::Snapshots;
use crate::steps::Act;
use crate::verify::verify;
use crate::world::lock;
use futures::channel::oneshot;
use futures::future::join;
use gabion_client::ClientError;
use gabion_layout::UpdateScheme;
use gabion_protocol::message::Cause;
use std::sync::{Arc, Mutex};

const SEED: u64 = 18;
/// Nodes of the cluster.
const NODE_COUNT: usize = 4;
/// A crash that ends before a node is declared failed, in virtual milliseconds.
pub const SHORT_MS: u64 = 300;
/// One of a node that does not: what it had is rebuilt elsewhere.
pub const LONG_MS: u64 = 9_000;
/// One of the coordinator in which all nodes lose their leases.
const LEASELESS_MS: u64 = 3_000;
/// The time for which a client repeats what the cluster cannot do now, in virtual microseconds, and the pause before
/// each repetition.
const PATIENCE_US: u64 = 60_000_000;
const PAUSE_US: u64 = 100_000;
/// Cells of the files beside the one that is changed.
const OTHER_CELLS: u64 = 500;
const OTHER: &str = "other";
const RENAMED: &str = "directory/renamed";
/// A directory before and after its move, and a file below it.
const DIRECTORIES: [&str; 2] = ["directory", "elsewhere/moved"];
const BELOW: [&str; 2] = ["directory/below/file", "elsewhere/moved/below/file"];

/// A change of files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// A put of a new file.
    Put,
    /// The same, of a size that is not known before.
    PutStream,
    /// An operation on a file of some stripes.
    OnFile(Operation),
    /// That file gets another name, in another directory.
    Rename,
    /// It gets the name of another file, which goes.
    RenameOver,
    /// A directory with a file below it gets another name, in another directory.
    RenameDirectory,
    /// The file goes.
    Remove,
}

impl Change {
    /// All of them.
    pub fn all() -> Vec<Self> {
        let on_file = [
            Operation::Append(1_000),
            Operation::Truncate(FILE_CELLS + 3_000),
            Operation::into_the_hole(),
            Operation::Punch(second_stripe()),
            Operation::Punch(STRIPE_CELLS - 200..STRIPE_CELLS + 500),
            // Not all cells of the stripes, so that it keeps what the other client writes.
            Operation::Write(STRIPE_CELLS - 400..STRIPE_CELLS + 500),
            Operation::Replace(3_000),
            Operation::Snapshot,
        ];
        let names = [
            Self::Rename,
            Self::RenameOver,
            Self::RenameDirectory,
            Self::Remove,
        ];
        let puts = [Self::Put, Self::PutStream].into_iter();
        puts.chain(on_file.map(Self::OnFile)).chain(names).collect()
    }

    /// The changes that the cluster refuses to make twice: so says the refusal of a repetition.
    fn is_refused_twice(&self) -> bool {
        match self {
            Self::Put | Self::PutStream => false,
            Self::OnFile(operation) => matches!(operation, Operation::Replace(_)),
            Self::Rename | Self::RenameOver | Self::RenameDirectory | Self::Remove => true,
        }
    }

    /// Whether the file is gone then.
    fn ends_the_file(&self) -> bool {
        matches!(self, Self::Remove | Self::OnFile(Operation::Replace(_)))
    }
}

/// A change and a crash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Crash {
    /// The change whose steps are counted.
    pub change: Change,
    /// The process that dies; a node loses its unsynced writes.
    pub victim: Victim,
    /// It starts again after this many virtual milliseconds.
    pub down_ms: u64,
    /// How updates of stripes are made.
    pub scheme: UpdateScheme,
}

impl Crash {
    /// All crashes during a change: of the coordinator and each node, short and long.
    pub fn all(scheme: UpdateScheme, change: &Change) -> Vec<Self> {
        let nodes = (1..=NODE_COUNT).map(Victim::Node);
        let nodes = nodes.flat_map(|node| [(node, SHORT_MS), (node, LONG_MS)]);
        let coordinator = [SHORT_MS, LEASELESS_MS].map(|down_ms| (Victim::Coordinator, down_ms));
        let of_change = |(victim, down_ms)| Self {
            change: change.clone(),
            victim,
            down_ms,
            scheme,
        };
        coordinator
            .into_iter()
            .chain(nodes)
            .map(of_change)
            .collect()
    }

    /// The steps of the change. They do not depend on the victim.
    ///
    /// # Errors
    /// The run without a crash, if it fails.
    pub fn step_count(&self) -> Result<u64, Raced> {
        let quiet = run_crash(self, u64::MAX);
        match quiet.failure {
            None if quiet.step_count > 0 => Ok(quiet.step_count),
            _ => Err(quiet),
        }
    }

    /// Runs the change with the crash before every `stride`-th of its steps from one on, and before one step at least.
    /// Returns the number of runs.
    ///
    /// # Errors
    /// The first run that fails, and its step.
    pub fn run_at(
        &self,
        step_count: u64,
        (from, stride): (usize, usize),
    ) -> Result<u64, (u64, Raced)> {
        let from = from % stride.min(step_count as usize);
        let mut run_count = 0;
        for step in (0..step_count).skip(from).step_by(stride) {
            let raced = run_crash(self, step);
            if raced.failure.is_some() {
                return Err((step, raced));
            }
            run_count += 1;
        }
        Ok(run_count)
    }
}

/// Runs a change. The victim dies before this step of it, or not at all if it has fewer steps.
pub fn run_crash(crash: &Crash, step: u64) -> Raced {
    let ran = run_script(SEED, shape(crash.scheme), |cluster, step_count| {
        script(cluster, crash.clone(), (step, step_count))
    });
    ran.into()
}

async fn script(cluster: Arc<Cluster>, planned: Crash, (step, step_count): (u64, Arc<Mutex<u64>>)) {
    let world = Arc::clone(&cluster.world);
    let snapshots = Arc::new(Snapshots::default());
    let (operator, _) = prepare(&cluster, (Sharing::Never, &snapshots)).await;
    for name in [OTHER, BELOW[0]] {
        let put = operator.put(name, OTHER_CELLS).await;
        put.expect("the cluster is whole");
    }
    let changing = Runner::new(&cluster, 0, &snapshots, options()).await;
    let writing = Runner::new(&cluster, 1, &snapshots, options()).await;
    let (begin, is_time) = oneshot::channel();
    let act: Act = Box::new({
        let (cluster, script) = (Arc::clone(&cluster), world.begin());
        move || {
            crash(&cluster, script, planned.victim, planned.down_ms);
            begin.send(()).unwrap_or(());
        }
    });
    world.steps.count(Some((step, act)));
    let change = planned.change;
    let is_changed = async {
        let attempt_count = until_done(&changing, &change, &[]).await;
        until(&cluster, "garbage or an open put stays", is_tidy).await;
        // The other client writes now if the step has not come.
        *lock(&step_count) = world.steps.end();
        attempt_count
    };
    let is_written = async {
        is_time.await.unwrap_or(());
        let accepted: &[Cause] = if change.ends_the_file() {
            &[Cause::Stale]
        } else {
            &[]
        };
        let write = Change::OnFile(Operation::Write(WITHIN));
        until_done(&writing, &write, accepted).await
    };
    let (attempt_count, _) = join(is_changed, is_written).await;
    let otherwise = "the cluster does not become whole";
    until(&cluster, otherwise, |cluster| {
        is_whole(cluster) && is_tidy(cluster)
    })
    .await;
    check_names(&changing, &change, attempt_count).await;
    for runner in [changing, writing] {
        runner.read_known_again(change.ends_the_file()).await;
    }
    verify(&cluster, &operator).await;
    if let Err(wrong) = snapshots.verify(&operator).await {
        world.fail(wrong);
    }
    match cluster.observer.check() {
        Ok(faults) if faults.is_empty() => {}
        faults => world.fail(format!("the metadata contradict themselves: {faults:?}")),
    }
}

/// Whether no put is open and no chunk is to be removed.
fn is_tidy(cluster: &Cluster) -> bool {
    let garbage = cluster.observer.garbage(None, 1);
    let puts = cluster.observer.puts();
    garbage.expect("onlookers can read").is_empty() && puts.expect("onlookers can read").is_empty()
}

/// Makes a change, again and again while the cluster cannot make it now. Returns the number of attempts. Other errors
/// than the accepted ones end the run.
async fn until_done(runner: &Runner, change: &Change, accepted: &[Cause]) -> u64 {
    let world = &runner.cluster.world;
    let until_us = world.now_us() + PATIENCE_US;
    let mut attempt_count = 0;
    loop {
        let done = attempt(runner, change, attempt_count).await;
        attempt_count += 1;
        let Err(error) = done else {
            return attempt_count;
        };
        world.note(&format!("{change:?}, attempt {attempt_count}: {error}"));
        match error.cause() {
            cause if accepted.contains(&cause) => return attempt_count,
            Cause::Failure | Cause::NotLeading if world.now_us() < until_us => {
                world.sleep(PAUSE_US).await;
            }
            // An earlier attempt was made although its client did not hear of it.
            Cause::NotFound | Cause::Exists | Cause::Stale
                if attempt_count > 1 && change.is_refused_twice() =>
            {
                return attempt_count;
            }
            _ => {
                runner.client.fail(format!("{change:?} fails: {error}"));
                return attempt_count;
            }
        }
    }
}

async fn attempt(runner: &Runner, change: &Change, number: u64) -> Result<(), ClientError> {
    let client = &runner.client;
    match change {
        Change::Put => client.put(&new_name(number), FILE_CELLS).await,
        Change::PutStream => client.put_stream(&new_name(number), FILE_CELLS).await,
        // The checkers tell the puts of one name apart by their sizes.
        Change::OnFile(Operation::Replace(count)) => client.put_over(FILE, count + number).await,
        Change::OnFile(operation) => runner.run(operation).await,
        Change::Rename => client.rename(FILE, RENAMED).await,
        Change::RenameOver => client.rename(FILE, OTHER).await,
        Change::RenameDirectory => {
            let [from, to] = DIRECTORIES;
            let [old, new] = BELOW;
            client.rename_directory((from, to), &[(old, new)]).await
        }
        Change::Remove => client.remove(FILE).await,
    }
}

/// The name of a new file. Each attempt has its own, as an earlier one may have stored its file.
fn new_name(number: u64) -> String {
    format!("new/{number}")
}

/// Checks which names there are behind a change of this many attempts.
async fn check_names(runner: &Runner, change: &Change, attempt_count: u64) {
    let client = &runner.client;
    let (gone, there) = match change {
        Change::Put | Change::PutStream => (None, Some(new_name(attempt_count - 1))),
        Change::OnFile(_) => (None, Some(FILE.to_owned())),
        Change::Rename => (Some(FILE), Some(RENAMED.to_owned())),
        Change::RenameOver => (Some(FILE), Some(OTHER.to_owned())),
        Change::RenameDirectory => (Some(BELOW[0]), Some(BELOW[1].to_owned())),
        Change::Remove => (Some(FILE), None),
    };
    if let Some(name) = gone {
        match client.open(name).await {
            Err(error) if error.cause() == Cause::NotFound => {}
            Err(error) => client.fail(format!("a look-up of {name} fails: {error}")),
            Ok(_) => client.fail(format!("{name} is there after {change:?}")),
        }
    }
    if let Some(name) = there {
        let is_moved = matches!(change, Change::Rename | Change::RenameOver);
        let moved = is_moved.then(|| runner.file.put_id());
        if let Err(why) = check_there(client, &name, moved).await {
            client.fail(format!("{name} after {change:?}: {why}"));
        }
    }
}

/// Reads the file of a name, and checks that it is the given one.
async fn check_there(
    client: &SimClient,
    name: &str,
    moved: Option<gabion_meta::PutId>,
) -> Result<(), String> {
    let file = client.open(name).await.map_err(|error| error.to_string())?;
    if moved.is_some_and(|moved| moved != file.put_id()) {
        return Err("it is another file".to_owned());
    }
    client.get(name).await.map_err(|error| error.to_string())
}
