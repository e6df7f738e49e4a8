//! Predecessors: stripes that a live one has replaced in its file, and that nodes may still serve.

use crate::dropped::may_be_served;
use crate::error::MetaError;
use crate::kv::WriteTxn;
use crate::records::Holder;
use crate::replacement_records::Displaced;
use crate::schema::PREDECESSORS;
use gabion_layout::StripeId;

/// Whether no node serves a predecessor of a stripe any more; if so, removes the row, so that later calls skip
/// the check.
pub(crate) fn is_alone(txn: &mut dyn WriteTxn, stripe: StripeId) -> Result<bool, MetaError> {
    let Some(predecessors) = PREDECESSORS.get(txn, &stripe)? else {
        return Ok(true);
    };
    for old in predecessors {
        if may_be_served(txn, old)? {
            return Ok(false);
        }
    }
    PREDECESSORS.delete(txn, &stripe)?;
    Ok(true)
}

/// Checks that no node serves a predecessor of a stripe that its holder, the coordinator, is to replace: the new
/// stripe would name `old` alone as its predecessor.
pub(crate) fn check_alone(
    txn: &mut dyn WriteTxn,
    old: Displaced,
    incarnation: u64,
) -> Result<(), MetaError> {
    if is_alone(txn, old.stripe)? {
        return Ok(());
    }
    Err(MetaError::Held {
        stripe: old.stripe,
        holder: Holder::Coordinator { incarnation },
        epoch: old.epoch,
    })
}
