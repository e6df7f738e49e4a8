//! Admission of a node: a session in pages, and its end, at which the node becomes a member.

use super::Members;
use super::inventory::{Inventory, Request, decide};
use super::sessions::Beginning;
use crate::coordinator::core::{Answer, Rejection, lock};
use crate::event::Event;
use crate::message::{
    Applicant, Cause, Denial, InventoryPage, JoinBegun, JoinEnd, JoinSession, Joined,
    PAGE_CHUNK_COUNT_MAX, PageAnswer, Scope, ask,
};
use gabion_layout::{NodeId, Start, StripeId};
use gabion_meta::{KeyValue, Meta};
use std::sync::Arc;

/// Most changed stripes that a node is asked about again in one reply.
const CHANGED_COUNT: usize = 1024;

impl<K: KeyValue + Send + Sync + 'static> Members<K> {
    /// Begins a node's session. It has no effect before its end.
    pub(in crate::coordinator) async fn begin_join(
        self: &Arc<Self>,
        ask::BeginJoin { node, chunk_count }: ask::BeginJoin,
    ) -> Answer<Result<JoinBegun, u64>> {
        let mut applicant = *node;
        self.check_origin(&applicant, chunk_count)?;
        // Otherwise the node would obey an old copy of the metadata.
        self.most_heard().await.map_err(Rejection::busy)?;
        self.core.check_whole()?;
        // Before the eviction: a process with the evicted run's number answers no request before it has joined, so
        // no other node could reach it and the eviction would not end.
        if let Some(number) = self.superseding(&applicant).await? {
            return Ok(Err(number));
        }
        self.refuse_evicted(&applicant)?;
        self.refuse_copy(&applicant).await?;
        let shows_less = self.positions.shows_less(&applicant).await?;
        let position = applicant.position;
        let mut joins = self.nodes.hold_joins().await;
        let (start, earlier) = (applicant.start, applicant.earlier.clone());
        // A new node that asks twice, or whose message arrives twice, is one node.
        applicant.node = applicant.node.or(lock(&self.nodes.sessions).node_of(start));
        let node = self.enter_member(applicant).await?;
        self.starts.note_word(node);
        // From here on, repairs that were under way to this node are void.
        *joins.entry(node).or_default() += 1;
        let record = self.core.with_meta(move |meta| meta.node(node)).await?;
        let is_next = |admitted| admitted == start || earlier.contains(&admitted);
        let went_back = shows_less || record.admitted.is_some_and(|admitted| !is_next(admitted));
        if went_back {
            // Puts that are committed before its report are in the report.
            let lose = move |meta: &Meta<K>| meta.lose_pending(node);
            self.core.with_meta(lose).await?;
        }
        let beginning = Beginning {
            start,
            position,
            went_back,
            chunk_count,
            leftovers: self.leftovers.of(node),
        };
        let now_ms = self.core.ports.now_ms();
        let session = lock(&self.nodes.sessions).begin(node, self.starts.own(), beginning, now_ms);
        lock(&self.nodes.roster).await_return(node, now_ms);
        Ok(Ok(JoinBegun {
            session,
            cluster: self.core.meta.cluster(),
            coordinator: self.origin(),
        }))
    }

    /// The number of a run of the node that has been a member, if the applicant is an earlier run or another one of
    /// that number. Then its directory is an earlier copy, or another process runs on a copy of it. Holders of leases
    /// are known by the number, so none may be used twice.
    async fn superseding(&self, applicant: &Applicant) -> Result<Option<u64>, Denial> {
        let Some(node) = applicant.node else {
            return Ok(None);
        };
        let find = move |meta: &Meta<K>| Ok(meta.node(node)?.admitted);
        let (start, admitted) = (applicant.start, self.core.with_meta(find).await?);
        let is_other = |admitted: &Start| start.number <= admitted.number && start != *admitted;
        let admitted = admitted.filter(is_other).map(|admitted| admitted.number);
        let latest = lock(&self.nodes.roster).latest_run(node);
        Ok(latest.filter(|&latest| start.number < latest).max(admitted))
    }

    /// Answers a page of a node's inventory. The answer's statements about updates and chunks are durable.
    pub(in crate::coordinator) async fn tell_chunks(
        self: &Arc<Self>,
        page: InventoryPage,
    ) -> Answer<PageAnswer> {
        let _joins = self.nodes.hold_joins().await;
        self.answer_page(page).await
    }

    /// Answers a page under the lock of joins.
    async fn answer_page(self: &Arc<Self>, mut page: InventoryPage) -> Answer<PageAnswer> {
        check_size(&page)?;
        let (node, now_ms) = (page.session.node, self.core.ports.now_ms());
        let Some(beginning) = lock(&self.nodes.sessions).take_up(&page, now_ms) else {
            return Err(void());
        };
        lock(&self.nodes.roster).await_return(node, now_ms);
        let went_back = beginning.went_back;
        let (pools, nodes) = (Arc::clone(&self.pools), Arc::clone(&self.nodes));
        let work = move |meta: &Meta<K>| {
            let request = Request {
                node,
                went_back,
                scope: &page.scope,
                chunks: &page.chunks,
            };
            let inventory = decide(&pools, &nodes, meta, &request)?;
            Ok((page, inventory))
        };
        let inventory;
        (page, inventory) = self.core.with_meta(work).await?;
        let Inventory {
            answer,
            answered_count,
            has_repairs,
        } = inventory;
        page.chunks.truncate(answered_count);
        lock(&self.nodes.sessions).note_page(&page, &answer, has_repairs);
        Ok(answer)
    }

    /// Whether a node may set unknown chunks aside.
    pub(in crate::coordinator) fn set_aside(
        &self,
        session: JoinSession,
    ) -> Answer<Result<(), String>> {
        let (node, now_ms) = (session.node, self.core.ports.now_ms());
        let permission = lock(&self.nodes.sessions).may_set_aside(session, now_ms);
        if permission.is_some() {
            lock(&self.nodes.roster).await_return(node, now_ms);
        }
        match permission {
            None => Err(void()),
            Some(Ok(())) => Ok(Ok(())),
            Some(Err((unknown_count, is_news))) => {
                let held = Event::JoinHeld(node, unknown_count);
                if is_news {
                    self.core.ports.note_event(&held);
                }
                Ok(Err(held.to_string()))
            }
        }
    }

    /// The operator's permission for a node to set unknown chunks aside.
    pub(in crate::coordinator) fn accept(&self, node: NodeId) -> Answer<()> {
        if lock(&self.nodes.sessions).accept(node) {
            return Ok(());
        }
        Err(format!("{node} does not wait for permission to join").into())
    }

    /// Makes a node a member after it has reported all chunks, unless a stripe has changed since. Its
    /// chunks count from then on, except those that it has lost or that missed an update; these are durably
    /// stale before they could count.
    pub(in crate::coordinator) async fn end_join(
        self: &Arc<Self>,
        end: JoinEnd,
    ) -> Answer<Result<Joined, (PageAnswer, Vec<StripeId>)>> {
        let session = end.session;
        let node = session.node;
        let mut joins = self.nodes.hold_joins().await;
        if end.changed.session != session || !matches!(end.changed.scope, Scope::Stripes(_)) {
            let sentence = format!("{node} ended its join with an invalid result");
            return Err(Denial::new(Cause::Stale, sentence).into());
        }
        let went_by = end.changed.clone();
        let answer = self.answer_page(end.changed).await?;
        let now_ms = self.core.ports.now_ms();
        let (beginning, changed) = {
            let mut sessions = lock(&self.nodes.sessions);
            let beginning = sessions.take_up(&went_by, now_ms);
            let changed = sessions.changed(session, end.digest, CHANGED_COUNT, now_ms);
            (beginning, changed)
        };
        let (Some(beginning), Some(changed)) = (beginning, changed) else {
            return Err(void());
        };
        if !changed.is_empty() {
            return Ok(Err((answer, changed)));
        }
        let (start, position) = (beginning.start, beginning.position);
        // Repairs to this node that began after its session are void, too.
        *joins.entry(node).or_default() += 1;
        if !lock(&self.nodes.roster).admit(node, start.number, now_ms) {
            let sentence = format!("a later run of {node} has already joined; stop this one");
            return Err(Denial::new(Cause::Stale, sentence).into());
        }
        lock(&self.nodes.suspicions).hear(node, start.number);
        let record = self
            .core
            .with_meta(move |meta| meta.declare_returned(node, start, position))
            .await?;
        lock(&self.nodes.roster).learn(record);
        self.positions
            .note_arrival(node, (start.number, position), beginning.went_back);
        for chunk in beginning.leftovers {
            self.leftovers.remove(node, chunk);
        }
        let has_repairs = lock(&self.nodes.sessions).end(node);
        drop(joins);
        self.core.ports.note_event(&Event::Joined(node));
        let nodes = self.nodes.statuses();
        self.core.ports.learn_nodes(&nodes);
        if has_repairs {
            self.backlog.add_node_later(node);
        }
        self.backlog.retry_all();
        self.leftovers.wake();
        Ok(Ok(Joined {
            node,
            lease_ms: self.core.options.timing.lease_ms,
            heartbeat_ms: self.core.options.heartbeat_ms,
            answer,
            nodes,
            keys: self.tickets.told(),
        }))
    }
}

/// Refuses a page with more chunks than the limit.
fn check_size(page: &InventoryPage) -> Result<(), Denial> {
    let stripe_count = match &page.scope {
        Scope::Range { .. } => 0,
        Scope::Stripes(stripes) => stripes.len(),
    };
    if page.chunks.len() > PAGE_CHUNK_COUNT_MAX || stripe_count > PAGE_CHUNK_COUNT_MAX {
        return Err(Denial::new(
            Cause::Invalid,
            format!(
                "{} reports {} chunks in one page; the limit is {PAGE_CHUNK_COUNT_MAX}",
                page.session.node,
                page.chunks.len()
            ),
        ));
    }
    Ok(())
}

fn void() -> Rejection {
    Rejection::busy("the join has ended or was dropped; start it again")
}
