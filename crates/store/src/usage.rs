//! The disk space that a store takes.

use crate::chunk::file::{BLOCK_BYTES, Extent};
use crate::error::{IoContext, StoreError};
use crate::index::Chunk;
use crate::paths::TRASH_DIRECTORY;
use crate::reserve::Reserve;
use crate::store::Store;
use gabion_layout::{ByteRange, StripeId, StripeRecord};

/// Files and directories beside chunks, journal and trash: the format, the identity and the lock;
/// the root and the directories in it.
const OTHER_COUNT: u64 = 8;

/// Bytes of disk space that the file of a chunk of this size takes, without its reserve: its header, its checksums and
/// its bytes, in blocks of 4 KiB. A size that no chunk has counts as the nearest one.
///
/// ```
/// use gabion_store::chunk_disk_bytes;
///
/// assert_eq!(chunk_disk_bytes(1 << 20), (1 << 20) + 8192);
/// assert_eq!(chunk_disk_bytes(100), 3 * 4096);
/// ```
pub fn chunk_disk_bytes(chunk_bytes: u64) -> u64 {
    let extent = Extent::new(chunk_bytes.clamp(1, StripeRecord::CHUNK_BYTES_MAX));
    extent.own_bytes().next_multiple_of(BLOCK_BYTES)
}

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

    /// Bytes of reserves with disk space behind the chunks of these stripes; stripes without any are left out. Chunks
    /// whose header was not read yet count nothing, as in [`Store::used_bytes`].
    pub fn reserved_bytes(&self, stripes: &[StripeId]) -> Vec<(StripeId, u64)> {
        let state = self.shared.lock();
        let of_stripe = |&id: &StripeId| {
            let reserves = state.index.stripe(id)?.chunks();
            let reserves = reserves.filter_map(|(_, chunk)| chunk.reserve());
            let bytes: u64 = reserves.map(Reserve::backed_bytes).sum();
            (bytes > 0).then_some((id, bytes))
        };
        stripes.iter().filter_map(of_stripe).collect()
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
    let own_bytes = chunk_disk_bytes(header.spec.chunk_bytes);
    own_bytes + chunk.reserve().map_or(0, Reserve::backed_bytes)
}
