//! Writes whole chunks.
//!
//! A chunk is written into an unfinished file, in any order and without holding it in memory. One
//! rename makes it visible once all of it is durable. The next start removes unfinished files of a
//! crash.

use crate::checksum::{combine, crc32c};
use crate::chunk::file::{BLOCK_BYTES, ChunkHeader, Extent, RESERVE_BYTES_MAX, is_possible_size};
use crate::disk::DiskFile;
use crate::error::{IoContext, StoreError, allocated};
use crate::paths::{chunk_directory, chunk_path};
use crate::records::record::ChunkSpec;
use crate::state::State;
use crate::store::{Shared, Store};
use gabion_layout::{ByteRange, ChunkId, Epoch, Keeping};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Writes one chunk. If it is dropped before [`ChunkWriter::finish`], nothing remains.
pub struct ChunkWriter {
    shared: Arc<Shared>,
    chunk: ChunkId,
    spec: ChunkSpec,
    extent: Extent,
    path: String,
    /// `None` once the file has its final name.
    file: Option<Arc<dyn DiskFile>>,
    /// The checksum of each complete block, 4 bytes a block.
    table: Vec<u8>,
    /// Checksums of the parts of incomplete blocks, by offset.
    parts: BTreeMap<u64, Vec<(ByteRange, u32)>>,
    /// Written ranges: end by beginning. Invariant: disjoint and not adjacent.
    written: BTreeMap<u64, u64>,
}

impl Store {
    /// Creates a writer for a chunk. The chunk may replace one of the same or an older generation.
    ///
    /// # Errors
    /// - [`StoreError::Malformed`] when the chunk has no bytes or more than 16 GiB, or its reserve
    ///   more than 256 MiB.
    /// - [`StoreError::StaleGeneration`] when the stripe's layout is newer.
    /// - [`StoreError::NoSpace`] when the disk has no space beyond the bytes that must stay free.
    /// - [`StoreError::Io`], [`StoreError::Failed`].
    pub fn create(&self, chunk: ChunkId, spec: ChunkSpec) -> Result<ChunkWriter, StoreError> {
        if !is_possible_size(spec.chunk_bytes) {
            let reason = "a chunk has at least 1 byte and at most 16 GiB";
            return Err(StoreError::Malformed { reason });
        }
        if matches!(spec.keeping, Keeping::Reserve { bytes } if bytes > RESERVE_BYTES_MAX) {
            let reason = "a chunk's reserve has at most 256 MiB";
            return Err(StoreError::Malformed { reason });
        }
        let extent = Extent::new(spec.chunk_bytes);
        let shared = Arc::clone(&self.shared);
        let path = {
            let mut state = shared.lock();
            shared.check_latch()?;
            state.check_replaces(chunk, spec)?;
            state.chunks.temporary_path()
        };
        let own_bytes = extent.own_bytes();
        shared.check_free("a chunk", own_bytes)?;
        let file = shared.disk.create(&path).context_or_busy("create", &path)?;
        let writer = ChunkWriter {
            shared,
            chunk,
            spec,
            extent,
            path,
            file: Some(file),
            table: vec![0; extent.block_count() as usize * 4],
            parts: BTreeMap::new(),
            written: BTreeMap::new(),
        };
        // A reserve is a hole until its first record. The length comes first, so that a disk that allocates the
        // reserve with its chunk does so by one call.
        let extended = writer.file().set_length(extent.file_bytes(spec.keeping));
        extended.context("extend", &writer.path)?;
        let outcome = writer.file().allocate(0, own_bytes);
        allocated(outcome, "a chunk", &writer.path, own_bytes)?;
        Ok(writer)
    }
}

impl State {
    /// Refuses a chunk that is older than the stored one.
    fn check_replaces(&mut self, chunk: ChunkId, spec: ChunkSpec) -> Result<(), StoreError> {
        match self.find_stripe(chunk.stripe)? {
            Some(known) => known.check_generation(chunk.stripe, spec.generation),
            None => Ok(()),
        }
    }
}

/// The way in which a finished chunk takes its place.
#[derive(Clone, Copy)]
enum Finish {
    /// In place of an older one, if there is one.
    InPlace,
    /// The same, in a term.
    InTerm(Epoch),
    /// Only where there is none.
    New,
}

