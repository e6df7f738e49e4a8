//! A storage node: routes requests to its two roles, participant and primary, renews its membership lease,
//! and does not serve after the lease has expired.

pub mod figures;
mod measuring;
mod membership;
mod participate;
mod recovery;
mod route;

pub use crate::joining::{JoinError, NodeOptions};
use measuring::Measuring;

use crate::joining::ask_to_join;
use crate::locks::lock;
use crate::message::{
    Damage, Flow, JoinSession, Meter, NodeHealth, NodeReply, NodeRequest, NodeStatus, NodeUsage,
    Progress, RESERVES_ASKED_MAX, Refusal, RunPart, Scrubbed, Served, ask,
};
use crate::participant::{Participant, generation_of};
use crate::ports::{Address, Asker, Ports};
use crate::primary::{NotDone, Primaries};
use crate::progress::Heard;
use crate::staging::Staging;
use crate::ticket::Keyring;
use crate::upkeep::Upkeep;
use crate::wake_up::WakeUp;
use futures::FutureExt;
use futures::future::BoxFuture;
use gabion_layout::{ChunkId, ClusterId, NodeId, Sequence, StripeId};
use gabion_store::Store;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Period of asking for the primaries of stripes of which the node has appended records.
const ADOPT_EVERY_MS: u64 = 60_000;
/// Period of applying committed records to their chunks, and of checking reserves.
const UPKEEP_EVERY_MS: u64 = 1_000;

/// The reason why a node has left its cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Left {
    /// It was drained, and none of its chunks counts.
    Drained,
    /// Its store has failed; the first failure, as a sentence.
    StoreFailed(String),
}

/// A member of a cluster.
pub struct Node {
    pub(crate) id: NodeId,
    pub(crate) options: NodeOptions,
    pub(crate) participant: Participant,
    primaries: Primaries,
    /// The coordinator's reason for refusing to let it join again, if it has.
    join_refused: Mutex<Option<String>>,
    /// Other nodes' journal positions, as they have reported them.
    heard: Arc<Heard>,
    staging: Mutex<Staging>,
    pins: Mutex<Vec<Pinned>>,
    nodes: Mutex<Vec<NodeStatus>>,
    keyring: Mutex<Keyring>,
    /// The session with which the latest membership began.
    session: Mutex<JoinSession>,
    /// The end of the lease, by the ports' clock.
    lease_until_ms: AtomicU64,
    heartbeat_ms: AtomicU64,
    /// Asked for before the next heartbeat is due.
    renewal: WakeUp,
    /// Whether the coordinator has told it to join again, and it has not yet.
    must_join: AtomicBool,
    /// Whether the coordinator was told that the store has failed.
    pub(crate) has_announced: AtomicBool,
    /// Whether the coordinator has said that it may stop.
    has_left: AtomicBool,
    /// Its health since the last heartbeat.
    health: Mutex<NodeHealth>,
    /// The clients' requests that it has served.
    served: Mutex<Served>,
    /// The space of its store, when it was counted last.
    usage: Mutex<Option<NodeUsage>>,
    /// Since when no round of upkeep has left the journal without pending records.
    pending_since_ms: Mutex<Option<u64>>,
}

