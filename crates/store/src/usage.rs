//! The disk space that a store takes.

use crate::chunk::file::BLOCK_BYTES;
use crate::error::{IoContext, StoreError};
use crate::index::Chunk;
use crate::paths::TRASH_DIRECTORY;
use crate::reserve::Reserve;
use crate::store::Store;
use gabion_layout::ByteRange;

/// Files and directories beside chunks, journal and trash: the format, the identity and the lock;
/// the root and the directories in it.
const OTHER_COUNT: u64 = 8;

impl Store {
    /// Bytes of disk space that the store takes without its trash, in blocks of 4 KiB: chunks,
    /// reserves that have space, the journal, directories. Damaged chunks and unfinished ones are
    /// left out, and so are those whose header was not read yet: [`Store::reserves`] reads all.
    pub fn used_bytes(&self) -> u64 {
        let state = self.shared.lock();
        let chunk_bytes: u64 = state.index.chunks().map(|(_, chunk)| space_of(chunk)).sum();
        let other_count = OTHER_COUNT + state.chunks.directory_count();
        let other_bytes = other_count * BLOCK_BYTES;
        chunk_bytes + state.journal.allocated_bytes() + other_bytes
    }

    /// Bytes of disk space that these files in the trash take. They never change. A file that cannot be measured now
    /// is left out.
    pub fn trash_bytes(&self, names: Vec<String>) -> Vec<(String, u64)> {
        let measure = |name: String| {
            let bytes = self.measure_trash(&name).ok()?;
            Some((name, bytes))
        };
        names.into_iter().filter_map(measure).collect()
    }

    fn measure_trash(&self, name: &str) -> Result<u64, StoreError> {
        let path = format!("{TRASH_DIRECTORY}/{name}");
        let file = self.shared.disk.open(&path);
        let file = file.context_or_busy("open", &path)?;
        let length = file.length().context("measure", &path)?;
        // A file's reserve may be a hole.
        let extents = file.extents(ByteRange::new(0, length));
        Ok(extents.map_or(length, |all| all.iter().map(|e| e.length).sum()))
    }
}

fn space_of(chunk: &Chunk) -> u64 {
    let Some(header) = chunk.known_header() else {
        return 0;
    };
    let own_bytes = header.extent().own_bytes().next_multiple_of(BLOCK_BYTES);
    own_bytes + chunk.reserve().map_or(0, Reserve::backed_bytes)
}
