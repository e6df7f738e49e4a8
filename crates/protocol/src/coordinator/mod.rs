//! The coordinator's role: metadata, membership, leases, and repair. It is not on the path of an update's
//! data; its decisions are durable in [`gabion_meta`] before any process acts on them.
//!
//! It keeps no state that a restart must not lose. A new run finds the nodes in the metadata, presumes each
//! to be up, checks every stripe once for chunks to repair, keeps users' settings for repairs, and
//! supersedes the leases of an earlier run's repairs. No scheme logic is here: planners choose codes,
//! places and repair plans.

mod changes;
mod client_sessions;
mod core;
mod counts;
pub mod figures;
mod files;
mod garbage;
mod leases;
mod lifecycle;
mod locks;
mod members;
mod options;
mod pool_facts;
mod recovery;
mod rejection;
mod repair;
mod route;
mod shared_state;
mod status;
mod tickets;
mod usage;

pub use options::{CoordinatorOptions, TicketTimes};
pub use recovery::Recovery;

use self::core::{Answer, Core, Rejection};
use crate::measure::{Answered, Measure};
use crate::message::{
    CLIENT_SESSION_MS, ChangePage, ChangePlace, CoordinatorReply, CoordinatorRequest as Ask,
    Denial, Standing, ask,
};
use crate::ports::Ports;
use counts::Counts;
use files::Files;
use futures::FutureExt;
use gabion_layout::{NodeId, Start};
use gabion_meta::{KeyValue, Meta, MetaError, RelativePath};
use garbage::Garbage;
use leases::Leases;
use lifecycle::Lifecycles;
use lifecycle::grouping::DataGrouping;
use lifecycle::timetable::Timetable;
use locks::Locks;
use members::Members;
use repair::Repair;
use shared_state::SharedState;
use std::sync::Arc;

