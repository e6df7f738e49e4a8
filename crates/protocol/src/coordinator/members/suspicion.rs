//! Suspicions: the reaction to a report that a node does not answer.
//!
//! The coordinator checks the node itself. If the node does not answer, it is shown as suspect at once, so
//! that others avoid it; like any other node, it is declared failed when its lease has expired. If a link
//! is cut, the node may answer the coordinator and still be useless. So the coordinator has the other nodes
//! try it, too. If most of them cannot use a node for some seconds, or at least two that reach more nodes
//! than it does, the coordinator *evicts* it: it does not renew the node's lease any more, and that run of
//! the node joins again only when the others reach it again. That takes longer each time, so that a node on
//! a bad link does not join and leave repeatedly. If a single link is broken, one of its two ends is
//! evicted, provided that the link stays broken for longer than the timing options allow and every stripe
//! can be updated without that end.
//!
//! A process that has died is not cut off: a return of the link would not help. So a node is evicted only
//! if its heartbeats arrive. A new start of an evicted node is admitted, since it may listen at another
//! address and answers no requests before it has joined; the checks then begin anew.

use super::Members;
use super::suspicions::{Look, Verdict};
use crate::coordinator::core::{Answer, PAGE, Rejection, lock};
use crate::event::Event;
use crate::message::{Applicant, Liveness, Refusal, ask};
use crate::ports::{Ask as _, NodeError, REACH_DEADLINE_MS, reach};
use futures::FutureExt;
use futures::future::join_all;
use gabion_layout::NodeId;
use gabion_meta::{KeyValue, Meta, MetaError};
use std::sync::Arc;

