//! A storage node: routes requests to its two roles, participant and primary, keeps its membership
//! lease alive, and serves nothing when that has run out.

use crate::holdings::{accept, held_chunks, latest, remove};
use crate::message::{
    CoordinatorReply, CoordinatorRequest, Damage, Flow, Meter, NodeReply, NodeRequest, NodeStatus,
    Purpose, Refusal, Vitals,
};
use crate::participant::Participant;
use crate::phases::ADOPT_EVERY_MS;
use crate::ports::{Address, Ports};
use crate::primary::{Primaries, Update};
use crate::staging::Staging;
use crate::upkeep::Upkeep;
use futures::FutureExt;
use futures::future::BoxFuture;
use gabion_layout::{ChunkId, NodeId, RackId, Sequence, StripeId};
use gabion_store::{Disk, Store};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thiserror::Error;

/// How long the coordinator may take to answer a join or a heartbeat.
const MEMBERSHIP_DEADLINE_MS: u64 = 2_000;
/// How often committed records are brought into their chunks, and reserves are seen to.
const UPKEEP_EVERY_MS: u64 = 1_000;

/// What a node is when it starts.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Its id, if it has been in this cluster before.
    pub node: Option<NodeId>,
    /// Its rack.
    pub rack: RackId,
    /// Where it listens, as `host:port`.
    pub address: String,
    /// Bytes that it can store.
    pub capacity_bytes: u64,
    /// Bytes that shrinking and merging reserves may move in a second in which no updates come.
    pub reserve_bytes_per_s: u64,
    /// Higher than at its last start.
    pub incarnation: u64,
}

/// Why a node is not part of the cluster.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum JoinError {
    /// The coordinator did not answer; it may later.
    #[error("the coordinator does not answer: {0}")]
    Unreachable(String),
    /// The coordinator said no, in one plain sentence.
    #[error("{0}")]
    Refused(String),
    /// The node's own store failed.
    #[error("{0}")]
    Store(String),
}

/// A member of a cluster.
pub struct Node<D: Disk> {
    id: NodeId,
    options: NodeOptions,
    participant: Participant<D>,
    primaries: Primaries,
    staging: Mutex<Staging>,
    pins: Mutex<Vec<Pinned>>,
    nodes: Mutex<Vec<NodeStatus>>,
    /// The lease ends then, by the ports' clock.
    lease_until_ms: AtomicU64,
    heartbeat_ms: AtomicU64,
    /// Whether the coordinator has said that it must join anew, and it has not yet.
    must_join: AtomicBool,
    /// Whether the coordinator has said that it may stop.
    has_left: AtomicBool,
    /// How it fares, since the last heartbeat.
    vitals: Mutex<Vitals>,
}

/// An update as of which a stripe stays readable for a repair.
#[derive(Clone, Copy, Debug)]
struct Pinned {
    stripe: StripeId,
    cut: Sequence,
    until_ms: u64,
}

impl<D: Disk> std::fmt::Debug for Node<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("id", &self.id)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// What a join brings.
struct Membership {
    id: NodeId,
    lease_until_ms: u64,
    heartbeat_ms: u64,
    nodes: Vec<NodeStatus>,
}

impl<D: Disk> Node<D> {
    /// Joins the cluster with what the store holds. Chunks that are the node's no more are deleted
    /// before this returns, so that none of them is ever served.
    ///
    /// # Errors
    /// See [`JoinError`]; the caller may try again after [`JoinError::Unreachable`].
    pub async fn join(
        store: Arc<Store<D>>,
        ports: Arc<dyn Ports>,
        options: NodeOptions,
    ) -> Result<Arc<Self>, JoinError> {
        let participant = Participant::new(store, Arc::clone(&ports));
        let membership = Self::ask_to_join(&participant, &options).await?;
        let id = membership.id;
        let options = NodeOptions {
            node: Some(id),
            ..options
        };
        let primaries = Primaries::new(id, options.incarnation, ports);
        Ok(Arc::new(Self {
            id,
            options,
            participant,
            primaries,
            staging: Mutex::default(),
            pins: Mutex::default(),
            nodes: Mutex::new(membership.nodes),
            lease_until_ms: AtomicU64::new(membership.lease_until_ms),
            heartbeat_ms: AtomicU64::new(membership.heartbeat_ms),
            must_join: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
            vitals: Mutex::default(),
        }))
    }

