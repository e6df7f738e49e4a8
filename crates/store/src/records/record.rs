//! The public nouns of updates: stamps, records, cuts and what recovery learns about a stripe.
//!
//! A record is one participant's share of one update, durable before the update is acknowledged.
//! The protocol that gives records their meaning is the update protocol of the architecture
//! document; this crate only keeps them.

use gabion_layout::{ByteRange, ChunkId, ChunkIndex, Epoch, Generation, Keeping, RunId, Sequence};
use serde::{Deserialize, Serialize};

/// Names one update of a stripe: who numbered it and how.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct UpdateStamp {
    /// The lease epoch of the primary that numbered it.
    pub epoch: Epoch,
    /// Its number within the stripe; orders the stripe's updates.
    pub sequence: Sequence,
}

/// What the bytes of a record do to the chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RecordKind {
    /// They replace the chunk's bytes: the record of a data node.
    NewBytes,
    /// They are added (XOR) to the chunk's bytes: the record of a parity node. The code's
    /// coefficient has been applied already.
    ParityDelta,
    /// They are bytes of data chunks that parity does not follow yet: appended on the data node
    /// itself, or copies on a parity node. They are kept beside the chunk, which the code knows
    /// without them, until an update of the other kinds shows that a commit has taken them in.
    Appended {
        /// So many pieces, the first ones, are what the data chunk had at the last commit; the others
        /// are new.
        original_count: u16,
    },
}

impl RecordKind {
    /// Whether the code does not know of the bytes.
    pub const fn is_appended(self) -> bool {
        matches!(self, Self::Appended { .. })
    }
}

/// Bytes of a record for one range of the chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece<'a> {
    /// The data chunk whose change this comes from; the record's own chunk where a parity chunk's
    /// delta may come from any.
    pub data: ChunkIndex,
    /// First byte, in the chunk that the record is for; in the data chunk if the record is appended.
    pub offset: u64,
    /// The bytes; never empty.
    pub bytes: &'a [u8],
}

impl Piece<'_> {
    /// The bytes of the chunk that the piece touches.
    pub fn range(&self) -> ByteRange {
        ByteRange::new(self.offset, self.bytes.len() as u64)
    }
}

/// One participant's share of one update.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// The chunk that it changes.
    pub chunk: ChunkId,
    /// The stripe's generation under which the primary sent it.
    pub generation: Generation,
    /// Which update.
    pub stamp: UpdateStamp,
    /// The run of the update, remembered for a client that asks what became of it. None for a record
    /// that stands for all updates up to its own: what runs these were is not known here.
    pub run: Option<RunId>,
    /// The chunks whose nodes must hold a record of the update before it is committed; increasing.
    pub participants: Vec<ChunkIndex>,
    /// What the bytes do.
    pub kind: RecordKind,
    /// The bytes, one piece a range. Pieces may overlap; they act in their order.
    pub pieces: Vec<Piece<'a>>,
}

/// A held record without its bytes, as recovery collects it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecordSummary {
    /// The chunk that it changes.
    pub chunk: ChunkId,
    /// Which update.
    pub stamp: UpdateStamp,
    /// The chunks whose nodes must hold a record of the update.
    pub participants: Vec<ChunkIndex>,
}

/// What a store remembers of a run at one chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunMemory {
    /// The update of the run, if the chunk has a record of it or had one that was not dropped.
    pub sequence: Option<Sequence>,
    /// The store remembers the runs of all updates after this one that have a record at the chunk.
    pub complete_after: Sequence,
}

/// What a store holds of a stripe above its committed mark.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StripeState {
    /// The highest epoch promised to.
    pub epoch: Epoch,
    /// The highest generation known.
    pub generation: Generation,
    /// Updates up to here are known to be settled.
    pub mark: Sequence,
    /// The records above the mark, all of them durable, in the order of their chunks and
    /// sequences.
    pub records: Vec<RecordSummary>,
}

/// As of which update a chunk is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Cut {
    /// As of the committed mark, which is raised to `at_least` first: the caller vouches that all
    /// updates up to there are settled.
    Committed {
        /// A mark that the caller knows of.
        at_least: Sequence,
    },
    /// As of exactly this update, which the caller vouches is committed, as the code knows the chunk:
    /// without appended bytes that wait for a commit. [`Cut::Committed`] has them.
    Exactly(Sequence),
    /// As of exactly this update, with the appended bytes that wait for a commit.
    Newest(Sequence),
}

/// Bytes of a data chunk that a node has in its log beside its chunk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct AppendedPiece {
    /// The data chunk.
    pub data: ChunkIndex,
    /// Its bytes as of the last commit, not new ones.
    pub is_original: bool,
    /// Which bytes of the data chunk.
    pub range: ByteRange,
}

/// A held record of appended bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AppendedSummary {
    /// The chunk of the node that holds it.
    pub chunk: ChunkId,
    /// Which update.
    pub stamp: UpdateStamp,
    /// What it has.
    pub pieces: Vec<AppendedPiece>,
}

/// What a store holds of a stripe's append phase.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AppendedState {
    /// The last settled update of which this store knows that the code covers it. The code then covers
    /// all before it: such updates are made only when nothing is left that was appended.
    pub covered: Sequence,
    /// Appended records above it, settled or not, in the order of their chunks and sequences.
    pub records: Vec<AppendedSummary>,
}

/// What a chunk is, apart from its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChunkSpec {
    /// The stripe's generation under which the chunk was written.
    pub generation: Generation,
    /// The chunk's size.
    pub chunk_bytes: u64,
    /// The last update that the chunk's own bytes include.
    pub base: Sequence,
    /// How it keeps the records of later ones.
    pub keeping: Keeping,
}

/// An entry of the inventory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChunkInfo {
    /// The chunk.
    pub chunk: ChunkId,
    /// What it is, or `None` when its header is damaged and the whole chunk needs repair.
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
