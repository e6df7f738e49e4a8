//! Sessions of joining nodes: the reported part of each inventory, and the changes since.
//!
//! A session does not block other work: [`Coordinator::admission`](super::Coordinator) is held for one page
//! at a time. So the answer to a page may be out of date when the session ends. A task that changes a
//! stripe on which an answer depends holds that lock and notes the stripe ([`Sessions::note_change`]). The
//! node reports these stripes again, and the session ends when none is left. Former chunks of the node wait until
//! the session ends; garbage does not, since a joining node serves nothing.

use crate::message::{
    Cause, Denial, InventoryDigest, InventoryPage, JoinProgress, JoinSession, PageAnswer, Scope,
};
use gabion_layout::{ChunkId, NodeId, Start, StripeId};
use std::collections::{BTreeMap, BTreeSet};

/// Time that a node may be silent before its session is dropped.
const SILENCE_MS: u64 = 10_000;

/// Most stripes that may change during a session. Beyond it, the node begins anew.
const CHANGED_COUNT_MAX: usize = 1 << 16;

/// Unknown chunks that a node may set aside without the operator's permission, even if it holds few chunks:
/// as many as a full stripe of a wide code, which one removed file explains.
const UNKNOWN_COUNT_MIN: u64 = 16;

/// At most one in this many chunks may be unknown.
const UNKNOWN_PER_COUNT: u64 = 100;

/// The progress of a node's report.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// The last stripe of the pages.
    upto: Option<StripeId>,
    /// Whether it was the last page.
    is_all: bool,
    digest: InventoryDigest,
    unknown_count: u64,
}

impl Told {
    /// Whether the pages so far cover a stripe.
    fn has(&self, stripe: StripeId) -> bool {
        self.is_all || self.upto.is_some_and(|upto| stripe <= upto)
    }
}

/// The facts with which a session began.
#[derive(Clone, Debug)]
pub(super) struct Beginning {
    /// The start of the node that joins.
    pub(super) start: Start,
    /// The reported end of its journal.
    pub(super) position: u64,
    /// Whether its directory is an old copy.
    pub(super) went_back: bool,
    /// The reported number of its chunks.
    pub(super) chunk_count: u64,
    /// Chunks that were to be removed from it when the session began.
    pub(super) leftovers: Vec<ChunkId>,
}

#[derive(Debug)]
struct Session {
    number: u64,
    beginning: Beginning,
    heard_ms: u64,
    told: Told,
    /// The state before the last page, which may be sent again if its answer was lost.
    before: Told,
    changed: BTreeSet<StripeId>,
    /// The stripes of which it was told that its chunk is not its own.
    obsolete: BTreeSet<StripeId>,
    /// The number of chunks that the operator has permitted to set aside.
    accepted_count: u64,
    /// Whether the node waits for the operator.
    is_held: bool,
    /// Whether some of its chunks need repair. No repair begins before the node is a member: it may be the
    /// one that repairs them.
    has_repairs: bool,
}

impl Session {
    /// Whether this few chunks are unknown, or the operator has permitted this number.
    fn may_set_aside(&self) -> bool {
        let tolerated_count = self.beginning.chunk_count / UNKNOWN_PER_COUNT;
        let tolerated_count = tolerated_count.max(UNKNOWN_COUNT_MIN);
        self.told.unknown_count <= tolerated_count.max(self.accepted_count)
    }
}

/// The sessions, at most one of a node.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    open: BTreeMap<NodeId, Session>,
    /// The sessions with which memberships began, and the incarnations of their nodes. Memberships that
    /// began under an earlier run of the coordinator have none.
    members: BTreeMap<NodeId, (JoinSession, u64)>,
    begun_count: u64,
    /// The number of sessions that have begun, ended, been dropped or told a page again.
    turn_count: u64,
    /// The last of these of each node.
    turns: BTreeMap<NodeId, u64>,
}

impl Sessions {
    /// Refuses a start of a node while a later one joins.
    ///
    /// # Errors
    /// [`Cause::Stale`].
    pub(super) fn refuse_earlier(
        &self,
        node: NodeId,
        start: Start,
        now_ms: u64,
    ) -> Result<(), Denial> {
        let is_later = |known: &Session| {
            known.beginning.start.number > start.number
                && now_ms.saturating_sub(known.heard_ms) < SILENCE_MS
        };
        if self.open.get(&node).is_some_and(is_later) {
            return Err(Denial::new(
                Cause::Stale,
                format!("a later run of {node} is already joining; stop this one"),
            ));
        }
        Ok(())
    }

