//! Moves of chunks that have begun. Before a chunk counts elsewhere, nodes of the present layout durably refuse it, so
//! that no reader keeps it: the coordinator sends them the generation that the move will have. It stores the generation
//! in a row before it sends it. So if the coordinator stops in between, its next run knows that nodes may refuse the
//! current layout, and gives this layout a generation that they accept.

use crate::error::MetaError;
use crate::generations::{abandon_move, check_generation, raise_generation};
use crate::kv::KeyValue;
use crate::meta::Meta;
use crate::schema::MOVES;
use crate::stripe_rows::live_stripe;
use gabion_layout::{Generation, StripeId};

impl<K: KeyValue> Meta<K> {
    /// Begins a move of chunks, and returns the generation that the stripe will have after it. Nothing
    /// else changes: [`Meta::relocate`] and [`Meta::exchange`] end the move, and so does every other change
    /// of the stripe's layout.
    ///
    /// # Errors
    /// [`MetaError::UnknownStripe`]; [`MetaError::GenerationChanged`] unless the stripe is at `expected`.
    pub fn begin_move(&self, id: StripeId, expected: Generation) -> Result<Generation, MetaError> {
        self.change(|txn| {
            let mut stripe = live_stripe(txn, id)?;
            check_generation(&stripe, expected)?;
            raise_generation(txn, &mut stripe)?;
            MOVES.put(txn, &id, &stripe.generation)?;
            Ok(stripe.generation)
        })
    }

    /// Abandons a move: the layout stays, with the generation that nodes were told. Does nothing if no move
    /// has begun.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn abandon_move(&self, id: StripeId) -> Result<(), MetaError> {
        self.change(|txn| {
            if MOVES.get(txn, &id)?.is_none() {
                return Ok(());
            }
            let mut stripe = live_stripe(txn, id)?;
            abandon_move(txn, &mut stripe)
        })
    }
}
