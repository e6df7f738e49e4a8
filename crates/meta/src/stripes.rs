//! Stripes of files: the places of their chunks, which chunks are stale, and the index by node.

use crate::error::MetaError;
use crate::former_holders;
use crate::generations::{check_generation, raise_generation};
use crate::kv::{KeyValue, WriteTxn};
use crate::leases::check_term;
use crate::meta::Meta;
use crate::node_rows::{usable_node, welcoming_node};
use crate::records::StripeStatus;
use crate::schema::{Counter, GARBAGE, PENDING, REMADE, STRIPES, STRIPES_ON};
use crate::stripe_rows::{live_stripe, stripe_row};
use gabion_layout::{
    ChunkId, ChunkIndex, Epoch, Generation, NodeId, StaleChunk, StripeId, StripeRecord,
};

impl<K: KeyValue> Meta<K> {
    /// The record of a file's stripe.
    ///
    /// # Errors
    /// [`MetaError::UnknownStripe`], also for stripes of open puts and for garbage.
    pub fn stripe(&self, id: StripeId) -> Result<StripeRecord, MetaError> {
        self.store.read(|txn| live_stripe(txn, id))
    }

    /// The last record of an ended stripe, while its chunks wait for removal. Chunks whose nodes a
    /// settlement has left out also count as stale, unless they are known to have missed nothing.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn ended_stripe(&self, id: StripeId) -> Result<Option<StripeRecord>, MetaError> {
        let row = self.store.read(|txn| GARBAGE.get(txn, &id))?;
        row.map(|stripe| stripe_row(&GARBAGE, (id, stripe)))
            .transpose()
    }

    /// The current status of a stripe id.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn stripe_status(&self, id: StripeId) -> Result<StripeStatus, MetaError> {
        self.store.read(|txn| {
            let tables = [
                (&STRIPES, StripeStatus::Live),
                (&PENDING, StripeStatus::Pending),
                (&GARBAGE, StripeStatus::Garbage),
            ];
            for (table, status) in tables {
                if table.get(txn, &id)?.is_some() {
                    return Ok(status);
                }
            }
            Ok(StripeStatus::Unknown)
        })
    }

    /// The number of stripes of files.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn stripe_count(&self) -> Result<u64, MetaError> {
        self.store.read(|txn| Counter::StripeCount.value(txn))
    }

    /// At most `limit` stripes of files, by id. For the next page, pass the last id as `after`.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn stripes(
        &self,
        after: Option<StripeId>,
        limit: usize,
    ) -> Result<Vec<StripeRecord>, MetaError> {
        let span = STRIPES.after(after.as_ref());
        let rows = self.store.read(|txn| STRIPES.scan(txn, &span, limit))?;
        rows.into_iter()
            .map(|row| stripe_row(&STRIPES, row))
            .collect()
    }

    /// At most `limit` stripes of files that have a chunk on `node`, by id, in pages as
    /// [`Meta::stripes`].
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn stripes_on(
        &self,
        node: NodeId,
        after: Option<StripeId>,
        limit: usize,
    ) -> Result<Vec<StripeRecord>, MetaError> {
        // Stripe ids end below the largest, so that one past an id is always an id.
        let first = after.map_or(0, |stripe| stripe.0.saturating_add(1));
        let end = (node, StripeId(u64::MAX));
        let span = STRIPES_ON.between(&(node, StripeId(first)), &end);
        self.store.read(|txn| {
            let rows = STRIPES_ON.scan(txn, &span, limit)?;
            let stripe = |(key, ()): ((NodeId, StripeId), ())| {
                live_stripe(txn, key.1).map_err(|error| match error {
                    MetaError::UnknownStripe(_) => {
                        STRIPES_ON.contradiction(&key, "the stripe is missing")
                    }
                    other => other,
                })
            };
            rows.into_iter().map(stripe).collect()
        })
    }

    /// Notes that `chunk` is now whole on `node` and no longer in its former place, and raises the
    /// generation. The node may be the former one: then the chunk was repaired in place. The
    /// planner decides whether the racks still suit the pool: a chunk in a crowded rack is better
    /// than none. `made_in` is the generation in which it was rebuilt; none if it has caught up.
    ///
    /// # Errors
    /// [`MetaError::UnknownStripe`]; [`MetaError::GenerationChanged`] unless the stripe is at
    /// `expected`; [`MetaError::UnknownChunk`]; [`MetaError::NodeInStripe`];
    /// [`MetaError::UnknownNode`]; [`MetaError::NodeFailed`]; [`MetaError::NodeLeaving`].
    pub fn relocate(
        &self,
        id: StripeId,
        expected: Generation,
        chunk: ChunkIndex,
        (node, made_in): (NodeId, Option<Generation>),
    ) -> Result<StripeRecord, MetaError> {
        self.change(|txn| {
            let mut stripe = live_stripe(txn, id)?;
            check_generation(&stripe, expected)?;
            let old = holder_of(&stripe, chunk)?;
            usable_node(txn, node)?;
            let moved = ChunkId {
                stripe: id,
                index: chunk,
            };
            if let Some(made_in) = made_in {
                note_remade(txn, moved, made_in)?;
            }
            if old != node {
                welcoming_node(txn, node)?;
                if stripe.chunk_on(node).is_some() {
                    return Err(MetaError::NodeInStripe { node, stripe: id });
                }
                STRIPES_ON.delete(txn, &(old, id))?;
                STRIPES_ON.put(txn, &(node, id), &())?;
                former_holders::leave_behind(txn, old, moved)?;
                former_holders::forget(txn, node, moved)?;
                stripe.nodes[chunk.at()] = node;
            }
            stripe.stale.retain(|stale| stale.chunk != chunk);
            raise_generation(txn, &mut stripe)?;
            STRIPES.put(txn, &id, &stripe)?;
            Ok(stripe)
        })
    }

    /// Notes that chunks of a stripe have changed places among its nodes, in one transaction, and
    /// raises the generation. `nodes` gives the new node of each chunk. Racks keep their number of
    /// chunks.
    ///
    /// # Errors
    /// [`MetaError::UnknownStripe`]; [`MetaError::GenerationChanged`] unless the stripe is at
    /// `expected`; [`MetaError::UnknownNode`] and [`MetaError::NodeFailed`] for a node that gets a chunk.
    ///
    /// # Panics
    /// If `nodes` are not the stripe's nodes in some order, or a chunk of the stripe at `expected`
    /// is stale: the caller has checked both.
    pub fn exchange(
        &self,
        id: StripeId,
        expected: Generation,
        nodes: &[NodeId],
    ) -> Result<StripeRecord, MetaError> {
        self.change(|txn| {
            let mut stripe = live_stripe(txn, id)?;
            check_generation(&stripe, expected)?;
            assert!(
                stripe.stale.is_empty(),
                "chunks change places when all are whole"
            );
            let sorted = |nodes: &[NodeId]| {
                let mut nodes = nodes.to_vec();
                nodes.sort_unstable();
                nodes
            };
            assert_eq!(
                sorted(nodes),
                sorted(&stripe.nodes),
                "the set of nodes stays the same"
            );
            for ((&to, &from), index) in nodes.iter().zip(&stripe.nodes).zip(stripe.chunks()) {
                if to != from {
                    usable_node(txn, to)?;
                    let moved = ChunkId { stripe: id, index };
                    note_remade(txn, moved, expected)?;
                    former_holders::leave_behind(txn, from, moved)?;
                    former_holders::forget(txn, to, moved)?;
                }
            }
            stripe.nodes = nodes.to_vec();
            raise_generation(txn, &mut stripe)?;
            STRIPES.put(txn, &id, &stripe)?;
            Ok(stripe)
        })
    }

    /// Notes that `chunk` is gone or corrupt: it counts as lost until [`Meta::relocate`] makes it
    /// whole. Raises the generation unless the chunk is already stale.
    ///
    /// # Errors
    /// [`MetaError::UnknownStripe`], [`MetaError::UnknownChunk`].
    pub fn mark_stale(&self, id: StripeId, chunk: ChunkIndex) -> Result<StripeRecord, MetaError> {
        let missed_after = None;
        self.note_stale(
            id,
            &[StaleChunk {
                chunk,
                missed_after,
            }],
        )
    }

    /// Notes that chunks miss updates of a term, in one transaction with the check that the term
    /// goes on. They count as lost until [`Meta::relocate`] makes them whole.
    ///
    /// # Errors
    /// [`MetaError::TermOver`]; as [`Meta::note_stale`].
    pub fn note_degraded(
        &self,
        id: StripeId,
        epoch: Epoch,
        stale: &[StaleChunk],
    ) -> Result<StripeRecord, MetaError> {
        self.change(|txn| {
            check_term(txn, id, epoch)?;
            add_all_stale(txn, id, stale)
        })
    }

    /// Marks a chunk stale after a report of damage: `node` has found that its chunk, made in
    /// `generation`, cannot be trusted. Returns none if that is not the valid chunk: it has moved,
    /// or was rebuilt since, or its stripe is gone.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn mark_damaged(
        &self,
        chunk: ChunkId,
        node: NodeId,
        generation: Generation,
    ) -> Result<Option<StripeRecord>, MetaError> {
        self.change(|txn| {
            let stripe = match live_stripe(txn, chunk.stripe) {
                Ok(stripe) => stripe,
                Err(MetaError::UnknownStripe(_)) => return Ok(None),
                Err(error) => return Err(error),
            };
            let remade = REMADE.get(txn, &stripe.id)?.unwrap_or_default();
            let made_later = |(index, made): &(ChunkIndex, Generation)| {
                *index == chunk.index && *made > generation
            };
            if stripe.node_of(chunk.index) != Some(node) || remade.iter().any(made_later) {
                return Ok(None);
            }
            let stale = StaleChunk {
                chunk: chunk.index,
                missed_after: None,
            };
            add_stale(txn, stripe.id, stale).map(Some)
        })
    }

    /// Notes that chunks miss updates, or are lost, in one transaction. They count as lost until
    /// [`Meta::relocate`] makes them whole. Raises the generation for each that was not stale.
    ///
    /// # Errors
    /// As [`Meta::mark_stale`]; nothing is written then.
    pub fn note_stale(
        &self,
        id: StripeId,
        stale: &[StaleChunk],
    ) -> Result<StripeRecord, MetaError> {
        self.change(|txn| add_all_stale(txn, id, stale))
    }
}