    /// Begins a node's session, in the place of an earlier one. The caller has refused earlier starts.
    pub(super) fn begin(
        &mut self,
        node: NodeId,
        coordinator: Start,
        beginning: Beginning,
        now_ms: u64,
    ) -> JoinSession {
        // The session may end now, with a new membership.
        self.members.remove(&node);
        self.begun_count += 1;
        let session = JoinSession {
            node,
            // No session of an earlier run of the coordinator has it.
            number: coordinator.nonce.wrapping_add(self.begun_count),
        };
        let begun = Session {
            number: session.number,
            beginning,
            heard_ms: now_ms,
            told: Told::default(),
            before: Told::default(),
            changed: BTreeSet::new(),
            obsolete: BTreeSet::new(),
            accepted_count: 0,
            is_held: false,
            has_repairs: self
                .open
                .get(&session.node)
                .is_some_and(|old| old.has_repairs),
        };
        self.open.insert(session.node, begun);
        self.note_turn(node);
        session
    }

    /// Finds a session. None when it has ended or was dropped: the node begins anew.
    fn hear(&mut self, session: JoinSession, now_ms: u64) -> Option<&mut Session> {
        let known = self.open.get_mut(&session.node)?;
        if known.number != session.number {
            return None;
        }
        known.heard_ms = now_ms;
        Some(known)
    }

    /// Accepts a page, if it is the next one or the last one again. Returns the facts with which the
    /// session began.
    pub(super) fn take_up(&mut self, page: &InventoryPage, now_ms: u64) -> Option<Beginning> {
        let known = self.hear(page.session, now_ms)?;
        let mut is_again = false;
        if let Scope::Range { after, .. } = page.scope {
            is_again = known.told.is_all || known.told.upto != after;
            if is_again {
                if known.before.is_all || known.before.upto != after {
                    return None;
                }
                known.told = known.before;
            }
            known.before = known.told;
        }
        let beginning = known.beginning.clone();
        if is_again {
            // The node may know the lost answer, which no longer counts as delivered.
            self.note_turn(page.session.node);
        }
        Some(beginning)
    }

    /// Notes the progress of the answer to the page that was accepted.
    pub(super) fn note_page(
        &mut self,
        page: &InventoryPage,
        answer: &PageAnswer,
        has_repairs: bool,
    ) {
        let Some(known) = self.open.get_mut(&page.session.node) else {
            return;
        };
        known.has_repairs |= has_repairs;
        let obsolete = answer.obsolete.iter().map(|chunk| chunk.stripe);
        known.obsolete.extend(obsolete);
        match &page.scope {
            Scope::Stripes(stripes) => stripes.iter().for_each(|stripe| {
                known.changed.remove(stripe);
            }),
            Scope::Range { .. } => {
                known.told.upto = answer.upto;
                known.told.is_all = answer.upto.is_none();
                known.told.digest.add(&page.chunks);
                known.told.unknown_count += answer.unknown.len() as u64;
            }
        }
    }

    /// Notes a change of a stripe on which answers to these nodes depend. The caller holds the lock of
    /// joins from before the change until after this.
    pub(super) fn note_change(&mut self, nodes: &[NodeId], stripe: StripeId) {
        for node in nodes {
            let Some(known) = self.open.get_mut(node) else {
                continue;
            };
            if known.told.has(stripe) {
                known.changed.insert(stripe);
            }
            if known.changed.len() > CHANGED_COUNT_MAX {
                self.open.remove(node);
                self.note_turn(*node);
            }
        }
    }

    /// Notes that a stripe is garbage: nodes that were told to keep a chunk of it report it again. The caller
    /// holds the lock of joins.
    pub(super) fn note_garbage(&mut self, nodes: &[NodeId], stripe: StripeId) {
        let is_told = |node: &NodeId| {
            let known = self.open.get(node);
            known.is_none_or(|known| known.obsolete.contains(&stripe))
        };
        let others: Vec<NodeId> = nodes
            .iter()
            .copied()
            .filter(|node| !is_told(node))
            .collect();
        self.note_change(&others, stripe);
    }

