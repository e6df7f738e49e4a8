//! The coordinator's role: metadata, membership, leases, and repair. It is not on the path of an
//! update's data; what it decides is durable in [`gabion_meta`] before anybody acts on it.
//!
//! It keeps no state that a restart must not lose. A new run finds the nodes in the metadata, gives
//! each the benefit of the doubt, looks once at every stripe for chunks to repair, keeps to what users
//! have said about repairs, and supersedes the leases of repairs that an earlier run had begun. No scheme logic is here: planners choose
//! codes, places and repair plans.

mod bell;
mod catch_up;
mod conversion;
mod departures;
mod files;
mod fleet;
mod forms;
mod garbage;
mod grouping;
mod inventory;
mod joins;
mod leases;
mod lifecycle;
mod manager;
mod membership;
mod places;
mod pools;
mod progress;
mod rebuild;
mod repair;
mod replace;
mod resume;
mod rounds;
mod scrub;
mod sessions;
mod space;
mod starts;
mod status;
mod survey;
mod suspicion;
mod throttle;
mod timetable;

use crate::message::{
    CoordinatorReply, CoordinatorRequest, LifecycleStatus, Meter, NodeStatus, RepairStatus,
};
use crate::ports::{Ports, run_blocking};
use bell::Bell;
use fleet::{Fleet, Roster};
use futures::FutureExt;
use gabion_layout::{ChunkId, ChunkIndex, NodeId, PoolId};
use gabion_meta::{KeyValue, Meta, MetaError, Progress, PutId, Timing};
use gabion_planner::manager::{LinkMatrix, RepairQueue};
use gabion_planner::repair::Scheme;
use grouping::Agenda;
use pools::PoolFacts;
use progress::Witnessed;
use replace::{LivePut, Occupied};
use sessions::Sessions;
use space::Reports;
use starts::Starts;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use suspicion::Suspicions;
use throttle::Throttle;
use timetable::Timetable;

/// Stripes that are read in one transaction.
const PAGE: usize = 512;

/// What a coordinator is told at its start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CoordinatorOptions {
    /// How long a node's silence means what.
    pub timing: Timing,
    /// How often nodes should say that they are alive; several times in a lease.
    pub heartbeat_ms: u64,
    /// How lost chunks are brought together, until a user changes it.
    pub repair_scheme: Scheme,
    /// Stripes that are repaired at once; at least 1.
    pub repair_parallel: usize,
    /// Bytes of a repair's slices.
    pub slice_bytes: u64,
    /// Longest time that the repair of one chunk may take.
    pub repair_deadline_ms: u64,
    /// How long nothing may move at a node of a repair before whoever holds it up is done without.
    pub repair_stall_ms: u64,
    /// Wait after a failed repair or removal; it doubles with each further failure of a stripe.
    pub retry_ms: u64,
    /// How long a put may go on without a word of its client.
    pub put_timeout_ms: u64,
    /// How often files are looked at whose blocks may be due to be encoded.
    pub lifecycle_scan_ms: u64,
    /// How often it is made durable how far nodes' journals have come.
    pub progress_ms: u64,
    /// Segments that are encoded, or replicated again, at once; at least 1.
    pub convert_parallel: usize,
    /// Longest time that one node may take to verify all that it stores.
    pub scrub_deadline_ms: u64,
}

impl Default for CoordinatorOptions {
    fn default() -> Self {
        Self {
            timing: Timing {
                lease_ms: 3_000,
                margin_ms: 500,
                grace_ms: 600_000,
            },
            heartbeat_ms: 1_000,
            repair_scheme: Scheme::Pipeline,
            repair_parallel: 4,
            slice_bytes: 32 << 10,
            repair_deadline_ms: 120_000,
            repair_stall_ms: 5_000,
            retry_ms: 500,
            put_timeout_ms: 60_000,
            lifecycle_scan_ms: 2_000,
            progress_ms: 10_000,
            convert_parallel: 2,
            scrub_deadline_ms: 3_600_000,
        }
    }
}

