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
mod ground;
mod leases;
mod lifecycle;
mod members;
mod options;
mod pool_facts;
mod repair;
mod status;
mod wake_up;

pub use options::CoordinatorOptions;

use self::core::{Answer, Core, Denied};
use crate::message::{CoordinatorReply, CoordinatorRequest as Ask};
use crate::ports::Ports;
use files::Files;
use futures::FutureExt;
use gabion_meta::{KeyValue, Meta, MetaError, Progress};
use garbage::Garbage;
use ground::Ground;
use leases::Leases;
use lifecycle::Lifecycles;
use lifecycle::grouping::DataGrouping;
use lifecycle::timetable::Timetable;
use members::Members;
use repair::Repair;
use std::sync::Arc;

/// The coordinator of a cluster.
pub struct Coordinator<K> {
    ground: Ground<K>,
    members: Arc<Members<K>>,
    leases: Arc<Leases<K>>,
    garbage: Arc<Garbage<K>>,
    repair: Arc<Repair<K>>,
    files: Arc<Files<K>>,
    lifecycles: Arc<Lifecycles<K>>,
    grouping: Arc<DataGrouping<K>>,
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
        let ground = Ground::new(Core::new(meta, ports, options)?)?;
        let members = Arc::new(Members::new(&ground)?);
        let leases = Arc::new(Leases::new(&ground));
        let garbage = Arc::new(Garbage::new(&ground));
        let repair = Arc::new(Repair::new(&ground, &leases, &garbage)?);
        let timetable = Arc::new(Timetable::new(&ground.pools));
        let files = Files::new(&ground, &leases, &garbage, &repair, &timetable)?;
        let files = Arc::new(files);
        let lifecycles = Lifecycles::new(&ground, &leases, &repair, &files, &timetable);
        let grouping = DataGrouping::new(&ground, &leases, &garbage, &repair);
        Ok(Arc::new(Self {
            ground,
            members,
            leases,
            garbage,
            repair,
            files,
            lifecycles: Arc::new(lifecycles),
            grouping: Arc::new(grouping),
        }))
    }

    /// Starts the work that nobody asks for: declaring silent nodes failed, repair, removal of
    /// garbage and expiry of puts. It goes on until the metadata store fails. What changes nodes begins when
    /// they have spoken. Call it once.
    pub fn start(self: &Arc<Self>) {
        let ports = &self.ground.core.ports;
        ports.spawn(Arc::clone(&self.members).watch().boxed());
        ports.spawn(self.members.positions().keep().boxed());
        let tasks = [
            Arc::clone(&self.repair).run().boxed(),
            Arc::clone(self.repair.throttle()).guard().boxed(),
            Arc::clone(&self.garbage).collect().boxed(),
            Arc::clone(&self.grouping).run().boxed(),
            Arc::clone(&self.files).expire_puts().boxed(),
            Arc::clone(&self.lifecycles).run().boxed(),
        ];
        let this = Arc::clone(self);
        let begin = async move {
            this.members.all_heard().await;
            for task in tasks {
                this.ground.core.ports.spawn(task);
            }
        };
        ports.spawn(begin.boxed());
    }

    /// Answers a request. What the answer promises is durable.
    pub async fn handle(self: &Arc<Self>, request: Ask) -> CoordinatorReply {
        let answer = match self.ground.core.check_whole() {
            // Not even a lease is granted: nobody could act on what becomes of the node.
            Err(error) => Err(error.into()),
            Ok(()) => self.answer(request).await,
        };
        answer.unwrap_or_else(|Denied(sentence)| CoordinatorReply::Refused(sentence))
    }

    /// Routes a request to the room whose it is. What relies on the metadata waits until the nodes would have given
    /// an old copy of it away.
    async fn answer(self: &Arc<Self>, request: Ask) -> Answer {
        if request.relies_on_metadata() {
            if let Err(sentence) = self.members.most_heard().await {
                return Ok(CoordinatorReply::Busy(sentence));
            }
            self.ground.core.check_whole()?;
        }
        match request {
            Ask::CommitPool { name } => self.files.commit_pool(name).await,
            Ask::Nodes => Ok(CoordinatorReply::Nodes(self.ground.nodes.statuses())),
            Ask::CreatePool(request) => self.files.create_pool(request).await,
            Ask::Reserves(stripes) => self.files.reserves(stripes).await,
            Ask::Pools => Ok(CoordinatorReply::Pools(
                self.ground.core.with_meta(Meta::pools).await?,
            )),
            put @ (Ask::BeginPut { .. }
            | Ask::PlaceAnew { .. }
            | Ask::TouchPut(_)
            | Ask::CommitPut(_)
            | Ask::AbortPut(_)
            | Ask::BeginReplace { .. }
            | Ask::CommitReplace { .. }
            | Ask::Ended(_)) => self.answer_put(put).await,
            Ask::Lookup { name } => self.files.lookup(name).await,
            Ask::List { prefix } => self.files.list(prefix).await,
            Ask::RemoveFile { name, file } => self.files.remove_file(name, file).await,
            Ask::Status => self.status().await,
            Ask::RepairNow { scheme } => self.repair_now(scheme).await,
            Ask::OrderRepair(order) => self.repair.throttle().order(order).await,
            Ask::OrderForm(order) => self.lifecycles.order(order).await,
            Ask::Drain(node) => self.members.drain(node).await,
            Ask::Keep(node) => self.members.keep(node).await,
            Ask::Links => Ok(self.ground.nodes.link_rates()),
            Ask::ScrubAll => self.repair.scrub_all().await,
            of_node => self.answer_node(of_node).await,
        }
    }

    /// Answers what nodes ask: of their membership, and of the stripes that they lead.
    async fn answer_node(self: &Arc<Self>, request: Ask) -> Answer {
        match request {
            Ask::BeginJoin { node, chunk_count } => {
                self.members.begin_join(*node, chunk_count).await
            }
            Ask::TellChunks(page) => self.members.tell_chunks(page).await,
            Ask::SetAside(session) => Ok(self.members.set_aside(session)),
            Ask::EndJoin(end) => self.members.end_join(*end).await,
            Ask::Accept(node) => self.members.accept(node),
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
                let answer = self.members.heartbeat((node, heard), progress, &vitals)?;
                self.repair.throttle().note_foreground(&vitals);
                Ok(answer)
            }
            Ask::EndMembership { session, cause } => {
                self.members.end_membership(session, cause).await
            }
            Ask::StoreFailed(failure) => self.members.store_failed(failure).await,
            Ask::Acquire {
                stripe,
                node,
                incarnation,
            } => self.leases.acquire(stripe, node, incarnation).await,
            Ask::Suspect { node } => Ok(self.members.suspect(node)),
            Ask::Settling { stripe, exclusion } => self.leases.settling(stripe, exclusion).await,
            Ask::NoteDegraded {
                stripe,
                epoch,
                since,
                chunks,
            } => self.leases.degraded((stripe, epoch, since), chunks).await,
            Ask::NotePhase {
                stripe,
                epoch,
                appends,
            } => self.leases.note_phase(stripe, epoch, appends).await,
            Ask::Group { stripe, updated } => Ok(self.grouping.note(stripe, updated)),
            Ask::ReportDamage { node, damage } => self.repair.report_damage(node, damage).await,
            other => Err(Denied(format!("{other:?} is not a node's request"))),
        }
    }

    /// Answers about new stripes on their way in.
    async fn answer_put(self: &Arc<Self>, request: Ask) -> Answer {
        match request {
            Ask::BeginPut {
                name,
                pool,
                size_bytes,
            } => self.files.begin_put(name, pool, size_bytes).await,
            Ask::PlaceAnew {
                put,
                first,
                failed,
                avoid,
            } => self.files.place_anew(put, first, failed, avoid).await,
            Ask::TouchPut(put) => self.files.touch_put(put),
            Ask::CommitPut(put) => self.files.commit_put(put).await,
            Ask::AbortPut(put) => self.files.abort_put(put).await,
            Ask::BeginReplace {
                name,
                file,
                stripes,
            } => self.files.begin_replace(name, file, stripes).await,
            Ask::CommitReplace { put, displaced } => {
                self.files.commit_replace(put, displaced).await
            }
            Ask::Ended(stripe) => self.files.ended(stripe).await,
            other => Err(Denied(format!("{other:?} is not about a put"))),
        }
    }

    /// Waits until the metadata store has failed, and says how. Whoever runs the coordinator ends it
    /// then: it grants no leases any more, and only a restart can find out what is durable.
    pub async fn broken(&self) -> MetaError {
        self.ground.core.broken().await
    }

    /// Repairs what failed nodes hold without waiting for their return, and changes the scheme if
    /// asked to.
    async fn repair_now(self: &Arc<Self>, scheme: Option<String>) -> Answer {
        if let Some(name) = scheme {
            self.repair.change_scheme(name).await?;
        }
        self.members
            .give_nodes_up(self.ground.nodes.failed())
            .await?;
        self.ground.backlog.retry_all();
        Ok(CoordinatorReply::Done)
    }
}