/// The coordinator of a cluster.
pub struct Coordinator<K> {
    shared: SharedState<K>,
    members: Arc<Members<K>>,
    leases: Arc<Leases<K>>,
    garbage: Arc<Garbage<K>>,
    repair: Arc<Repair<K>>,
    files: Arc<Files<K>>,
    locks: Arc<Locks<K>>,
    lifecycles: Arc<Lifecycles<K>>,
    grouping: Arc<DataGrouping<K>>,
    counts: Counts,
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
        let shared = SharedState::new(Core::new(meta, ports, options)?)?;
        let members = Arc::new(Members::new(&shared)?);
        let leases = Arc::new(Leases::new(&shared));
        let garbage = Arc::new(Garbage::new(&shared));
        let repair = Arc::new(Repair::new(&shared, &leases, &garbage)?);
        let timetable = Arc::new(Timetable::new(&shared.pools));
        let files = Files::new(&shared, &leases, &garbage, &repair, &timetable)?;
        let files = Arc::new(files);
        let locks = Locks::new(&shared.core, &files);
        let lifecycles = Lifecycles::new(&shared, &leases, &repair, &files, &timetable);
        let grouping = DataGrouping::new(&shared, &leases, &garbage, &repair);
        Ok(Arc::new(Self {
            shared,
            members,
            leases,
            garbage,
            repair,
            files,
            locks: Arc::new(locks),
            lifecycles: Arc::new(lifecycles),
            grouping: Arc::new(grouping),
            counts: Counts::default(),
        }))
    }

    /// Starts the background work: declaring silent nodes failed, repair, removal of garbage and expiry of
    /// puts. It runs until the metadata store fails. Work that changes nodes begins when the nodes have
    /// spoken. Call it once.
    pub fn start(self: &Arc<Self>) {
        let ports = &self.shared.core.ports;
        ports.spawn(Arc::clone(&self.members).watch().boxed());
        ports.spawn(Arc::clone(&self.shared.core).watch_metadata().boxed());
        ports.spawn(self.members.positions().keep().boxed());
        ports.spawn(Arc::clone(&self.shared.nodes).outlive_leases().boxed());
        let tasks = [
            Arc::clone(&self.repair).run().boxed(),
            Arc::clone(self.repair.throttle()).guard().boxed(),
            Arc::clone(&self.garbage).collect().boxed(),
            Arc::clone(&self.grouping).run().boxed(),
            Arc::clone(&self.files).expire_puts().boxed(),
            Arc::clone(self).expire_sessions().boxed(),
            Arc::clone(&self.files).free_orphans().boxed(),
            Arc::clone(&self.lifecycles).run().boxed(),
            Arc::clone(&self.shared.tickets).rotate().boxed(),
        ];
        let this = Arc::clone(self);
        let begin = async move {
            this.members.all_heard().await;
            for task in tasks {
                this.shared.core.ports.spawn(task);
            }
        };
        ports.spawn(begin.boxed());
    }

    /// Ends clients' sessions without renewals, until the metadata store fails. No renewal was answered or noted
    /// before most nodes had been heard. So clients first get as much time again for renewals, at most that of a
    /// session.
    async fn expire_sessions(self: Arc<Self>) {
        let core = &self.shared.core;
        core.ports
            .sleep_ms(core.age_ms().min(CLIENT_SESSION_MS))
            .await;
        Arc::clone(&self.locks).expire().await;
    }

    /// Answers a request. The answer's promises are durable.
    pub async fn handle(self: &Arc<Self>, request: Ask) -> CoordinatorReply {
        let ports = &self.shared.core.ports;
        let (began_us, request_name) = (ports.now_us(), request.name());
        let answer = match self.shared.core.check_whole() {
            // Not even a lease is granted: the node's failure could not be handled.
            Err(error) if !request.is_about_process() => Err(Rejection::for_now(error)),
            _ => self.answer(request).await,
        };
        ports.measure(&Measure::Answered(Answered {
            request: request_name,
            purpose: None,
            refusal: answer.as_ref().err().map(Rejection::name),
            took_us: ports.now_us().saturating_sub(began_us),
        }));
        answer.unwrap_or_else(CoordinatorReply::from)
    }

    /// Answers a request when this process can. Requests that rely on the metadata wait until the nodes would have
    /// left an old copy of it.
    async fn answer(self: &Arc<Self>, request: Ask) -> Answer<CoordinatorReply> {
        self.until_able(&request).await?;
        self.route(request).await
    }

    /// The changes of names and inodes behind a place.
    async fn changes(&self, place: ChangePlace) -> Answer<ChangePage> {
        let core = &self.shared.core;
        let page = core.changes.behind(&*core.ports, place).await?;
        // Another leader may have made changes since this page was read.
        core.check_may_answer()?;
        Ok(page)
    }

    /// Waits until most nodes have been heard, if the request needs that. Rejects the request if it takes too long, or
    /// if this process may not answer for now.
    async fn until_able(&self, request: &Ask) -> Answer<()> {
        // While this process may not lead, a sign of life is noted, so that its sender does not count as silent, and
        // judged behind that.
        let is_sign_of_life = matches!(
            request,
            Ask::Heartbeat(_) | Ask::RenewSession(_) | Ask::RenewExclusive(_) | Ask::TouchPut(_)
        );
        if request.is_about_process() {
            return Ok(());
        }
        if !is_sign_of_life {
            self.shared.core.check_may_answer()?;
        }
        if !request.relies_on_metadata() {
            return Ok(());
        }
        // Puts and clients' sessions do not expire before most nodes have been heard.
        if let Ask::RenewExclusive(asked) = request {
            self.files.note_life(asked);
        }
        self.members.most_heard().await.map_err(Rejection::busy)?;
        Ok(self.shared.core.check_whole()?)
    }

    /// Renews a node's lease, and notes the node's health. The node counts the lease from the moment at which it
    /// has sent its heartbeat. So if this process leads behind that, the next leader begins later, and waits for the
    /// lease.
    fn heartbeat(&self, told: &ask::Heartbeat) -> Answer<Standing> {
        let standing = self.members.heartbeat(told)?;
        self.repair.throttle().note_foreground(&told.health);
        self.shared.core.check_may_answer()?;
        Ok(standing)
    }

    /// The start of a node that was admitted last; none before the node has been a member.
    ///
    /// # Errors
    /// If there is no such node, or the metadata cannot be read.
    pub async fn admitted_start(&self, node: NodeId) -> Result<Option<Start>, Denial> {
        let find = move |meta: &Meta<K>| Ok(meta.node(node)?.admitted);
        Ok(self.shared.core.with_meta(find).await?)
    }

    /// The answer to every request while this process may not lead; none otherwise.
    pub fn refusal(&self) -> Option<CoordinatorReply> {
        let rejection = self.shared.core.check_may_answer().err()?;
        Some(rejection.into())
    }

    /// The path from the root on of a path that begins at a directory.
    ///
    /// # Errors
    /// If the directory does not exist, or the metadata cannot be read.
    pub async fn absolute_path(&self, at: RelativePath) -> Result<String, Denial> {
        let find = move |meta: &Meta<K>| meta.absolute_path(&at);
        Ok(self.shared.core.with_meta(find).await?)
    }

    /// Waits until this coordinator answers clients: most nodes have contacted it since its start, and none of these
    /// knows newer metadata. Returns false if it stops before.
    pub async fn until_it_serves(&self) -> bool {
        self.members.until_most_heard().await
    }

    /// Waits until the metadata store has failed; returns the error. The process then ends: a failed
    /// coordinator grants no leases, and only a restart can find out which writes are durable.
    pub async fn broken(&self) -> MetaError {
        self.shared.core.broken().await
    }

    /// Repairs chunks of failed nodes without waiting for their return, and changes the scheme on request.
    async fn repair_now(self: &Arc<Self>, scheme: Option<String>) -> Answer<()> {
        if let Some(name) = scheme {
            self.repair.change_scheme(name).await?;
        }
        self.members
            .abandon_nodes(self.shared.nodes.failed())
            .await?;
        self.shared.backlog.retry_all();
        Ok(())
    }
}
