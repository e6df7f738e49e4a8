//! The coordinator's role: metadata, membership, leases, and repair. It is not on the path of an
//! update's data; what it decides is durable in [`gabion_meta`] before anybody acts on it.
//!
//! It keeps no state that a restart must not lose. A new run finds the nodes in the metadata, gives
//! each the benefit of the doubt, looks once at every stripe for chunks to repair, keeps to what users
//! have said about repairs, and supersedes the leases of repairs that an earlier run had begun. No scheme logic is here: planners choose
//! codes, places and repair plans.

mod core;
mod files;
mod garbage;
mod leases;
mod lifecycle;
mod members;
mod options;
mod repair;
mod status;
mod wake_up;

pub use options::CoordinatorOptions;

use self::core::{Answer, Core, Denied, lock};
use crate::message::{
    CoordinatorReply, CoordinatorRequest as Ask, LifecycleStatus, Meter, NodeStatus, RepairStatus,
};
use crate::ports::Ports;
use files::pools::PoolFacts;
use files::replace::{LivePut, Occupied};
use futures::FutureExt;
use gabion_layout::{ChunkId, ChunkIndex, NodeId, PoolId};
use gabion_meta::{KeyValue, Meta, MetaError, Progress, PutId};
use gabion_planner::manager::{LinkMatrix, RepairQueue};
use gabion_planner::repair::Scheme;
use lifecycle::grouping::Agenda;
use lifecycle::timetable::Timetable;
use members::fleet::{Fleet, Roster};
use members::positions::Witnessed;
use members::sessions::Sessions;
use members::space::Reports;
use members::starts::Starts;
use members::suspicion::Suspicions;
use repair::throttle::Throttle;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use wake_up::WakeUp;

/// The coordinator of a cluster.
pub struct Coordinator<K> {
    core: Arc<Core<K>>,
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
    repair_wake_up: WakeUp,
    garbage_wake_up: WakeUp,
    grouping_wake_up: WakeUp,
    lifecycle_wake_up: WakeUp,
}

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
        let default_scheme = options.repair_scheme;
        let core = Core::new(meta, ports, options)?;
        core.ports
            .learn_nodes(&roster.statuses(now_ms, &Suspicions::default()));
        Ok(Arc::new(Self {
            core: Arc::new(core),
            puts: Mutex::new(puts.collect()),
            occupied: Occupied::default(),
            roster: Mutex::new(roster),
            reports: Mutex::default(),
            suspicions: Mutex::default(),
            admission: futures::lock::Mutex::default(),
            sessions: Mutex::default(),
            pools: Mutex::default(),
            endurance: Mutex::default(),
            queue: Mutex::default(),
            scheme: Mutex::new(scheme.unwrap_or(default_scheme)),
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
            repair_wake_up: WakeUp::default(),
            garbage_wake_up: WakeUp::default(),
            grouping_wake_up: WakeUp::default(),
            lifecycle_wake_up: WakeUp::default(),
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
            self.core.ports.spawn(task);
        }
    }

    /// Answers a request. What the answer promises is durable.
    pub async fn handle(self: &Arc<Self>, request: Ask) -> CoordinatorReply {
        let answer = match self.core.check_whole() {
            // Not even a lease is granted: nobody could act on what becomes of the node.
            Err(error) => Err(error.into()),
            Ok(()) => self.answer(request).await,
        };
        answer.unwrap_or_else(|Denied(sentence)| CoordinatorReply::Refused(sentence))
    }

    async fn answer(self: &Arc<Self>, request: Ask) -> Answer {
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
            Ask::Pools => Ok(CoordinatorReply::Pools(
                self.core.with_meta(Meta::pools).await?,
            )),
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
    async fn answer_put(self: &Arc<Self>, request: Ask) -> Answer {
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

    /// Waits until the metadata store has failed, and says how. Whoever runs the coordinator ends it
    /// then: it grants no leases any more, and only a restart can find out what is durable.
    pub async fn broken(&self) -> MetaError {
        self.core.broken().await
    }

    fn fleet(&self) -> Fleet {
        let roster = lock(&self.roster);
        roster.fleet(self.core.ports.now_ms(), &lock(&self.suspicions))
    }

    fn statuses(&self) -> Vec<NodeStatus> {
        let roster = lock(&self.roster);
        roster.statuses(self.core.ports.now_ms(), &lock(&self.suspicions))
    }
}