/// The coordinator of a cluster.
pub struct Coordinator<K> {
    meta: Arc<Meta<K>>,
    ports: Arc<dyn Ports>,
    options: CoordinatorOptions,
    /// Set when the metadata store has failed (whether its last write is durable is unknown) or is a
    /// copy of another time: nothing may be decided before a restart.
    broken: OnceLock<MetaError>,
    roster: Mutex<Roster>,
    /// What nodes have said with their last heartbeats.
    reports: Mutex<Reports>,
    /// What is held against nodes whose leases run. Locked after the roster.
    suspicions: Mutex<Suspicions>,
    /// How often each node has joined since the start. Joins, declarations of failure and the last
    /// step of each repair hold this lock, because each decides by what the others change.
    admission: futures::lock::Mutex<BTreeMap<NodeId, u64>>,
    /// The nodes that join now. Locked after it, and before the roster.
    sessions: Mutex<Sessions>,
    /// Pools never change, so what follows from their records is worked out once.
    pools: Mutex<BTreeMap<PoolId, Arc<PoolFacts>>>,
    /// How many more losses stripes survive, by what they have lost.
    endurance: Mutex<BTreeMap<(PoolId, Vec<ChunkIndex>), i32>>,
    /// When the client of each put was last heard of, and what it is to replace.
    puts: Mutex<BTreeMap<PutId, LivePut>>,
    /// Stripes that are being repaired or replaced.
    occupied: Occupied,
    queue: Mutex<RepairQueue>,
    scheme: Mutex<Scheme>,
    throttle: Mutex<Throttle>,
    /// What links carry, as nodes have told since the start.
    links: Mutex<LinkMatrix>,
    /// Counts since the start; the rest of the fields are filled in when somebody asks.
    repaired: Mutex<RepairStatus>,
    /// Chunks of live stripes that nodes may still have and should not. Those that once counted there are
    /// former holders in the metadata, too; the others cost space and nothing else.
    leftovers: Mutex<BTreeSet<(NodeId, ChunkId)>>,
    /// Stripes whose chunks are to change places.
    agenda: Mutex<Agenda>,
    /// What nodes were to send for commits and exchanges that the coordinator has run to their end.
    planned: Mutex<Meter>,
    /// What has become of segments since the start.
    converted: Mutex<LifecycleStatus>,
    /// When files are to be looked at whose blocks are replicated at first.
    timetable: Mutex<Timetable>,
    /// This start of the coordinator and earlier ones.
    starts: Starts,
    /// How far nodes' journals have come.
    witnessed: Witnessed,
    /// For how long coordinators had run when this one began, and its clock then.
    began: (u64, u64),
    /// Rung when `broken` is set.
    broken_bell: Bell,
    repair_bell: Bell,
    garbage_bell: Bell,
    grouping_bell: Bell,
    lifecycle_bell: Bell,
}

/// Why a request is not granted: one plain sentence for the user.
#[derive(Debug)]
struct Denied(String);

impl<E: std::error::Error> From<E> for Denied {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

type Answer = Result<CoordinatorReply, Denied>;

impl<K: KeyValue + Send + Sync + 'static> Coordinator<K> {
    /// The coordinator of the cluster in `meta`. Waits for the disk; nothing runs before
    /// [`Coordinator::start`].
    ///
    /// # Errors
    /// When the nodes and puts cannot be read.
    pub fn new(
        meta: Meta<K>,
        ports: Arc<dyn Ports>,
        options: CoordinatorOptions,
    ) -> Result<Arc<Self>, MetaError> {
        let now_ms = ports.now_ms();
        let roster = Roster::new(options.timing, meta.nodes()?, meta.standings()?, now_ms);
        let settings = meta.repair_settings()?;
        let former = meta.all_former_holders()?;
        let starts = Starts::new(&meta.note_start(ports.random())?);
        let began = (meta.lifetime_ms()?, now_ms);
        let witnessed = Witnessed::new(meta.progress()?);
        // A scheme of another release is none; a user chooses again.
        let scheme = settings
            .scheme
            .as_deref()
            .and_then(|name| name.parse().ok());
        // An earlier run's clock says nothing about this one's: all clients get a full time-out.
        let live = || LivePut {
            heard_ms: now_ms,
            occupation: None,
        };
        let puts = meta.puts()?.into_iter().map(|put| (put.id, live()));
        ports.learn_nodes(&roster.statuses(now_ms, &Suspicions::default()));
        Ok(Arc::new(Self {
            puts: Mutex::new(puts.collect()),
            occupied: Occupied::default(),
            meta: Arc::new(meta),
            ports,
            broken: OnceLock::new(),
            roster: Mutex::new(roster),
            reports: Mutex::default(),
            suspicions: Mutex::default(),
            admission: futures::lock::Mutex::default(),
            sessions: Mutex::default(),
            pools: Mutex::default(),
            endurance: Mutex::default(),
            queue: Mutex::default(),
            scheme: Mutex::new(scheme.unwrap_or(options.repair_scheme)),
            throttle: Mutex::new(Throttle::new(settings)),
            links: Mutex::default(),
            repaired: Mutex::default(),
            leftovers: Mutex::new(former.into_iter().collect()),
            agenda: Mutex::default(),
            planned: Mutex::default(),
            converted: Mutex::default(),
            timetable: Mutex::default(),
            starts,
            witnessed,
            began,
            broken_bell: Bell::default(),
            repair_bell: Bell::default(),
            garbage_bell: Bell::default(),
            grouping_bell: Bell::default(),
            lifecycle_bell: Bell::default(),
            options,
        }))
    }

