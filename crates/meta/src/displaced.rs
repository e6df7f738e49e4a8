//! The stripes that a replacement or a conversion takes out of a file: the leases that keep others from
//! updating them, and their way to the garbage. Removed files take the same way.

use crate::error::MetaError;
use crate::exclusions::left_out;
use crate::kv::{ReadTxn, WriteTxn};
use crate::quotas::uncount_stripe;
use crate::records::{Holder, LeaseRecord, PutId};
use crate::replacement_records::Displaced;
use crate::schema::{
    COPIES, EXCLUSIONS, GARBAGE, LEASES, MOVES, PHASES, PREDECESSORS, REMADE, REPLACEMENTS, STRIPES,
};
use crate::stripe_rows::{live_stripe, unindex_stripe};
use crate::written::forget_written;
use gabion_layout::{Sequence, StaleChunk, StripeId};

/// Whether the coordinator has held the lease without a break since the epoch began. A later run of
/// it takes its leases under new epochs.
fn is_held(txn: &dyn ReadTxn, old: Displaced) -> Result<bool, MetaError> {
    let last = LEASES.get(txn, &old.stripe)?;
    Ok(last.is_some_and(|last| {
        last.epoch == old.epoch && matches!(last.holder, Some(Holder::Coordinator { .. }))
    }))
}

/// Refuses a displaced stripe that may have been updated since the epoch began.
pub(crate) fn check_held(txn: &dyn ReadTxn, old: Displaced) -> Result<(), MetaError> {
    let Displaced { stripe, epoch } = old;
    if is_held(txn, old)? {
        Ok(())
    } else {
        Err(MetaError::LeaseLost { stripe, epoch })
    }
}

/// Makes a stripe of a file garbage. The caller fills its place in the file.
pub(crate) fn discard(txn: &mut dyn WriteTxn, id: StripeId) -> Result<(), MetaError> {
    let mut stripe = live_stripe(txn, id)?;
    STRIPES.delete(txn, &id)?;
    unindex_stripe(txn, &stripe)?;
    // Its exclusions end with it, but clients ask later which chunks have missed nothing.
    for chunk in left_out(txn, &stripe)? {
        let missed_after = None;
        stripe.note_stale(StaleChunk {
            chunk,
            missed_after,
        });
    }
    LEASES.delete(txn, &id)?;
    forget_written(txn, id)?;
    EXCLUSIONS.delete(txn, &id)?;
    PHASES.delete(txn, &id)?;
    REMADE.delete(txn, &id)?;
    MOVES.delete(txn, &id)?;
    PREDECESSORS.delete(txn, &id)?;
    COPIES.delete(txn, &id)?;
    uncount_stripe(txn, &stripe)?;
    GARBAGE.put(txn, &id, &stripe)
}

/// Releases the leases that a replacement still holds, and forgets it. Does nothing for other puts.
pub(crate) fn release_displaced(txn: &mut dyn WriteTxn, put: PutId) -> Result<(), MetaError> {
    let Some(record) = REPLACEMENTS.get(txn, &put)? else {
        return Ok(());
    };
    for (_, old) in record.rewrite.displaced {
        if is_held(txn, old)? {
            let epoch = old.epoch;
            let holder = None;
            let record = LeaseRecord {
                epoch,
                holder,
                is_settled: false,
                committed: Sequence::default(),
            };
            LEASES.put(txn, &old.stripe, &record)?;
        }
    }
    REPLACEMENTS.delete(txn, &put)
}
