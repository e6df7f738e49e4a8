//! Finds a chunk's records in the journal, its lists and the reserve.

use crate::error::StoreError;
use crate::journal::entry::UpdateHead;
use crate::records::layer::{Layer, Pending};
use crate::state::State;
use gabion_layout::{ChunkId, Sequence};
use std::collections::BTreeMap;

impl State {
    /// A chunk's records after `base` up to `upto` that `is_wanted`, from the journal, its lists
    /// and the reserve.
    ///
    /// # Errors
    /// As [`State::reserved`] and [`State::listed`].
    pub(crate) fn records(
        &mut self,
        chunk: ChunkId,
        (base, upto): (Sequence, Sequence),
        is_wanted: impl Fn(&UpdateHead) -> bool,
    ) -> Result<BTreeMap<Sequence, Layer>, StoreError> {
        let mut layers = BTreeMap::new();
        let is_needed = |head: &UpdateHead| {
            let sequence = head.stamp.sequence;
            sequence > base && sequence <= upto && is_wanted(head)
        };
        for record in self.reserved(chunk)?.iter() {
            if is_needed(&record.head) {
                let layer = self.layer(chunk, record)?;
                layers.insert(record.head.stamp.sequence, layer);
            }
        }
        let listed = self.listed(chunk)?;
        let entry = self.chunk(chunk);
        let pending = entry.into_iter().flat_map(|entry| {
            let after = entry.records().after(base);
            after.take_while(|record| record.head.stamp.sequence <= upto)
        });
        // After a crash during its move to the journal, a record may be in both places.
        for record in listed.iter().chain(pending) {
            if is_needed(&record.head) {
                layers.insert(record.head.stamp.sequence, self.journaled(record));
            }
        }
        Ok(layers)
    }

    /// A record in the journal for reading.
    pub(crate) fn journaled(&self, record: &Pending) -> Layer {
        Layer {
            head: record.head.clone(),
            located: self.journal.locate(record.position),
        }
    }
}
