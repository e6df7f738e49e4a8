//! Chunks that a repair has left unfinished at this node because a helper failed. They wait here for
//! the run that writes the rest (`ECPipe` leaves failures during a repair open), and are given up when
//! none comes: nothing of them outlives the node's process, its membership, or the wait.

use crate::message::{Effect, Purpose, Refusal, RunPart};
use crate::part_io::lock;
use crate::participant::{Participant, installed_chunk};
use crate::ports::run_blocking;
use gabion_layout::{ByteRange, ChunkId, Epoch, Generation, Sequence};
use gabion_store::ChunkWriter;
use std::collections::BTreeMap;

/// How long a chunk waits for the run that goes on with it.
const KEEP_MS: u64 = 30_000;

/// The unfinished chunks of a node.
#[derive(Default)]
pub(crate) struct Unfinished {
    chunks: BTreeMap<ChunkId, Left>,
}

/// A chunk as it was left.
struct Left {
    writer: ChunkWriter,
    epoch: Epoch,
    generation: Generation,
    base: Sequence,
    since_ms: u64,
}

impl Participant {
    /// Keeps what a failed part has written, if its repair may go on without whoever failed.
    pub(crate) async fn leave(
        &self,
        request: &RunPart,
        writer: Option<ChunkWriter>,
        refusal: &Refusal,
    ) {
        let Some(writer) = writer else { return };
        let base = match request.effect {
            Effect::Install { base } | Effect::Resume { base }
                if request.purpose == Purpose::Repair && refusal.is_temporary() =>
            {
                Some(base)
            }
            _ => None,
        };
        let chunk = installed_chunk(request).ok().flatten();
        let dropped = match base.zip(chunk) {
            None => Some(writer),
            Some((base, chunk)) => {
                let left = Left {
                    writer,
                    epoch: request.epoch,
                    generation: request.generation,
                    base,
                    since_ms: self.ports.now_ms(),
                };
                lock(&self.unfinished).leave(chunk, left)
            }
        };
        self.drop_writers(dropped.into_iter().collect()).await;
    }

    /// Gives up unfinished chunks that are not to be made here any more, by which they are and in which
    /// term they were begun.
    pub(crate) async fn give_up_unfinished(&self, is_meant: impl Fn(ChunkId, Epoch) -> bool) {
        let gone = lock(&self.unfinished).give_up(is_meant);
        self.drop_writers(gone).await;
    }

    /// Gives up unfinished chunks that nobody went on with.
    pub(crate) async fn expire_unfinished(&self) {
        let gone = lock(&self.unfinished).expire(self.ports.now_ms());
        self.drop_writers(gone).await;
    }

    /// Removes the files of chunks that are given up, which waits for the disk.
    async fn drop_writers(&self, writers: Vec<ChunkWriter>) {
        if !writers.is_empty() {
            run_blocking(&*self.ports, move || drop(writers)).await;
        }
    }
}

impl Unfinished {
    /// Keeps a chunk. One that was left before is given back, to be dropped where that may take time.
    #[must_use]
    fn leave(&mut self, chunk: ChunkId, left: Left) -> Option<ChunkWriter> {
        self.chunks.insert(chunk, left).map(|old| old.writer)
    }

    /// What is written of a chunk that was being made as of an update.
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

    /// Gives up the chunks that nobody wants any more, to be dropped where that may take time.
    #[must_use]
    fn give_up(&mut self, is_meant: impl Fn(ChunkId, Epoch) -> bool) -> Vec<ChunkWriter> {
        let is_gone = |chunk: &ChunkId, left: &mut Left| is_meant(*chunk, left.epoch);
        let gone = self.chunks.extract_if(.., is_gone);
        gone.map(|(_, left)| left.writer).collect()
    }

    /// Gives up those that have waited too long.
    #[must_use]
    pub(crate) fn expire(&mut self, now_ms: u64) -> Vec<ChunkWriter> {
        let is_old = |_: &ChunkId, left: &mut Left| left.since_ms + KEEP_MS < now_ms;
        let gone = self.chunks.extract_if(.., is_old);
        gone.map(|(_, left)| left.writer).collect()
    }

    /// Gives up all.
    #[must_use]
    pub(crate) fn give_up_all(&mut self) -> Vec<ChunkWriter> {
        let gone = std::mem::take(&mut self.chunks).into_values();
        gone.map(|left| left.writer).collect()
    }
}
