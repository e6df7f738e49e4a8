//! The coordinator's role: metadata, membership, leases, and repair. It is not on the path of an update's
//! data; its decisions are durable in [`gabion_meta`] before any process acts on them.
//!
//! It keeps no state that a restart must not lose. A new run finds the nodes in the metadata, presumes each
//! to be up, checks every stripe once for chunks to repair, keeps users' settings for repairs, and
//! supersedes the leases of an earlier run's repairs. No scheme logic is here: planners choose codes,
//! places and repair plans.

mod changes;
mod core;
pub mod figures;
mod files;
mod garbage;
mod leases;
mod lifecycle;
mod locks;
mod members;
mod options;
mod pool_facts;
mod repair;
mod shared_state;
mod status;
mod tickets;
mod usage;

pub use options::{CoordinatorOptions, TicketTimes};

use self::core::{Answer, Core, refused_for_now};
use crate::measure::{Answered, Measure};
use crate::message::CoordinatorRequest::{CloseLocks, OpenLocks, RenewLocks, SetLock};
use crate::message::{CoordinatorReply, CoordinatorRequest as Ask, Denial, ask};
use crate::ports::Ports;
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
        let locks = Locks::new(&shared.core, &files)?;
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
            Arc::clone(&self.locks).expire().boxed(),
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

    /// Answers a request. The answer's promises are durable.
    pub async fn handle(self: &Arc<Self>, request: Ask) -> CoordinatorReply {
        let ports = &self.shared.core.ports;
        let (began_us, request_name) = (ports.now_us(), request.name());
        let answer = match self.shared.core.check_whole() {
            // Not even a lease is granted: the node's failure could not be handled.
            Err(error) if !request.is_about_process() => refused_for_now(error),
            _ => self.answer(request).await,
        };
        let refusal = match &answer {
            Err(denial) | Ok(CoordinatorReply::Refused(denial)) => Some(denial.cause.name()),
            Ok(CoordinatorReply::Busy(_)) => Some("busy"),
            Ok(_) => None,
        };
        ports.measure(&Measure::Answered(Answered {
            request: request_name,
            purpose: None,
            refusal,
            took_us: ports.now_us().saturating_sub(began_us),
        }));
        answer.unwrap_or_else(CoordinatorReply::Refused)
    }

    /// Answers a request when this process can. Requests that rely on the metadata wait until the nodes would have
    /// left an old copy of it.
    async fn answer(self: &Arc<Self>, request: Ask) -> Answer {
        match self.until_able(&request).await? {
            Some(busy) => Ok(busy),
            None => self.route(request).await,
        }
    }

    /// Routes a request to its room.
    async fn route(self: &Arc<Self>, request: Ask) -> Answer {
        let locks = &self.locks;
        match request {
            Ask::BeginJoin(asked) => self.members.begin_join(asked).await,
            Ask::TellChunks(page) => self.members.tell_chunks(page).await,
            Ask::SetAside(session) => Ok(self.members.set_aside(session)),
            Ask::EndJoin(end) => self.members.end_join(*end).await,
            Ask::Accept(node) => self.members.accept(node),
            Ask::Heartbeat(told) => self.heartbeat(&told),
            Ask::EndMembership(told) => self.members.end_membership(told).await,
            Ask::StoreFailed(failure) => self.members.store_failed(failure).await,
            Ask::Suspect(ask::Suspect { node }) => Ok(self.members.suspect(node)),
            Ask::Drain(node) => self.members.drain(node).await,
            Ask::Keep(node) => self.members.keep(node).await,
            Ask::Nodes => Ok(CoordinatorReply::Nodes(self.shared.nodes.statuses())),
            Ask::Links => Ok(self.shared.nodes.link_rates()),
            Ask::Acquire(asked) => self.leases.acquire(asked).await,
            Ask::Settling(told) => self.leases.settling(told).await,
            Ask::NoteDegraded(told) => self.leases.degraded(told).await,
            Ask::NotePhase(told) => self.leases.note_phase(told).await,
            Ask::Group(told) => Ok(self.grouping.note(told)),
            Ask::CreatePool(asked) => self.files.create_pool(asked).await,
            Ask::SetQuota(asked) => self.files.set_quota(asked).await,
            Ask::Pools => self.files.pools().await,
            Ask::Reserves(stripes) => self.files.reserves(stripes).await,
            Ask::CommitPool(ask::CommitPool { name }) => self.files.commit_pool(name).await,
            Ask::BeginPut(asked) => self.files.begin_put(asked).await,
            Ask::ExtendPut(asked) => self.files.extend_put(asked).await,
            Ask::PlaceAnew(asked) => self.files.place_anew(asked).await,
            Ask::TouchPut(put) => self.files.touch_put(put),
            Ask::CommitPut(put) => self.files.commit_put(put).await,
            Ask::AbortPut(put) => self.files.abort_own_put(put).await,
            Ask::WriteInline(asked) => self.files.write_inline(asked).await,
            Ask::BeginReplace(asked) => self.files.begin_replace(asked).await,
            Ask::CommitReplace(asked) => self.files.commit_replace(asked).await,
            Ask::Ended(stripe) => self.files.ended(stripe).await,
            Ask::Lookup(ask::Lookup { name }) => self.files.lookup(name).await,
            Ask::LookupFile(asked) => self.files.lookup_file(asked).await,
            Ask::List(page) => self.files.list(page).await,
            Ask::Rename(asked) => self.files.rename(asked).await,
            Ask::LookupInode(asked) => self.files.lookup_inode(asked).await,
            Ask::SetAttributes(asked) => self.files.set_attributes(asked).await,
            Ask::StatInode(inode) => self.files.stat_inode(inode).await,
            Ask::UserAttributes(inode) => self.files.user_attributes(inode).await,
            Ask::Link(asked) => self.files.link(asked).await,
            Ask::MakeSymlink(asked) => self.files.make_symlink(asked).await,
            Ask::ReadLink(file) => self.files.read_link(file).await,
            #[rustfmt::skip]
            Ask::ReadDirectory(_) | Ask::MakeDirectory(_) | Ask::RemoveDirectory(_) | Ask::RenameDirectory(_)
            | Ask::ExchangeNames(_) | Ask::SetDirectoryQuota(_)
            | Ask::DirectoryQuota(_) => self.files.answer_on_directories(request).await,
            Ask::Grow(asked) => self.files.grow(asked).await,
            Ask::OpenExclusive(asked) => self.files.open_exclusive(asked).await,
            Ask::RenewExclusive(asked) => self.files.renew_exclusive(asked).await,
            Ask::CloseExclusive(asked) => self.files.close_exclusive(asked).await,
            OpenLocks | RenewLocks(_) | CloseLocks(_) | SetLock(_) => locks.answer(request).await,
            Ask::Token(asked) => self.files.token(asked).await,
            Ask::Snapshot(asked) => self.files.snapshot(asked).await,
            Ask::RemoveFile(asked) => self.files.remove_file(asked).await,
            Ask::Status => self.status().await,
            Ask::Usage => self.usage().await,
            Ask::Events(_) | Ask::Changes(_) => self.tell(request).await,
            Ask::ReportDamage(report) => self.repair.report_damage(report).await,
            Ask::ScrubAll => self.repair.scrub_all().await,
            Ask::Hasten(ask::Hasten { stripe }) => self.repair.hasten(stripe).await,
            Ask::RepairNow(ask::RepairNow { scheme }) => self.repair_now(scheme).await,
            Ask::OrderRepair(order) => self.repair.throttle().order(order).await,
            Ask::OrderForm(order) => self.lifecycles.order(order).await,
        }
    }

    /// Tells what has happened: events for operators, and changes for clients.
    async fn tell(&self, request: Ask) -> Answer {
        let core = &self.shared.core;
        match request {
            Ask::Events(asked) => Ok(CoordinatorReply::Events(core.ports.event_page(&asked))),
            Ask::Changes(place) => {
                let page = core.changes.behind(&*core.ports, place).await?;
                // Another leader may have made changes meanwhile.
                match core.check_leads() {
                    Ok(()) => Ok(CoordinatorReply::Changes(page)),
                    Err(error) => refused_for_now(error),
                }
            }
            other => Err(format!("{} asks for nothing that has happened", other.name()).into()),
        }
    }

    /// Waits until most nodes have been heard, if the request needs that. The reply, if it takes too long, or if this
    /// process may not answer for now.
    async fn until_able(&self, request: &Ask) -> Result<Option<CoordinatorReply>, Denial> {
        // A sign of life is noted at any time, so that its sender does not count as silent, and judged behind that.
        let is_sign_of_life = matches!(
            request,
            Ask::Heartbeat(_) | Ask::RenewLocks(_) | Ask::RenewExclusive(_) | Ask::TouchPut(_)
        );
        if request.is_about_process() {
            return Ok(None);
        }
        if !is_sign_of_life && let Err(error) = self.shared.core.check_leads() {
            return refused_for_now(error).map(Some);
        }
        if !request.relies_on_metadata() {
            return Ok(None);
        }
        if let Err(sentence) = self.members.most_heard().await {
            return Ok(Some(CoordinatorReply::Busy(sentence.into())));
        }
        self.shared.core.check_whole()?;
        Ok(None)
    }

    /// Renews a node's lease, and notes the node's health. The node counts the lease from the moment at which it
    /// has sent its heartbeat. So if this process leads behind that, the next leader begins later, and waits for the
    /// lease.
    fn heartbeat(&self, told: &ask::Heartbeat) -> Answer {
        let answer = self.members.heartbeat(told)?;
        self.repair.throttle().note_foreground(&told.health);
        match self.shared.core.check_leads() {
            Ok(()) => Ok(answer),
            Err(error) => refused_for_now(error),
        }
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
        let error = self.shared.core.check_leads().err()?;
        Some(refused_for_now(error).unwrap_or_else(CoordinatorReply::Refused))
    }

    /// The path from the root on of a path that begins at a directory.
    ///
    /// # Errors
    /// If the directory does not exist, or the metadata cannot be read.
    pub async fn absolute_path(&self, at: RelativePath) -> Result<String, Denial> {
        let find = move |meta: &Meta<K>| meta.absolute_path(&at);
        Ok(self.shared.core.with_meta(find).await?)
    }

    /// Waits until the metadata store has failed; returns the error. The process then ends: a failed
    /// coordinator grants no leases, and only a restart can find out which writes are durable.
    pub async fn broken(&self) -> MetaError {
        self.shared.core.broken().await
    }

    /// Repairs chunks of failed nodes without waiting for their return, and changes the scheme on request.
    async fn repair_now(self: &Arc<Self>, scheme: Option<String>) -> Answer {
        if let Some(name) = scheme {
            self.repair.change_scheme(name).await?;
        }
        self.members
            .abandon_nodes(self.shared.nodes.failed())
            .await?;
        self.shared.backlog.retry_all();
        Ok(CoordinatorReply::Done)
    }
}
