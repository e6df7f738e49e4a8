//! Looking for damage before anybody needs the bytes.

use crate::chunk::file::{BLOCK_BYTES, ChunkHeader, ReadFailure, read_blocks, read_header};
use crate::disk::Source;
use crate::error::{IoContext, StoreError, is_shortage};
use crate::journal::SEGMENT_HEADER_BYTES;
use crate::journal::scan::{Found, scan};
use crate::paths::chunk_path;
use crate::records::record::Damage;
use crate::recovery::JournalDamage;
use crate::store::Store;
use gabion_layout::{ByteRange, ChunkId, Sequence};

/// Bytes of a chunk that are checked while changes of it wait.
const STRETCH_BYTES: u64 = 1 << 20;

impl Store {
    /// Checks a chunk's header, checksums and every byte, and the records that are pending for it.
    /// The answer is what cannot be served, in order, neighbouring blocks joined; bytes that the
    /// disk refuses to give count as damaged, and so does a file that has vanished.
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
            // Looked at anew each time, for the chunk may be replaced between two stretches.
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
                break;
            }
            let stretch = STRETCH_BYTES.min(extent.chunk_bytes - offset);
            let span = ByteRange::new(offset, stretch);
            bad.extend(bad_blocks(span, |block, buffer| {
                read_blocks(Source::File(&*file), extent, block, buffer)
            }));
            offset = span.end();
        }
        let _shared = gate.begin_read();
        bad.extend(self.bad_records(chunk)?);
        Ok(join(chunk, bad))
    }

    /// The ranges of pending records of a chunk that cannot be read.
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

    /// Checks every frame of the journal that was there when it began, and makes it durable first:
    /// only what must be readable can be told to be damaged.
    ///
    /// # Errors
    /// [`StoreError::Io`] and [`StoreError::Failed`].
    pub fn scrub_journal(&self) -> Result<Vec<JournalDamage>, StoreError> {
        self.sync_all()?;
        let segments: Vec<(u64, u64, u64)> = {
            let state = self.shared.lock();
            let journal = &state.journal;
            let bases = journal.segments.iter().map(|(&n, s)| (n, s.base_lsn));
            let ends = journal.segments.values().skip(1).map(|s| s.base_lsn);
            let ends = ends.chain([journal.end_lsn]);
            bases
                .zip(ends)
                .map(|((n, base), end)| (n, base, end))
                .collect()
        };
        let mut damage = Vec::new();
        for (segment, base_lsn, end_lsn) in segments {
            let frames = self.shared.lock().journal.frames(segment);
            // It may have been reclaimed since.
            let Some(frames) = frames else { continue };
            let frames = frames.read(end_lsn - base_lsn)?;
            scan(&frames, base_lsn, (0, Some(end_lsn)), |lsn, found| {
                let bytes = match found {
                    Found::Whole(_) => return,
                    Found::BodyDamaged(frame) => frame.padded_bytes as u64,
                    Found::Unreadable(bytes) => bytes,
                };
                let offset = SEGMENT_HEADER_BYTES + lsn - base_lsn;
                let range = ByteRange::new(offset, bytes);
                damage.push(JournalDamage { segment, range });
            });
        }
        Ok(damage)
    }
}

/// The blocks of a stretch that cannot be read. Reads all at once when all is well.
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

fn join(chunk: ChunkId, mut bad: Vec<ByteRange>) -> Vec<Damage> {
    bad.sort_unstable();
    let mut joined: Vec<Damage> = Vec::new();
    for range in bad {
        match joined.last_mut() {
            Some(last) if range.offset <= last.range.end() => {
                last.range.length = last.range.end().max(range.end()) - last.range.offset;
            }
            _ => joined.push(Damage { chunk, range }),
        }
    }
    joined
}
