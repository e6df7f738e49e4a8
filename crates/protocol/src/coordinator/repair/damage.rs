//! Damage: chunks that a scrub or a read finds corrupt are marked stale and repaired.

use super::Repair;
use crate::coordinator::core::{Answer, Denied, lock};
use crate::event::Event;
use crate::message::{CoordinatorReply, Damage, ScrubReport, Scrubbed, ask};
use crate::ports::Ask as _;
use futures::future::join_all;
use gabion_layout::{ChunkId, NodeId, StripeRecord};
use gabion_meta::{KeyValue, Meta, MetaError, StripeStatus};
use std::sync::Arc;

impl<K: KeyValue + Send + Sync + 'static> Repair<K> {
    /// Verifies all bytes of every node that is up, and repairs the damaged chunks.
    pub(in crate::coordinator) async fn scrub_all(self: &Arc<Self>) -> Answer {
        let fleet = self.nodes.fleet();
        let scrubs = fleet.nodes().iter().map(|status| {
            let node = status.node;
            let is_up = fleet.is_up(node);
            let request = ask::Scrub { chunks: Vec::new() };
            async move {
                let deadline_ms = self.core.options.scrub_deadline_ms;
                let reply = if is_up {
                    self.core
                        .ports
                        .ask_node(node, request, deadline_ms)
                        .await
                        .ok()
                } else {
                    None
                };
                (node, reply)
            }
        });
        let (mut chunk_count, mut bytes) = (0, 0);
        let (mut damage, mut unreachable) = (Vec::new(), Vec::new());
        for (node, reply) in join_all(scrubs).await {
            if let Some(Scrubbed {
                chunk_count: chunks,
                bytes: verified,
                damage: found,
            }) = reply
            {
                chunk_count += chunks;
                bytes += verified;
                self.mark_scrubbed(node, &found).await?;
                damage.extend(found);
            } else {
                unreachable.push(node);
            }
        }
        Ok(CoordinatorReply::Scrubbed(ScrubReport {
            chunk_count,
            bytes,
            damage,
            unreachable,
        }))
    }

    /// Marks the damaged chunks stale that are `node`'s own. Others are leftovers.
    async fn mark_scrubbed(self: &Arc<Self>, node: NodeId, found: &[Damage]) -> Result<(), Denied> {
        let chunks: Vec<_> = found.iter().map(|damage| damage.chunk).collect();
        let not_its_own = move |meta: &Meta<K>| {
            let mut left = Vec::new();
            for chunk in chunks {
                match meta.stripe(chunk.stripe) {
                    Ok(stripe) if stripe.node_of(chunk.index) == Some(node) => {}
                    Ok(_) => left.push(chunk),
                    // No put will make it a node's own: the run of an aborted put may have ended after the
                    // order to remove its chunks.
                    Err(MetaError::UnknownStripe(_))
                        if meta.stripe_status(chunk.stripe)? == StripeStatus::Unknown =>
                    {
                        left.push(chunk);
                    }
                    Err(MetaError::UnknownStripe(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(left)
        };
        for chunk in self.core.with_meta(not_its_own).await? {
            self.leftovers.add(node, chunk);
        }
        Ok(self.mark_damaged(node, found.to_vec()).await?)
    }

    /// Notes damage that a node has reported.
    pub(in crate::coordinator) async fn report_damage(
        self: &Arc<Self>,
        report: ask::ReportDamage,
    ) -> Answer {
        self.mark_damaged(report.node, report.damage).await?;
        Ok(CoordinatorReply::Done)
    }

    /// Marks chunks stale that their node has found damaged, and repairs them. A report about a chunk that
    /// has moved or was rebuilt since is ignored.
    pub(in crate::coordinator) async fn mark_damaged(
        self: &Arc<Self>,
        node: NodeId,
        damage: Vec<Damage>,
    ) -> Result<(), MetaError> {
        let mark = move |meta: &Meta<K>| {
            let (mut records, mut new_count) = (Vec::<StripeRecord>::new(), 0);
            for found in damage {
                let was_lost = is_known_lost(meta, found.chunk)?;
                let marked = meta.mark_damaged(found.chunk, node, found.generation)?;
                new_count += u64::from(marked.is_some() && !was_lost);
                records.extend(marked);
            }
            Ok((records, new_count))
        };
        let (records, new_count) = self.core.with_meta(mark).await?;
        if new_count > 0 {
            *lock(&self.damaged).entry(node).or_default() += new_count;
            let event = Event::Damaged(node, new_count);
            self.core.ports.note_event(&event);
        }
        self.backlog.add(records).await
    }
}

/// Whether a chunk counts as lost already: a node reports the same damage again until the chunk is repaired.
fn is_known_lost<K: KeyValue>(meta: &Meta<K>, chunk: ChunkId) -> Result<bool, MetaError> {
    match meta.stripe(chunk.stripe) {
        Ok(stripe) => {
            let stale = stripe.staleness(chunk.index);
            Ok(stale.is_some_and(|stale| stale.missed_after.is_none()))
        }
        Err(MetaError::UnknownStripe(_)) => Ok(true),
        Err(error) => Err(error),
    }
}
