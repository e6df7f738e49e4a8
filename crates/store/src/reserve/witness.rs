//! What the journal says of reserves: up to where each was synced.
//!
//! The last record of a reserve has no later one that says it was synced, so damage to it would
//! look like what a crash leaves of a record that was never acknowledged, and it would be cut off.
//! A witness in the journal tells the two apart. It is written for all reserves at once, some time
//! after their records, and is none of what makes a record durable.

use crate::chunk::file::ChunkHeader;
use crate::journal::entry::Entry;
use crate::journal::frame;
use gabion_layout::ChunkId;

/// Most bytes of a witness's frame: an index and three numbers of 10 bytes.
pub(crate) const WITNESS_BYTES_MAX: u64 = (frame::PREFIX_BYTES + 31).next_multiple_of(8) as u64;

/// Up to where the reserve of one life of a chunk was synced.
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
