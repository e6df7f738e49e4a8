//! Everything under the store's lock: the index, and the state of each room.

use crate::chunk::ChunkFiles;
use crate::disk::Disk;
use crate::index::{Chunk, Index};
use crate::journal::Journal;
use crate::options::Options;
use crate::records::Records;
use crate::reserve::{Reserve, Reserves};
use gabion_layout::ChunkId;
use std::sync::Arc;

/// Everything under the state lock. Each room's fields are private to its files.
pub(crate) struct State {
    pub(crate) index: Index,
    pub(crate) journal: Journal,
    pub(crate) chunks: ChunkFiles,
    pub(crate) reserves: Reserves,
    pub(crate) records: Records,
}

impl State {
    pub(crate) fn new(disk: Arc<dyn Disk>, options: Options) -> Self {
        Self {
            index: Index::default(),
            journal: Journal::new(Arc::clone(&disk), options),
            chunks: ChunkFiles::new(disk),
            reserves: Reserves::default(),
            records: Records::new(options),
        }
    }

    pub(crate) fn chunk(&self, chunk: ChunkId) -> Option<&Chunk> {
        self.index.chunk(chunk)
    }

    pub(crate) fn chunk_mut(&mut self, chunk: ChunkId) -> Option<&mut Chunk> {
        self.index.chunk_mut(chunk)
    }

    pub(crate) fn reserve(&self, chunk: ChunkId) -> Option<&Reserve> {
        self.chunk(chunk)?.reserve()
    }

    pub(crate) fn reserve_mut(&mut self, chunk: ChunkId) -> Option<&mut Reserve> {
        self.chunk_mut(chunk)?.reserve_mut()
    }
}