    /// The node's id.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// What nodes were to send for the updates and commits that this node has run as a primary.
    pub fn planned(&self) -> Meter {
        self.primaries.planned()
    }

    /// Answers one request. `origin` is where frames for the asker go.
    pub fn handle(
        self: &Arc<Self>,
        request: NodeRequest,
        origin: Address,
    ) -> BoxFuture<'static, NodeReply> {
        let node = Arc::clone(self);
        let answer = async move {
            let began_ms = node.participant.ports.now_ms();
            let is_clients = is_clients(&request);
            let answer = node.answer(request, origin).await;
            if is_clients {
                let latency_ms = node.participant.ports.now_ms().saturating_sub(began_ms);
                lock(&node.vitals).foreground.note(latency_ms);
            }
            if let Err(Refusal::Damaged(damage)) = &answer {
                node.report(vec![damage.clone()]);
            }
            answer.unwrap_or_else(NodeReply::Refused)
        };
        answer.boxed()
    }

    /// Takes one flow frame.
    pub fn flow(&self, flow: Flow) {
        lock(&self.staging).flow(flow, self.participant.ports.now_ms());
    }

    /// Says that it is alive, keeps its chunks up and forgets what nobody came for; for as long as
    /// the process lives, or until the node has been drained and holds nothing that counts.
    pub async fn keep_alive(self: Arc<Self>) {
        let ports = Arc::clone(&self.participant.ports);
        let upkept = Arc::clone(&self);
        ports.spawn(async move { upkept.keep_up().await }.boxed());
        let committing = Arc::clone(&self);
        ports.spawn(async move { committing.keep_committing().await }.boxed());
        loop {
            ports
                .sleep_ms(self.heartbeat_ms.load(Ordering::Relaxed))
                .await;
            self.heartbeat().await;
            if self.has_left.load(Ordering::Acquire) {
                return;
            }
            let now_ms = ports.now_ms();
            lock(&self.staging).expire(now_ms);
            self.participant.expire_unfinished().await;
            self.unpin(|pinned| pinned.until_ms <= now_ms);
        }
    }

    async fn keep_up(&self) {
        let ports = &self.participant.ports;
        let mut upkeep = Upkeep::new(ports.now_ms(), self.options.reserve_bytes_per_s);
        loop {
            ports.sleep_ms(UPKEEP_EVERY_MS).await;
            match upkeep.round(&self.participant).await {
                Ok(damage) if damage.is_empty() => {}
                Ok(damage) => self.report(damage),
                Err(Refusal::Damaged(damage)) => self.report(vec![damage]),
                // The next round tries again, and whoever needs the disk meanwhile is told.
                Err(_) => {}
            }
        }
    }

    /// Commits what has waited long enough, and looks after records that no primary may know of, since
    /// theirs was restarted.
    async fn keep_committing(&self) {
        let ports = &self.participant.ports;
        let mut adopt_ms = ports.now_ms() + ADOPT_EVERY_MS;
        loop {
            ports.sleep_ms(UPKEEP_EVERY_MS).await;
            let now_ms = ports.now_ms();
            if now_ms >= self.lease_until_ms.load(Ordering::Acquire) {
                continue;
            }
            let nodes = lock(&self.nodes).clone();
            self.primaries.commit_due(&nodes).await;
            if now_ms >= adopt_ms {
                let appended = self.participant.store.appended_stripes();
                self.primaries.adopt(appended).await;
                adopt_ms = now_ms + ADOPT_EVERY_MS;
            }
        }
    }

    async fn answer(&self, request: NodeRequest, origin: Address) -> Result<NodeReply, Refusal> {
        let ports = &self.participant.ports;
        if ports.now_ms() >= self.lease_until_ms.load(Ordering::Acquire) {
            return Err(Refusal::NoLease);
        }
        match request {
            NodeRequest::Stage {
                run,
                chunk,
                offset,
                bytes,
            } => {
                lock(&self.staging).stage(run, chunk, offset, bytes, ports.now_ms())?;
                Ok(NodeReply::Done)
            }
            NodeRequest::Unstage { run } => {
                let was_waiting = lock(&self.staging).withdraw(run, ports.now_ms());
                Ok(NodeReply::Unstaged { was_waiting })
            }
            NodeRequest::RunPart(part) => {
                let run = part.run;
                let arrivals = lock(&self.staging).start(run, ports.now_ms())?;
                let done = self.participant.run(*part, arrivals, origin).await;
                lock(&self.staging).end(run, ports.now_ms());
                done
            }
            NodeRequest::Update { .. } | NodeRequest::Mark { .. } | NodeRequest::Commit { .. } => {
                self.lead(request).await
            }
            NodeRequest::Collect { .. }
            | NodeRequest::Resolve { .. }
            | NodeRequest::Committed { .. }
            | NodeRequest::Pin { .. }
            | NodeRequest::Unpin { .. }
            | NodeRequest::Missed { .. }
            | NodeRequest::Latest { .. }
            | NodeRequest::Remove { .. }
            | NodeRequest::Discard { .. } => self.participate(request).await,
            NodeRequest::Written { chunk, base } => {
                let written = lock(&self.participant.unfinished).written(chunk, base);
                Ok(NodeReply::Written(written))
            }
            NodeRequest::Scrub { chunks } => self.scrub(chunks).await,
            NodeRequest::Probe { .. } => Ok(NodeReply::Done),
            NodeRequest::StoreCounts => Ok(NodeReply::StoreCounts(self.participant.store.counts())),
            NodeRequest::Meter => Err(Refusal::Invalid(
                "the meter is the transport's to read".to_owned(),
            )),
        }
    }

    /// Answers as a primary.
    async fn lead(&self, request: NodeRequest) -> Result<NodeReply, Refusal> {
        let nodes = lock(&self.nodes).clone();
        match request {
            NodeRequest::Update {
                run,
                stripe,
                generation,
                ranges,
                substitutes,
            } => {
                let update = Update {
                    run,
                    stripe,
                    generation,
                    ranges,
                    substitutes,
                };
                let updated = self.primaries.update(&update, &nodes).await;
                updated.map(|sequence| NodeReply::Updated { sequence })
            }
            NodeRequest::Mark {
                stripe,
                settle,
                reconstruct,
            } => {
                let how = (settle, reconstruct);
                let (epoch, sequence) = self.primaries.mark(stripe, how, &nodes).await?;
                Ok(NodeReply::Mark { epoch, sequence })
            }
            NodeRequest::Commit { stripe } => {
                let committed = self.primaries.commit(stripe, &nodes).await;
                committed.map(|()| NodeReply::Done)
            }
            other => Err(Refusal::Invalid(format!(
                "{other:?} is no primary's request"
            ))),
        }
    }

    /// Answers as a participant, outside any plan.
    async fn participate(&self, request: NodeRequest) -> Result<NodeReply, Refusal> {
        match request {
            NodeRequest::Collect {
                stripe,
                epoch,
                generation,
            } => {
                let holding = self.participant.collect(stripe, epoch, generation).await?;
                Ok(NodeReply::Holding(holding))
            }
            NodeRequest::Resolve {
                stripe,
                epoch,
                mark,
                dropped,
            } => {
                self.participant
                    .resolve(stripe, epoch, mark, dropped)
                    .await?;
                Ok(NodeReply::Done)
            }
            NodeRequest::Committed { marks } => {
                self.participant.committed(marks).await?;
                Ok(NodeReply::Done)
            }
            NodeRequest::Pin {
                stripe,
                cut,
                hold_ms,
            } => {
                let until_ms = self.participant.ports.now_ms().saturating_add(hold_ms);
                self.participant
                    .with_store(move |store| store.pin(stripe, cut))
                    .await?;
                lock(&self.pins).push(Pinned {
                    stripe,
                    cut,
                    until_ms,
                });
                Ok(NodeReply::Done)
            }
            NodeRequest::Unpin { stripe, cut } => {
                self.unpin(|pinned| (pinned.stripe, pinned.cut) == (stripe, cut));
                Ok(NodeReply::Done)
            }
            NodeRequest::Missed { chunk, after } => {
                let missed = self
                    .participant
                    .with_store(move |store| store.missed_since(chunk, after));
                Ok(NodeReply::Missed(missed.await?))
            }
            NodeRequest::Latest { stripes } => {
                let latest = self
                    .participant
                    .with_store(move |store| latest(store, stripes));
                Ok(NodeReply::Latest(latest.await?))
            }
            NodeRequest::Remove { chunks } => {
                self.participant.remove(chunks).await?;
                Ok(NodeReply::Done)
            }
            NodeRequest::Discard { chunk, epoch } => {
                self.participant.discard(chunk, epoch).await?;
                Ok(NodeReply::Done)
            }
            other => Err(Refusal::Invalid(format!(
                "{other:?} is no participant's request"
            ))),
        }
    }

    /// Forgets some of the pins.
    fn unpin(&self, which: impl Fn(&Pinned) -> bool) {
        let gone: Vec<Pinned> = lock(&self.pins)
            .extract_if(.., |pinned| which(pinned))
            .collect();
        for Pinned { stripe, cut, .. } in gone {
            self.participant.store.unpin(stripe, cut);
        }
    }

    async fn scrub(&self, chunks: Vec<ChunkId>) -> Result<NodeReply, Refusal> {
        let chunks = if chunks.is_empty() {
            self.participant
                .with_store(Store::chunks)
                .await?
                .into_iter()
                .map(|c| c.chunk)
                .collect()
        } else {
            chunks
        };
        let (mut chunk_count, mut bytes, mut damage) = (0, 0, Vec::new());
        for chunk in chunks {
            let scrubbed = self.participant.with_store(move |store| {
                let spec = store.chunk_info(chunk)?.spec;
                Ok((spec.map_or(0, |spec| spec.chunk_bytes), store.scrub(chunk)?))
            });
            match scrubbed.await {
                Ok((chunk_bytes, found)) => {
                    chunk_count += 1;
                    bytes += chunk_bytes;
                    damage.extend(found.into_iter().map(|d| Damage {
                        chunk: d.chunk,
                        range: d.range,
                    }));
                }
                // Deleted since it was listed.
                Err(Refusal::NoSuchChunk(_)) => {}
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(NodeReply::Scrubbed {
            chunk_count,
            bytes,
            damage,
        })
    }

    /// Tells the coordinator of damage; a report that is lost is made again by the next read or
    /// scrub.
    fn report(&self, damage: Vec<Damage>) {
        let ports = &self.participant.ports;
        let request = CoordinatorRequest::ReportDamage(damage);
        let told = ports.call_coordinator(request, MEMBERSHIP_DEADLINE_MS);
        ports.spawn(told.map(|_| ()).boxed());
    }

    async fn heartbeat(&self) {
        if self.must_join.load(Ordering::Acquire) {
            return self.join_anew().await;
        }
        let ports = &self.participant.ports;
        let sent_ms = ports.now_ms();
        let request = CoordinatorRequest::Heartbeat {
            node: self.id,
            incarnation: self.options.incarnation,
            vitals: self.take_vitals(),
        };
        match ports
            .call_coordinator(request, MEMBERSHIP_DEADLINE_MS)
            .await
        {
            Ok(CoordinatorReply::Alive { lease_ms, nodes }) => {
                self.renew(sent_ms + lease_ms, nodes);
            }
            Ok(CoordinatorReply::Rejoin) => {
                self.must_join.store(true, Ordering::Release);
                self.lease_until_ms.store(0, Ordering::Release);
                lock(&self.staging).withdraw_all(ports.now_ms());
                self.join_anew().await;
            }
            Ok(CoordinatorReply::Leave) => {
                self.lease_until_ms.store(0, Ordering::Release);
                self.has_left.store(true, Ordering::Release);
            }
            // The lease runs on, and out if this lasts.
            Ok(_) | Err(_) => {}
        }
    }

    fn take_vitals(&self) -> Vitals {
        let ports = &self.participant.ports;
        Vitals {
            links: ports.take_link_rates(),
            array: ports.array(),
            ..std::mem::take(&mut *lock(&self.vitals))
        }
    }

    /// All nodes, as the coordinator last told.
    pub fn nodes(&self) -> Vec<NodeStatus> {
        lock(&self.nodes).clone()
    }

    /// Joins anew, and serves nothing before it has succeeded. The coordinator may count the node as
    /// a member although its answer, with what was decided meanwhile, was lost; so no heartbeat is
    /// sent until there is an answer.
    async fn join_anew(&self) {
        if let Ok(membership) = Self::ask_to_join(&self.participant, &self.options).await {
            self.renew(membership.lease_until_ms, membership.nodes);
            self.must_join.store(false, Ordering::Release);
        }
    }

    fn renew(&self, lease_until_ms: u64, nodes: Vec<NodeStatus>) {
        self.participant.ports.learn_nodes(&nodes);
        *lock(&self.nodes) = nodes;
        self.lease_until_ms.store(lease_until_ms, Ordering::Release);
    }

    async fn ask_to_join(
        participant: &Participant<D>,
        options: &NodeOptions,
    ) -> Result<Membership, JoinError> {
        let store_error = |refusal: Refusal| JoinError::Store(refusal.to_string());
        participant.end_membership().await;
        let chunks = participant
            .with_store(held_chunks)
            .await
            .map_err(store_error)?;
        let request = CoordinatorRequest::Join {
            node: options.node,
            rack: options.rack,
            address: options.address.clone(),
            capacity_bytes: options.capacity_bytes,
            incarnation: options.incarnation,
            chunks,
        };
        let sent_ms = participant.ports.now_ms();
        let reply = participant
            .ports
            .call_coordinator(request, MEMBERSHIP_DEADLINE_MS)
            .await;
        match reply {
            Ok(CoordinatorReply::Joined {
                node,
                lease_ms,
                heartbeat_ms,
                obsolete,
                decided,
                nodes,
            }) => {
                let obeyed = participant.with_store(move |store| {
                    remove(store, &obsolete)?;
                    accept(store, &decided)
                });
                obeyed.await.map_err(store_error)?;
                participant.ports.learn_nodes(&nodes);
                let lease_until_ms = sent_ms + lease_ms;
                Ok(Membership {
                    id: node,
                    lease_until_ms,
                    heartbeat_ms,
                    nodes,
                })
            }
            Ok(CoordinatorReply::Refused(why)) => Err(JoinError::Refused(why)),
            Ok(other) => Err(JoinError::Unreachable(format!("it answered {other:?}"))),
            Err(error) => Err(JoinError::Unreachable(error.to_string())),
        }
    }
}

/// Whether a client waits for the answer. What it asks for beside these waits for nothing but memory.
fn is_clients(request: &NodeRequest) -> bool {
    match request {
        NodeRequest::Update { .. } => true,
        NodeRequest::RunPart(part) => part.purpose == Purpose::Client,
        _ => false,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that holds these locks can leave its state half changed when it panics.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
