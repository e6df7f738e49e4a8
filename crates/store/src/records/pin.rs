//! Keeps a stripe's chunks readable at one cut while updates go on.
//!
//! A repair reads every helper at one cut, for the whole time of moving a chunk. During that time,
//! merges of settled records above the cut would remove the cut from the helpers' own bytes. A pin
//! holds such records back: they stay in place, and other readers still see them. A pin never
//! refuses an append; records that the chunk would have to merge first go to the journal.
//!
//! Pins live in memory. After a restart the cut may have been passed; a read then reports that.

use crate::chunk::gate::Gate;
use crate::error::StoreError;
use crate::store::Store;
use gabion_layout::{ChunkId, Sequence, StripeId};
use std::sync::Arc;

impl Store {
    /// Prevents merges of records above `cut` into the stripe's chunks, until [`Store::unpin`] was
    /// called as often for the same cut, or the store is reopened. Running merges have ended when
    /// this returns. Replacing a chunk by a newer one passes the cut despite the pin.
    ///
    /// # Errors
    /// [`StoreError::NoSuchStripe`]; [`StoreError::CutPassed`] when a chunk's own bytes already
    /// include later updates; [`StoreError::Io`]. Nothing is pinned then. A damaged chunk is no
    /// error: it is unreadable at any cut.
    pub fn pin(&self, stripe: StripeId, cut: Sequence) -> Result<(), StoreError> {
        let gates: Vec<(ChunkId, Arc<Gate>)> = {
            let mut state = self.shared.lock();
            let ids: Vec<_> = state.know_stripe(stripe)?.chunk_ids(stripe).collect();
            state.records.pins.add(stripe, cut);
            let gate_of = |chunk| (chunk, state.chunks.gate(chunk));
            ids.into_iter().map(gate_of).collect()
        };
        for (chunk, gate) in gates {
            // A merge planned before the pin ends before this lock is taken.
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

    /// Ends a [`Store::pin`]. Does nothing if there is none.
    pub fn unpin(&self, stripe: StripeId, cut: Sequence) {
        self.shared.lock().records.pins.remove(stripe, cut);
    }
}
