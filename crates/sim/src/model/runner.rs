//! A run of the model: draws operations, carries each out on the cluster and on the model, and compares.

use super::answer::FileNumber;
use super::choices::Choice;
use super::draw::Draw;
use super::expected::Expected;
use super::files::Sizes;
use super::holders::{ClientNumber, HandleNumber, LASTING};
use super::operation::Operation;
use super::options::{ModelCounts, ModelOptions};
use super::reports::await_reports;
use super::trouble::Trouble;
use super::within::{POOL, WITHIN_POOL};
use crate::client::SimClient;
use crate::cluster::Cluster;
use crate::names::SNAPSHOTS;
use crate::run::start;
use crate::services::Service;
use crate::workload::{create_pool, create_pool_as};
use crate::world::lock;
use gabion_client::{Cause, Client, ClientOptions, File, LockHandle};
use gabion_layout::PoolId;
use gabion_meta::{NewAttributes, PutId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The number of the client that does not live as long as the run.
pub(crate) const MORTAL: usize = 2;

/// Operations between two kills, on average.
const TROUBLE_ONE_IN: u64 = 200;
/// Operations between two comparisons of everything.
const COMPARE_EVERY: u64 = 250;
/// Mean interval, in operations, of uses of a handle whose file is removed.
const REMOVED_ONE_IN: u64 = 20;
/// Mean number of uses of such a handle until the client closes it.
const CLOSE_ONE_IN: u64 = 12;
/// Time after which no request of an ended operation takes effect any more: primaries remember withdrawn runs for a
/// minute.
const SETTLED_US: u64 = 65_000_000;

/// A run.
pub(crate) struct Runner {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) client: SimClient,
    /// It opens files once, and keeps their layouts.
    pub(crate) other: SimClient,
    /// It is killed now and then, and cut off.
    pub(crate) mortal: SimClient,
    pub(crate) expected: Expected,
    /// The files that the other client has open.
    pub(crate) handles: BTreeMap<FileNumber, File>,
    /// The views of advisory locks: they know which owners have any.
    pub(crate) lock_handles: BTreeMap<(ClientNumber, FileNumber), LockHandle>,
    /// The files that were opened exclusively.
    pub(crate) alone: BTreeMap<HandleNumber, File>,
    /// The ids of files, as far as they were looked up.
    pub(crate) puts: BTreeMap<FileNumber, PutId>,
    /// The ids of the two pools.
    pub(crate) pools: [PoolId; 2],
    pub(crate) trouble: Option<Trouble>,
    /// Since then the cluster is whole.
    whole_us: u64,
    /// Files were removed since a coordinator has started, which does not know yet whether clients have them open.
    has_removed: bool,
    /// Puts and writes that failed may still take room in the pool with limited bytes.
    has_leftovers: bool,
    counts: Arc<Mutex<ModelCounts>>,
}

impl Runner {
    /// Runs it on a new cluster. A difference ends the run.
    pub(crate) async fn run(
        cluster: &Arc<Cluster>,
        options: ModelOptions,
        counts: &Arc<Mutex<ModelCounts>>,
    ) {
        let world = &cluster.world;
        let mut runner = match Self::begin(cluster, options, counts).await {
            Ok(runner) => runner,
            Err(error) => {
                world.fail(format!("the beginning: {error}"));
                return;
            }
        };
        for number in 0..options.operation_count {
            // Boxed: it holds the largest of all operations.
            if let Err(why) = Box::pin(runner.step(number)).await {
                world.fail(format!("operation {number}: {why}"));
                return;
            }
        }
        if let Err(why) = Box::pin(runner.end()).await {
            world.fail(format!("at the end: {why}"));
        }
    }