/// Notes the generation in which a chunk was rebuilt.
fn note_remade(
    txn: &mut dyn WriteTxn,
    chunk: ChunkId,
    made_in: Generation,
) -> Result<(), MetaError> {
    let mut remade = REMADE.get(txn, &chunk.stripe)?.unwrap_or_default();
    remade.retain(|(index, _)| *index != chunk.index);
    remade.push((chunk.index, made_in));
    REMADE.put(txn, &chunk.stripe, &remade)
}

fn add_all_stale(
    txn: &mut dyn WriteTxn,
    id: StripeId,
    stale: &[StaleChunk],
) -> Result<StripeRecord, MetaError> {
    let mut stripe = live_stripe(txn, id)?;
    for &stale in stale {
        stripe = add_stale(txn, id, stale)?;
    }
    Ok(stripe)
}

/// Marks a chunk stale within a transaction.
pub(crate) fn add_stale(
    txn: &mut dyn WriteTxn,
    id: StripeId,
    stale: StaleChunk,
) -> Result<StripeRecord, MetaError> {
    let mut stripe = live_stripe(txn, id)?;
    holder_of(&stripe, stale.chunk)?;
    if stripe.note_stale(stale) {
        raise_generation(txn, &mut stripe)?;
        STRIPES.put(txn, &id, &stripe)?;
    }
    Ok(stripe)
}

fn holder_of(stripe: &StripeRecord, chunk: ChunkIndex) -> Result<NodeId, MetaError> {
    stripe
        .node_of(chunk)
        .ok_or(MetaError::UnknownChunk(ChunkId {
            stripe: stripe.id,
            index: chunk,
        }))
}
