//! Everything under the store's lock: the index, and the state of each room.

use crate::chunk::ChunkFiles;
use crate::disk::Disk;
use crate::index::{Chunk, Stripe};
use crate::journal::Journal;
use crate::options::Options;
use crate::records::Records;
use crate::reserve::{Reserve, Reserves};
use gabion_layout::{ChunkId, StripeId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Everything under the state lock. Only a room's own files change its state.
pub(crate) struct State {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) options: Options,
    pub(crate) stripes: BTreeMap<StripeId, Stripe>,
    pub(crate) journal: Journal,
    pub(crate) chunks: ChunkFiles,
    pub(crate) reserves: Reserves,
    pub(crate) records: Records,
}

impl State {
    pub(crate) fn new(disk: Arc<dyn Disk>, options: Options) -> Self {
        Self {
            journal: Journal::new(Arc::clone(&disk)),
            disk,
            options,
            stripes: BTreeMap::new(),
            chunks: ChunkFiles::default(),
            reserves: Reserves::default(),
            records: Records::new(options),
        }
    }

    pub(crate) fn chunk(&self, chunk: ChunkId) -> Option<&Chunk> {
        self.stripes.get(&chunk.stripe)?.chunks.get(&chunk.index)
    }

    pub(crate) fn chunk_mut(&mut self, chunk: ChunkId) -> Option<&mut Chunk> {
        let stripe = self.stripes.get_mut(&chunk.stripe)?;
        stripe.chunks.get_mut(&chunk.index)
    }

    pub(crate) fn reserve_mut(&mut self, chunk: ChunkId) -> Option<&mut Reserve> {
        self.chunk_mut(chunk)?.reserve.as_mut()
    }

    /// All chunks that are here, in the order of their ids.
    pub(crate) fn all_chunks(&self) -> impl Iterator<Item = (ChunkId, &Chunk)> {
        self.stripes.iter().flat_map(|(&stripe, held)| {
            let with_id = move |(&index, chunk)| (ChunkId { stripe, index }, chunk);
            held.chunks.iter().map(with_id)
        })
    }
}
