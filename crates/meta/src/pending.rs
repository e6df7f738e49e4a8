//! Stripes of open puts. No process reads them, so a loss on their nodes shows only at the commit.

use crate::error::MetaError;
use crate::generations::raise_generation;
use crate::kv::{KeyValue, ReadTxn};
use crate::meta::Meta;
use crate::pools::{left_out_max, pool};
use crate::records::PutRecord;
use crate::schema::{PENDING, PLACED_ANEW, PUTS};
use crate::stripe_rows::stripe_row;
use gabion_layout::{NodeId, StaleChunk, StripeRecord};
use std::collections::BTreeMap;

impl<K: KeyValue> Meta<K> {
    /// Notes that a node has an older copy of its directory or an empty one: its chunks of open puts,
    /// which their clients may have written before, do not count at the commit. The caller accepts
    /// no report of the node's chunks before.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt; [`MetaError::IdsExhausted`].
    pub fn lose_pending(&self, node: NodeId) -> Result<(), MetaError> {
        self.change(|txn| {
            for row in PENDING.scan(txn, &PENDING.all(), usize::MAX)? {
                let mut stripe = stripe_row(&PENDING, row)?;
                if let Some(chunk) = stripe.chunk_on(node)
                    && stripe.note_stale(StaleChunk {
                        chunk,
                        missed_after: None,
                    })
                {
                    // The put's client knows the layout in which the chunk counts.
                    raise_generation(txn, &mut stripe)?;
                    PENDING.put(txn, &stripe.id, &stripe)?;
                }
            }
            Ok(())
        })
    }
}

/// The stripes of a put that may be committed: each survives the loss of one more chunk.
///
/// # Errors
/// [`MetaError::PutLost`].
pub(crate) fn surviving_stripes(
    txn: &dyn ReadTxn,
    put: &PutRecord,
) -> Result<Vec<StripeRecord>, MetaError> {
    let stripes = pending_stripes(txn, put)?;
    for stripe in stripes.iter().filter(|stripe| !stripe.stale.is_empty()) {
        if stripe.stale.len() > left_out_max(&pool(txn, stripe.pool)?) {
            return Err(MetaError::PutLost {
                stripe: stripe.id,
                missing_count: stripe.stale.len(),
            });
        }
    }
    Ok(stripes)
}

/// All stripes that a put reserved, in the order of its segments.
pub(crate) fn pending_stripes(
    txn: &dyn ReadTxn,
    put: &PutRecord,
) -> Result<Vec<StripeRecord>, MetaError> {
    let mut all = Vec::new();
    for run in &put.runs {
        // Sorted by the first ids, whose order is that of the segments.
        let mut stripes = BTreeMap::new();
        for row in PENDING.scan(txn, &PENDING.between(&run.first, &run.end()), usize::MAX)? {
            stripes.insert(row.0, stripe_row(&PENDING, row)?);
        }
        let span = PLACED_ANEW.between(&run.first, &run.end());
        for (first, now) in PLACED_ANEW.scan(txn, &span, usize::MAX)? {
            let missing = || PLACED_ANEW.contradiction(&first, "its stripe is not pending");
            let stripe = PENDING.get(txn, &now)?.ok_or_else(missing)?;
            stripes.insert(first, stripe_row(&PENDING, (now, stripe))?);
        }
        if stripes.len() as u64 != run.count {
            let reason = format!("only {} of {} stripes exist", stripes.len(), run.count);
            return Err(PUTS.contradiction(&put.id, reason));
        }
        all.extend(stripes.into_values());
    }
    Ok(all)
}
