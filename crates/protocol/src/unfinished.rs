//! Chunks that a repair has left unfinished at this node because a helper failed. They wait here for the
//! run that writes the rest (`ECPipe` leaves failures during a repair open), and are dropped after a
//! timeout: none outlives the node's process, its membership, or the wait.

use gabion_layout::{ByteRange, ChunkId, Epoch, Generation, Sequence};
use gabion_store::ChunkWriter;
use std::collections::BTreeMap;

/// Time that a chunk waits for the run that resumes it.
const KEEP_MS: u64 = 30_000;

/// The unfinished chunks of a node.
#[derive(Default)]
pub(crate) struct Unfinished {
    chunks: BTreeMap<ChunkId, Left>,
}

/// An unfinished chunk.
pub(crate) struct Left {
    pub(crate) writer: ChunkWriter,
    pub(crate) epoch: Epoch,
    pub(crate) generation: Generation,
    pub(crate) base: Sequence,
    pub(crate) since_ms: u64,
}

impl Unfinished {
    /// Keeps a chunk. Returns an earlier one, to be dropped on a thread that may wait.
    #[must_use]
    pub(crate) fn leave(&mut self, chunk: ChunkId, left: Left) -> Option<ChunkWriter> {
        self.chunks.insert(chunk, left).map(|old| old.writer)
    }

    /// The written ranges of a chunk that was being made as of an update.
    pub(crate) fn written(&self, chunk: ChunkId, base: Sequence) -> Option<Vec<ByteRange>> {
        let left = self.chunks.get(&chunk).filter(|left| left.base == base)?;
        Some(left.writer.written())
    }

    /// Takes a chunk to write the rest.
    pub(crate) fn resume(
        &mut self,
        chunk: ChunkId,
        generation: Generation,
        base: Sequence,
    ) -> Option<ChunkWriter> {
        let fits = |left: &Left| (left.generation, left.base) == (generation, base);
        self.chunks.get(&chunk).is_some_and(fits).then(|| {
            let left = self.chunks.remove(&chunk);
            left.expect("it was just seen").writer
        })
    }

    /// Removes the unneeded chunks, to be dropped on a thread that may wait.
    #[must_use]
    pub(crate) fn abandon(
        &mut self,
        is_meant: impl Fn(ChunkId, Epoch) -> bool,
    ) -> Vec<ChunkWriter> {
        let is_gone = |chunk: &ChunkId, left: &mut Left| is_meant(*chunk, left.epoch);
        let gone = self.chunks.extract_if(.., is_gone);
        gone.map(|(_, left)| left.writer).collect()
    }

    /// Removes those that have waited too long.
    #[must_use]
    pub(crate) fn expire(&mut self, now_ms: u64) -> Vec<ChunkWriter> {
        let is_old = |_: &ChunkId, left: &mut Left| left.since_ms + KEEP_MS < now_ms;
        let gone = self.chunks.extract_if(.., is_old);
        gone.map(|(_, left)| left.writer).collect()
    }

    /// Removes all.
    #[must_use]
    pub(crate) fn abandon_all(&mut self) -> Vec<ChunkWriter> {
        let gone = std::mem::take(&mut self.chunks).into_values();
        gone.map(|left| left.writer).collect()
    }
}