    async fn begin(
        cluster: &Arc<Cluster>,
        options: ModelOptions,
        counts: &Arc<Mutex<ModelCounts>>,
    ) -> Result<Self, String> {
        let operator = start(cluster).await;
        create_pool(cluster, &operator).await;
        create_pool_as(cluster, &operator, (WITHIN_POOL, 0)).await;
        let base = format!("{SNAPSHOTS}model");
        let shape = &cluster.shape;
        let sizes = Sizes {
            stripe_bytes: shape.stripe_bytes,
            inline_bytes: shape.inline_bytes,
        };
        let client = connect(cluster, 0).await;
        let made = client
            .client
            .make_directory(&base, NewAttributes::DIRECTORY);
        made.await.map_err(|error| error.to_string())?;
        let known = client.client.pools().await;
        let known = known.map_err(|error| error.to_string())?;
        let id_of = |name: &str| {
            let mut pools = known.iter();
            let found = pools.find(|pool| pool.spec.name == name);
            found.expect("both pools were created").id
        };
        Ok(Self {
            other: connect(cluster, 1).await,
            mortal: connect(cluster, MORTAL).await,
            expected: Expected::new(&base, sizes, options.wrong),
            cluster: Arc::clone(cluster),
            client,
            handles: BTreeMap::new(),
            lock_handles: BTreeMap::new(),
            alone: BTreeMap::new(),
            puts: BTreeMap::new(),
            pools: [POOL, WITHIN_POOL].map(id_of),
            trouble: None,
            whole_us: 0,
            has_removed: false,
            has_leftovers: false,
            counts: Arc::clone(counts),
        })
    }

    async fn step(&mut self, number: u64) -> Result<(), String> {
        let world = Arc::clone(&self.cluster.world);
        self.begin_trouble();
        self.expected.now_us = world.now_us();
        if self.trouble.is_none() {
            self.expected.expire(self.whole_us);
        }
        self.forget_handles();
        let operation = self.draw(number);
        world.note(&format!("operation {number}: {operation:?}"));
        if matches!(operation, Operation::Within(_)) && std::mem::take(&mut self.has_leftovers) {
            self.await_room().await?;
        }
        let before = self.expected.clone();
        let choices = self.choices(&operation);
        self.expected = choices[0].after.clone();
        let actual = Box::pin(self.perform(&operation)).await;
        let judged = self.judge((&operation, &before), &choices, &actual);
        let judged = judged.map_err(|why| format!("{operation:?}: {why}"));
        let (choice, is_in_doubt) = judged?;
        self.note_outcome(&operation, &before, choice);
        self.expected = choice.after.clone();
        if is_in_doubt {
            self.count(|counts| counts.doubt_count += 1);
            world.note("its outcome is unknown");
            self.end_trouble().await?;
            world.sleep(SETTLED_US).await;
            let decided = Box::pin(self.decide(&operation, before)).await;
            decided.map_err(|why| format!("{operation:?}, in doubt: {why}"))?;
        } else {
            self.note_growth((&operation, &before), &choice.outcome)
                .await?;
            if self.trouble.as_mut().is_some_and(Trouble::is_over) {
                self.end_trouble().await?;
            }
        }
        if (number + 1).is_multiple_of(COMPARE_EVERY) {
            self.end_trouble().await?;
            self.compare_all().await?;
        }
        Ok(())
    }

    /// Kills a process now and then.
    fn begin_trouble(&mut self) {
        let world = &self.cluster.world;
        if self.trouble.is_some() || !world.roll(|dice| dice.one_in(TROUBLE_ONE_IN)) {
            return;
        }
        let trouble = Trouble::begin(&self.cluster);
        self.count(|counts| match trouble.slot {
            None => counts.coordinator_restart_count += 1,
            Some(_) => counts.node_kill_count += 1,
        });
        self.trouble = Some(trouble);
        self.has_removed = false;
        self.has_leftovers = true;
    }

    fn draw(&self, number: u64) -> Operation {
        let gone = self.handles.keys();
        let gone = gone.filter(|&file| !self.expected.files.contains_key(file));
        let gone: Vec<FileNumber> = gone.copied().collect();
        self.cluster.world.roll(|dice| {
            if !gone.is_empty() && dice.one_in(REMOVED_ONE_IN) {
                return Operation::UseRemoved(*dice.pick(&gone));
            }
            let expected = &self.expected;
            let mut draw = Draw {
                dice,
                expected,
                number,
                is_calm: self.trouble.is_none(),
            };
            draw.operation()
        })
    }

