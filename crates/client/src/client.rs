//! The client itself: its connections, its requests to the coordinator, and how it runs plans.

use crate::attempts::{Attempts, READ_BYTES_PER_MS, UnderWay, WRITE_BYTES_PER_MS};
use crate::byte_budget::ByteBudget;
use crate::cache::SegmentCache;
use crate::error::{ClientError, is_repeatable, passing, without_outcome};
use crate::health::Health;
use crate::inline_facts::check_inline;
use crate::locks::table::Locks;
use crate::open_runs::OpenRuns;
use crate::own_changes::OwnChanges;
use crate::sessions::slot::Sessions;
use futures::FutureExt;
use gabion_codec::Code;
use gabion_layout::{NodeId, NodePlace, Sequence, Topology};
use gabion_meta::{
    DirectoryId, FileRecord, Inode, Listing, PoolRecord, PutId, QuotaChange, QuotaStatus,
};
use gabion_plan::Plan;
use gabion_planner::repair::Scheme;
use gabion_protocol::client_ports::ClientPorts;
use gabion_protocol::initiate::{PartFailed, RunTerms, run_plan};
use gabion_protocol::message::{
    Cause, ClusterStatus, ClusterUsage, CoordinatorCall, EventPage, FileLayout, FormOrder,
    LinkRate, Meter, NodeStatus, PoolRequest, Purpose, RepairOrder, RunId, ask,
};
use gabion_protocol::ports::{Address, Ask as _, CoordinatorError};
use gabion_protocol::run::{LocalIo, RunContext, run_part};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Time limit of a coordinator's answer from its tables, in milliseconds.
pub(crate) const COORDINATOR_DEADLINE_MS: u64 = 10_000;
/// Time limit of a coordinator's round of commits, which may have to settle some stripes first.
const COMMIT_DEADLINE_MS: u64 = 60_000;

/// Time limit of finding the coordinator at the start.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// The same if it may be one of several: another one takes over within 7 s.
const TAKEOVER_LIMIT: Duration = Duration::from_secs(12);

/// Options of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Time limit of an operation on one stripe; large stripes get a second more for each 4 MiB.
    /// The default of 30 s exceeds the time until a failed node is declared.
    pub deadline: Duration,
    /// Repair scheme for reads of lost chunks.
    pub read_scheme: Scheme,
    /// Bytes of stripes that a put holds in memory: at least one stripe and at most three. It also limits the
    /// bytes that a read or a get requests at a time: at least one stripe and at most eight, and at most 64 MiB if
    /// these are more than three. And it limits the stripes in memory of all writes that store whole stripes, such as
    /// writes into holes: at least one stripe.
    pub in_flight_bytes: u64,
    /// Memory of the cache shared by files opened with [`Client::open_cached`]. With 0, the
    /// default, nothing is cached: such files read and write the cluster as [`Client::open`]'s do.
    pub cache_bytes: u64,
    /// Bytes that the cache reads ahead in the same segment after sequential reads. Default: 0.
    pub read_ahead_bytes: u64,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(30),
            read_scheme: Scheme::default(),
            in_flight_bytes: 256 << 20,
            cache_bytes: 0,
            read_ahead_bytes: 0,
        }
    }
}

