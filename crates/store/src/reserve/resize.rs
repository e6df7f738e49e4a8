//! The interface of a reserve manager: fill levels, shrinking, growing.
//!
//! A reserve shrinks from its end by a hole in the chunk's file (`CodFS` 4.2), after a merge if
//! records lie there, and grows by an allocation. The header drops space before it is freed and
//! adds it after it is allocated. A crash between leaves space that is allocated and unused, which
//! the next shrinking frees.

use crate::chunk::apply::ApplySummary;
use crate::chunk::file::{BLOCK_BYTES, ChunkHeader, RESERVE_BYTES_MAX};
use crate::chunk::gate::Gate;
use crate::disk::DiskFile;
use crate::error::{IoContext, StoreError};
use crate::paths::chunk_path;
use crate::records::record::ChunkInfo;
use crate::state::State;
use crate::store::{Shared, Store};
use gabion_layout::{ByteRange, ChunkId, Keeping, Sequence};
use std::sync::Arc;

/// A snapshot of a chunk's reserve. Counts begin when the store is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReserveStats {
    /// The chunk.
    pub chunk: ChunkId,
    /// Bytes reserved.
    pub reserved_bytes: u64,
    /// Whether no record was ever in it.
    pub is_new: bool,
    /// Bytes of them that have disk space: none before the first record.
    pub backed_bytes: u64,
    /// Bytes of them that hold records.
    pub used_bytes: u64,
    /// Records in it.
    pub record_count: u64,
    /// The lowest update number in it.
    pub oldest: Option<Sequence>,
    /// The highest update number in it.
    pub newest: Option<Sequence>,
    /// Bytes of records and frames appended to it.
    pub appended_bytes: u64,
    /// The number of times it was emptied.
    pub merge_count: u64,
    /// Appends that waited for a merge because it was full, or had no space left, and appends
    /// whose record is larger than it.
    pub stalled_append_count: u64,
}

impl Store {
    /// The reserve of a chunk; `None` if its keeping has none.
    ///
    /// # Errors
    /// [`StoreError::NoSuchChunk`]; [`StoreError::Corrupt`] when the chunk as a whole is damaged;
    /// [`StoreError::Io`].
    pub fn reserve(&self, chunk: ChunkId) -> Result<Option<ReserveStats>, StoreError> {
        let mut state = self.shared.lock();
        state.header(chunk)?;
        Ok(state.reserve_stats(chunk))
    }

    /// All reserves, in the order of their chunks. Damaged chunks are left out.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn reserves(&self) -> Result<Vec<ReserveStats>, StoreError> {
        let chunks = self.chunks()?;
        let state = self.shared.lock();
        let of = |info: &ChunkInfo| state.reserve_stats(info.chunk);
        Ok(chunks.iter().filter_map(of).collect())
    }

    /// Plans the sizes that the reserves of these chunks take with the first record that they ever
    /// hold, instead of those in their headers. A reserve of 0 bytes, one that has held a record,
    /// and a chunk that is not here are left out. Plans end with the process.
    ///
    /// # Errors
    /// [`StoreError::Malformed`] when a size is 0 or above 256 MiB; no plan has changed then.
    pub fn plan_reserves(&self, planned: &[(ChunkId, u64)]) -> Result<(), StoreError> {
        let sizes = 1..=RESERVE_BYTES_MAX;
        if !planned.iter().all(|(_, bytes)| sizes.contains(bytes)) {
            let reason = "a planned reserve has at least 1 byte and at most 256 MiB";
            return Err(StoreError::Malformed { reason });
        }
        let mut state = self.shared.lock();
        for &(chunk, bytes) in planned {
            if let Some(reserve) = state.reserve_mut(chunk) {
                reserve.planned_bytes = Some(bytes);
            }
        }
        Ok(())
    }

    /// Shrinks a chunk's reserve to `new_bytes` or a little more: the freed bytes are a multiple of
    /// `unit_bytes`. Records there are merged first, and those that may not be merged move to the
    /// journal. Returns the freed bytes. With a reserve of 0 bytes, the chunk merges each record
    /// before it takes the next.
    ///
    /// # Errors
    /// - [`StoreError::Malformed`] when the chunk has no reserve, or the unit is not a multiple of
    ///   4 KiB.
    /// - [`StoreError::NoSuchChunk`]; [`StoreError::Corrupt`] when damage prevents emptying it.
    /// - [`StoreError::NoSpace`], [`StoreError::Io`], [`StoreError::Failed`].
    pub fn shrink(
        &self,
        chunk: ChunkId,
        new_bytes: u64,
        unit_bytes: u64,
    ) -> Result<u64, StoreError> {
        if unit_bytes == 0 || !unit_bytes.is_multiple_of(BLOCK_BYTES) {
            let reason = "reserves shrink in whole multiples of 4 KiB";
            return Err(StoreError::Malformed { reason });
        }
        let shared = &self.shared;
        let gate = shared.lock().chunks.gate(chunk);
        let _changing = gate.begin_change();
        let (header, old_bytes) = shared.reserve_header(chunk)?;
        let given_bytes = old_bytes.saturating_sub(new_bytes) / unit_bytes * unit_bytes;
        if given_bytes == 0 {
            return Ok(0);
        }
        let left_bytes = old_bytes - given_bytes;
        shared.make_fit(&gate, chunk, left_bytes)?;
        let resized = shared.set_reserve_bytes(&gate, chunk, left_bytes);
        shared.lock().open_reserve(chunk);
        let file = resized?;
        let offset = header.extent().reserve_offset() + left_bytes;
        // Free everything behind it, so that space left by an earlier crash is freed too.
        let path = chunk_path(chunk);
        let length = file.length().context("measure", &path)?;
        let punched = file.punch_hole(offset, length.saturating_sub(offset));
        shared.require(punched.context("punch a hole in", &path))?;
        shared.counters.add(|c| &c.punched_bytes, given_bytes);
        Ok(given_bytes)
    }

    /// Grows a chunk's reserve to `new_bytes`; does nothing if it is at least as large.
    ///
    /// # Errors
    /// - [`StoreError::Malformed`] when the chunk has no reserve, or it would exceed 256 MiB.
    /// - [`StoreError::NoSpace`] when the disk has no space beyond the bytes that must stay free.
    /// - [`StoreError::NoSuchChunk`], [`StoreError::Corrupt`], [`StoreError::Io`],
    ///   [`StoreError::Failed`].
    pub fn grow(&self, chunk: ChunkId, new_bytes: u64) -> Result<(), StoreError> {
        if new_bytes > RESERVE_BYTES_MAX {
            let reason = "a chunk's reserve has at most 256 MiB";
            return Err(StoreError::Malformed { reason });
        }
        let shared = &self.shared;
        let gate = shared.lock().chunks.gate(chunk);
        let _changing = gate.begin_change();
        let (header, old_bytes) = shared.reserve_header(chunk)?;
        let Some(more_bytes) = new_bytes.checked_sub(old_bytes).filter(|more| *more > 0) else {
            return Ok(());
        };
        let file = shared.lock().open_file(chunk)?;
        shared.allocate_reserve(&header, &*file, ByteRange::new(old_bytes, more_bytes))?;
        shared.sync_space(chunk, &*file)?;
        let resized = shared.set_reserve_bytes(&gate, chunk, new_bytes);
        resized.map(|_| ())
    }
}

