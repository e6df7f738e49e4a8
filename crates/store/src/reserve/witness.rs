//! What the journal says of reserves: up to where each was synced.
//!
//! The last record of a reserve has no later one that says it was synced, so damage to it would
//! look like what a crash leaves of a record that was never acknowledged, and it would be cut off.
//! A witness in the journal tells the two apart. It is written for all reserves at once, some time
//! after their records, and is none of what makes a record durable.

use crate::chunk::file::ChunkHeader;
use crate::error::StoreError;
use crate::index::Header;
use crate::journal::entry::Entry;
use crate::journal::frame;
use crate::store::{Room, State, Store};
use gabion_layout::ChunkId;
use std::sync::atomic::Ordering;

/// Most bytes of a witness's frame: an index and three numbers of 10 bytes.
pub(crate) const WITNESS_BYTES_MAX: u64 = (frame::PREFIX_BYTES + 31).next_multiple_of(8) as u64;

/// Up to where the reserve of one life of a chunk was synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Witness {
    pub(crate) birth_lsn: u64,
    pub(crate) synced_lsn: u64,
}

impl Witness {
    /// The position up to which the reserve of a chunk with this header was synced; 0 if unknown.
    pub(crate) fn of(self, header: &ChunkHeader) -> u64 {
        if header.birth_lsn == self.birth_lsn {
            self.synced_lsn
        } else {
            0
        }
    }

    pub(crate) fn entry(self, chunk: ChunkId) -> Entry {
        Entry::Witness {
            chunk,
            birth_lsn: self.birth_lsn,
            synced_lsn: self.synced_lsn,
        }
    }
}

impl Store {
    /// Up to where the journal is durable. No crash takes it back behind that: when the store is opened
    /// again, the journal ends there or later, unless the directory is a copy of another time or the disk
    /// has lost what was synced. What is in reserves has moved it once it was borne witness of.
    pub fn position(&self) -> u64 {
        self.shared.group.synced_lsn.load(Ordering::Acquire)
    }

    /// Makes it durable that everything synced so far was synced. From then on damage to any of it
    /// is known for damage, while before, damage to the last record of the journal or of a reserve
    /// and a crash together pass for a record that was never synced. One sync of the journal, or
    /// none when there is nothing new.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`]: the journal is full; call again later.
    /// [`StoreError::Io`] and [`StoreError::Failed`]: the store takes no writes any more.
    pub fn bear_witness(&self) -> Result<(), StoreError> {
        let mut state = self.shared.lock();
        for (chunk, synced_lsn) in state.reserve_syncs.unwitnessed() {
            if let Some(witness) = state.witness(chunk, synced_lsn) {
                let entry = witness.entry(chunk);
                self.shared
                    .append(&mut state, &entry, &[], Room::Ordinary)?;
                state.believe(chunk, witness);
            }
            state.reserve_syncs.witnessed(chunk);
        }
        let end_lsn = state.journal.end_lsn;
        drop(state);
        self.shared.sync(end_lsn)
    }
}

impl State {
    /// Takes over what the journal says of a chunk's reserve.
    pub(crate) fn believe(&mut self, chunk: ChunkId, witness: Witness) {
        self.witnesses.insert(chunk, witness);
    }

    /// What to say of a chunk's reserve, unless its records have left it.
    fn witness(&self, chunk: ChunkId, synced_lsn: u64) -> Option<Witness> {
        let entry = self.chunk(chunk)?;
        let (Header::Known(header), Some(reserve)) = (entry.header, &entry.reserve) else {
            return None;
        };
        let birth_lsn = header.birth_lsn;
        (synced_lsn > reserve.first_lsn).then_some(Witness {
            birth_lsn,
            synced_lsn,
        })
    }

    /// Forgets what concerns records that have left their reserves since.
    pub(crate) fn dismiss_witnesses(&mut self) {
        let stripes = &self.stripes;
        self.witnesses.retain(|chunk, witness| {
            let stripe = stripes.get(&chunk.stripe);
            let Some(entry) = stripe.and_then(|stripe| stripe.chunks.get(&chunk.index)) else {
                return false;
            };
            match (&entry.header, &entry.reserve) {
                // What is damaged must not seem whole at the next start.
                (Header::Unread | Header::Damaged | Header::Torn, _) => true,
                (Header::Known(header), Some(reserve)) => witness.of(header) > reserve.first_lsn,
                (Header::Known(_), None) => false,
            }
        });
    }
}
