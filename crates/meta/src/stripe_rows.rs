//! Rows of stripes within a transaction: reading and checking them, and their index by node.

use crate::error::MetaError;
use crate::kv::{ReadTxn, WriteTxn};
use crate::schema::{STRIPES, STRIPES_ON};
use crate::table::Table;
use gabion_layout::{StripeId, StripeRecord};

/// The record of a file's stripe.
pub(crate) fn live_stripe(txn: &dyn ReadTxn, id: StripeId) -> Result<StripeRecord, MetaError> {
    let record = STRIPES.get(txn, &id)?;
    stripe_row(&STRIPES, (id, record.ok_or(MetaError::UnknownStripe(id))?))
}

/// Refuses a record of another stripe's key or with too many chunks.
pub(crate) fn stripe_row(
    table: &Table<StripeId, StripeRecord>,
    (id, record): (StripeId, StripeRecord),
) -> Result<StripeRecord, MetaError> {
    if record.id != id {
        return Err(table.contradiction(&id, format!("the record belongs to {}", record.id)));
    }
    // Further chunks would have no index, and asking for one would panic.
    if record.nodes.len() > 255 {
        let reason = format!("it has {} chunks", record.nodes.len());
        return Err(table.contradiction(&id, reason));
    }
    Ok(record)
}

/// Adds a stripe to the index by node.
pub(crate) fn index_stripe(txn: &mut dyn WriteTxn, stripe: &StripeRecord) -> Result<(), MetaError> {
    for &node in &stripe.nodes {
        STRIPES_ON.put(txn, &(node, stripe.id), &())?;
    }
    Ok(())
}

/// Removes a stripe from the index by node.
pub(crate) fn unindex_stripe(
    txn: &mut dyn WriteTxn,
    stripe: &StripeRecord,
) -> Result<(), MetaError> {
    for &node in &stripe.nodes {
        STRIPES_ON.delete(txn, &(node, stripe.id))?;
    }
    Ok(())
}