impl<K: KeyValue + Send + Sync + 'static> Members<K> {
    /// Notes a report that a node does not answer, and begins to check it.
    pub(in crate::coordinator) fn suspect(self: &Arc<Self>, node: NodeId) {
        let is_member = {
            let roster = lock(&self.nodes.roster);
            !roster.failed().contains(&node) && roster.is_known(node)
        };
        if is_member && lock(&self.nodes.suspicions).watch(node) {
            let watch = Arc::clone(self).watch_suspect(node);
            self.core.ports.spawn(watch.boxed());
        }
    }

    /// Checks a node until no suspicion is left, or until it is declared failed and not evicted.
    async fn watch_suspect(self: Arc<Self>, node: NodeId) {
        while !self.core.is_broken() {
            let began_ms = self.core.ports.now_ms();
            let look = self.inspect(node).await;
            let now_ms = self.core.ports.now_ms();
            let verdict = lock(&self.nodes.suspicions).note(node, &look, now_ms);
            match verdict {
                Verdict::Cleared => return,
                Verdict::Evict => self.evict_cut_off(node, now_ms).await,
                Verdict::EvictForLink(other) => self.evict_for_link(node, other, now_ms).await,
                Verdict::LinkIsBroken(other) => {
                    self.suspect(other);
                }
                Verdict::Open => {}
            }
            let is_failed = lock(&self.nodes.roster).failed().contains(&node);
            if is_failed && !lock(&self.nodes.suspicions).is_evicted(node) {
                lock(&self.nodes.suspicions).drop_watch(node);
                return;
            }
            let after_ms =
                lock(&self.nodes.suspicions).look_after_ms(node, now_ms.saturating_sub(began_ms));
            self.core.ports.sleep_ms(after_ms).await;
        }
    }

    async fn inspect(&self, node: NodeId) -> Look {
        let own = reach(&*self.core.ports, node);
        let mut others = self.nodes.fleet().with(Liveness::Up);
        others.retain(|&other| other != node);
        let asked = others.iter().map(|&other| {
            let request = ask::Reach { node };
            // The other node needs this time to detect it, and some more to report it.
            self.core
                .ports
                .ask_node(other, request, 2 * REACH_DEADLINE_MS)
        });
        let (own, said) = futures::join!(own, join_all(asked));
        let cannot = others.iter().zip(&said);
        // A node that refuses for another reason, since it is no member any more or its disk hangs, has not tried.
        let cannot = cannot
            .filter(|(_, reply)| matches!(reply, Err(NodeError::Refused(Refusal::Unavailable(_)))));
        Look {
            answers: own.is_ok(),
            complainants: cannot.map(|(&other, _)| other).collect(),
            other_count: others.len(),
        }
    }

    async fn evict_cut_off(self: &Arc<Self>, node: NodeId, now_ms: u64) {
        if !self.can_spare(node).await.unwrap_or(false) {
            self.tell_needed(node);
        } else if lock(&self.nodes.suspicions).evict(node, None, now_ms) {
            let error = format!("other nodes cannot reach {node}, so it is evicted until they can");
            self.note_eviction(node, &Event::Evicted(node), error);
        }
    }

    /// Makes known, once, that a node would be evicted if the cluster could spare it.
    fn tell_needed(&self, node: NodeId) {
        if lock(&self.nodes.suspicions).note_needed(node) {
            let event = Event::NotSpared(node);
            self.core.ports.note_event(&event);
            self.core.note_error(event.to_string());
        }
    }

    /// Makes an eviction known: to the operator, and to the node itself, whose lease runs until it hears that.
    fn note_eviction(&self, node: NodeId, event: &Event, error: String) {
        self.hasten_heartbeats(vec![node]);
        self.core.ports.note_event(event);
        self.core.note_error(error);
    }

    /// Evicts a node because of one broken link. Until then only stripes with chunks on both of its ends
    /// wait, so the eviction must not make a stripe read-only.
    async fn evict_for_link(self: &Arc<Self>, node: NodeId, other: NodeId, now_ms: u64) {
        let is_spared = self.can_spare(node).await.unwrap_or(false)
            && self.can_write_without(node).await.unwrap_or(false);
        let mut suspicions = lock(&self.nodes.suspicions);
        if !is_spared {
            suspicions.bear_link(node, now_ms);
            drop(suspicions);
            self.tell_needed(node);
        } else if suspicions.evict(node, Some(other), now_ms) {
            drop(suspicions);
            let event = Event::EvictedForLink(node, other);
            self.note_eviction(node, &event, event.to_string());
        }
    }

    /// Whether every stripe with a chunk on a node takes updates without it.
    async fn can_write_without(self: &Arc<Self>, node: NodeId) -> Result<bool, MetaError> {
        let (fleet, pools) = (self.nodes.fleet(), Arc::clone(&self.pools));
        let check = move |meta: &Meta<K>| {
            let mut after = None;
            loop {
                let page = meta.stripes_on(node, after, PAGE)?;
                let Some(last) = page.last() else {
                    return Ok(true);
                };
                after = Some(last.id);
                for stripe in &page {
                    let mut without = fleet.unreadable(stripe);
                    without.extend(stripe.chunk_on(node));
                    without.sort_unstable();
                    without.dedup();
                    // Updates need a stripe that survives one more loss.
                    if pools.failures_left(meta, stripe.pool, &without)? < 1 {
                        return Ok(false);
                    }
                }
            }
        };
        self.core.with_meta(check).await
    }

    /// Whether all pools survive the loss of a node beside all present losses.
    async fn can_spare(self: &Arc<Self>, node: NodeId) -> Result<bool, MetaError> {
        let mut lost_count = lock(&self.nodes.suspicions).evicted_count() + 1;
        lost_count += {
            let (roster, suspicions) = (lock(&self.nodes.roster), lock(&self.nodes.suspicions));
            let failed = roster.failed().into_iter();
            // A drained node has no chunks to lose.
            failed
                .filter(|&failed| failed != node && !suspicions.is_evicted(failed))
                .filter(|&failed| !roster.is_drained(failed))
                .count()
        };
        let pools = Arc::clone(&self.pools);
        self.core
            .with_meta(move |meta: &Meta<K>| {
                for pool in meta.pools()? {
                    let left = pools.failures_left(meta, pool.id, &[])?;
                    if usize::try_from(left).unwrap_or(0) < lost_count {
                        return Ok(false);
                    }
                }
                Ok(true)
            })
            .await
    }

    /// Refuses for now a run of a node that asks to join while it is evicted.
    pub(super) fn refuse_evicted(&self, applicant: &Applicant) -> Answer<()> {
        let Some(node) = applicant.node else {
            return Ok(());
        };
        let suspicions = lock(&self.nodes.suspicions);
        if !suspicions.is_run_evicted(node, applicant.start.number) {
            return Ok(());
        }
        let words = match suspicions.evicted_for_link(node) {
            Some(other) => format!("{other} cannot reach {node}; it may join when {other} can"),
            None => format!("other nodes cannot reach {node}; it may join when they can"),
        };
        Err(Rejection::busy(words))
    }
}