impl std::fmt::Debug for ChunkWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChunkWriter")
            .field("chunk", &self.chunk)
            .field("spec", &self.spec)
            .finish_non_exhaustive()
    }
}

impl ChunkWriter {
    fn file(&self) -> &dyn DiskFile {
        self.file.as_deref().expect("the file stays until the end")
    }

    /// Writes bytes of the chunk. Slices may come in any order, at any offset, each byte once.
    ///
    /// # Errors
    /// [`StoreError::OutOfChunk`] and [`StoreError::Overlap`], with nothing written;
    /// [`StoreError::Io`] when the disk fails, after which the writer should be dropped.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let (chunk, chunk_bytes) = (self.chunk, self.spec.chunk_bytes);
        let range = ByteRange::new(offset, bytes.len() as u64);
        if !self.extent.contains(range) {
            return Err(StoreError::OutOfChunk {
                chunk,
                range,
                chunk_bytes,
            });
        }
        if range.is_empty() {
            return Ok(());
        }
        let before = self.written.range(..range.end()).next_back();
        if before.is_some_and(|(_, end)| *end > offset) {
            return Err(StoreError::Overlap { chunk, range });
        }
        self.file()
            .write_all_at(bytes, self.extent.data_offset(offset))
            .context("write", &self.path)?;
        self.checksum(offset, bytes);
        self.mark_written(range);
        Ok(())
    }

    /// The written ranges, in order, disjoint and not adjacent.
    pub fn written(&self) -> Vec<ByteRange> {
        let ranges = self.written.iter();
        ranges
            .map(|(&start, &end)| ByteRange::new(start, end - start))
            .collect()
    }

    /// Computes the checksums of the blocks that `bytes` complete, and of the parts of others.
    fn checksum(&mut self, offset: u64, bytes: &[u8]) {
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let block = at / BLOCK_BYTES;
            let block_range = self.extent.block_range(block);
            let (part, behind) = rest.split_at(rest.len().min((block_range.end() - at) as usize));
            let part_range = ByteRange::new(at, part.len() as u64);
            let crc = crc32c(part);
            if part_range == block_range {
                self.set_crc(block, crc);
            } else {
                self.add_part(block, part_range, crc);
            }
            at = part_range.end();
            rest = behind;
        }
    }

    fn set_crc(&mut self, block: u64, crc: u32) {
        let at = block as usize * 4;
        self.table[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }

    fn add_part(&mut self, block: u64, range: ByteRange, crc: u32) {
        let parts = self.parts.entry(block).or_default();
        let at = parts.partition_point(|(known, _)| known.offset < range.offset);
        parts.insert(at, (range, crc));
        let have: u64 = parts.iter().map(|(part, _)| part.length).sum();
        if have == self.extent.block_range(block).length {
            let joined = parts.iter().map(|(part, crc)| (part.length, *crc));
            let (_, crc) = joined
                .reduce(|(n, a), (m, b)| (n + m, combine(a, b, m)))
                .expect("a part was just inserted");
            self.parts.remove(&block);
            self.set_crc(block, crc);
        }
    }

    fn mark_written(&mut self, range: ByteRange) {
        let (mut start, mut end) = (range.offset, range.end());
        if let Some((before, _)) = self
            .written
            .range(..start)
            .next_back()
            .filter(|b| *b.1 == start)
        {
            start = *before;
        }
        if let Some(behind) = self.written.remove(&end) {
            end = behind;
        }
        self.written.insert(start, end);
    }

    /// Makes the chunk durable and visible, in place of an older one if there is one. Records that
    /// the chunk includes are no longer pending.
    ///
    /// # Errors
    /// - [`StoreError::Incomplete`] when bytes are missing.
    /// - [`StoreError::StaleGeneration`] when the stripe's layout has become newer.
    /// - [`StoreError::Io`], [`StoreError::Failed`].
    pub fn finish(self) -> Result<(), StoreError> {
        self.complete(Finish::InPlace)
    }

    /// Like [`ChunkWriter::finish`] for a chunk that replaces none. Of two such writers of one chunk, one succeeds.
    ///
    /// # Errors
    /// [`StoreError::ChunkExists`], also when the chunk that is here is damaged; [`StoreError::Fenced`] when a term of
    /// the stripe was promised; as [`ChunkWriter::finish`].
    pub fn finish_new(self) -> Result<(), StoreError> {
        self.complete(Finish::New)
    }

    /// Like [`ChunkWriter::finish`] for a chunk made in a term: from the instant at which the chunk
    /// is visible, the store refuses every epoch before `epoch`, so that no late request replaces
    /// or removes the chunk. Epoch 0 precedes every term and promises nothing.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] when a later epoch was promised; [`StoreError::NoSpace`] when the
    /// journal is full, with the chunk in its place; as [`ChunkWriter::finish`].
    pub fn finish_in(self, epoch: Epoch) -> Result<(), StoreError> {
        self.complete(Finish::InTerm(epoch))
    }

    fn complete(mut self, how: Finish) -> Result<(), StoreError> {
        let (chunk, spec) = (self.chunk, self.spec);
        if self.written != BTreeMap::from([(0, spec.chunk_bytes)]) {
            let missing = self.first_missing();
            return Err(StoreError::Incomplete { chunk, missing });
        }
        let shared = Arc::clone(&self.shared);
        let gate = shared.lock().chunks.gate(chunk);
        let _changing = gate.begin_change();
        let birth_lsn = {
            let mut state = shared.lock();
            shared.check_latch()?;
            state.check_replaces(chunk, spec)?;
            let made = state.chunks.make_directory(chunk);
            shared.require(made)?;
            state.journal.end_lsn()
        };
        let header = ChunkHeader {
            chunk,
            spec,
            birth_lsn,
            reserve_lsn: 0,
        };
        shared.require(self.write_tables(&header))?;
        shared.counters.add(|c| &c.sync_count, 1);
        let (path, directory) = (chunk_path(chunk), chunk_directory(chunk));
        let _alone = gate.exclude_readers();
        {
            // A fence may have arrived while the data was written.
            let mut state = shared.lock();
            state.check_replaces(chunk, spec)?;
            let known = state.index.stripe(chunk.stripe);
            match (how, known) {
                (Finish::InTerm(epoch), Some(known)) => known.check_epoch(chunk.stripe, epoch)?,
                (Finish::New, Some(known)) => {
                    if known.chunk(chunk.index).is_some() {
                        return Err(StoreError::ChunkExists { chunk });
                    }
                    // A new chunk is of no term, so any that was promised is later.
                    known.check_epoch(chunk.stripe, Epoch(0))?;
                }
                (Finish::InPlace, _) | (_, None) => {}
            }
        }
        shared.announce_base(chunk, spec.base)?;
        let spilled = shared.spill_replaced(chunk, spec.base)?;
        let disk = &shared.disk;
        shared.require(disk.rename(&self.path, &path).context("rename", &path))?;
        self.file = None;
        let synced = disk.sync_directory(&directory);
        shared.require(synced.context("sync directory", &directory))?;
        let mut state = shared.lock();
        state.chunks.open.forget(chunk);
        state.reserves.forget_heads(chunk);
        if let Some(replaced) = state.chunk_mut(chunk) {
            replaced.replace_file();
        }
        state.set_header(header);
        state.end_announcement(chunk, spec.base);
        state.adopt_spilled(spilled);
        shared.reserve_syncs.forget(chunk);
        state.clear_suspicion(chunk);
        let epoch = match how {
            Finish::InTerm(epoch) if epoch > Epoch(0) => epoch,
            _ => return Ok(()),
        };
        let promised = shared.promise(&mut state, chunk.stripe, epoch, spec.generation);
        drop(state);
        shared.sync(promised?)
    }

    fn write_tables(&self, header: &ChunkHeader) -> Result<(), StoreError> {
        let file = self.file();
        file.write_all_at(&self.table, Extent::table_offset(0))
            .and_then(|()| file.write_all_at(&header.encode(), 0))
            .context("write", &self.path)?;
        file.sync().context("sync", &self.path)
    }

    fn first_missing(&self) -> ByteRange {
        let start = self.written.get(&0).copied().unwrap_or(0);
        let next = self.written.range(start..).next();
        let end = next.map_or(self.spec.chunk_bytes, |(offset, _)| *offset);
        ByteRange::new(start, end - start)
    }
}

impl Drop for ChunkWriter {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // If the file cannot be removed now, the next start removes it.
            let _ = self.shared.disk.remove(&self.path);
        }
    }
}
