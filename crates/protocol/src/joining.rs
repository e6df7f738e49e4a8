//! A node's side of a join: it reports itself and its chunks, and makes the answers durable.
//!
//! It reports its chunks in pages, in the order of their ids, and executes each answer before the next
//! page. So neither the size of a message nor the wait for an answer grows with the number of chunks.
//! Unknown chunks are set aside last. If there are more than a few, the node waits for the operator's
//! permission.

use crate::event::Event;
use crate::holdings::{accept, begin, held_chunks, set_aside};
use crate::limits::Limits;
use crate::message::{
    Applicant, Cause, CoordinatorCall, HeldChunk, InventoryDigest, InventoryPage, JoinBegun,
    JoinEnd, JoinSession, Joined, NodeStatus, PageAnswer, Refusal, Scope, ask,
};
use crate::participant::Participant;
use crate::ports::{Ask as _, CoordinatorError};
use crate::ticket::Keyring;
use gabion_layout::{ChunkId, NodeId, RackId, Start, StripeId};
use gabion_store::{HeldPage, Identity, Store};
use std::collections::BTreeSet;
use thiserror::Error;

/// Time limit of the coordinator's answer to a join or a heartbeat.
pub(crate) const MEMBERSHIP_DEADLINE_MS: u64 = 2_000;
/// Attempts to send a message of a session before the node begins anew.
const TRY_COUNT: usize = 3;
/// Period of asking for the operator's permission, and of keeping the session alive.
const ASK_EVERY_MS: u64 = 1_000;
/// Chunks that are looked up before the time is checked: on a slow disk each takes a read.
const READ_COUNT: usize = 256;
/// Time for looking up the chunks of one page.
const READ_MS: u64 = 1_000;
/// Chunks that are set aside before it checks whether a keep-alive is due.
const SET_ASIDE_COUNT: usize = 16;
/// Answers of the coordinator that stripes have changed, before the node begins anew.
const CHANGE_ROUND_COUNT: usize = 64;
/// Stripes whose answers may wait until the node is a member.
const LATE_COUNT_MAX: usize = 256;

/// A node's properties at its start.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Its id, if it has been in this cluster before; its store says so too, unless that is new.
    pub node: Option<NodeId>,
    /// Its rack.
    pub rack: RackId,
    /// Its listening address, as `host:port`.
    pub address: String,
    /// Bytes that it can store.
    pub capacity_bytes: u64,
    /// Bytes that shrinking and merging reserves may move in a second in which no updates come.
    pub reserve_bytes_per_s: u64,
    /// Chunks that it tells of in one page when it joins; at least 1, at most
    /// [`PAGE_CHUNK_COUNT`](crate::message::PAGE_CHUNK_COUNT).
    pub page_chunk_count: usize,
    /// This start of it. The number, its incarnation, is higher than at its last start.
    pub start: Start,
    /// Its capacity.
    pub limits: Limits,
}

/// The reason why a node is not part of the cluster.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum JoinError {
    /// The coordinator did not answer; a retry may succeed.
    #[error("the coordinator does not answer: {0}")]
    Unreachable(String),
    /// A run of the node with this number, or a later one, has been a member. A process that starts on an
    /// earlier copy of the directory joins with a higher number.
    #[error("run {0} of this node has joined already; stop this process")]
    Superseded(u64),
    /// The coordinator has refused, in one plain sentence.
    #[error("{0}")]
    Refused(String),
    /// The node's own store failed.
    #[error("{0}")]
    Store(String),
}

impl From<CoordinatorError> for JoinError {
    fn from(error: CoordinatorError) -> Self {
        match error {
            CoordinatorError::Refused(denial) if denial.cause != Cause::NotLeading => {
                Self::Refused(denial.sentence)
            }
            other => Self::Unreachable(other.to_string()),
        }
    }
}