    /// Starts the work that nobody asks for: declaring silent nodes failed, repair, removal of
    /// garbage and expiry of puts. It goes on until the metadata store fails. Call it once.
    pub fn start(self: &Arc<Self>) {
        let tasks = [
            Arc::clone(self).watch_members().boxed(),
            Arc::clone(self).repair_forever().boxed(),
            Arc::clone(self).guard_foreground().boxed(),
            Arc::clone(self).collect_garbage().boxed(),
            Arc::clone(self).group_forever().boxed(),
            Arc::clone(self).expire_puts().boxed(),
            Arc::clone(self).keep_lifecycles().boxed(),
            Arc::clone(self).keep_progress().boxed(),
        ];
        for task in tasks {
            self.ports.spawn(task);
        }
    }

    /// Answers a request. What the answer promises is durable.
    pub async fn handle(self: &Arc<Self>, request: CoordinatorRequest) -> CoordinatorReply {
        let answer = match self.broken.get() {
            // Not even a lease is granted: nobody could act on what becomes of the node.
            Some(error) => Err(Denied(error.to_string())),
            None => self.answer(request).await,
        };
        answer.unwrap_or_else(|Denied(sentence)| CoordinatorReply::Refused(sentence))
    }

    async fn answer(self: &Arc<Self>, request: CoordinatorRequest) -> Answer {
        use CoordinatorRequest as Ask;
        self.check_whole()?;
        match request {
            Ask::BeginJoin { node, chunk_count } => self.begin_join(*node, chunk_count).await,
            Ask::TellChunks(page) => self.tell_chunks(page).await,
            Ask::SetAside(session) => Ok(self.set_aside(session)),
            Ask::EndJoin(end) => self.end_join(*end).await,
            Ask::Accept(node) => self.accept(node),
            Ask::Heartbeat {
                node,
                incarnation,
                heard,
                position,
                vitals,
            } => {
                let progress = Progress {
                    incarnation,
                    position,
                };
                self.heartbeat((node, heard), progress, &vitals)
            }
            Ask::EndMembership { session, cause } => self.end_membership(session, cause).await,
            Ask::StoreFailed(failure) => self.store_failed(failure).await,
            Ask::Acquire {
                stripe,
                node,
                incarnation,
                renounced,
            } => self.acquire(stripe, node, incarnation, renounced).await,
            Ask::Suspect { node } => Ok(self.suspect(node)),
            Ask::Settling { stripe, exclusion } => self.settling(stripe, exclusion).await,
            Ask::NoteDegraded {
                stripe,
                epoch,
                chunks,
            } => self.note_degraded(stripe, epoch, chunks).await,
            Ask::NotePhase {
                stripe,
                epoch,
                appends,
            } => self.note_phase(stripe, epoch, appends).await,
            Ask::Group { stripe, updated } => Ok(self.note_group(stripe, updated)),
            Ask::CommitPool { name } => self.commit_pool(name).await,
            Ask::ReportDamage { node, damage } => self.report_damage(node, damage).await,
            Ask::Nodes => Ok(CoordinatorReply::Nodes(self.statuses())),
            Ask::CreatePool(wish) => self.create_pool(wish).await,
            Ask::Reserves(stripes) => self.reserves(stripes).await,
            Ask::Pools => Ok(CoordinatorReply::Pools(self.with_meta(Meta::pools).await?)),
            put @ (Ask::BeginPut { .. }
            | Ask::PlaceAnew { .. }
            | Ask::TouchPut(_)
            | Ask::CommitPut(_)
            | Ask::AbortPut(_)
            | Ask::BeginReplace { .. }
            | Ask::CommitReplace { .. }
            | Ask::Ended(_)) => self.answer_put(put).await,
            Ask::Lookup { name } => self.lookup(name).await,
            Ask::List { prefix } => self.list(prefix).await,
            Ask::RemoveFile { name, file } => self.remove_file(name, file).await,
            Ask::Status => self.status().await,
            Ask::RepairNow { scheme } => self.repair_now(scheme).await,
            Ask::OrderRepair(order) => self.order_repair(order).await,
            Ask::OrderForm(order) => self.order_form(order).await,
            Ask::Drain(node) => self.drain(node).await,
            Ask::Keep(node) => self.keep(node).await,
            Ask::Links => Ok(self.link_rates()),
            Ask::ScrubAll => self.scrub_all().await,
        }
    }

