//! The number of fragments of a chunk on its disk.
//!
//! `CodFS` counts the fragments of a chunk and its records (section 5.2.1, "storage
//! fragmentation"): they are the cost of a scheme's log for readers. The file system reports the
//! location of the bytes, so its own fragmentation is included.

use crate::chunk::file::BLOCK_BYTES;
use crate::disk::PhysicalExtent;
use crate::error::{IoContext, StoreError};
use crate::paths::chunk_path;
use crate::store::Store;
use gabion_layout::{ByteRange, ChunkId, Sequence};

/// Runs of neighbouring disk blocks that hold a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fragments {
    /// Runs of the chunk's own bytes.
    pub chunk_count: u64,
    /// Runs of the chunk's own bytes and of all records not yet merged into them.
    pub total_count: u64,
}

impl Store {
    /// Counts the fragments of a chunk on the disk, alone and with its records.
    ///
    /// # Errors
    /// [`StoreError::NoSuchChunk`]; [`StoreError::Corrupt`] when the chunk as a whole is damaged;
    /// [`StoreError::Io`], also when the file system does not report the location of a file.
    pub fn fragments(&self, chunk: ChunkId) -> Result<Fragments, StoreError> {
        let gate = self.shared.lock().chunks.gate(chunk);
        let _shared = gate.begin_read();
        let path = chunk_path(chunk);
        let (header, file, records) = {
            let mut state = self.shared.lock();
            let header = state.header(chunk)?;
            let file = state.open_file(chunk)?;
            let all = (header.spec.base, Sequence(u64::MAX));
            (header, file, state.records(chunk, all, |_| true)?)
        };
        let own = ByteRange::new(header.extent().data_offset(0), header.spec.chunk_bytes);
        let mut blocks = blocks_of(&file.extents(own).context("map", &path)?);
        let chunk_count = run_count(&mut blocks);
        for record in records.values() {
            let located = &record.located;
            let range = ByteRange::new(located.offset, u64::from(located.frame_bytes));
            let extents = located.file.extents(range).context("map", &path)?;
            blocks.extend(blocks_of(&extents));
        }
        Ok(Fragments {
            chunk_count,
            total_count: run_count(&mut blocks),
        })
    }
}

/// The disk blocks that extents touch: the first, and the one behind the last.
fn blocks_of(extents: &[PhysicalExtent]) -> Vec<(u64, u64)> {
    let blocks = |extent: &PhysicalExtent| {
        let end = (extent.physical + extent.length).div_ceil(BLOCK_BYTES);
        (extent.physical / BLOCK_BYTES, end)
    };
    extents.iter().map(blocks).collect()
}

/// Counts runs of neighbouring blocks; sorts the blocks.
fn run_count(blocks: &mut [(u64, u64)]) -> u64 {
    blocks.sort_unstable();
    let mut count = 0;
    let mut behind = None;
    for &mut (first, end) in blocks {
        if behind.is_none_or(|behind| first > behind) {
            count += 1;
        }
        behind = behind.max(Some(end));
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_touch_or_overlap_are_one_run() {
        assert_eq!(run_count(&mut []), 0);
        assert_eq!(run_count(&mut [(8, 9), (0, 4), (4, 6)]), 2);
        assert_eq!(run_count(&mut [(0, 9), (1, 2), (9, 10), (11, 12)]), 2);
    }
}
