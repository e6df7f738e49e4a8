//! Leases of stripes for primaries, and the notes that primaries make under them.

use super::Leases;
use crate::coordinator::core::{Answer, Rejection};
use crate::message::{Cause, Denial, JoinCount, Liveness, StripeLease, ask};
use crate::primary::failed_nodes;
use gabion_layout::{ChunkIndex, Epoch, NodeId, Sequence, StaleChunk, StripeId};
use gabion_meta::{Exclusion, FencingToken, Holder, KeyValue, Meta, MetaError, PutId};
use std::sync::Arc;

impl<K: KeyValue + Send + Sync + 'static> Leases<K> {
    /// Makes a node the primary of a stripe, unless another node is.
    pub(in crate::coordinator) async fn acquire(
        self: &Arc<Self>,
        asked: ask::Acquire,
    ) -> Answer<Result<StripeLease, NodeId>> {
        let ask::Acquire {
            stripe,
            node,
            incarnation,
            file,
        } = asked;
        let membership = self.nodes.membership();
        let joins = self.nodes.join_count();
        let now_ms = self.core.ports.now_ms();
        let this = Arc::clone(self);
        let acquire = move |meta: &Meta<K>| {
            let holder = Holder::Node { node, incarnation };
            let lease = match file {
                None => meta.acquire(stripe, holder, &membership, now_ms)?,
                Some(file) => meta.acquire_to_write((file, stripe), holder, &membership, now_ms)?,
            };
            // Both are read after the lease is granted: no repair changes the layout from then on. The
            // nodes are read first: the record then has the stale chunks of every node that has returned.
            let nodes = this.nodes.statuses();
            let record = meta.stripe(stripe)?;
            let pool = this.pools.facts(meta, record.pool)?.record.clone();
            Ok(StripeLease {
                epoch: lease.epoch,
                stripe: record,
                pool,
                nodes,
                former: meta.former_holders(stripe)?,
                appends: meta.appends(stripe)?,
                joins,
                token: token_of(meta, file, stripe)?,
            })
        };
        match self.core.with_meta(acquire).await {
            Ok(lease) => Ok(Ok(lease)),
            Err(MetaError::Held {
                holder: Holder::Node { node, .. },
                ..
            }) => Ok(Err(node)),
            Err(MetaError::Held {
                holder: Holder::Coordinator { .. },
                ..
            }) => Err(Rejection::busy(format!(
                "{stripe} is being repaired or rewritten; try again"
            ))),
            // The missing stripe may have been replaced: a client with an old layout looks the file up
            // again and gets the new stripes.
            Err(error @ (MetaError::NodeNotLive(_) | MetaError::UnknownStripe(_))) => {
                Err(Rejection::busy(error))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Notes durably whether a stripe is in an append phase, for its primary.
    pub(in crate::coordinator) async fn note_phase(
        self: &Arc<Self>,
        told: ask::NotePhase,
    ) -> Answer<()> {
        let note =
            move |meta: &Meta<K>| meta.note_phase(told.stripe, told.epoch, told.mark, told.appends);
        Ok(self.core.with_meta(note).await?)
    }

    /// Notes durably that updates of a term leave out chunks which are lost. As with
    /// [`Leases::note_settlement`], a node that returns finds either that its chunk is stale, or that the
    /// chunk counts. A node that may know the term from a join is left out by the next term: in this one it
    /// would count as a member, and a quorum read would assume that its chunk has all updates.
    pub(in crate::coordinator) async fn note_degraded(
        self: &Arc<Self>,
        (stripe, epoch, since): (StripeId, Epoch, JoinCount),
        chunks: Vec<(ChunkIndex, Sequence)>,
    ) -> Result<(), Denial> {
        let joins = self.nodes.hold_joins().await;
        let record = self.core.with_meta(move |meta| meta.stripe(stripe)).await?;
        // A node that has returned serves readers, even if its chunk is stale: a settlement has to fence it
        // before an update leaves it out.
        let fleet = self.nodes.fleet();
        let is_failed = |chunk: ChunkIndex| {
            let node = record.node_of(chunk);
            node.is_some_and(|node| fleet.liveness(node) == Liveness::Failed)
        };
        if let Some((returned, _)) = chunks.iter().find(|(chunk, _)| !is_failed(*chunk)) {
            return Err(Denial::new(
                Cause::Stale,
                format!(
                    "{returned} of {stripe} counts again or its node has returned; settle the stripe with it"
                ),
            ));
        }
        let fresh = chunks.iter().filter(|(chunk, _)| !record.is_stale(*chunk));
        let mut nodes = fresh.filter_map(|(chunk, _)| record.node_of(*chunk));
        if let Some(node) = nodes.find(|&node| self.nodes.may_know(node, stripe, since)) {
            return Err(Denial::new(
                Cause::Stale,
                format!(
                    "{node} has joined since {epoch} of {stripe} began; settle the stripe without it"
                ),
            ));
        }
        let stale = chunks.into_iter().map(|(chunk, last)| StaleChunk {
            chunk,
            missed_after: Some(last),
        });
        let stale: Vec<StaleChunk> = stale.collect();
        let record = self
            .core
            .with_meta(move |meta| meta.note_degraded(stripe, epoch, &stale))
            .await?;
        self.nodes.note_change(&record.nodes, stripe);
        drop(joins);
        Ok(self.backlog.add(vec![record]).await?)
    }

    /// Makes a settlement durable. No join ends during the note: a returning node finds either that it was
    /// left out, or that it is asked.
    pub(in crate::coordinator) async fn note_settlement(
        self: &Arc<Self>,
        stripe: StripeId,
        exclusion: Exclusion,
    ) -> Result<(), Denial> {
        let joins = self.nodes.hold_joins().await;
        let failed = failed_nodes(&self.nodes.statuses());
        if let Some(returned) = exclusion.nodes.iter().find(|node| !failed.contains(node)) {
            return Err(Denial::new(
                Cause::Stale,
                format!("{returned} has returned; settle {stripe} with it"),
            ));
        }
        let left_out = exclusion.nodes.clone();
        let note = move |meta: &Meta<K>| meta.note_settlement(stripe, &exclusion);
        self.core.with_meta(note).await?;
        self.nodes.note_change(&left_out, stripe);
        drop(joins);
        Ok(())
    }
}

/// The fencing token of the file that a primary names, if the file's writers update the stripe in place.
fn token_of<K: KeyValue>(
    meta: &Meta<K>,
    file: Option<PutId>,
    stripe: StripeId,
) -> Result<Option<FencingToken>, MetaError> {
    let Some(file) = file else {
        return Ok(None);
    };
    match meta.token_to_update(file, stripe) {
        Ok(token) => Ok(Some(token)),
        // The primary asks before it makes an update, and is told so.
        Err(MetaError::Snapshot(_) | MetaError::FileGone(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
