//! A bounded set of open chunk files, so that a small read need not open its file.

use crate::disk::DiskFile;
use gabion_layout::ChunkId;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Most files kept open at once.
const FILE_COUNT_MAX: usize = 256;

/// Open files by chunk. A caller that replaces or removes a chunk's file must forget it here.
#[derive(Default)]
pub(super) struct OpenFiles {
    files: BTreeMap<ChunkId, Arc<dyn DiskFile>>,
    /// The chunk whose file was closed last. Files are closed round-robin in chunk order. This
    /// needs no clock and mostly spares recently opened files.
    hand: Option<ChunkId>,
}

impl OpenFiles {
    /// A chunk's file, if it is open.
    pub(super) fn get(&self, chunk: ChunkId) -> Option<Arc<dyn DiskFile>> {
        self.files.get(&chunk).map(Arc::clone)
    }

    /// Keeps a file open, and closes another if there are too many.
    pub(super) fn insert(&mut self, chunk: ChunkId, file: Arc<dyn DiskFile>) {
        if self.files.len() >= FILE_COUNT_MAX {
            let behind = match self.hand {
                Some(hand) => Bound::Excluded(hand),
                None => Bound::Unbounded,
            };
            let next = self.files.range((behind, Bound::Unbounded)).next();
            let next = next.or_else(|| self.files.first_key_value());
            self.hand = next.map(|(chunk, _)| *chunk);
            if let Some(hand) = self.hand {
                self.files.remove(&hand);
            }
        }
        self.files.insert(chunk, file);
    }

    /// Closes a chunk's file.
    pub(super) fn forget(&mut self, chunk: ChunkId) {
        self.files.remove(&chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;
    use crate::disk::sim::SimDisk;
    use gabion_layout::{ChunkIndex, StripeId};

    #[test]
    fn never_holds_more_than_its_bound_and_closes_in_turn() {
        let id = |at: usize| ChunkId {
            stripe: StripeId(at as u64),
            index: ChunkIndex(0),
        };
        let mut files = OpenFiles::default();
        let file = SimDisk::new(1).create("file").unwrap();
        for at in 0..FILE_COUNT_MAX + 3 {
            files.insert(id(at), Arc::clone(&file));
        }
        assert_eq!(files.files.len(), FILE_COUNT_MAX);
        assert!(files.get(id(2)).is_none() && files.get(id(3)).is_some());
        files.forget(id(3));
        assert!(files.get(id(3)).is_none());
    }
}