/// A connection to a cluster. Clones share it.
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) ports: Arc<dyn ClientPorts>,
    pub(crate) options: ClientOptions,
    /// Cached bytes of files that were opened for caching. It keeps no client alive.
    pub(crate) cache: SegmentCache<Client>,
    /// Planned traffic of all runs that this client completed.
    planned: Mutex<Meter>,
    /// Bytes of the updates in flight.
    pub(crate) updating_bytes: UnderWay,
    /// Bytes of the stripes that writes store whole.
    pub(crate) stripe_bytes: ByteBudget,
    /// Updates with an unknown outcome.
    pub(crate) open_runs: Arc<OpenRuns>,
    /// Recent failures and delays of nodes.
    pub(crate) health: Health,
    /// The session, with its open files.
    pub(crate) sessions: Arc<Sessions>,
    /// Advisory locks.
    pub(crate) locks: Locks,
    /// The last changes of names and inodes.
    pub(crate) own_changes: OwnChanges,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("options", &self.shared.options)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Connects to the cluster of the coordinator that `ports` lead to. Waits for a restarting coordinator for 3 s, so
    /// that a wrong address is reported soon, and for 12 s if there are several. If a coordinator answers that it is
    /// busy, the client waits for it until the deadline.
    ///
    /// # Errors
    /// [`ClientError::NoCoordinator`] when none answers there.
    pub async fn connect(
        ports: Arc<dyn ClientPorts>,
        options: ClientOptions,
    ) -> Result<Self, ClientError> {
        let cache = SegmentCache::new(options.cache_bytes, options.read_ahead_bytes);
        let stripe_bytes = ByteBudget::new(options.in_flight_bytes);
        let client = Self {
            shared: Arc::new(Shared {
                ports,
                options,
                cache,
                planned: Mutex::default(),
                updating_bytes: UnderWay::default(),
                stripe_bytes,
                open_runs: Arc::default(),
                health: Health::default(),
                sessions: Arc::default(),
                locks: Locks::default(),
                own_changes: OwnChanges::default(),
            }),
        };
        let silence = if client.shared.ports.has_several_coordinators() {
            TAKEOVER_LIMIT
        } else {
            CONNECT_LIMIT
        };
        let found = client.ask_within(ask::Nodes, COORDINATOR_DEADLINE_MS, Some(silence));
        client.shared.ports.learn_nodes(&found.await?);
        Ok(client)
    }

    /// The cluster's nodes.
    ///
    /// # Errors
    /// [`ClientError::NoCoordinator`], [`ClientError::Refused`].
    pub async fn nodes(&self) -> Result<Vec<NodeStatus>, ClientError> {
        let nodes = self.ask(ask::Nodes).await?;
        self.shared.ports.learn_nodes(&nodes);
        Ok(nodes)
    }

    /// The cluster's redundancy and the state of its repair.
    ///
    /// # Errors
    /// [`ClientError::NoCoordinator`], [`ClientError::Refused`].
    pub async fn status(&self) -> Result<ClusterStatus, ClientError> {
        Ok(*self.ask(ask::Status).await?)
    }

    /// The space of files, chunks and reserves by pool, and of nodes.
    ///
    /// # Errors
    /// [`ClientError::NoCoordinator`], [`ClientError::Refused`].
    pub async fn usage(&self) -> Result<ClusterUsage, ClientError> {
        self.ask(ask::Usage).await
    }

    /// Some of the coordinator's event log.
    ///
    /// # Errors
    /// [`ClientError::NoCoordinator`], [`ClientError::Refused`].
    pub async fn events(&self, asked: ask::Events) -> Result<EventPage, ClientError> {
        self.ask(asked).await
    }

    /// All pools.
    ///
    /// # Errors
    /// [`ClientError::NoCoordinator`], [`ClientError::Refused`].
    pub async fn pools(&self) -> Result<Vec<PoolRecord>, ClientError> {
        self.ask(ask::Pools).await
    }

    /// Commits what was appended in a pool, so that parity includes it. Does nothing if parity is updated at once.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when there is no such pool; [`ClientError::Late`] when no stripe
    /// has been committed for the time limit of an operation, or the coordinator did not answer.
    pub async fn commit_pool(&self, name: &str) -> Result<(), ClientError> {
        let request = ask::CommitPool {
            name: name.to_owned(),
        };
        let start = || self.attempts(format!("committing {name}"), 0);
        let (mut attempts, mut least_count) = (start(), u64::MAX);
        loop {
            let ports = &self.shared.ports;
            let why = match ports
                .ask_coordinator(request.clone(), COMMIT_DEADLINE_MS)
                .await
            {
                Ok(0) => return Ok(()),
                Ok(left_count) if left_count < least_count => {
                    // There is progress, however slow.
                    (attempts, least_count) = (start(), left_count);
                    continue;
                }
                Ok(left_count) => format!("{left_count} stripes are not committed yet").into(),
                // A second commit of the same stripes changes nothing.
                Err(error) => passing(error)?,
            };
            attempts.pause(why).await?;
        }
    }

    /// Creates a pool with the required guarantee; without a code the coordinator chooses one.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when the cluster cannot give the guarantee; [`ClientError::NoCoordinator`].
    pub async fn create_pool(&self, request: PoolRequest) -> Result<PoolRecord, ClientError> {
        self.ask(request).await
    }

    /// Changes the quota of a pool. Files that are there stay, also if they exceed it.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when there is no such pool, or another pool's blocks become its stripes;
    /// [`ClientError::NoCoordinator`].
    pub async fn set_quota(&self, pool: &str, change: QuotaChange) -> Result<(), ClientError> {
        let pool = pool.to_owned();
        self.ask(ask::SetQuota { pool, change }).await
    }

    /// Changes the quota of a directory, or removes it without a change. The first change counts what is below. Files
    /// that are there stay, also if they exceed it.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when the directory is gone, lies below one with a quota or has one below it, or too
    /// much is below it to count; [`ClientError::NoCoordinator`].
    pub async fn set_directory_quota(
        &self,
        directory: DirectoryId,
        change: Option<QuotaChange>,
    ) -> Result<(), ClientError> {
        self.ask(ask::SetDirectoryQuota { directory, change }).await
    }

    /// The quota of a directory that counts this file or directory, if there is one.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when it is gone; [`ClientError::NoCoordinator`].
    pub async fn directory_quota(&self, inode: Inode) -> Result<Option<QuotaStatus>, ClientError> {
        let quota = self.ask(ask::DirectoryQuota(inode)).await?;
        Ok(quota.map(|quota| *quota))
    }

    /// At most `limit` entries of the files with this prefix, in the byte order of their names, behind
    /// `after`. Names with the delimiter behind the prefix are joined up to it. [`Listing::is_cut`] says
    /// whether more follow. The list is read in pages, between which files may change.
    ///
    /// # Errors
    /// [`ClientError::NoCoordinator`], [`ClientError::Refused`].
    pub async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        delimiter: Option<&str>,
        limit: u64,
    ) -> Result<Listing, ClientError> {
        let mut request = ask::List {
            prefix: prefix.to_owned(),
            after: after.map(str::to_owned),
            delimiter: delimiter.map(str::to_owned),
            limit,
        };
        let mut all = Listing::default();
        loop {
            let page = self.ask(request.clone()).await?;
            let count = (page.files.len() + page.prefixes.len()) as u64;
            request.after = page.last().map(str::to_owned);
            request.limit = request.limit.saturating_sub(count);
            all.files.extend(page.files);
            all.prefixes.extend(page.prefixes);
            all.is_cut = page.is_cut;
            if !page.is_cut || request.limit == 0 {
                return Ok(all);
            }
        }
    }

    /// All files with this prefix, in the byte order of their names.
    ///
    /// # Errors
    /// Those of [`Client::list`].
    pub async fn ls(&self, prefix: &str) -> Result<Vec<FileRecord>, ClientError> {
        Ok(self.list(prefix, None, None, u64::MAX).await?.files)
    }

    /// The file with this name, if there is one.
    ///
    /// # Errors
    /// Those of [`Client::list`].
    pub async fn find(&self, name: &str) -> Result<Option<FileRecord>, ClientError> {
        // It is the first of those that begin with its name.
        let first = self.list(name, None, None, 1).await?.files;
        Ok(first.into_iter().find(|file| file.name == name))
    }

    /// Repairs all lost chunks now, without waiting for the grace period, and from now on by
    /// `scheme` if one is given. Returns at once; [`Client::status`] shows the progress.
    ///
    /// # Errors
    /// [`ClientError::Refused`] for an unknown scheme; [`ClientError::NoCoordinator`].
    pub async fn repair_now(&self, scheme: Option<&str>) -> Result<(), ClientError> {
        let scheme = scheme.map(str::to_owned);
        self.ask(ask::RepairNow { scheme }).await
    }

    /// Changes the settings of repairs, durably.
    ///
    /// # Errors
    /// [`ClientError::Refused`] for an invalid limit; [`ClientError::NoCoordinator`].
    pub async fn order_repair(&self, order: RepairOrder) -> Result<(), ClientError> {
        self.ask(order).await
    }

    /// Accepts a joining node that waits because it has many unknown chunks: it sets them aside.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when the node does not wait for that; [`ClientError::NoCoordinator`].
    pub async fn accept(&self, node: NodeId) -> Result<(), ClientError> {
        self.ask(ask::Accept(node)).await
    }

    /// Moves all chunks of a node to others, so that it can leave. Returns at once;
    /// [`Client::nodes`] shows when it is drained.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when there is no such node; [`ClientError::NoCoordinator`].
    pub async fn drain(&self, node: NodeId) -> Result<(), ClientError> {
        self.ask(ask::Drain(node)).await
    }

    /// Cancels a node's departure.
    ///
    /// # Errors
    /// Those of [`Client::drain`].
    pub async fn keep(&self, node: NodeId) -> Result<(), ClientError> {
        self.ask(ask::Keep(node)).await
    }

    /// Measured rates of links between nodes, by sender and receiver.
    ///
    /// # Errors
    /// [`ClientError::NoCoordinator`].
    pub async fn links(&self) -> Result<Vec<LinkRate>, ClientError> {
        self.ask(ask::Links).await
    }

    /// Orders that the blocks of a file, or of all files of a pool, be encoded or replicated again. Returns when the
    /// request is durable; [`Client::layout`] and [`Client::status`] show the progress.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when there is no such pool or file, or the pool's blocks are never
    /// replicated; [`ClientError::NoCoordinator`].
    pub async fn order_form(&self, order: FormOrder) -> Result<(), ClientError> {
        self.ask(order).await
    }

    /// Planned traffic of all runs that this client completed.
    pub(crate) fn planned(&self) -> Meter {
        let planned = self.shared.planned.lock();
        planned.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts the plan of a completed run.
    pub(crate) fn count(&self, plan: &Plan, topology: &Topology, purpose: Purpose) {
        let planned = self.shared.planned.lock();
        let mut planned = planned.unwrap_or_else(PoisonError::into_inner);
        planned.count_plan(plan, topology, purpose);
    }

    /// Starts the clock of an operation on `bytes` that several nodes could serve.
    pub(crate) fn attempts(&self, what: String, bytes: u64) -> Attempts {
        let deadline = self.shared.options.deadline;
        let moving = (bytes, READ_BYTES_PER_MS);
        Attempts::start(&self.shared.ports, what, deadline, moving)
    }

    /// Starts the clock of an operation whose `bytes` have to move to particular nodes.
    pub(crate) fn patient_attempts(&self, what: String, bytes: u64) -> Attempts {
        let deadline = self.shared.options.deadline;
        let moving = (bytes, WRITE_BYTES_PER_MS);
        Attempts::start(&self.shared.ports, what, deadline, moving)
    }

    /// The client's connections, clock and randomness.
    pub(crate) fn ports(&self) -> &dyn ClientPorts {
        &*self.shared.ports
    }

    /// Nodes to ask last.
    pub(crate) fn ailing(&self) -> Vec<NodeId> {
        self.shared.health.ailing(self.ports().now_ms())
    }

    /// Time without progress after which a node counts as hanging.
    pub(crate) fn stall_ms(&self) -> u64 {
        (self.shared.options.deadline / 3).as_millis().max(1) as u64
    }

    pub(crate) fn draw_run(&self) -> RunId {
        RunId(self.shared.ports.random())
    }

    pub(crate) async fn lookup_file(
        &self,
        file: PutId,
        offset: u64,
    ) -> Result<Option<FileLayout>, ClientError> {
        let layout = self.ask(ask::LookupFile { file, offset }).await?;
        if let Some(layout) = &layout {
            self.note_layout(layout, offset)?;
        }
        Ok(layout.map(|layout| *layout))
    }

    /// Checks the layout of the window with the byte at an offset, and notes what it says about nodes.
    pub(crate) fn note_layout(&self, layout: &FileLayout, offset: u64) -> Result<(), ClientError> {
        let window = layout.window;
        if offset < window.offset || window.end() <= offset {
            return Err(ClientError::unexpected("the coordinator"));
        }
        check_inline(layout)?;
        self.shared.ports.learn_nodes(&layout.nodes);
        Ok(())
    }

    pub(crate) async fn lookup(&self, name: &str) -> Result<FileLayout, ClientError> {
        let name = name.to_owned();
        let layout = self.ask(ask::Lookup { name }).await?;
        check_inline(&layout)?;
        self.shared.ports.learn_nodes(&layout.nodes);
        Ok(*layout)
    }

    /// Asks the coordinator, and retries while it is busy or away.
    pub(crate) async fn ask<C: CoordinatorCall>(&self, call: C) -> Result<C::Reply, ClientError> {
        self.ask_for(call, COORDINATOR_DEADLINE_MS).await
    }

    pub(crate) async fn ask_for<C: CoordinatorCall>(
        &self,
        call: C,
        deadline_ms: u64,
    ) -> Result<C::Reply, ClientError> {
        self.ask_within(call, deadline_ms, None).await
    }

    /// Asks until an operation's deadline, or only for the time of `silence` while no coordinator answers. A request
    /// that was not received is always retried; one that may have been carried out, only if that is harmless.
    async fn ask_within<C: CoordinatorCall>(
        &self,
        call: C,
        deadline_ms: u64,
        silence: Option<Duration>,
    ) -> Result<C::Reply, ClientError> {
        let ports = &self.shared.ports;
        let deadline = self.shared.options.deadline;
        let attempts = |limit| {
            let what = "asking the coordinator".to_owned();
            Attempts::start(ports, what, limit, (0, READ_BYTES_PER_MS))
        };
        let mut in_silence = silence.map(|limit| attempts(limit.min(deadline)));
        let mut attempts = attempts(deadline);
        // The last try whose outcome is unknown: the request may have been carried out.
        let mut in_doubt = None;
        loop {
            let present = in_silence.as_ref().unwrap_or(&attempts);
            let patience_ms = deadline_ms.min(present.left_ms());
            let (error, may_repeat) = match ports.reach_coordinator(patience_ms).await {
                Err(error) => (error, true),
                Ok(()) => match ports.ask_coordinator(call.clone(), patience_ms).await {
                    Ok(reply) => return Ok(reply),
                    Err(CoordinatorError::Busy(why)) => {
                        in_silence = None;
                        let paused = attempts.pause(why).await;
                        paused.map_err(|late| {
                            in_doubt.take().map_or(late, ClientError::NoCoordinator)
                        })?;
                        continue;
                    }
                    // It does not know the outcome, and another one leads soon, unless it is a recovery.
                    Err(CoordinatorError::Refused(why)) if why.cause.leaves_doubt() => {
                        in_silence = None;
                        let is_final = why.cause == Cause::Recovers && in_doubt.is_none();
                        in_doubt = Some(why.sentence.clone());
                        let may_repeat = !is_final && is_repeatable(&call.clone().into());
                        if !may_repeat || attempts.pause(why.clone()).await.is_err() {
                            return Err(without_outcome(why));
                        }
                        continue;
                    }
                    Err(CoordinatorError::Silent(error)) => {
                        in_doubt = Some(error.to_string());
                        (error, is_repeatable(&call.clone().into()))
                    }
                    Err(error) => return Err(error.into()),
                },
            };
            let error = error.to_string();
            let present = in_silence.as_mut().unwrap_or(&mut attempts);
            if !may_repeat || present.pause(error.as_str()).await.is_err() {
                return Err(ClientError::NoCoordinator(error));
            }
        }
    }

    /// Runs a checked plan in which this client takes part, and counts it when it is done.
    pub(crate) async fn run(
        &self,
        plan: &Plan,
        topology: &Topology,
        terms: &RunTerms,
        io: Arc<dyn LocalIo>,
    ) -> Result<BTreeMap<NodeId, Sequence>, PartFailed> {
        let ports = Arc::clone(&self.shared.ports);
        let context = RunContext {
            run: terms.run,
            // This client is the initiator, and no part of its own sends anything to it.
            origin: Address::Origin(0),
            purpose: terms.purpose,
            spread_ms: 0,
            deadline_ms: terms.deadline_ms,
            stall_ms: terms.stall_ms,
        };
        // Frames may arrive as soon as the first node has its part.
        let mut frames = ports.flows_of(terms.run);
        let own_ports = Arc::clone(&ports);
        let own = move |part| {
            let own =
                async move { run_part(&*own_ports, &*io, &part, context, &mut frames.flows).await };
            own.boxed()
        };
        let as_of = run_plan(&*ports, plan, terms, own).await?;
        self.count(plan, topology, terms.purpose);
        Ok(as_of)
    }
}