    /// Answers about new stripes on their way in.
    async fn answer_put(self: &Arc<Self>, request: CoordinatorRequest) -> Answer {
        use CoordinatorRequest as Ask;
        match request {
            Ask::BeginPut {
                name,
                pool,
                size_bytes,
            } => self.begin_put(name, pool, size_bytes).await,
            Ask::PlaceAnew {
                put,
                first,
                failed,
                avoid,
            } => self.place_anew(put, first, failed, avoid).await,
            Ask::TouchPut(put) => self.touch_put(put),
            Ask::CommitPut(put) => self.commit_put(put).await,
            Ask::AbortPut(put) => self.abort_put(put).await,
            Ask::BeginReplace {
                name,
                file,
                stripes,
            } => self.begin_replace(name, file, stripes).await,
            Ask::CommitReplace { put, displaced } => self.commit_replace(put, displaced).await,
            Ask::Ended(stripe) => self.ended(stripe).await,
            other => Err(Denied(format!("{other:?} is not about a put"))),
        }
    }

    /// Works on the metadata where waiting for the disk holds up nothing else.
    async fn with_meta<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Meta<K>) -> Result<R, MetaError> + Send + 'static,
    ) -> Result<R, MetaError> {
        self.check_whole()?;
        let meta = Arc::clone(&self.meta);
        let result = run_blocking(&*self.ports, move || work(&meta)).await;
        if let Err(error @ (MetaError::Storage { .. } | MetaError::WentBack { .. })) = &result {
            self.stop(error.clone());
        }
        result
    }

    /// Waits until the metadata store has failed, and says how. Whoever runs the coordinator ends it
    /// then: it grants no leases any more, and only a restart can find out what is durable.
    pub async fn broken(&self) -> MetaError {
        loop {
            if let Some(error) = self.broken.get() {
                return error.clone();
            }
            self.broken_bell.heard().await;
        }
    }

    /// Refuses everything once the metadata store has failed.
    fn check_whole(&self) -> Result<(), MetaError> {
        self.broken.get().cloned().map_or(Ok(()), Err)
    }

    /// Whether the metadata store has failed: all requests are refused until a restart, and all
    /// work that nobody asks for ends.
    fn is_broken(&self) -> bool {
        self.broken.get().is_some()
    }

    fn fleet(&self) -> Fleet {
        let roster = lock(&self.roster);
        roster.fleet(self.ports.now_ms(), &lock(&self.suspicions))
    }

    fn statuses(&self) -> Vec<NodeStatus> {
        let roster = lock(&self.roster);
        roster.statuses(self.ports.now_ms(), &lock(&self.suspicions))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that holds one of these locks leaves its contents half changed when it panics.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
