//! Leases of stripes for primaries, and what primaries and nodes report about chunks.

use super::{Answer, Coordinator, Denied};
use crate::message::{CoordinatorReply, Damage, StripeLease};
use crate::primary::failed_nodes;
use gabion_layout::{ChunkId, ChunkIndex, Epoch, NodeId, StripeId, StripeRecord};
use gabion_meta::{Exclusion, Holder, KeyValue, Meta, MetaError};
use std::sync::Arc;

impl<K: KeyValue + Send + Sync + 'static> Coordinator<K> {
    /// Makes a node the primary of a stripe, unless another is.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        stripe: StripeId,
        node: NodeId,
        incarnation: u64,
        renounced: Option<Epoch>,
    ) -> Answer {
        let membership = super::lock(&self.roster).membership();
        let now_ms = self.ports.now_ms();
        let this = Arc::clone(self);
        let acquire = move |meta: &Meta<K>| {
            if let Some(epoch) = renounced {
                release_of(meta, stripe, node, epoch)?;
            }
            let holder = Holder::Node { node, incarnation };
            let lease = meta.acquire(stripe, holder, &membership, now_ms)?;
            // Read after the lease is granted: no repair changes the layout from then on.
            let record = meta.stripe(stripe)?;
            let pool = this.pool_facts(meta, record.pool)?.record.clone();
            Ok((lease.epoch, record, pool))
        };
        match self.with_meta(acquire).await {
            Ok((epoch, stripe, pool)) => Ok(CoordinatorReply::Lease(StripeLease {
                epoch,
                stripe,
                pool,
                nodes: self.statuses(),
            })),
            Err(MetaError::Held {
                holder: Holder::Node { node, .. },
                ..
            }) => Ok(CoordinatorReply::HeldBy(node)),
            Err(MetaError::Held {
                holder: Holder::Coordinator { .. },
                ..
            }) => Ok(CoordinatorReply::Busy(format!(
                "{stripe} is being repaired or rewritten; try again"
            ))),
            // A stripe that is gone may have been replaced: whoever sent the node here has to look
            // the file up again and will not find this stripe in it.
            Err(error @ (MetaError::NodeNotLive(_) | MetaError::UnknownStripe(_))) => {
                Ok(CoordinatorReply::Busy(error.to_string()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Notes durably whom a settlement leaves out and how it ends, as the stripe's primary says.
    pub(super) async fn settling(
        self: &Arc<Self>,
        stripe: StripeId,
        exclusion: Exclusion,
        stale: Vec<ChunkIndex>,
    ) -> Answer {
        let held = move |meta: &Meta<K>| Ok(meta.lease(stripe)?.map(|lease| lease.epoch));
        let epoch = exclusion.epoch;
        if self.with_meta(held).await? != Some(epoch) {
            return Err(Denied(format!(
                "{epoch} of {stripe} is over; a newer primary has taken over"
            )));
        }
        let record = self.note_settlement(stripe, exclusion, stale).await?;
        self.add_repairs(vec![record]).await?;
        Ok(CoordinatorReply::Done)
    }

    /// Makes durable what a settlement must not forget. It holds joins back meanwhile: a node that
    /// returns finds either that it was left out, or that it is asked.
    pub(super) async fn note_settlement(
        self: &Arc<Self>,
        stripe: StripeId,
        exclusion: Exclusion,
        stale: Vec<ChunkIndex>,
    ) -> Result<StripeRecord, Denied> {
        let joins = self.admission.lock().await;
        let failed = failed_nodes(&self.statuses());
        if let Some(returned) = exclusion.nodes.iter().find(|node| !failed.contains(node)) {
            return Err(Denied(format!(
                "{returned} has returned meanwhile; settle {stripe} with it"
            )));
        }
        let note = move |meta: &Meta<K>| meta.note_settlement(stripe, &exclusion, &stale);
        let record = self.with_meta(note).await?;
        drop(joins);
        Ok(record)
    }

    /// Notes damage. A report about a chunk that has moved meanwhile costs a needless repair and
    /// nothing else, so the reporter is believed; one about a chunk that is gone is passed over.
    pub(super) async fn report_damage(self: &Arc<Self>, damage: Vec<Damage>) -> Answer {
        let chunks = damage.into_iter().map(|damage| damage.chunk).collect();
        self.mark_damaged(chunks).await?;
        Ok(CoordinatorReply::Done)
    }

    /// Marks chunks stale and has them repaired.
    pub(super) async fn mark_damaged(
        self: &Arc<Self>,
        chunks: Vec<ChunkId>,
    ) -> Result<(), MetaError> {
        let mark = move |meta: &Meta<K>| {
            let mut records: Vec<StripeRecord> = Vec::new();
            for chunk in chunks {
                match meta.mark_stale(chunk.stripe, chunk.index) {
                    Ok(record) => records.push(record),
                    Err(MetaError::UnknownStripe(_) | MetaError::UnknownChunk(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(records)
        };
        let records = self.with_meta(mark).await?;
        self.add_repairs(records).await
    }
}

/// Takes a term back that its node has given up, if it is that node's still.
fn release_of<K: KeyValue>(
    meta: &Meta<K>,
    stripe: StripeId,
    node: NodeId,
    epoch: Epoch,
) -> Result<(), MetaError> {
    let of_node = |holder| matches!(holder, Holder::Node { node: holding, .. } if holding == node);
    let lease = meta.lease(stripe)?;
    if lease.is_some_and(|lease| lease.epoch == epoch && of_node(lease.holder)) {
        meta.release(stripe, epoch)?;
    }
    Ok(())
}
