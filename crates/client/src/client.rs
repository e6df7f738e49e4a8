//! The client itself: its connections, what it asks the coordinator, and how it runs plans.

use crate::attempts::{Attempts, READ_BYTES_PER_MS, UnderWay, WRITE_BYTES_PER_MS};
use crate::cache::SegmentCache;
use crate::health::Health;
use crate::runs::OpenRuns;
use crate::{ClientError, File};
use futures::FutureExt;
use gabion_codec::Code;
use gabion_layout::{NodeId, NodePlace, Sequence, Topology};
use gabion_meta::{FileRecord, PoolRecord};
use gabion_plan::Plan;
use gabion_planner::repair::Scheme;
use gabion_protocol::client_ports::ClientPorts;
use gabion_protocol::initiate::{PartFailed, RunTerms, run_plan};
use gabion_protocol::message::{
    ClusterStatus, CoordinatorReply, CoordinatorRequest, FileLayout, FormOrder, LinkRate, Meter,
    NodeStatus, PoolWish, Purpose, RepairOrder, RunId,
};
use gabion_protocol::ports::{Address, CallError};
use gabion_protocol::run::{LocalIo, RunContext, run_part};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long the coordinator may take for an answer from its tables, in milliseconds.
const COORDINATOR_DEADLINE_MS: u64 = 10_000;
/// How long the coordinator may take for a round of commits, whose last ones may have to settle first.
const COMMIT_DEADLINE_MS: u64 = 60_000;

/// How long a client tries to find the coordinator when it begins.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);

