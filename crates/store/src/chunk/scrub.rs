//! Scrubs chunks, to find damage before their bytes are needed.

use crate::chunk::file::{BLOCK_BYTES, ChunkHeader, ReadFailure, read_blocks, read_header};
use crate::disk::{DiskFile, Source};
use crate::error::{IoContext, StoreError, is_shortage};
use crate::paths::chunk_path;
use crate::records::record::Damage;
use crate::store::Store;
use gabion_layout::{ByteRange, ChunkId, Sequence};

/// Bytes of a chunk checked at a time; changes of the chunk wait for it.
const STRETCH_BYTES: u64 = 1 << 20;

impl Store {
    /// Checks a chunk's header, checksums, every byte, its reserve and its pending records. Returns the
    /// damaged ranges in order, with neighbouring blocks joined. Bytes that the disk cannot read count
    /// as damaged, and so does a missing file.
    ///
    /// # Errors
    /// [`StoreError::NoSuchChunk`]; [`StoreError::Busy`] when no descriptor is left to open the file.
    pub fn scrub(&self, chunk: ChunkId) -> Result<Vec<Damage>, StoreError> {
        let disk = &*self.shared.disk;
        let path = chunk_path(chunk);
        let gate = self.shared.gate_of(chunk)?;
        let mut bad = Vec::new();
        let mut offset = 0;
        loop {
            // Read again for each stretch, since the chunk may be replaced between two stretches.
            let _shared = gate.begin_read();
            let whole = vec![Damage {
                chunk,
                range: Damage::WHOLE,
            }];
            let known = self.shared.lock().header(chunk);
            match known {
                Ok(_) => {}
                Err(StoreError::Corrupt { .. }) => return Ok(whole),
                Err(error) => return Err(error),
            }
            let file = match disk.open(&path) {
                Err(source) if !is_shortage(&source) => return Ok(whole),
                opened => opened.context_or_busy("open", &path)?,
            };
            let Ok(header) = read_header(Source::File(&*file), chunk) else {
                return Ok(whole);
            };
            let extent = header.extent();
            if offset >= extent.chunk_bytes {
                // The next start reads all of it to find its records, also where there are none.
                if !is_reserve_readable(&*file, &header) {
                    return Ok(whole);
                }
                break;
            }
            let left = extent.chunk_bytes - offset;
            if is_beyond(&*file, extent.data_offset(offset)) {
                add(&mut bad, ByteRange::new(offset, left));
                offset = extent.chunk_bytes;
                continue;
            }
            let span = ByteRange::new(offset, STRETCH_BYTES.min(left));
            let blocks = bad_blocks(span, |block, buffer| {
                read_blocks(Source::File(&*file), extent, block, buffer)
            });
            for block in blocks {
                add(&mut bad, block);
            }
            offset = span.end();
        }
        let _shared = gate.begin_read();
        bad.extend(self.bad_records(chunk)?);
        let damage = |range| Damage { chunk, range };
        Ok(ByteRange::union(bad).into_iter().map(damage).collect())
    }

    /// The ranges of a chunk's pending records that cannot be read.
    fn bad_records(&self, chunk: ChunkId) -> Result<Vec<ByteRange>, StoreError> {
        let mut bad = Vec::new();
        let records = {
            let mut state = self.shared.lock();
            let all = |header: ChunkHeader| (header.spec.base, Sequence(u64::MAX));
            let range = state.header(chunk).map(all);
            range.and_then(|range| state.records(chunk, range, |_| true))
        };
        let layers = match records {
            Ok(records) => records.into_values(),
            Err(StoreError::NoSuchChunk { .. }) => return Ok(bad),
            Err(StoreError::Corrupt { range, .. }) => return Ok(vec![range]),
            Err(error) => return Err(error),
        };
        let mut buffer = Vec::new();
        for layer in layers {
            match layer.body(&mut buffer) {
                Ok(_) => {}
                Err(StoreError::Corrupt { .. } | StoreError::Io { .. }) => {
                    bad.extend(layer.head.pieces.iter().map(|piece| piece.range));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(bad)
    }
}

/// Whether the disk can read every byte of a chunk's reserve, if it has one.
fn is_reserve_readable(file: &dyn DiskFile, header: &ChunkHeader) -> bool {
    let mut offset = header.extent().reserve_offset();
    let end = offset + header.spec.keeping.reserve_bytes().unwrap_or(0);
    let mut buffer = vec![0; STRETCH_BYTES.min(end - offset) as usize];
    while offset < end {
        let some = &mut buffer[..STRETCH_BYTES.min(end - offset) as usize];
        if Source::File(file).fill(some, offset).is_err() {
            return false;
        }
        offset += some.len() as u64;
    }
    true
}

/// Whether the file is known to end before this place. A damaged header may promise gigabytes that the file does not
/// have.
fn is_beyond(file: &dyn DiskFile, offset: u64) -> bool {
    file.length().is_ok_and(|length| length <= offset)
}

/// Adds a damaged range behind others, or to the last of them.
fn add(bad: &mut Vec<ByteRange>, range: ByteRange) {
    match bad.last_mut() {
        Some(last) if last.end() == range.offset => last.length += range.length,
        _ => bad.push(range),
    }
}

/// The blocks of a stretch that cannot be read. An intact stretch takes one read.
fn bad_blocks(
    span: ByteRange,
    read: impl Fn(ByteRange, &mut [u8]) -> Result<(), ReadFailure>,
) -> Vec<ByteRange> {
    let mut buffer = vec![0; span.length as usize];
    if read(span, &mut buffer).is_ok() {
        return Vec::new();
    }
    let mut bad = Vec::new();
    let mut offset = span.offset;
    while offset < span.end() {
        let block = ByteRange::new(offset, BLOCK_BYTES.min(span.end() - offset));
        if read(block, &mut buffer[..block.length as usize]).is_err() {
            bad.push(block);
        }
        offset = block.end();
    }
    bad
}
