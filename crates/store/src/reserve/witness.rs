//! Witnesses: journal entries with the position up to which each reserve was synced.
//!
//! No later record confirms that the last record of a reserve was synced, so damage to it would
//! look like a record that was never acknowledged, and it would be cut off. A witness in the
//! journal distinguishes the two. It is written for all reserves at once, some time after their
//! records, and does not contribute to a record's durability.

use crate::chunk::file::ChunkHeader;
use crate::journal::entry::Entry;
use crate::journal::frame;
use gabion_layout::ChunkId;

/// Most bytes of a witness's frame: an index and three numbers of 10 bytes.
pub(crate) const WITNESS_BYTES_MAX: u64 = (frame::PREFIX_BYTES + 31).next_multiple_of(8) as u64;

/// The position up to which the reserve of one file of a chunk was synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Witness {
    pub(crate) birth_lsn: u64,
    pub(crate) synced_lsn: u64,
}

impl Witness {
    /// The position up to which the reserve of a chunk with this header was synced; 0 if unknown.
    pub(crate) fn of(self, header: &ChunkHeader) -> u64 {
        if header.birth_lsn == self.birth_lsn {
            self.synced_lsn
        } else {
            0
        }
    }

    pub(crate) fn entry(self, chunk: ChunkId) -> Entry {
        Entry::Witness {
            chunk,
            birth_lsn: self.birth_lsn,
            synced_lsn: self.synced_lsn,
        }
    }
}
