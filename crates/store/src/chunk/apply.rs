//! Merges settled records into the chunks' own bytes and frees their journal space.
//!
//! An apply takes a batch of one chunk's settled records, reads and checks the blocks that they
//! touch, and journals the changed bytes as an image. Once the image is synced, the apply writes in
//! place: the blocks, their checksums, the header with the new base. A crash after the image's sync
//! always ends with the image in place, since writing it again changes nothing. Reads go on, except
//! during the writes in place.

use crate::checksum::crc32c;
use crate::chunk::file::{BLOCK_BYTES, ChunkHeader, Extent, read_blocks};
use crate::chunk::gate::Gate;
use crate::disk::{DiskFile, Source};
use crate::error::{IoContext, StoreError};
use crate::journal::checkpoint::Room;
use crate::journal::entry::Entry;
use crate::journal::image::Image;
use crate::journal::segment::Position;
use crate::paths::chunk_path;
use crate::records::layer::{Layer, Pending, lay_over};
use crate::records::record::Damage;
use crate::state::State;
use crate::store::{Shared, Store};
use gabion_layout::{ByteRange, ChunkId, Keeping, Sequence, StripeId};
use std::collections::BTreeMap;
use std::io;

/// Bytes of records, and of the blocks that they touch, that one batch may hold in memory.
const BATCH_BYTES: u64 = 4 << 20;
const BATCH_BLOCK_COUNT: u64 = 4096;

/// Result of an apply.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ApplySummary {
    /// Records merged into their chunks' own bytes.
    pub record_count: u64,
    /// Journal bytes of these records.
    pub record_bytes: u64,
    /// Damage that blocked records. They stay pending until the chunk is repaired.
    pub damage: Vec<Damage>,
    /// Journal segments removed.
    pub segment_count: u64,
}

/// The settled records of one chunk that are applied together.
struct Batch {
    header: ChunkHeader,
    /// The chunk's base after the batch.
    upto: Sequence,
    layers: Vec<Layer>,
    /// Start of the chunk's reserve after the batch. It moves if the batch empties the reserve; the
    /// reserve is then closed, and its records outside the batch move to the journal.
    reserve_lsn: u64,
}

impl Store {
    /// Applies all settled records of a stripe, then frees unneeded journal space.
    ///
    /// # Errors
    /// [`StoreError::NoSuchStripe`]; [`StoreError::NoSpace`], [`StoreError::Io`] and
    /// [`StoreError::Failed`]. Damage is reported in the summary and is no error.
    pub fn apply(&self, stripe: StripeId) -> Result<ApplySummary, StoreError> {
        let chunks: Vec<ChunkId> = {
            let state = self.shared.lock();
            let held = state.index.stripe(stripe);
            let held = held.ok_or(StoreError::NoSuchStripe { stripe })?;
            held.chunk_ids(stripe).collect()
        };
        self.shared.apply_chunks(chunks, u64::MAX)
    }

    /// Merges all settled records of one chunk, then frees unneeded journal space. A missing chunk,
    /// or one without records, stays unchanged.
    ///
    /// # Errors
    /// As [`Store::apply`].
    pub fn merge(&self, chunk: ChunkId) -> Result<ApplySummary, StoreError> {
        self.shared.apply_chunks(vec![chunk], u64::MAX)
    }

    /// Applies settled records, oldest in the journal first, until about `limit_bytes` of it are
    /// applied; then frees unneeded journal space. Records in reserves stay there. Records of
    /// chunks that keep them in the log stay until they exceed [`Options::log_bytes`].
    ///
    /// # Errors
    /// As [`Store::apply`].
    pub fn apply_pending(&self, limit_bytes: u64) -> Result<ApplySummary, StoreError> {
        let log_bytes = self.shared.options.log_bytes;
        let chunks = self.shared.lock().chunks_to_apply(log_bytes);
        self.shared.apply_chunks(chunks, limit_bytes)
    }
}