/// The result of a join.
pub(crate) struct Membership {
    pub(crate) id: NodeId,
    /// The session with which it began.
    pub(crate) session: JoinSession,
    pub(crate) lease_until_ms: u64,
    pub(crate) heartbeat_ms: u64,
    pub(crate) nodes: Vec<NodeStatus>,
    pub(crate) keyring: Keyring,
}

/// Returns the end of the journal when the store was first opened since the start that was let in last; up to where it
/// is durable if this is that start.
fn shown_position(store: &Store, identity: &Identity) -> u64 {
    let found = identity.found_position;
    found.unwrap_or_else(|| store.position())
}

/// Joins with the store's chunks, and executes the answers before the node serves.
///
/// # Errors
/// See [`JoinError`].
pub(crate) async fn ask_to_join(
    participant: &Participant,
    options: &NodeOptions,
) -> Result<Membership, JoinError> {
    participant.end_membership().await;
    let start = options.start;
    let known =
        participant.with_store(move |store| Ok((begin(store, start)?, store.chunk_count())));
    let (identity, chunk_count) = known.await.map_err(store_error)?;
    let applicant = Applicant {
        cluster: identity.cluster,
        node: identity.node.or(options.node),
        start,
        position: shown_position(&participant.store, &identity),
        earlier: identity.starts,
        heard: participant.heard(),
        rack: options.rack,
        address: options.address.clone(),
        capacity_bytes: options.capacity_bytes,
    };
    let node = Box::new(applicant);
    let request = ask::BeginJoin { node, chunk_count };
    let asked = participant
        .ports
        .ask_coordinator(request, MEMBERSHIP_DEADLINE_MS);
    let begun = asked.await?.map_err(JoinError::Superseded)?;
    let followed = participant.follow(begun.coordinator).await;
    followed.map_err(|why| JoinError::Unreachable(why.to_string()))?;
    let mut joining = Joining {
        participant,
        session: begun.session,
        page_chunk_count: options.page_chunk_count,
        digest: InventoryDigest::default(),
        unknown: Vec::new(),
        said_ms: participant.ports.now_ms(),
    };
    joining.tell_all().await?;
    joining.set_unknown_aside().await?;
    joining.end(options, &begun).await
}

/// A session as the node sees it.
struct Joining<'a> {
    participant: &'a Participant,
    session: JoinSession,
    page_chunk_count: usize,
    /// The digest of all reported and answered pages.
    digest: InventoryDigest,
    /// Chunks that the coordinator does not know.
    unknown: Vec<ChunkId>,
    /// The time of the coordinator's last answer in this session.
    said_ms: u64,
}