    /// At most `limit` stripes that have changed since they were reported. None when the session is void:
    /// it was dropped, its answers do not match the node's report, or the node has to wait for permission.
    pub(super) fn changed(
        &mut self,
        session: JoinSession,
        digest: InventoryDigest,
        limit: usize,
        now_ms: u64,
    ) -> Option<Vec<StripeId>> {
        let known = self.hear(session, now_ms)?;
        let is_whole = known.told.is_all && known.told.digest == digest && known.may_set_aside();
        is_whole.then(|| known.changed.iter().copied().take(limit).collect())
    }

    /// Whether the node may set unknown chunks aside. If it has to wait: how many chunks it has, and
    /// whether that is news. None when the session has ended.
    pub(super) fn may_set_aside(
        &mut self,
        session: JoinSession,
        now_ms: u64,
    ) -> Option<Result<(), (u64, bool)>> {
        let known = self.hear(session, now_ms)?;
        if known.may_set_aside() {
            known.is_held = false;
            return Some(Ok(()));
        }
        let is_news = !known.is_held;
        known.is_held = true;
        Some(Err((known.told.unknown_count, is_news)))
    }

    /// The operator's permission for a node that waits to join. Returns whether it waits.
    pub(super) fn accept(&mut self, node: NodeId) -> bool {
        let held = self.open.get_mut(&node).filter(|session| session.is_held);
        held.map(|session| session.accepted_count = session.told.unknown_count)
            .is_some()
    }

    /// Ends a session. Returns whether chunks need repair.
    pub(super) fn end(&mut self, node: NodeId) -> bool {
        let Some(ended) = self.open.remove(&node) else {
            return false;
        };
        self.note_turn(node);
        let number = ended.number;
        let incarnation = ended.beginning.start.number;
        self.members
            .insert(node, (JoinSession { node, number }, incarnation));
        ended.has_repairs
    }

    /// The incarnation that is a member since this session, if none has begun to join since.
    pub(super) fn incarnation_since(&self, session: JoinSession) -> Option<u64> {
        let member = self.members.get(&session.node);
        member.and_then(|&(since, incarnation)| (since == session).then_some(incarnation))
    }

    /// The joining node, if this start of it is joining.
    pub(super) fn node_of(&self, start: Start) -> Option<NodeId> {
        let mut open = self.open.iter();
        let found = open.find(|(_, session)| session.beginning.start == start);
        found.map(|(&node, _)| node)
    }

    /// Whether a node is joining now.
    pub(super) fn is_joining(&self, node: NodeId) -> bool {
        self.open.contains_key(&node)
    }

    /// Drops the sessions of nodes that were silent for too long: those of which chunks are to be repaired.
    pub(super) fn drop_silent(&mut self, now_ms: u64) -> Vec<NodeId> {
        let is_silent = |session: &Session| now_ms.saturating_sub(session.heard_ms) >= SILENCE_MS;
        let dropped: Vec<(NodeId, Session)> = self
            .open
            .extract_if(.., |_, session| is_silent(session))
            .collect();
        for (node, _) in &dropped {
            self.note_turn(*node);
        }
        let with_repairs = dropped.iter().filter(|(_, session)| session.has_repairs);
        with_repairs.map(|(node, _)| *node).collect()
    }

    /// Notes that a session of this node has begun, ended, been dropped or told a page again.
    fn note_turn(&mut self, node: NodeId) {
        self.turn_count += 1;
        self.turns.insert(node, self.turn_count);
    }

    /// Returns the number of sessions that have begun, ended, been dropped or told a page again.
    pub(super) fn turn_count(&self) -> u64 {
        self.turn_count
    }

    /// Whether the node may have been told of a change of this stripe that was noted when `since` sessions
    /// had begun, ended or been dropped, or later. The caller holds the lock of joins.
    pub(super) fn may_have_told(&self, node: NodeId, stripe: StripeId, since: u64) -> bool {
        if self.turns.get(&node).is_some_and(|&turn| turn > since) {
            return true;
        }
        let open = self.open.get(&node);
        open.is_some_and(|open| open.told.has(stripe) && !open.changed.contains(&stripe))
    }

    /// The progress of the joins.
    pub(super) fn progress(&self) -> BTreeMap<NodeId, JoinProgress> {
        let progress = self.open.iter().map(|(&node, session)| {
            let progress = JoinProgress {
                told_chunk_count: session.told.digest.chunk_count,
                chunk_count: session.beginning.chunk_count,
                waits_with_unknown: session.is_held.then_some(session.told.unknown_count),
            };
            (node, progress)
        });
        progress.collect()
    }
}
