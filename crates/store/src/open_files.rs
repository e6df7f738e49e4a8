//! Opening chunk files, and a bounded set of open ones, so that a small read need not open one.

use crate::chunk_file;
use crate::disk::Disk;
use crate::error::{IoContext, StoreError, is_shortage};
use crate::index::Header;
use crate::record::Damage;
use crate::store::State;
use gabion_layout::ChunkId;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Most files kept open at a time.
const FILE_COUNT_MAX: usize = 256;

/// Open files by chunk. Whoever replaces or removes a chunk's file must forget it here.
#[derive(Debug)]
pub(crate) struct OpenFiles<F> {
    files: BTreeMap<ChunkId, Arc<F>>,
    /// The chunk whose file was closed last. Files are closed in the order of their chunks, round
    /// and round, which needs no clock and spares recently opened ones well enough.
    hand: Option<ChunkId>,
}

impl<F> OpenFiles<F> {
    pub(crate) fn new() -> Self {
        Self {
            files: BTreeMap::new(),
            hand: None,
        }
    }

    /// A chunk's file, if it is open.
    pub(crate) fn get(&self, chunk: ChunkId) -> Option<Arc<F>> {
        self.files.get(&chunk).map(Arc::clone)
    }

    /// Keeps a file open, at the cost of another when there are too many.
    pub(crate) fn insert(&mut self, chunk: ChunkId, file: Arc<F>) {
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

impl<D: Disk> State<D> {
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
    pub(crate) fn open_chunk(&mut self, disk: &D, chunk: ChunkId) -> Result<D::File, StoreError> {
        let path = chunk_file::path_of(chunk);
        match disk.open(&path) {
            Err(source) if !is_shortage(&source) => Err(self.lose(chunk)),
            opened => opened.context_or_busy("open", &path),
        }
    }

    /// A chunk's file. The caller holds the chunk's gate, so that the file stays the chunk's.
    pub(crate) fn open_file(
        &mut self,
        disk: &D,
        chunk: ChunkId,
    ) -> Result<Arc<D::File>, StoreError> {
        if let Some(file) = self.files.get(chunk) {
            return Ok(file);
        }
        let file = Arc::new(self.open_chunk(disk, chunk)?);
        self.files.insert(chunk, Arc::clone(&file));
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_layout::{ChunkIndex, StripeId};

    #[test]
    fn never_holds_more_than_its_bound_and_closes_in_turn() {
        let id = |at: usize| ChunkId {
            stripe: StripeId(at as u64),
            index: ChunkIndex(0),
        };
        let mut files = OpenFiles::new();
        for at in 0..FILE_COUNT_MAX + 3 {
            files.insert(id(at), Arc::new(at));
        }
        assert_eq!(files.files.len(), FILE_COUNT_MAX);
        assert_eq!(files.get(id(2)), None);
        assert_eq!(files.get(id(3)).as_deref(), Some(&3));
        files.forget(id(3));
        assert_eq!(files.get(id(3)), None);
    }
}
