//! Chunk reads as of an update, and the inventory.
//!
//! A chunk as of update s is its own bytes, which include all updates up to its base, overlaid with
//! the pending records up to s in order: new bytes replace, parity deltas are added. One function
//! thus reads a data node's overlay and a parity node's logged deltas. Appended bytes of a data
//! chunk are overlaid in the same way for readers of data; reads for the code leave them out.

use crate::chunk::file::{ChunkHeader, ReadFailure, read_blocks};
use crate::disk::{DiskFile, Source};
use crate::error::StoreError;
use crate::index::Chunk;
use crate::journal::entry::UpdateHead;
use crate::records::layer::{Layer, lay_over};
use crate::records::record::{ChunkInfo, Cut};
use crate::state::State;
use crate::store::Store;
use gabion_layout::{ByteRange, ChunkId, Sequence};
use std::sync::Arc;

/// A consistent snapshot of everything that a read needs.
struct View {
    file: Arc<dyn DiskFile>,
    header: ChunkHeader,
    as_of: Sequence,
    layers: Vec<Layer>,
}

impl Store {
    /// Reads bytes of a chunk as of `cut` into `output` and overwrites its earlier contents.
    /// Returns the update as of which the bytes are. All bytes served have matched their checksums.
    /// On an error, the contents of `output` are undefined.
    ///
    /// # Errors
    /// - [`StoreError::NoSuchChunk`], [`StoreError::OutOfChunk`].
    /// - [`StoreError::Unsettled`] for [`Cut::Committed`] when a record above the mark touches the
    ///   range.
    /// - [`StoreError::CutPassed`] for [`Cut::Exactly`] when the chunk's own bytes include later
    ///   updates.
    /// - [`StoreError::Corrupt`] when the disk returns bytes other than those written.
    /// - [`StoreError::Io`] when the disk cannot read them. Reads do not latch.
    pub fn read(
        &self,
        chunk: ChunkId,
        range: ByteRange,
        cut: Cut,
        output: &mut Vec<u8>,
    ) -> Result<Sequence, StoreError> {
        let gate = self.shared.gate_of(chunk)?;
        let _shared = gate.begin_read();
        let view = self.shared.lock().view(chunk, range, cut)?;
        view.read_below(Source::File(&*view.file), range, output)
            .map_err(|failure| failure.into_error(chunk))?;
        let mut frame = Vec::new();
        for layer in &view.layers {
            let body = layer.body(&mut frame)?;
            lay_over(output, range, &layer.head, body);
        }
        Ok(view.as_of)
    }

    /// Like [`Store::read`], if it need not wait for the disk, for other users of the store or for
    /// a change of the chunk. `None` if it would wait, or if [`Store::read`] would fail.
    pub fn read_now(
        &self,
        chunk: ChunkId,
        range: ByteRange,
        cut: Cut,
        output: &mut Vec<u8>,
    ) -> Option<Sequence> {
        let gate = {
            let mut state = self.shared.try_lock()?;
            if !state.is_seen_from_memory(chunk) {
                return None;
            }
            state.chunks.gate(chunk)
        };
        let _shared = gate.try_begin_read()?;
        let view = {
            let mut state = self.shared.try_lock()?;
            if !state.is_seen_from_memory(chunk) {
                return None;
            }
            state.view(chunk, range, cut).ok()?
        };
        // Records lie in files with ongoing writes.
        if !view.layers.is_empty() {
            return None;
        }
        view.read_below(Source::Cached(&*view.file), range, output)
            .ok()?;
        Some(view.as_of)
    }

    /// All chunks, in the order of their ids. Reads each header that is not in memory.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the disk fails; a damaged chunk is an entry, not an error.
    pub fn chunks(&self) -> Result<Vec<ChunkInfo>, StoreError> {
        let ids: Vec<ChunkId> = {
            let state = self.shared.lock();
            state.index.chunks().map(|(chunk, _)| chunk).collect()
        };
        let mut infos = Vec::with_capacity(ids.len());
        for chunk in ids {
            match self.chunk_info(chunk) {
                Ok(info) => infos.push(info),
                // It was removed after the listing.
                Err(StoreError::NoSuchChunk { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(infos)
    }

    /// The inventory's entry of one chunk.
    ///
    /// # Errors
    /// [`StoreError::NoSuchChunk`]; [`StoreError::Io`] when the disk fails.
    pub fn chunk_info(&self, chunk: ChunkId) -> Result<ChunkInfo, StoreError> {
        let header = self.shared.lock().header(chunk);
        let spec = match header {
            Ok(header) => Some(header.spec),
            Err(StoreError::Corrupt { .. }) => None,
            Err(error) => return Err(error),
        };
        Ok(ChunkInfo { chunk, spec })
    }
}

impl View {
    /// Reads the chunk's own bytes, which lie below all records.
    fn read_below(
        &self,
        source: Source<'_>,
        range: ByteRange,
        output: &mut Vec<u8>,
    ) -> Result<(), ReadFailure> {
        if range.is_empty() {
            output.clear();
            return Ok(());
        }
        let extent = self.header.extent();
        let span = extent.block_span(range);
        output.resize(span.length as usize, 0);
        read_blocks(source, extent, span, output)?;
        if span != range {
            let start = (range.offset - span.offset) as usize;
            output.copy_within(start..start + range.length as usize, 0);
            output.truncate(range.length as usize);
        }
        Ok(())
    }
}

impl State {
    /// Whether memory holds everything that a [`View`] of a chunk needs.
    fn is_seen_from_memory(&self, chunk: ChunkId) -> bool {
        let is_in_memory = |entry: &Chunk| {
            entry.known_header().is_some()
                && entry.reserve().is_none()
                && !entry.records().has_listed()
        };
        self.chunk(chunk).is_some_and(is_in_memory) && self.chunks.open.get(chunk).is_some()
    }

    fn view(&mut self, chunk: ChunkId, range: ByteRange, cut: Cut) -> Result<View, StoreError> {
        let header = self.header(chunk)?;
        let chunk_bytes = header.spec.chunk_bytes;
        if !header.extent().contains(range) {
            return Err(StoreError::OutOfChunk {
                chunk,
                range,
                chunk_bytes,
            });
        }
        let applied = header.spec.base;
        let stripe = self.index.stripe_or_new(chunk.stripe);
        if let Cut::Committed { at_least } = cut {
            stripe.raise_mark(at_least);
        }
        let missing = StoreError::NoSuchChunk { chunk };
        let entry = stripe.chunk(chunk.index).ok_or(missing)?;
        let as_of = match cut {
            Cut::Exactly(sequence) | Cut::Newest(sequence) if sequence < applied => {
                return Err(StoreError::CutPassed { chunk, applied });
            }
            Cut::Exactly(sequence) | Cut::Newest(sequence) => sequence,
            Cut::Committed { .. } => {
                let above = stripe.mark();
                if let Some(first) = entry.first_unsettled(above, range) {
                    return Err(StoreError::Unsettled {
                        chunk,
                        above,
                        first,
                    });
                }
                above
            }
        };
        let is_newest = !matches!(cut, Cut::Exactly(_));
        let touches =
            |head: &UpdateHead| (is_newest || !head.kind.is_appended()) && head.touches(range);
        let layers = self.records(chunk, (applied, as_of), touches)?;
        Ok(View {
            file: self.open_file(chunk)?,
            header,
            as_of,
            layers: layers.into_values().collect(),
        })
    }
}
