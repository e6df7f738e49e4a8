//! The public types of updates: stamps, records, cuts and the state of a stripe that recovery
//! collects.
//!
//! A record is one participant's share of one update, durable before the update is acknowledged.
//! The protocol that gives records their meaning is the update protocol of the architecture
//! document; this crate only keeps them.

use gabion_layout::{ByteRange, ChunkId, ChunkIndex, Epoch, Generation, Keeping, RunId, Sequence};
use serde::{Deserialize, Serialize};

/// Identifies an update of a stripe by the numbering epoch and the number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct UpdateStamp {
    /// The lease epoch of the primary that numbered it.
    pub epoch: Epoch,
    /// Its number within the stripe; orders the stripe's updates.
    pub sequence: Sequence,
}

/// The effect of a record's bytes on the chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RecordKind {
    /// They replace the chunk's bytes: the record of a data node.
    NewBytes,
    /// They are added (XOR) to the chunk's bytes: the record of a parity node. The code's
    /// coefficient has been applied already.
    ParityDelta,
    /// They are bytes of data chunks that parity does not include yet: appended on the data node
    /// itself, or copies on a parity node. They are kept beside the chunk until an update of the
    /// other kinds shows that a commit has included them. The code covers the chunk without them.
    Appended {
        /// The first pieces, in this number, are the data chunk as of the last commit; the others
        /// are new.
        original_count: u16,
    },
}

impl RecordKind {
    /// Whether the code does not cover the bytes.
    pub const fn is_appended(self) -> bool {
        matches!(self, Self::Appended { .. })
    }
}

/// Bytes of a record for one range of the chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece<'a> {
    /// The data chunk of the change; the record's own chunk where a parity chunk's delta may come
    /// from any.
    pub data: ChunkIndex,
    /// First byte, in the record's chunk; in the data chunk if the record is appended.
    pub offset: u64,
    /// The bytes; never empty.
    pub bytes: &'a [u8],
}

impl Piece<'_> {
    /// The bytes of the chunk that the piece covers.
    pub fn range(&self) -> ByteRange {
        ByteRange::new(self.offset, self.bytes.len() as u64)
    }
}

/// Most runs of one record.
pub const RECORD_RUN_COUNT_MAX: usize = 64;

/// One participant's share of one update.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// The chunk that it changes.
    pub chunk: ChunkId,
    /// The stripe's generation under which the primary sent it.
    pub generation: Generation,
    /// The update.
    pub stamp: UpdateStamp,
    /// The runs whose changes the update makes, at most [`RECORD_RUN_COUNT_MAX`]. The store remembers
    /// them for clients that ask for the outcome. Empty for a record that stands for all updates up to
    /// its own: their runs are unknown here.
    pub runs: Vec<RunId>,
    /// The chunks whose nodes must hold a record of the update before it is committed; increasing.
    pub participants: Vec<ChunkIndex>,
    /// The effect of the bytes.
    pub kind: RecordKind,
    /// The bytes, one piece a range. Pieces may overlap; they apply in order.
    pub pieces: Vec<Piece<'a>>,
}

/// A held record without its bytes, as recovery collects it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecordSummary {
    /// The chunk that it changes.
    pub chunk: ChunkId,
    /// The update.
    pub stamp: UpdateStamp,
    /// The chunks whose nodes must hold a record of the update.
    pub participants: Vec<ChunkIndex>,
}

/// A store's memory of a run at one chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunMemory {
    /// The update of the run, if the chunk has a record of it, or had one that was not dropped.
    pub sequence: Option<Sequence>,
    /// The store remembers the runs of all updates after this one that have a record at the chunk.
    pub complete_after: Sequence,
}

/// A store's state of a stripe above its committed mark.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StripeState {
    /// The highest epoch promised.
    pub epoch: Epoch,
    /// The highest generation known.
    pub generation: Generation,
    /// Updates up to here are settled.
    pub mark: Sequence,
    /// The records above the mark, all of them durable, in the order of their chunks and
    /// sequences.
    pub records: Vec<RecordSummary>,
    /// A chunk with a damaged header, if no other chunk of the stripe is intact here: records of it
    /// may be missing from `records`.
    pub lost: Option<ChunkId>,
}

/// The update as of which a chunk is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Cut {
    /// As of the committed mark, which is raised to `at_least` first: the caller guarantees that
    /// all updates up to there are settled.
    Committed {
        /// A mark that the caller knows.
        at_least: Sequence,
    },
    /// As of exactly this update, which the caller guarantees is committed, as the code covers the
    /// chunk: without appended bytes that wait for a commit. [`Cut::Committed`] includes those.
    Exactly(Sequence),
    /// As of exactly this update, with the appended bytes that wait for a commit.
    Newest(Sequence),
}

/// Bytes of a data chunk in a node's log, beside its chunk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct AppendedPiece {
    /// The data chunk.
    pub data: ChunkIndex,
    /// Its bytes as of the last commit, not new ones.
    pub is_original: bool,
    /// The range in the data chunk.
    pub range: ByteRange,
}

/// A held record of appended bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AppendedSummary {
    /// The chunk of the node that holds it.
    pub chunk: ChunkId,
    /// The update.
    pub stamp: UpdateStamp,
    /// Its pieces.
    pub pieces: Vec<AppendedPiece>,
}

/// A store's state of a stripe's append phase.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AppendedState {
    /// The last settled update that the store knows the code to cover. The code then covers all
    /// earlier ones: such an update is made only when no appended bytes remain.
    pub covered: Sequence,
    /// Appended records above it, settled or not, in the order of their chunks and sequences.
    pub records: Vec<AppendedSummary>,
}

/// A chunk's properties, without its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChunkSpec {
    /// The stripe's generation under which the chunk was written.
    pub generation: Generation,
    /// The chunk's size.
    pub chunk_bytes: u64,
    /// The last update that the chunk's own bytes include.
    pub base: Sequence,
    /// The place of the records of later updates.
    pub keeping: Keeping,
}

/// An entry of the inventory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChunkInfo {
    /// The chunk.
    pub chunk: ChunkId,
    /// Its properties, or `None` if its header is damaged and the whole chunk needs repair.
    pub spec: Option<ChunkSpec>,
}

/// Bytes of a chunk that cannot be served and need repair.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Damage {
    /// The chunk.
    pub chunk: ChunkId,
    /// The bytes of it; [`Damage::WHOLE`] when even its size is unknown.
    pub range: ByteRange,
}

impl Damage {
    /// The range of a chunk that is damaged as a whole.
    pub const WHOLE: ByteRange = ByteRange::new(0, u64::MAX);
}