impl State {
    /// The chunks with records to merge in the background, oldest record first. Chunks that keep
    /// records in the log are left out until their records exceed `log_bytes`.
    fn chunks_to_apply(&self, log_bytes: u64) -> Vec<ChunkId> {
        let mut found = Vec::new();
        let mut logged_bytes = 0;
        for (chunk, entry) in self.index.chunks() {
            let backlog = entry.records().backlog(self.mergeable_upto(chunk.stripe));
            let Some((oldest, backlog_bytes)) = backlog else {
                continue;
            };
            // Of a reserve's records, only those that did not fit are in the journal.
            let is_logged = matches!(
                entry.keeping(),
                Some(Keeping::Log | Keeping::Reserve { bytes: 1.. })
            );
            let chunk_bytes = if is_logged { backlog_bytes } else { 0 };
            logged_bytes += chunk_bytes;
            found.push((oldest, chunk, chunk_bytes));
        }
        found.sort_unstable();
        let mut excess_bytes = logged_bytes.saturating_sub(log_bytes);
        let is_due = |(_, chunk, chunk_bytes): (_, ChunkId, u64)| {
            if chunk_bytes > 0 && excess_bytes == 0 {
                return None;
            }
            excess_bytes = excess_bytes.saturating_sub(chunk_bytes);
            Some(chunk)
        };
        found.into_iter().filter_map(is_due).collect()
    }

