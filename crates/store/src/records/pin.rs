//! Keeping a stripe's chunks readable at one cut while updates go on.
//!
//! A repair reads every helper at one cut, for as long as moving a chunk takes. Settled records
//! above the cut would meanwhile be merged into the helpers' own bytes, which then no longer have
//! the cut in them. A pin holds such records back: they stay where they are kept, and readers of
//! the present see them as ever. Appends are never refused for a pin; what a chunk would have had
//! to merge first goes to the journal.
//!
//! Pins live in memory. After a restart the cut may have been passed, which a read then says.

use crate::chunk::gate::Gate;
use crate::error::StoreError;
use crate::store::Store;
use gabion_layout::{ChunkId, Sequence, StripeId};
use std::sync::Arc;

impl Store {
    /// Sees to it that no record above `cut` is merged into a chunk of the stripe, until
    /// [`Store::unpin`] was called as often as this for the same cut, or the store is opened anew.
    /// Merges that run already have ended when this returns. A chunk that is replaced by a newer
    /// one passes the cut all the same.
    ///
    /// # Errors
    /// [`StoreError::NoSuchStripe`]; [`StoreError::CutPassed`] when a chunk's own bytes include
    /// later updates already; [`StoreError::Io`]. Nothing is pinned then. A damaged chunk is no
    /// error: it cannot be read at any cut.
    pub fn pin(&self, stripe: StripeId, cut: Sequence) -> Result<(), StoreError> {
        let gates: Vec<(ChunkId, Arc<Gate>)> = {
            let mut state = self.shared.lock();
            let ids: Vec<_> = state.know_stripe(stripe)?.chunk_ids(stripe).collect();
            state.records.pins.add(stripe, cut);
            let gate_of = |chunk| (chunk, state.chunks.gate(chunk));
            ids.into_iter().map(gate_of).collect()
        };
        for (chunk, gate) in gates {
            // A merge that was planned before the pin ends before this is ours.
            let _changing = gate.begin_change();
            let header = self.shared.lock().header(chunk);
            let passed = match header {
                Ok(header) if header.spec.base > cut => {
                    let applied = header.spec.base;
                    StoreError::CutPassed { chunk, applied }
                }
                Ok(_) | Err(StoreError::Corrupt { .. } | StoreError::NoSuchChunk { .. }) => {
                    continue;
                }
                Err(error) => error,
            };
            self.unpin(stripe, cut);
            return Err(passed);
        }
        Ok(())
    }

    /// Ends a [`Store::pin`]. Does nothing when there is none.
    pub fn unpin(&self, stripe: StripeId, cut: Sequence) {
        self.shared.lock().records.pins.remove(stripe, cut);
    }
}