/// Proves that a plan of this client achieves its goal.
///
/// # Errors
/// [`ClientError::Broken`]: the planner is wrong.
pub(crate) fn check(plan: &Plan, code: &Code) -> Result<(), ClientError> {
    gabion_plan::check(plan, code)
        .map_err(|error| ClientError::Broken(format!("a plan is wrong: {error}")))
}

/// The cluster's topology for planners.
///
/// # Errors
/// [`ClientError::Broken`] when the coordinator's list is invalid.
pub(crate) fn topology(nodes: &[NodeStatus]) -> Result<Topology, ClientError> {
    let places = nodes.iter().map(|status| NodePlace {
        node: status.node,
        rack: status.rack,
    });
    Topology::new(places).map_err(|error| ClientError::Broken(error.to_string()))
}

/// The pool's code.
///
/// # Errors
/// [`ClientError::Broken`] when this release does not know it, or it is not of the pool's geometry.
pub(crate) fn code_of(pool: &PoolRecord) -> Result<Code, ClientError> {
    let spec = &pool.spec;
    let code: Code = (spec.code.parse())
        .map_err(|error| ClientError::Broken(format!("the pool's code is unknown: {error}")))?;
    if (code.k(), code.m(), code.sub_chunks()) != (spec.k, spec.m, spec.sub_chunks) {
        return Err(ClientError::Broken(format!(
            "the pool {} contradicts its code, {}",
            spec.name, spec.code
        )));
    }
    Ok(code)
}