/// An update as of which a stripe stays readable for a repair.
#[derive(Clone, Copy, Debug)]
struct Pinned {
    stripe: StripeId,
    cut: Sequence,
    until_ms: u64,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("id", &self.id)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Node {
    /// Joins the cluster with the store's chunks. Chunks that are not the node's own any more are set aside
    /// before this returns, so that none of them is ever served.
    ///
    /// # Errors
    /// See [`JoinError`]; the caller may try again after [`JoinError::Unreachable`], and with a higher number
    /// of its start after [`JoinError::Superseded`].
    pub async fn join(
        store: Arc<Store>,
        ports: Arc<dyn Ports>,
        options: NodeOptions,
    ) -> Result<Arc<Self>, JoinError> {
        let participant = Participant::new(store, Arc::clone(&ports));
        let membership = ask_to_join(&participant, &options).await?;
        let id = membership.id;
        let options = NodeOptions {
            node: Some(id),
            ..options
        };
        let (own, incarnation) = (participant.clone(), options.start.number);
        let own_progress = Arc::new(move || own.progress(incarnation));
        let heard = Arc::<Heard>::default();
        let limits = options.limits;
        let primaries = Primaries::new(id, incarnation, ports, own_progress, Arc::clone(&heard));
        let primaries = primaries.with(limits);
        Ok(Arc::new(Self {
            id,
            options,
            participant,
            primaries,
            join_refused: Mutex::default(),
            heard,
            staging: Mutex::new(Staging::new(limits)),
            pins: Mutex::default(),
            nodes: Mutex::new(membership.nodes),
            keyring: Mutex::new(membership.keyring),
            session: Mutex::new(membership.session),
            lease_until_ms: AtomicU64::new(membership.lease_until_ms),
            heartbeat_ms: AtomicU64::new(membership.heartbeat_ms),
            renewal: WakeUp::default(),
            must_join: AtomicBool::new(false),
            has_announced: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
            health: Mutex::default(),
            served: Mutex::default(),
            usage: Mutex::default(),
            pending_since_ms: Mutex::default(),
        }))
    }

    /// The node's id.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// The cluster that it is part of.
    ///
    /// # Panics
    /// Never: a node that has joined a cluster knows it.
    pub fn cluster(&self) -> ClusterId {
        let identity = self.participant.store.identity();
        identity
            .cluster
            .expect("a node that has joined knows its cluster")
    }

    /// Bytes that nodes should have sent for the updates and commits that this node has run as a primary.
    pub fn planned(&self) -> Meter {
        self.primaries.planned()
    }

    /// Answers one request of this asker. `origin` is the destination of frames for it.
    pub fn handle(
        self: &Arc<Self>,
        request: NodeRequest,
        origin: Address,
        asker: Asker,
    ) -> BoxFuture<'static, NodeReply> {
        let node = Arc::clone(self);
        let answer = async move {
            let ports = &node.participant.ports;
            let measuring = Measuring::begin(&request, &**ports);
            let answer = node.serve(request, origin, asker).await;
            let refusal = answer.as_ref().err().map(NotDone::refusal);
            measuring.end(&**ports, (&node.health, &node.served), refusal);
            match refusal {
                Some(Refusal::Damaged(damage)) => node.report(vec![damage.clone()]),
                // The refusal may come from another node, which this one has asked.
                Some(Refusal::StoreFailed(_)) => {
                    node.leave_if_failed();
                }
                _ => {}
            }
            answer.unwrap_or_else(NodeReply::from)
        };
        answer.boxed()
    }

    /// Takes one flow frame.
    pub fn flow(&self, flow: Flow) {
        lock(&self.staging).flow(flow, None, self.participant.ports.now_ms());
    }

    /// Takes one flow frame of this peer, which has a share of the room for frames that come before their parts.
    pub fn flow_from(&self, from: Address, flow: Flow) {
        lock(&self.staging).flow(flow, Some(from), self.participant.ports.now_ms());
    }

    /// Sends heartbeats, applies records to chunks and drops expired state, for as long as the process
    /// lives, or until the node has left for one of these reasons. It does not serve then, and its process
    /// should end.
    pub async fn keep_alive(self: Arc<Self>) -> Left {
        let ports = Arc::clone(&self.participant.ports);
        let upkept = Arc::clone(&self);
        ports.spawn(async move { upkept.keep_up().await }.boxed());
        ports.spawn(Arc::clone(&self).try_disk().boxed());
        let committing = Arc::clone(&self);
        ports.spawn(async move { committing.keep_committing().await }.boxed());
        // The first heartbeat follows the join at once: it reports the disk, and brings the other nodes.
        loop {
            if let Some(cause) = self.participant.store.failure() {
                self.announce_failure(cause.clone()).await;
                return Left::StoreFailed(cause);
            }
            self.heartbeat().await;
            if self.has_left.load(Ordering::Acquire) {
                return Left::Drained;
            }
            let now_ms = ports.now_ms();
            lock(&self.staging).expire(now_ms);
            self.participant.expire_unfinished().await;
            self.unpin(|pinned| pinned.until_ms <= now_ms).await;
            self.until_heartbeat().await;
        }
    }

    async fn keep_up(self: Arc<Self>) {
        let ports = &self.participant.ports;
        let mut upkeep = Upkeep::new(ports.now_ms(), self.options.reserve_bytes_per_s);
        loop {
            ports.sleep_ms(UPKEEP_EVERY_MS).await;
            // After an error the next round retries; requests that need the disk get the error.
            let damage = upkeep.round(&self.participant).await;
            if !damage.is_empty() {
                self.report(damage);
            }
            *lock(&self.usage) = upkeep.usage().cloned();
            *lock(&self.pending_since_ms) = upkeep.pending_since_ms();
        }
    }

