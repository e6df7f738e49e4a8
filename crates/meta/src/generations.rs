//! Generations of stripes' layouts within a transaction. A changed layout gets a newer one, and so does a
//! layout whose move is abandoned: nodes may refuse the generation that it had.

use crate::error::MetaError;
use crate::kv::WriteTxn;
use crate::schema::{MOVES, STRIPES};
use crate::stripe_rows::live_stripe;
use gabion_layout::{Generation, StripeRecord};

/// Refuses a stripe that is not at this generation any more.
pub(crate) fn check_generation(
    stripe: &StripeRecord,
    expected: Generation,
) -> Result<(), MetaError> {
    if stripe.generation == expected {
        return Ok(());
    }
    Err(MetaError::GenerationChanged {
        stripe: stripe.id,
        expected,
        current: stripe.generation,
    })
}

/// Gives a changed layout its generation, and ends the move that has begun, if any. Nodes may have been
/// told the move's generation, so the next one is at least that.
pub(crate) fn raise_generation(
    txn: &mut dyn WriteTxn,
    stripe: &mut StripeRecord,
) -> Result<(), MetaError> {
    let next = stripe.generation.0.checked_add(1);
    let next = Generation(next.ok_or(MetaError::IdsExhausted("generation"))?);
    let told = MOVES.get(txn, &stripe.id)?;
    MOVES.delete(txn, &stripe.id)?;
    stripe.generation = told.map_or(next, |told| told.max(next));
    Ok(())
}

/// Abandons the move of a stripe within a transaction, if one has begun.
pub(crate) fn abandon_move(
    txn: &mut dyn WriteTxn,
    stripe: &mut StripeRecord,
) -> Result<(), MetaError> {
    if MOVES.get(txn, &stripe.id)?.is_none() {
        return Ok(());
    }
    raise_generation(txn, stripe)?;
    STRIPES.put(txn, &stripe.id, stripe)
}

/// Abandons all moves that an earlier run of the coordinator has begun.
pub(crate) fn abandon_moves(txn: &mut dyn WriteTxn) -> Result<(), MetaError> {
    for (id, _) in MOVES.scan(txn, &MOVES.all(), usize::MAX)? {
        let mut stripe = live_stripe(txn, id)?;
        abandon_move(txn, &mut stripe)?;
    }
    Ok(())
}