impl Shared {
    /// Makes newly allocated space durable, which a file must have before its header includes it.
    pub(super) fn sync_space(&self, chunk: ChunkId, file: &dyn DiskFile) -> Result<(), StoreError> {
        let synced = self.sync_chunk(chunk, file);
        self.require(synced.context("sync", &chunk_path(chunk)))?;
        self.counters.add(|c| &c.sync_count, 1);
        Ok(())
    }

    /// A chunk's header and the bytes of its reserve.
    pub(super) fn reserve_header(&self, chunk: ChunkId) -> Result<(ChunkHeader, u64), StoreError> {
        self.check_latch()?;
        let header = self.lock().header(chunk)?;
        let reason = "this chunk has no reserve";
        let bytes = header.spec.keeping.reserve_bytes();
        let bytes = bytes.ok_or(StoreError::Malformed { reason })?;
        Ok((header, bytes))
    }

    /// Makes the records of a reserve fit into `bytes` of it, and leaves it closed.
    fn make_fit(&self, gate: &Gate, chunk: ChunkId, bytes: u64) -> Result<(), StoreError> {
        if self.lock().close_if_fits(chunk, bytes) {
            return Ok(());
        }
        let mut summary = ApplySummary::default();
        self.apply_chunk(gate, chunk, u64::MAX, &mut summary)?;
        let merge_count = u64::from(summary.record_count > 0);
        self.counters
            .add(|c| &c.background_merge_count, merge_count);
        while !self.lock().close_if_fits(chunk, bytes) {
            self.empty_reserve(gate, chunk, &[])?;
        }
        Ok(())
    }

    /// Writes a header with the new size of the reserve.
    pub(super) fn set_reserve_bytes(
        &self,
        gate: &Gate,
        chunk: ChunkId,
        bytes: u64,
    ) -> Result<Arc<dyn DiskFile>, StoreError> {
        let _alone = gate.exclude_readers();
        let (mut header, file) = {
            let mut state = self.lock();
            let header = state.header(chunk)?;
            (header, state.open_file(chunk)?)
        };
        header.spec.keeping = Keeping::Reserve { bytes };
        self.write_header(chunk, &*file, &header.encode())?;
        self.counters.add(|c| &c.sync_count, 1);
        self.lock().set_header(header);
        Ok(file)
    }
}

impl State {
    fn reserve_stats(&self, chunk: ChunkId) -> Option<ReserveStats> {
        let reserve = self.reserve(chunk)?;
        Some(ReserveStats {
            chunk,
            reserved_bytes: reserve.bytes,
            is_new: reserve.is_new(),
            backed_bytes: reserve.backed_bytes(),
            used_bytes: reserve.used_bytes(),
            record_count: reserve.record_count,
            oldest: reserve.oldest,
            newest: reserve.newest,
            appended_bytes: reserve.appended_bytes,
            merge_count: reserve.merge_count,
            stalled_append_count: reserve.stalled_count,
        })
    }

    /// Closes a reserve if its records fit into `bytes`.
    fn close_if_fits(&mut self, chunk: ChunkId, bytes: u64) -> bool {
        let Some(reserve) = self.reserve_mut(chunk) else {
            return true;
        };
        let fits = reserve.used_bytes() <= bytes;
        reserve.is_closed |= fits;
        fits
    }
}
