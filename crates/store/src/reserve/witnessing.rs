//! Logs in the journal up to where reserves were synced, and applies these entries.

use crate::chunk::Header;
use crate::error::StoreError;
use crate::journal::checkpoint::Room;
use crate::journal::entry::Entry;
use crate::reserve::witness::{WITNESS_BYTES_MAX, Witness};
use crate::state::State;
use crate::store::Store;
use gabion_layout::ChunkId;

impl Store {
    /// Makes it durable that everything synced so far was synced. From then on, damage to any of it
    /// is recognized as damage. Before that, damage to the last record of the journal or of a
    /// reserve, together with a crash, looks like a record that was never synced. Takes one sync of
    /// the journal, or none if nothing is new.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`]: the journal is full; call again later. [`StoreError::Io`] and
    /// [`StoreError::Failed`]: the store no longer accepts writes.
    pub fn log_witnesses(&self) -> Result<(), StoreError> {
        let mut state = self.shared.lock();
        for (chunk, synced_lsn) in state.reserves.syncs.unwitnessed() {
            if let Some(witness) = state.witness(chunk, synced_lsn) {
                let entry = witness.entry(chunk);
                self.shared
                    .append(&mut state, &entry, &[], Room::Ordinary)?;
                state.note_witness(chunk, witness);
            }
            state.reserves.syncs.witnessed(chunk);
        }
        let end_lsn = state.journal.end_lsn();
        drop(state);
        self.shared.sync(end_lsn)
    }
}

impl State {
    /// Takes over a journal entry about a chunk's reserve.
    pub(crate) fn note_witness(&mut self, chunk: ChunkId, witness: Witness) {
        self.reserves.witnesses.insert(chunk, witness);
    }

    /// The witness of a chunk's reserve, unless its records have left it.
    fn witness(&self, chunk: ChunkId, synced_lsn: u64) -> Option<Witness> {
        let entry = self.chunk(chunk)?;
        let birth_lsn = entry.known_header()?.birth_lsn;
        let reserve = entry.reserve()?;
        (synced_lsn > reserve.first_lsn).then_some(Witness {
            birth_lsn,
            synced_lsn,
        })
    }

    /// Forgets witnesses of records that have left their reserves since.
    pub(crate) fn drop_stale_witnesses(&mut self) {
        let index = &self.index;
        self.reserves.witnesses.retain(|chunk, witness| {
            let Some(entry) = index.chunk(*chunk) else {
                return false;
            };
            match (entry.header(), entry.reserve()) {
                // A damaged reserve must not seem intact at the next start.
                (Header::Unread | Header::Damaged | Header::Torn, _) => true,
                (Header::Known(header), Some(reserve)) => witness.of(&header) > reserve.first_lsn,
                (Header::Known(_), None) => false,
            }
        });
    }

    /// Checkpoint entries with the synced positions of reserves.
    pub(crate) fn witnesses_checkpoint(&self) -> Vec<Entry> {
        let witnesses = self.reserves.witnesses.iter();
        witnesses.map(|(&chunk, w)| w.entry(chunk)).collect()
    }

    /// Upper bound of the bytes of a checkpoint of all witnesses.
    pub(crate) fn witnesses_checkpoint_bytes_max(&self) -> u64 {
        WITNESS_BYTES_MAX * self.reserves.witnesses.len() as u64
    }
}