impl Joining<'_> {
    async fn ask<C: CoordinatorCall>(&mut self, request: C) -> Result<C::Reply, JoinError> {
        let mut tries = 1;
        loop {
            let ports = &self.participant.ports;
            let asked = ports.ask_coordinator(request.clone(), MEMBERSHIP_DEADLINE_MS);
            match asked.await {
                Err(CoordinatorError::Silent(_)) if tries < TRY_COUNT => tries += 1,
                answer => {
                    self.said_ms = self.participant.ports.now_ms();
                    return Ok(answer?);
                }
            }
        }
    }

    /// Reports all chunks, and executes the answers.
    async fn tell_all(&mut self) -> Result<(), JoinError> {
        let mut after = None;
        loop {
            let held = self.next_page(after).await?;
            let upto = held.upto;
            let mut page = InventoryPage {
                session: self.session,
                scope: Scope::Range { after, upto },
                chunks: held_chunks(held.stripes),
            };
            let mut answer = self.ask(page.clone()).await?;
            let answered = answer.upto;
            let is_answered =
                |held: &HeldChunk| answered.is_none_or(|upto| held.chunk.stripe <= upto);
            let answered_count = page.chunks.partition_point(is_answered);
            page.chunks.truncate(answered_count);
            self.digest.add(&page.chunks);
            self.unknown.append(&mut answer.unknown);
            self.obey(answer).await?;
            match answered {
                None => return Ok(()),
                // Otherwise a node that gets empty answers would ask for ever.
                Some(_) if answered <= after => {
                    let why = "the coordinator answered a page without an end".to_owned();
                    return Err(JoinError::Unreachable(why));
                }
                Some(_) => after = answered,
            }
        }
    }

    /// The next chunks to report, fewer than a page holds if the disk is slow: the disk counts as hanging if a
    /// call takes too long, and the session ends if nothing is said.
    async fn next_page(&self, after: Option<StripeId>) -> Result<HeldPage, JoinError> {
        let ports = &self.participant.ports;
        let (limit, began_ms) = (self.page_chunk_count.max(1), ports.now_ms());
        let (mut page, mut count) = (HeldPage::default(), 0);
        let mut last = after;
        loop {
            let part = (limit - count).min(READ_COUNT);
            let held = self
                .participant
                .with_store(move |store| store.held_page(last, part));
            let held = held.await.map_err(store_error)?;
            let chunks = held.stripes.iter();
            count += chunks
                .map(|held| held.chunks.len() + held.state.records.len())
                .sum::<usize>();
            page.stripes.extend(held.stripes);
            page.upto = held.upto;
            last = held.upto;
            let is_late = ports.now_ms().saturating_sub(began_ms) >= READ_MS;
            if last.is_none() || count >= limit || is_late {
                return Ok(page);
            }
        }
    }

    /// Makes an answer durable, and keeps the session alive during that.
    ///
    /// # Errors
    /// [`JoinError::Unreachable`] when that has cost a chunk which the node has reported: the coordinator counts it.
    /// The report of the next join leaves it out.
    async fn obey(&mut self, answer: PageAnswer) -> Result<(), JoinError> {
        self.set_aside(answer.obsolete).await?;
        if answer.decided.is_empty() {
            return Ok(());
        }
        let decided = answer.decided;
        let obeyed = self
            .participant
            .with_store(move |store| accept(store, decided));
        let lost = obeyed.await.map_err(store_error)?;
        match lost.first() {
            None => Ok(()),
            Some(chunk) => Err(JoinError::Unreachable(format!(
                "{chunk} cannot be read any more; the node joins again without it"
            ))),
        }
    }

    async fn set_aside(&mut self, chunks: Vec<ChunkId>) -> Result<(), JoinError> {
        for some in chunks.chunks(SET_ASIDE_COUNT) {
            let some = some.to_vec();
            let moved = self
                .participant
                .with_store(move |store| set_aside(store, &some));
            moved.await.map_err(store_error)?;
            if self.participant.ports.now_ms() >= self.said_ms + ASK_EVERY_MS {
                self.may_set_aside().await?;
            }
        }
        Ok(())
    }

    /// Whether the node may set unknown chunks aside.
    async fn may_set_aside(&mut self) -> Result<bool, JoinError> {
        Ok(self.ask(ask::SetAside(self.session)).await?.is_ok())
    }

    /// Sets unknown chunks aside, as soon as it may.
    async fn set_unknown_aside(&mut self) -> Result<(), JoinError> {
        if self.unknown.is_empty() {
            return Ok(());
        }
        let held = Event::JoinHeld(self.session.node, self.unknown.len() as u64);
        let mut is_told = false;
        while !self.may_set_aside().await? {
            if !is_told {
                self.participant.ports.note_event(&held);
                is_told = true;
            }
            if let Some(cause) = self.participant.store.failure() {
                return Err(JoinError::Store(cause));
            }
            self.participant.ports.sleep_ms(ASK_EVERY_MS).await;
        }
        let unknown = std::mem::take(&mut self.unknown);
        self.set_aside(unknown).await
    }

    /// Asks for the lease, and reports changed stripes again until none has changed.
    async fn end(
        mut self,
        options: &NodeOptions,
        begun: &JoinBegun,
    ) -> Result<Membership, JoinError> {
        let mut changed: Vec<StripeId> = Vec::new();
        let mut late = Vec::new();
        for _ in 0..CHANGE_ROUND_COUNT {
            let (reported, stripes) = (changed.clone(), changed.clone());
            let held = self
                .participant
                .with_store(move |store| store.held_stripes(&stripes));
            let end = JoinEnd {
                session: self.session,
                digest: self.digest,
                changed: InventoryPage {
                    session: self.session,
                    scope: Scope::Stripes(changed),
                    chunks: held_chunks(held.await.map_err(store_error)?),
                },
            };
            let sent_ms = self.participant.ports.now_ms();
            // A lost answer is not asked for again: the session ended with it.
            let ports = &self.participant.ports;
            let asked = ports.ask_coordinator(Box::new(end), MEMBERSHIP_DEADLINE_MS);
            match asked.await? {
                Err((answer, stripes)) => {
                    changed = stripes;
                    supersede(&mut late, reported);
                    late.push(answer);
                    // Executing an answer takes time, in which more stripes may change. The work at the end
                    // has to be short, because the lease runs then.
                    let count = |answer: &PageAnswer| answer.decided.len() + answer.obsolete.len();
                    if late.iter().map(count).sum::<usize>() > LATE_COUNT_MAX {
                        self.obey_late(std::mem::take(&mut late)).await?;
                    }
                }
                Ok(joined) => {
                    supersede(&mut late, reported);
                    late.push(joined.answer.clone());
                    return self
                        .become_member(late, joined, sent_ms, options, begun)
                        .await;
                }
            }
        }
        let why = "the node's chunks change faster than it can report them".to_owned();
        Err(JoinError::Unreachable(why))
    }

    async fn obey_late(&mut self, late: Vec<PageAnswer>) -> Result<(), JoinError> {
        for mut answer in late {
            // These chunks were known when the node began its report.
            answer.obsolete.append(&mut answer.unknown);
            self.obey(answer).await?;
        }
        Ok(())
    }

    async fn become_member(
        mut self,
        late: Vec<PageAnswer>,
        joined: Joined,
        sent_ms: u64,
        options: &NodeOptions,
        begun: &JoinBegun,
    ) -> Result<Membership, JoinError> {
        // The session has ended, so no permission can apply to it.
        self.said_ms = u64::MAX - ASK_EVERY_MS;
        self.obey_late(late).await?;
        let Joined {
            node,
            lease_ms,
            heartbeat_ms,
            nodes,
            keys,
            ..
        } = joined;
        let identity = Identity {
            cluster: Some(begun.cluster),
            node: Some(node),
            starts: vec![options.start],
            coordinator: Some(begun.coordinator.start),
            metadata_changes: Some(begun.coordinator.change_count),
            found_position: None,
        };
        let participant = self.participant;
        let kept = participant.with_store(move |store| store.set_identity(&identity));
        kept.await.map_err(store_error)?;
        participant.ports.learn_nodes(&nodes);
        let lease_until_ms = sent_ms.saturating_add(lease_ms);
        let mut keyring = Keyring::default();
        keyring.learn(keys, sent_ms);
        Ok(Membership {
            id: node,
            session: self.session,
            lease_until_ms,
            heartbeat_ms,
            nodes,
            keyring,
        })
    }
}

/// Drops what answers say about stripes that were reported again before the answers were executed: the next answer is
/// about the same state of the store, and about later decisions too. An update that was dropped may stand since.
fn supersede(late: &mut [PageAnswer], reported: Vec<StripeId>) {
    let reported: BTreeSet<StripeId> = reported.into_iter().collect();
    let is_other = |stripe: StripeId| !reported.contains(&stripe);
    for answer in late {
        answer.decided.retain(|decided| is_other(decided.stripe));
        answer.obsolete.retain(|chunk| is_other(chunk.stripe));
        answer.unknown.retain(|chunk| is_other(chunk.stripe));
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "it stands where results are mapped"
)]
fn store_error(refusal: Refusal) -> JoinError {
    JoinError::Store(refusal.to_string())
}