    /// The next records of a chunk to apply, if there are any.
    fn batch(&mut self, chunk: ChunkId) -> Result<Option<Batch>, StoreError> {
        // An image must fit into a segment with room to spare, as the largest record does.
        let batch_bytes = BATCH_BYTES.min(self.journal.segment_bytes() / 4);
        let header = match self.header(chunk) {
            Ok(header) => header,
            Err(StoreError::NoSuchChunk { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let range = (header.spec.base, self.mergeable_upto(chunk.stripe));
        let mut settled = self
            .records(chunk, range, |head| !head.kind.is_appended())?
            .into_iter()
            .peekable();
        let (mut bytes, mut block_count) = (0, 0);
        let mut batch = Batch {
            header,
            upto: header.spec.base,
            layers: Vec::new(),
            reserve_lsn: header.reserve_lsn,
        };
        while let Some((_, record)) = settled.peek() {
            let mut ranges = record.head.pieces.iter().map(|piece| piece.range);
            if !ranges.all(|range| header.extent().contains(range)) {
                // The record is not one of this file.
                if batch.layers.is_empty() {
                    return Err(StoreError::corrupt_whole(chunk));
                }
                break;
            }
            for piece in &record.head.pieces {
                bytes += piece.range.length;
                block_count += header.extent().block_span(piece.range).length / BLOCK_BYTES + 1;
            }
            let is_full = bytes > batch_bytes || block_count > BATCH_BLOCK_COUNT;
            if is_full && !batch.layers.is_empty() {
                break;
            }
            let (sequence, record) = settled.next().expect("it was peeked at");
            batch.upto = sequence;
            batch.layers.push(record);
        }
        if batch.layers.is_empty() {
            return Ok(None);
        }
        let is_last = settled.peek().is_none();
        if let Some(reserve) = self.reserve_mut(chunk).filter(|_| is_last) {
            batch.reserve_lsn = reserve.close().unwrap_or(batch.reserve_lsn);
        }
        Ok(Some(batch))
    }
}

impl Shared {
    /// Applies the settled records of chunks in turn until about `limit_bytes` of the journal are
    /// applied, then frees unneeded journal space.
    fn apply_chunks(
        &self,
        chunks: Vec<ChunkId>,
        limit_bytes: u64,
    ) -> Result<ApplySummary, StoreError> {
        let mut summary = ApplySummary::default();
        for chunk in chunks {
            if summary.record_bytes >= limit_bytes {
                break;
            }
            let left_bytes = limit_bytes - summary.record_bytes;
            self.apply_in_background(chunk, left_bytes, &mut summary)?;
        }
        self.reclaim(&mut summary)?;
        Ok(summary)
    }

    pub(crate) fn apply_in_background(
        &self,
        chunk: ChunkId,
        limit_bytes: u64,
        summary: &mut ApplySummary,
    ) -> Result<(), StoreError> {
        let before = summary.record_count;
        let gate = self.lock().chunks.gate(chunk);
        let _changing = gate.begin_change();
        self.apply_chunk(&gate, chunk, limit_bytes, summary)?;
        let count = u64::from(summary.record_count > before);
        self.counters.add(|c| &c.background_merge_count, count);
        Ok(())
    }

    /// Applies a chunk's settled records in batches. Damage ends the apply and is reported. The
    /// caller has begun to change the chunk.
    pub(crate) fn apply_chunk(
        &self,
        gate: &Gate,
        chunk: ChunkId,
        limit_bytes: u64,
        summary: &mut ApplySummary,
    ) -> Result<(), StoreError> {
        let outcome = self.apply_batches(gate, chunk, limit_bytes, summary);
        self.lock().open_reserve(chunk);
        outcome
    }

    fn apply_batches(
        &self,
        gate: &Gate,
        chunk: ChunkId,
        limit_bytes: u64,
        summary: &mut ApplySummary,
    ) -> Result<(), StoreError> {
        self.check_latch()?;
        let enough_bytes = summary.record_bytes.saturating_add(limit_bytes);
        while summary.record_bytes < enough_bytes {
            let batch = self.lock().batch(chunk);
            let applied = batch.and_then(|batch| match batch {
                None => Ok(false),
                Some(batch) => self.apply_batch(gate, &batch, summary).map(|()| true),
            });
            match applied {
                // Segments go batch by batch: on a full disk, the next image needs their space.
                Ok(true) => {
                    let reclaimed = self.lock().journal.reclaim();
                    summary.segment_count += self.require(reclaimed)?;
                }
                Ok(false) => break,
                Err(StoreError::Corrupt { chunk, range }) => {
                    summary.damage.push(Damage { chunk, range });
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn apply_batch(
        &self,
        gate: &Gate,
        batch: &Batch,
        summary: &mut ApplySummary,
    ) -> Result<(), StoreError> {
        let (chunk, upto) = (batch.header.chunk, batch.upto);
        let path = chunk_path(chunk);
        let file = self.lock().open_file(chunk)?;
        let (blocks, image) = compute(&*file, batch)?;
        let spilled = self.spill_rest(batch)?;
        let position = match self.append_image(batch, &image) {
            Ok(position) => position,
            Err(error) => {
                self.lock().unspill(spilled);
                return Err(error);
            }
        };
        let mut header = batch.header;
        header.spec.base = upto;
        header.reserve_lsn = batch.reserve_lsn;
        let included = {
            let _alone = gate.exclude_readers();
            let written = write_in_place(&*file, header, &blocks, &image.block_crcs);
            let written_bytes = self.require_or_distrust(chunk, written.context("write", &path))?;
            self.counters.add(|c| &c.in_place_bytes, written_bytes);
            // From here on, readers use the new base and the remaining records.
            let mut state = self.lock();
            let included = state.take_included(header);
            state.adopt_spilled(spilled);
            included
        };
        // The journal keeps the image and the records until the file is durable. If its sync fails,
        // it keeps them for the next start.
        let synced = self.sync_chunk(chunk, &*file);
        self.require_or_distrust(chunk, synced.context("sync", &path))?;
        self.counters.add(|c| &c.sync_count, 1);
        summary.record_count += batch.layers.len() as u64;
        let frames = batch.layers.iter().map(|layer| layer.located.frame_bytes);
        summary.record_bytes += frames.map(u64::from).sum::<u64>();
        let mut state = self.lock();
        state.release(included);
        state.journal.release(position);
        if batch.reserve_lsn != batch.header.reserve_lsn {
            // All records of the reserve are in the chunk, or durable in the journal.
            self.reserve_syncs.forget(chunk);
        }
        let done = Entry::Applied { chunk, upto };
        match self.append(&mut state, &done, &[], Room::Ordinary) {
            // Without this entry, the next start writes the image again.
            Ok(_) | Err(StoreError::NoSpace { .. } | StoreError::Busy { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Moves the records that a batch does not take from the reserve that it empties to the
    /// journal.
    fn spill_rest(&self, batch: &Batch) -> Result<Vec<Pending>, StoreError> {
        if batch.reserve_lsn == batch.header.reserve_lsn {
            return Ok(Vec::new());
        }
        let mut state = self.lock();
        self.spill(&mut state, batch.header.chunk, batch.upto, &[])
    }

    /// Makes a batch's image durable, and every earlier journal entry with it.
    fn append_image(&self, batch: &Batch, image: &Image) -> Result<Position, StoreError> {
        let entry = Entry::Image {
            chunk: batch.header.chunk,
            birth_lsn: batch.header.birth_lsn,
            upto: batch.upto,
            reserve_lsn: batch.reserve_lsn,
        };
        let position = {
            let mut state = self.lock();
            let body = image.encode();
            let position = self.append(&mut state, &entry, &[&body], Room::Reserved)?;
            state.journal.keep(position);
            position
        };
        self.sync(position.end_lsn())?;
        Ok(position)
    }
}

/// Stretches of whole blocks by the offset of their first byte. Invariant: disjoint, not adjacent.
type Blocks = BTreeMap<u64, Vec<u8>>;

/// Computes the new contents of the blocks that a batch touches.
fn compute(file: &dyn DiskFile, batch: &Batch) -> Result<(Blocks, Image), StoreError> {
    let (chunk, extent) = (batch.header.chunk, batch.header.extent());
    let pieces = || batch.layers.iter().flat_map(|layer| &layer.head.pieces);
    let spans = pieces().map(|piece| extent.block_span(piece.range));
    let mut runs = Blocks::new();
    for span in ByteRange::union(spans.collect()) {
        let mut bytes = vec![0; span.length as usize];
        read_blocks(Source::File(file), extent, span, &mut bytes)
            .map_err(|failure| failure.into_error(chunk))?;
        runs.insert(span.offset, bytes);
    }
    let mut buffer = Vec::new();
    for layer in &batch.layers {
        let body = layer.body(&mut buffer)?;
        for (&offset, bytes) in &mut runs {
            let span = ByteRange::new(offset, bytes.len() as u64);
            if layer.head.hull().intersect(span).is_some() {
                lay_over(bytes, span, &layer.head, body);
            }
        }
    }
    let mut image = Image::default();
    let ranges = pieces().map(|piece| piece.range);
    for range in ByteRange::union(ranges.collect()) {
        let (start, run) = runs
            .range(..=range.offset)
            .next_back()
            .expect("a run was read around every piece");
        let at = (range.offset - start) as usize;
        let bytes = run[at..at + range.length as usize].to_vec();
        image.ranges.insert(range.offset, bytes);
    }
    for (offset, run) in &runs {
        for (number, block) in run.chunks(BLOCK_BYTES as usize).enumerate() {
            let block_number = offset / BLOCK_BYTES + number as u64;
            image.block_crcs.insert(block_number, crc32c(block));
        }
    }
    Ok((runs, image))
}

/// Writes blocks or parts of them, their checksums and the header. Returns the bytes written.
pub(crate) fn write_in_place(
    file: &dyn DiskFile,
    header: ChunkHeader,
    bytes: &BTreeMap<u64, Vec<u8>>,
    block_crcs: &BTreeMap<u64, u32>,
) -> io::Result<u64> {
    let extent = header.extent();
    let mut written_bytes = 0;
    for (&offset, bytes) in bytes {
        file.write_all_at(bytes, extent.data_offset(offset))?;
        written_bytes += bytes.len();
    }
    // One write covers neighbouring checksums.
    let mut entries = block_crcs.iter().peekable();
    while let Some((&first, crc)) = entries.next() {
        let mut table = crc.to_le_bytes().to_vec();
        let mut next = first + 1;
        while let Some((_, crc)) = entries.next_if(|(block, _)| **block == next) {
            table.extend_from_slice(&crc.to_le_bytes());
            next += 1;
        }
        file.write_all_at(&table, Extent::table_offset(first))?;
        written_bytes += table.len();
    }
    let header = header.encode();
    file.write_all_at(&header, 0)?;
    Ok((written_bytes + header.len()) as u64)
}
