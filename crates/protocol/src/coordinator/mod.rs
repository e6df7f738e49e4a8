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
use crate::message::{CoordinatorReply, CoordinatorRequest as Ask, ask};
use crate::ports::Ports;
use files::Files;
use futures::FutureExt;
use gabion_meta::{KeyValue, Meta, MetaError};
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
        let (members, leases, files) = (&self.members, &self.leases, &self.files);
        match request {
            Ask::BeginJoin(asked) => members.begin_join(asked).await,
            Ask::TellChunks(page) => members.tell_chunks(page).await,
            Ask::SetAside(session) => Ok(members.set_aside(session)),
            Ask::EndJoin(end) => members.end_join(*end).await,
            Ask::Accept(node) => members.accept(node),
            Ask::Heartbeat(told) => self.heartbeat(&told),
            Ask::EndMembership(told) => members.end_membership(told).await,
            Ask::StoreFailed(failure) => members.store_failed(failure).await,
            Ask::Suspect(ask::Suspect { node }) => Ok(members.suspect(node)),
            Ask::Drain(node) => members.drain(node).await,
            Ask::Keep(node) => members.keep(node).await,
            Ask::Nodes => Ok(CoordinatorReply::Nodes(self.ground.nodes.statuses())),
            Ask::Links => Ok(self.ground.nodes.link_rates()),
            Ask::Acquire(asked) => leases.acquire(asked).await,
            Ask::Settling(told) => leases.settling(told).await,
            Ask::NoteDegraded(told) => leases.degraded(told).await,
            Ask::NotePhase(told) => leases.note_phase(told).await,
            Ask::Group(told) => Ok(self.grouping.note(told)),
            Ask::CreatePool(wish) => files.create_pool(wish).await,
            Ask::Pools => Ok(CoordinatorReply::Pools(
                self.ground.core.with_meta(Meta::pools).await?,
            )),
            Ask::Reserves(stripes) => files.reserves(stripes).await,
            Ask::CommitPool(ask::CommitPool { name }) => files.commit_pool(name).await,
            Ask::BeginPut(wish) => files.begin_put(wish).await,
            Ask::PlaceAnew(asked) => files.place_anew(asked).await,
            Ask::TouchPut(put) => files.touch_put(put),
            Ask::CommitPut(put) => files.commit_put(put).await,
            Ask::AbortPut(put) => files.abort_put(put).await,
            Ask::BeginReplace(wish) => files.begin_replace(wish).await,
            Ask::CommitReplace(asked) => files.commit_replace(asked).await,
            Ask::Ended(stripe) => files.ended(stripe).await,
            Ask::Lookup(ask::Lookup { name }) => files.lookup(name).await,
            Ask::List(ask::List { prefix }) => files.list(prefix).await,
            Ask::RemoveFile(asked) => files.remove_file(asked).await,
            Ask::Status => self.status().await,
            Ask::ReportDamage(report) => self.repair.report_damage(report).await,
            Ask::ScrubAll => self.repair.scrub_all().await,
            Ask::RepairNow(ask::RepairNow { scheme }) => self.repair_now(scheme).await,
            Ask::OrderRepair(order) => self.repair.throttle().order(order).await,
            Ask::OrderForm(order) => self.lifecycles.order(order).await,
        }
    }

    /// Renews a node's lease, and learns how the node fares.
    fn heartbeat(&self, told: &ask::Heartbeat) -> Answer {
        let answer = self.members.heartbeat(told)?;
        self.repair.throttle().note_foreground(&told.vitals);
        Ok(answer)
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
