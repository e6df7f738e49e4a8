//! How a chunk keeps the records of its updates until they are part of its own bytes.
//!
//! The update protocol is the same for every update scheme: a participant makes a record durable,
//! and once the update is settled its node may merge the record into the chunk. Schemes differ in
//! where a chunk's records lie meanwhile and in what makes them move, which is all that this says.
//! The schemes are those of "Parity Logging with Reserved Space" (`CodFS`, FAST '14), sections 2.1
//! and 4.1; which chunk of which scheme keeps how is the planners' to say, and the store's to do.

use serde::{Deserialize, Serialize};

/// Where the records of a chunk's updates lie, and when they are merged into the chunk.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash, Serialize, Deserialize,
)]
pub enum Keeping {
    /// In the journal; settled ones are merged in batches in the background. Data chunks of
    /// schemes that update data in place.
    #[default]
    InPlace,
    /// In the journal; settled ones are merged before the next record of the chunk is taken, so
    /// the chunk is never more than one update behind. Full-overwrite: FO.
    AtOnce,
    /// In the journal, which serves as the node's append-only log: merged on read, and into the
    /// chunk only once the log has grown beyond its limit. Full-logging (FL), and the parity
    /// chunks of parity-logging (PL).
    Log,
    /// In space reserved right behind the chunk, in the chunk's own file: merged once the space is
    /// full or somebody asks. The parity chunks of parity-logging with reserved space (PLR).
    Reserve {
        /// Bytes reserved; with none left, records are kept as by [`Keeping::AtOnce`].
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

    /// Whether a record is in its chunk before the chunk's next one is taken: as in
    /// [`Keeping::AtOnce`], and in a reserve of which nothing is left.
    pub const fn is_at_once(self) -> bool {
        matches!(self, Self::AtOnce | Self::Reserve { bytes: 0 })
    }
}