    /// The right outcomes of an operation.
    fn choices(&self, operation: &Operation) -> Vec<Choice> {
        let mut choices = self.expected.choices(operation, self.is_restarted());
        if self.uses_snapshot(operation) {
            choices.truncate(1);
            choices[0].outcome = Err(Cause::ReadOnly);
        }
        choices
    }

    /// Whether an operation uses the handle of a snapshot that is gone. The client knows that it never changes.
    fn uses_snapshot(&self, operation: &Operation) -> bool {
        match operation {
            Operation::UseRemoved(file) => self.handles[file].is_read_only(),
            _ => false,
        }
    }

    /// Whether a coordinator has started, and may not know yet which files clients have open.
    fn is_restarted(&self) -> bool {
        let trouble = self.trouble.as_ref();
        trouble.is_some_and(|trouble| trouble.slot.is_none())
    }

    /// Whether a removed file may still count against quotas, also one that the operation replaces.
    pub(crate) fn counts_removed(&self, operation: &Operation) -> bool {
        let replaces = matches!(
            operation,
            Operation::Put { replaces: true, .. } | Operation::Rename { replaces: true, .. }
        );
        self.is_restarted() && (self.has_removed || replaces)
    }

    fn note_outcome(&mut self, operation: &Operation, before: &Expected, choice: &Choice) {
        self.count(|counts| {
            *counts.operations.entry(operation.kind()).or_default() += 1;
            if let Err(cause) = &choice.outcome {
                *counts.refusals.entry(cause.name()).or_default() += 1;
            }
            let is_old = matches!(operation, Operation::File { is_old: true, .. });
            counts.old_handle_count += u64::from(is_old);
            let reached = before.reached(operation, &choice.outcome);
            for reached in reached.into_iter().chain(choice.reached) {
                *counts.reached.entry(reached).or_default() += 1;
            }
        });
        let mut files = before.files.keys();
        self.has_removed |= files.any(|file| !choice.after.files.contains_key(file));
    }

    /// Ends the trouble, if there is any, and waits until the cluster is whole, and knows which files clients have
    /// open.
    pub(crate) async fn end_trouble(&mut self) -> Result<(), String> {
        let Some(trouble) = self.trouble.take() else {
            return Ok(());
        };
        let is_restart = trouble.slot.is_none();
        trouble.end(&self.cluster, &self.client).await?;
        if is_restart {
            await_reports(&self.cluster, &self.client).await?;
        }
        self.whole_us = self.cluster.world.now_us();
        Ok(())
    }

    /// Compares everything, and checks the chunks.
    async fn end(&mut self) -> Result<(), String> {
        self.end_trouble().await?;
        self.await_room().await?;
        self.compare_all().await?;
        self.check_chunks().await
    }

    /// Forgets a handle now and then, so that files are opened again.
    pub(crate) fn may_close(&mut self, file: FileNumber) {
        let world = &self.cluster.world;
        if world.roll(|dice| dice.one_in(CLOSE_ONE_IN)) {
            self.handles.remove(&file);
        }
    }

    /// Forgets handles of clients and files that are gone, and those through which nothing is locked.
    pub(crate) fn forget_handles(&mut self) {
        let expected = &self.expected;
        self.lock_handles.retain(|&(client, file), _| {
            let is_alive = LASTING.contains(&client) || client == expected.mortal;
            is_alive && expected.locks.has(client, file)
        });
        self.alone
            .retain(|handle, _| expected.handles.contains_key(handle));
    }

    /// A client of the run.
    pub(crate) fn client_of(&self, client: ClientNumber) -> Client {
        let [first, second] = LASTING;
        let known = if client == first {
            &self.client
        } else if client == second {
            &self.other
        } else {
            &self.mortal
        };
        known.client.clone()
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut ModelCounts)) {
        change(&mut lock(&self.counts));
    }
}

/// A client without reports to the checkers of other runs, to which names and bytes of this one are unknown.
pub(crate) async fn connect(cluster: &Arc<Cluster>, number: usize) -> SimClient {
    let party = cluster.begin_client(number);
    let ports = cluster.ports(party, None);
    let service = Service::Client(Arc::clone(ports.router()));
    cluster.network.serve(party, service);
    let ledger = Arc::clone(&cluster.ledger);
    SimClient::connect(ports, party, ledger, ClientOptions::default()).await
}