    /// Commits updates that have waited long enough, and checks for records whose primary was restarted and
    /// may not know them.
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
                let appended = |store: &Store| Ok(store.appended_stripes());
                // A disk that hangs is asked again in the next period.
                if let Ok(appended) = self.participant.with_store(appended).await {
                    self.primaries.adopt(appended).await;
                }
                adopt_ms = now_ms + ADOPT_EVERY_MS;
            }
        }
    }

    /// Whether the node may serve a request of this asker now.
    fn admit(&self, request: &NodeRequest, asker: Asker) -> Result<(), Refusal> {
        let ports = &self.participant.ports;
        if let Some(cause) = self.participant.store.failure() {
            return Err(Refusal::StoreFailed(cause));
        }
        let has_lease = ports.now_ms() < self.lease_until_ms.load(Ordering::Acquire);
        let is_told_off =
            self.must_join.load(Ordering::Acquire) || self.has_left.load(Ordering::Acquire);
        if !has_lease && (request.needs_lease() || is_told_off) {
            return Err(Refusal::NoLease);
        }
        match (asker, request.claim()) {
            (Asker::User, Some(claim)) => {
                let checked = lock(&self.keyring).check(&claim, ports.now_ms(), !has_lease);
                checked.map_err(Refusal::Ticket)
            }
            (Asker::User, None) | (Asker::Member, _) => Ok(()),
        }
    }

    /// Answers a request of this asker if the node may serve it now.
    async fn serve(
        &self,
        request: NodeRequest,
        origin: Address,
        asker: Asker,
    ) -> Result<NodeReply, NotDone> {
        match (self.admit(&request, asker), &request) {
            (Ok(()), _) => self.route(request, origin).await,
            (Err(refusal), NodeRequest::Update(_)) => Err(NotDone::NotBegun(refusal)),
            (Err(refusal), _) => Err(refusal.into()),
        }
    }

    async fn reserved_bytes(
        &self,
        stripes: Vec<StripeId>,
    ) -> Result<Vec<(StripeId, u64)>, Refusal> {
        if stripes.len() > RESERVES_ASKED_MAX {
            return Err(Refusal::Invalid(format!(
                "a question about reserves names {} stripes, and at most {RESERVES_ASKED_MAX} are allowed",
                stripes.len()
            )));
        }
        let count = move |store: &Store| Ok(store.reserved_bytes(&stripes));
        self.participant.with_store(count).await
    }

    async fn stage(&self, asked: ask::Stage, origin: Address) -> Result<Sequence, Refusal> {
        let ask::Stage {
            run,
            stripe,
            chunk,
            offset,
            bytes,
            ticket: _,
        } = asked;
        let now_ms = self.participant.ports.now_ms();
        lock(&self.staging).stage(run, origin, (chunk, offset, bytes), now_ms)?;
        self.participant.newest(stripe).await
    }

    async fn run_part(
        &self,
        part: RunPart,
        origin: Address,
    ) -> Result<(Sequence, Option<Progress>), Refusal> {
        let ports = &self.participant.ports;
        if !part.has_valid_runs() {
            let why = "a part of an update has at most 64 runs, and any other part has one";
            return Err(Refusal::Invalid(why.to_owned()));
        }
        let runs = part.runs();
        let arrivals = lock(&self.staging).start(&runs, ports.now_ms())?;
        let done = self.participant.run(part, arrivals, origin).await;
        lock(&self.staging).end(&runs, ports.now_ms());
        let progress = self.participant.progress(self.options.start.number);
        done.map(|as_of| (as_of, Some(progress)))
    }

    async fn scrub(&self, chunks: Vec<ChunkId>) -> Result<Scrubbed, Refusal> {
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
                // Checked before the chunk is read, so that a replacement of the chunk is not reported.
                let generation = generation_of(store, chunk);
                let spec = store.chunk_info(chunk)?.spec;
                let chunk_bytes = spec.map_or(0, |spec| spec.chunk_bytes);
                Ok((chunk_bytes, generation, store.scrub(chunk)?))
            });
            match scrubbed.await {
                Ok((chunk_bytes, generation, found)) => {
                    chunk_count += 1;
                    bytes += chunk_bytes;
                    damage.extend(found.into_iter().map(|d| Damage {
                        chunk: d.chunk,
                        generation,
                        range: d.range,
                    }));
                }
                // Deleted after it was listed.
                Err(Refusal::NoSuchChunk(_)) => {}
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(Scrubbed {
            chunk_count,
            bytes,
            damage,
        })
    }

    /// All nodes, from the coordinator's last message.
    pub fn nodes(&self) -> Vec<NodeStatus> {
        lock(&self.nodes).clone()
    }
}
