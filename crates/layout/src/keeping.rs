//! Keeping: where a chunk's update records are until they are part of its own bytes.
//!
//! The update protocol is the same for every update scheme: a participant makes a record durable,
//! and once the update is settled its node may merge the record into the chunk. Schemes differ in
//! where a chunk's records are until then and in what triggers a merge; the keeping is that
//! difference. The schemes are those of "Parity Logging with Reserved Space" (`CodFS`, FAST '14),
//! sections 2.1 and 4.1. Planners choose the keeping of each chunk, and the store implements it.

use serde::{Deserialize, Serialize};

/// Location of a chunk's update records, and when they are merged into the chunk.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash, Serialize, Deserialize,
)]
pub enum Keeping {
    /// In the journal; settled ones are merged in batches in the background. Data chunks of
    /// schemes that update data in place.
    #[default]
    InPlace,
    /// In the journal; settled ones are merged before the chunk's next record is accepted, so the
    /// chunk is never more than one update behind. Full-overwrite: FO.
    AtOnce,
    /// In the journal, which is the node's append-only log: merged on read, and into the chunk only
    /// once the log exceeds its limit. Full-logging (FL), and the parity chunks of parity-logging
    /// (PL).
    Log,
    /// In space reserved right behind the chunk, in the chunk's own file: merged once the space is
    /// full or on request. The parity chunks of parity-logging with reserved space (PLR).
    Reserve {
        /// Bytes reserved; with 0, records are kept as by [`Keeping::AtOnce`].
        bytes: u64,
    },
}

impl Keeping {
    /// Bytes reserved behind the chunk; `None` for other keepings.
    pub const fn reserve_bytes(self) -> Option<u64> {
        match self {
            Self::Reserve { bytes } => Some(bytes),
            Self::InPlace | Self::AtOnce | Self::Log => None,
        }
    }

    /// Whether a record is merged before the chunk's next one is accepted: as in
    /// [`Keeping::AtOnce`], and in a reserve of 0 bytes.
    pub const fn is_at_once(self) -> bool {
        matches!(self, Self::AtOnce | Self::Reserve { bytes: 0 })
    }
}
