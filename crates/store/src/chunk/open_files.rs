//! Opening chunk files, and a bounded set of open ones, so that a small read need not open one.

use crate::disk::DiskFile;
use crate::error::{IoContext, StoreError, is_shortage};
use crate::index::Header;
use crate::paths::chunk_path;
use crate::records::record::Damage;
use crate::store::State;
use gabion_layout::ChunkId;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Most files kept open at a time.
const FILE_COUNT_MAX: usize = 256;

/// Open files by chunk. Whoever replaces or removes a chunk's file must forget it here.
#[derive(Default)]
pub(crate) struct OpenFiles {
    files: BTreeMap<ChunkId, Arc<dyn DiskFile>>,
    /// The chunk whose file was closed last. Files are closed in the order of their chunks, round
    /// and round, which needs no clock and spares recently opened ones well enough.
    hand: Option<ChunkId>,
}

impl OpenFiles {
    /// A chunk's file, if it is open.
    pub(crate) fn get(&self, chunk: ChunkId) -> Option<Arc<dyn DiskFile>> {
        self.files.get(&chunk).map(Arc::clone)
    }

    /// Keeps a file open, at the cost of another when there are too many.
    pub(crate) fn insert(&mut self, chunk: ChunkId, file: Arc<dyn DiskFile>) {
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
    pub(crate) fn forget(&mut self, chunk: ChunkId) {
        self.files.remove(&chunk);
    }
}

impl State {
    /// Serves nothing more of a chunk whose file cannot be used, until it is replaced.
    pub(crate) fn lose(&mut self, chunk: ChunkId) -> StoreError {
        if let Some(entry) = self.chunk_mut(chunk) {
            entry.header = Header::Damaged;
            entry.reserve = None;
        }
        let range = Damage::WHOLE;
        StoreError::Corrupt { chunk, range }
    }

    /// Opens a chunk's file. One that has vanished, or that the disk refuses to open, costs the chunk.
    pub(crate) fn open_chunk(&mut self, chunk: ChunkId) -> Result<Arc<dyn DiskFile>, StoreError> {
        let path = chunk_path(chunk);
        match self.disk.open(&path) {
            Err(source) if !is_shortage(&source) => Err(self.lose(chunk)),
            opened => opened.context_or_busy("open", &path),
        }
    }

    /// A chunk's file. The caller holds the chunk's gate, so that the file stays the chunk's.
    pub(crate) fn open_file(&mut self, chunk: ChunkId) -> Result<Arc<dyn DiskFile>, StoreError> {
        if let Some(file) = self.files.get(chunk) {
            return Ok(file);
        }
        let file = self.open_chunk(chunk)?;
        self.files.insert(chunk, Arc::clone(&file));
        Ok(file)
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
