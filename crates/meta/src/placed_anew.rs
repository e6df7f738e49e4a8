//! Stripes of a put that are placed again, since a node of the first placement did not take its
//! chunk. The new placement has a new stripe id, so that no late message to the old nodes can be
//! taken for one to the new nodes. The old stripe becomes garbage in the same transaction.

use crate::error::MetaError;
use crate::ids::Leased;
use crate::kv::{KeyValue, ReadTxn};
use crate::meta::Meta;
use crate::pools::{left_out_max, pool};
use crate::puts::{check_nodes, left_out, put_record};
use crate::records::{Placement, PutId};
use crate::schema::{GARBAGE, PENDING, PLACED_ANEW, PUTS, REPLACEMENTS};
use crate::stripe_rows::stripe_row;
use gabion_layout::{NodeId, StripeId, StripeRecord};

impl<K: KeyValue> Meta<K> {
    /// The current stripe of a segment of a put.
    ///
    /// # Errors
    /// [`MetaError::UnknownPut`], also for a replacement; [`MetaError::UnknownStripe`] when the put has no
    /// such segment.
    pub fn stripe_of_put(&self, put: PutId, first: StripeId) -> Result<StripeRecord, MetaError> {
        self.store.read(|txn| current(txn, put, first))
    }

    /// Gives the stripe of a put's segment other nodes and a new id, and makes the `failed` one
    /// garbage. `first` is the id of the segment's stripe when the put began. If another stripe has
    /// already replaced it, returns that one and changes nothing, so this can be repeated.
    ///
    /// # Errors
    /// [`MetaError::UnknownPut`], also for a replacement; [`MetaError::UnknownStripe`] when the put has no
    /// such segment; [`MetaError::Placement`], [`MetaError::UnknownNode`], [`MetaError::NodeFailed`] and
    /// [`MetaError::NodeLeaving`] as for a put; [`MetaError::IdsExhausted`].
    pub fn place_anew(
        &self,
        put: PutId,
        first: StripeId,
        failed: StripeId,
        nodes: &[NodeId],
    ) -> Result<StripeRecord, MetaError> {
        self.change(|txn| {
            let old = current(txn, put, first)?;
            if old.id != failed {
                return Ok(old);
            }
            let pool = pool(txn, old.pool)?;
            let place = Placement {
                chunk_bytes: old.chunk_bytes,
                nodes: nodes.to_vec(),
            };
            let out = check_nodes(txn, &pool.spec, &[place], left_out_max(&pool))?;
            let id = txn.take(Leased::Stripe, 1)?;
            let new = StripeRecord {
                id: StripeId(id),
                nodes: nodes.to_vec(),
                stale: left_out(nodes, &out),
                ..old.clone()
            };
            PENDING.delete(txn, &old.id)?;
            GARBAGE.put(txn, &old.id, &old)?;
            PENDING.put(txn, &new.id, &new)?;
            PLACED_ANEW.put(txn, &first, &new.id)?;
            Ok(new)
        })
    }
}

/// The stripe of a put's segment.
fn current(txn: &dyn ReadTxn, put: PutId, first: StripeId) -> Result<StripeRecord, MetaError> {
    let record = put_record(txn, put)?;
    if REPLACEMENTS.get(txn, &put)?.is_some() {
        return Err(MetaError::UnknownPut(put));
    }
    if !record.runs.iter().any(|run| run.contains(first)) {
        return Err(MetaError::UnknownStripe(first));
    }
    let now = PLACED_ANEW.get(txn, &first)?.unwrap_or(first);
    let stripe = PENDING.get(txn, &now)?;
    let stripe =
        stripe.ok_or_else(|| PUTS.contradiction(&put, "some of its stripes are missing"))?;
    stripe_row(&PENDING, (now, stripe))
}