/// A client's choices.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// How long an operation on one stripe is tried; large stripes get a second more for each
    /// 4 MiB. The default of 30 s outlasts the declaration of a node's failure.
    pub deadline: Duration,
    /// How lost chunks are reconstructed for reads.
    pub read_scheme: Scheme,
    /// Bytes of stripes that a put or a get holds in memory. One stripe is held at least and three
    /// at most.
    pub in_flight_bytes: u64,
    /// Memory of the cache that files opened with [`Client::open_cached`] share. With 0, the
    /// default, nothing is kept: such files read and write the cluster as [`Client::open`]'s do.
    pub cache_bytes: u64,
    /// How far behind a read the cache reads ahead in the same segment, where reads follow each
    /// other. 0, the default, is nothing.
    pub read_ahead_bytes: u64,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(30),
            read_scheme: Scheme::Pipeline,
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
    /// Bytes of files that were opened to be cached. It keeps no client alive.
    pub(crate) cache: SegmentCache<Client>,
    /// What the plans of all runs that this client saw to their end said.
    planned: Mutex<Meter>,
    /// Bytes that the updates under way will move.
    pub(crate) updating_bytes: UnderWay,
    /// Updates of which it is not known what became.
    pub(crate) open_runs: Arc<OpenRuns>,
    /// What was met of nodes lately.
    pub(crate) health: Health,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("options", &self.shared.options)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Connects to the cluster to whose coordinator `ports` lead. A coordinator that restarts is waited
    /// for, but no longer than a wrong address should take to be reported: 3 s.
    ///
    /// # Errors
    /// [`ClientError::NoCoordinator`] when none answers there.
    pub async fn connect(
        ports: Arc<dyn ClientPorts>,
        options: ClientOptions,
    ) -> Result<Self, ClientError> {
        let cache = SegmentCache::new(options.cache_bytes, options.read_ahead_bytes);
        let client = Self {
            shared: Arc::new(Shared {
                ports,
                options,
                cache,
                planned: Mutex::default(),
                updating_bytes: UnderWay::default(),
                open_runs: Arc::default(),
                health: Health::default(),
            }),
        };
        let limit = client.shared.options.deadline.min(CONNECT_LIMIT);
        let found = client.ask_within(CoordinatorRequest::Nodes, COORDINATOR_DEADLINE_MS, limit);
        client.learn_nodes(found.await?)?;
        Ok(client)
    }

    /// The cluster's nodes.
    ///
    /// # Errors
    /// [`ClientError::NoCoordinator`], [`ClientError::Refused`].
    pub async fn nodes(&self) -> Result<Vec<NodeStatus>, ClientError> {
        self.learn_nodes(self.ask(CoordinatorRequest::Nodes).await?)
    }

    fn learn_nodes(&self, reply: CoordinatorReply) -> Result<Vec<NodeStatus>, ClientError> {
        match reply {
            CoordinatorReply::Nodes(nodes) => {
                self.shared.ports.learn_nodes(&nodes);
                Ok(nodes)
            }
            _ => Err(ClientError::unexpected("the coordinator")),
        }
    }

    /// The cluster's redundancy and what its repair is doing.
    ///
    /// # Errors
    /// [`ClientError::NoCoordinator`], [`ClientError::Refused`].
    pub async fn status(&self) -> Result<ClusterStatus, ClientError> {
        match self.ask(CoordinatorRequest::Status).await? {
            CoordinatorReply::Status(status) => Ok(status),
            _ => Err(ClientError::unexpected("the coordinator")),
        }
    }

    /// All pools.
    ///
    /// # Errors
    /// [`ClientError::NoCoordinator`], [`ClientError::Refused`].
    pub async fn pools(&self) -> Result<Vec<PoolRecord>, ClientError> {
        match self.ask(CoordinatorRequest::Pools).await? {
            CoordinatorReply::Pools(pools) => Ok(pools),
            _ => Err(ClientError::unexpected("the coordinator")),
        }
    }

    /// Has parity follow everything that was appended in a pool. Nothing is to be done in one whose
    /// parity follows at once.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when there is no such pool; [`ClientError::Late`] when no stripe has been
    /// committed for as long as an operation may take; [`ClientError::NoCoordinator`].
    pub async fn commit_pool(&self, name: &str) -> Result<(), ClientError> {
        let request = CoordinatorRequest::CommitPool {
            name: name.to_owned(),
        };
        let start = || self.attempts(format!("committing {name}"), 0);
        let (mut attempts, mut least_count) = (start(), u64::MAX);
        loop {
            let asked = self.ask_once(request.clone(), COMMIT_DEADLINE_MS).await;
            let why = match asked {
                Ok(CoordinatorReply::Done) => return Ok(()),
                Ok(CoordinatorReply::Committing { left_count }) if left_count < least_count => {
                    // It gets on, however slowly.
                    (attempts, least_count) = (start(), left_count);
                    continue;
                }
                Ok(CoordinatorReply::Committing { left_count }) => {
                    format!("{left_count} stripes are not committed yet")
                }
                Ok(CoordinatorReply::Busy(why)) => why,
                Ok(CoordinatorReply::Refused(why)) => return Err(ClientError::Refused(why)),
                Ok(_) => return Err(ClientError::unexpected("the coordinator")),
                Err(error) => return Err(ClientError::NoCoordinator(error.to_string())),
            };
            attempts.pause(&why).await?;
        }
    }

    /// Makes a pool that survives what it must; without a code the coordinator chooses one.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when the cluster cannot keep the promise;
    /// [`ClientError::NoCoordinator`].
    pub async fn create_pool(&self, wish: PoolWish) -> Result<PoolRecord, ClientError> {
        match self.ask(CoordinatorRequest::CreatePool(wish)).await? {
            CoordinatorReply::Pool(pool) => Ok(pool),
            _ => Err(ClientError::unexpected("the coordinator")),
        }
    }

    /// Files whose names start with `prefix`, in the order of their names.
    ///
    /// # Errors
    /// [`ClientError::NoCoordinator`], [`ClientError::Refused`].
    pub async fn ls(&self, prefix: &str) -> Result<Vec<FileRecord>, ClientError> {
        match self
            .ask(CoordinatorRequest::List {
                prefix: prefix.to_owned(),
            })
            .await?
        {
            CoordinatorReply::Files(files) => Ok(files),
            _ => Err(ClientError::unexpected("the coordinator")),
        }
    }

    /// Deletes a file; its chunks are reclaimed in the background.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when there is none of this name; [`ClientError::NoCoordinator`].
    pub async fn rm(&self, name: &str) -> Result<(), ClientError> {
        // The order may be repeated, and must not concern a file that another puts there meanwhile.
        let file = self.lookup(name).await?.file.put;
        let name = name.to_owned();
        self.ask_done(CoordinatorRequest::RemoveFile { name, file })
            .await
    }

    /// Repairs all lost chunks now, without waiting for the grace period, and from now on by
    /// `scheme` if one is given. Returns at once; [`Client::status`] tells how it goes.
    ///
    /// # Errors
    /// [`ClientError::Refused`] for an unknown scheme; [`ClientError::NoCoordinator`].
    pub async fn repair_now(&self, scheme: Option<&str>) -> Result<(), ClientError> {
        self.ask_done(CoordinatorRequest::RepairNow {
            scheme: scheme.map(str::to_owned),
        })
        .await
    }

    /// Changes how repairs are made from now on, durably.
    ///
    /// # Errors
    /// [`ClientError::Refused`] for a limit that is none; [`ClientError::NoCoordinator`].
    pub async fn order_repair(&self, order: RepairOrder) -> Result<(), ClientError> {
        self.ask_done(CoordinatorRequest::OrderRepair(order)).await
    }

    /// Lets a node join that waits because it has many chunks of which nothing is known: it sets them aside.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when the node does not wait for that; [`ClientError::NoCoordinator`].
    pub async fn accept(&self, node: NodeId) -> Result<(), ClientError> {
        self.ask_done(CoordinatorRequest::Accept(node)).await
    }

    /// Has all chunks of a node moved to others, so that it can leave. Returns at once;
    /// [`Client::nodes`] tells when it is drained.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when there is no such node; [`ClientError::NoCoordinator`].
    pub async fn drain(&self, node: NodeId) -> Result<(), ClientError> {
        self.ask_done(CoordinatorRequest::Drain(node)).await
    }

    /// Lets a node stay that was to leave.
    ///
    /// # Errors
    /// Those of [`Client::drain`].
    pub async fn keep(&self, node: NodeId) -> Result<(), ClientError> {
        self.ask_done(CoordinatorRequest::Keep(node)).await
    }

    /// What links between nodes carry, as far as nodes have measured it, by sender and receiver.
    ///
    /// # Errors
    /// [`ClientError::NoCoordinator`].
    pub async fn links(&self) -> Result<Vec<LinkRate>, ClientError> {
        match self.ask(CoordinatorRequest::Links).await? {
            CoordinatorReply::Links(links) => Ok(links),
            _ => Err(ClientError::unexpected("the coordinator")),
        }
    }

    /// Has the blocks of a file, or of all files of a pool, encoded or replicated again. Returns when the
    /// wish is durable; [`Client::layout`] and [`Client::status`] tell how it goes.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when there is no such pool or file, or the pool's blocks are never
    /// replicated; [`ClientError::NoCoordinator`].
    pub async fn order_form(&self, order: FormOrder) -> Result<(), ClientError> {
        self.ask_done(CoordinatorRequest::OrderForm(order)).await
    }

    /// Opens a file to read and write it.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when there is none of this name; [`ClientError::NoCoordinator`].
    pub async fn open(&self, name: &str) -> Result<File, ClientError> {
        File::open(self, name).await
    }

    /// What the plans of all runs that this client saw to their end said.
    pub(crate) fn planned(&self) -> Meter {
        let planned = self.shared.planned.lock();
        planned.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts the plan of a run that is done.
    pub(crate) fn count(&self, plan: &Plan, topology: &Topology, purpose: Purpose) {
        let planned = self.shared.planned.lock();
        let mut planned = planned.unwrap_or_else(PoisonError::into_inner);
        planned.count_plan(plan, topology, purpose);
    }

    /// Starts the clock of an operation on so many bytes that several nodes could give.
    pub(crate) fn attempts(&self, what: String, bytes: u64) -> Attempts {
        let deadline = self.shared.options.deadline;
        let moving = (bytes, READ_BYTES_PER_MS);
        Attempts::start(&self.shared.ports, what, deadline, moving)
    }

    /// Starts the clock of an operation for which so many bytes have to move to their nodes.
    pub(crate) fn patient_attempts(&self, what: String, bytes: u64) -> Attempts {
        let deadline = self.shared.options.deadline;
        let moving = (bytes, WRITE_BYTES_PER_MS);
        Attempts::start(&self.shared.ports, what, deadline, moving)
    }

    /// The client's connections, clock and chance.
    pub(crate) fn ports(&self) -> &dyn ClientPorts {
        &*self.shared.ports
    }

    /// Nodes that had better be asked last.
    pub(crate) fn ailing(&self) -> Vec<NodeId> {
        self.shared.health.ailing(self.ports().now_ms())
    }

    /// After how long without any progress a node counts as hanging.
    pub(crate) fn stall_ms(&self) -> u64 {
        (self.shared.options.deadline / 3).as_millis().max(1) as u64
    }

    /// How many stripes of so many bytes are worked on at a time.
    pub(crate) fn in_flight_count(&self, stripe_bytes: u64) -> usize {
        (self.shared.options.in_flight_bytes / stripe_bytes.max(1)).clamp(1, 3) as usize
    }

    pub(crate) fn draw_run(&self) -> RunId {
        RunId(self.shared.ports.random())
    }

    pub(crate) async fn lookup(&self, name: &str) -> Result<FileLayout, ClientError> {
        match self
            .ask(CoordinatorRequest::Lookup {
                name: name.to_owned(),
            })
            .await?
        {
            CoordinatorReply::File(layout) => {
                self.shared.ports.learn_nodes(&layout.nodes);
                Ok(layout)
            }
            _ => Err(ClientError::unexpected("the coordinator")),
        }
    }

    /// Asks the coordinator, again while it is busy or away.
    pub(crate) async fn ask(
        &self,
        request: CoordinatorRequest,
    ) -> Result<CoordinatorReply, ClientError> {
        self.ask_for(request, COORDINATOR_DEADLINE_MS).await
    }

    pub(crate) async fn ask_for(
        &self,
        request: CoordinatorRequest,
        deadline_ms: u64,
    ) -> Result<CoordinatorReply, ClientError> {
        self.ask_within(request, deadline_ms, self.shared.options.deadline)
            .await
    }

    /// Asks until the limit. A request that was not received is always made again; one that may
    /// have been carried out, if that does no harm.
    async fn ask_within(
        &self,
        request: CoordinatorRequest,
        deadline_ms: u64,
        limit: Duration,
    ) -> Result<CoordinatorReply, ClientError> {
        let what = "asking the coordinator".to_owned();
        let moving = (0, READ_BYTES_PER_MS);
        let mut attempts = Attempts::start(&self.shared.ports, what, limit, moving);
        loop {
            let patience_ms = deadline_ms.min(attempts.left_ms());
            let (error, may_repeat) = match self.shared.ports.reach_coordinator(patience_ms).await {
                Err(error) => (error, true),
                Ok(()) => match self.ask_once(request.clone(), patience_ms).await {
                    Ok(CoordinatorReply::Refused(why)) => return Err(ClientError::Refused(why)),
                    Ok(CoordinatorReply::Busy(why)) => {
                        attempts.pause(&why).await?;
                        continue;
                    }
                    Ok(reply) => return Ok(reply),
                    Err(error) => (error, is_repeatable(&request)),
                },
            };
            let error = error.to_string();
            if !may_repeat || attempts.pause(&error).await.is_err() {
                return Err(ClientError::NoCoordinator(error));
            }
        }
    }

    pub(crate) async fn ask_once(
        &self,
        request: CoordinatorRequest,
        deadline_ms: u64,
    ) -> Result<CoordinatorReply, CallError> {
        self.shared
            .ports
            .call_coordinator(request, deadline_ms)
            .await
    }

    async fn ask_done(&self, request: CoordinatorRequest) -> Result<(), ClientError> {
        match self.ask(request).await? {
            CoordinatorReply::Done => Ok(()),
            _ => Err(ClientError::unexpected("the coordinator")),
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
            // This client is the asker, and no part of its own sends anything to it.
            origin: Address::Origin(0),
            purpose: terms.purpose,
            spread_ms: 0,
            deadline_ms: terms.deadline_ms,
            stall_ms: terms.stall_ms,
        };
        // Frames may come as soon as the first node has its part.
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

/// Whether a request may be made again although it may have been carried out. To make a pool again, or
/// to remove a file again, would be refused, as if the first request had never been.
const fn is_repeatable(request: &CoordinatorRequest) -> bool {
    !matches!(
        request,
        CoordinatorRequest::CreatePool(_) | CoordinatorRequest::RemoveFile { .. }
    )
}

/// Proves that a plan of this client does what it is for.
///
/// # Errors
/// [`ClientError::Broken`]: the planner is wrong.
pub(crate) fn check(plan: &Plan, code: &Code) -> Result<(), ClientError> {
    gabion_plan::check(plan, code)
        .map_err(|error| ClientError::Broken(format!("a plan is wrong: {error}")))
}

/// The cluster as planners see it.
///
/// # Errors
/// [`ClientError::Broken`] when the coordinator's list makes no sense.
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
/// [`ClientError::Broken`] when this release does not know it.
pub(crate) fn code_of(pool: &PoolRecord) -> Result<Code, ClientError> {
    let code = pool.spec.code.parse();
    code.map_err(|error| ClientError::Broken(format!("the pool's code is unknown: {error}")))
}
