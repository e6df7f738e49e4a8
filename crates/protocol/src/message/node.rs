//! What a node answers, and what plans, marks and records are in messages. Why a node may refuse is in
//! [`Refusal`].

use super::meter::Meter;
use super::purpose::Purpose;
use super::refusal::{Damage, Refusal};
use gabion_layout::{
    ByteRange, ChunkId, ChunkIndex, Epoch, Generation, NodeId, RunId, Sequence, StripeId,
};
use gabion_meta::Progress;
use gabion_plan::Part;
use gabion_store::{AppendedState, RunMemory, StoreCounts};
use serde::{Deserialize, Serialize};

/// At which point in a stripe's history a part reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ReadCut {
    /// As of the committed mark. The reader vouches that in the lease term given, all updates up to
    /// this one are settled; (0, 0) vouches for nothing.
    Committed(Epoch, Sequence),
    /// Exactly as of this committed update.
    Exactly(Sequence),
    /// Exactly as of this update, which every node asked has settled: no term needs to vouch for it,
    /// so it may be read while later terms go on. Nodes keep it readable while it is pinned.
    Settled(Sequence),
    /// Exactly as of this update, on which a quorum of the stripe's nodes agrees, in this term, the
    /// newest that any of them knew ([`crate::quorum`]). A node that is in that very term answers
    /// without a lease.
    Attested(Epoch, Sequence),
}

/// What a part's writes and appends are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Effect {
    /// The part writes nothing on this node.
    None,
    /// Appends are the record of one update.
    Record {
        /// The update's number.
        sequence: Sequence,
        /// Chunks whose nodes must all hold a record for the update to stand.
        participants: Vec<ChunkIndex>,
    },
    /// Appends are bytes that parity does not follow before a commit, as the record of one update.
    Append {
        /// The update's number.
        sequence: Sequence,
        /// As for a record.
        participants: Vec<ChunkIndex>,
    },
    /// Writes make new chunks, which contain all updates up to `base`.
    Install {
        /// The last update that the chunk contains.
        base: Sequence,
    },
    /// Writes are the rest of a chunk that an earlier run was to install as of the same update and has
    /// left unfinished.
    Resume {
        /// The last update that the chunk contains.
        base: Sequence,
    },
    /// Writes make new chunks of a stripe that is to take the place of others, and reads are of chunks of
    /// these others.
    Convert {
        /// Where each data chunk's bytes are read.
        sources: Vec<ConversionSource>,
    },
    /// Writes are what a chunk has missed, as of this update. They become a record of the chunk that
    /// nobody else takes part in.
    CatchUp {
        /// The record's number.
        sequence: Sequence,
    },
}

/// A chunk of another stripe that has the bytes of a data chunk of the one that is being made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConversionSource {
    /// The data chunk.
    pub chunk: ChunkIndex,
    /// The node that holds the other.
    pub node: NodeId,
    /// The other.
    pub held: ChunkId,
    /// As of which update of its stripe it is read; every node asked has settled that one.
    pub cut: Sequence,
}

impl Effect {
    /// The last update that a chunk contains which the part makes, if it makes one.
    pub fn base(&self) -> Option<Sequence> {
        match self {
            Self::Install { base } | Self::Resume { base } => Some(*base),
            // A new stripe's updates are numbered from 1.
            Self::Convert { .. } => Some(Sequence(0)),
            Self::None | Self::Record { .. } | Self::Append { .. } | Self::CatchUp { .. } => None,
        }
    }
}

/// A node's part of a plan with all that it needs to do it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunPart {
    /// The run.
    pub run: RunId,
    /// The steps.
    pub part: Part,
    /// The lease term under which the plan was made; nodes refuse older ones for anything that
    /// writes. Reads by clients carry 0.
    pub epoch: Epoch,
    /// The stripe's generation when the plan was made.
    pub generation: Generation,
    /// Where reads are.
    pub cut: ReadCut,
    /// What writes are.
    pub effect: Effect,
    /// Why bytes move.
    pub purpose: Purpose,
    /// Spread the reads evenly over so long, so that the bytes that follow from them are, too.
    pub spread_ms: u64,
    /// Give up after so long.
    pub deadline_ms: u64,
    /// Give up when nothing has happened for so long.
    pub stall_ms: Option<u64>,
}

/// A primary's word that all updates of a stripe up to one are committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CommittedMark {
    /// The stripe.
    pub stripe: StripeId,
    /// The term that vouches for it.
    pub epoch: Epoch,
    /// The last committed update.
    pub sequence: Sequence,
}

impl RunPart {
    /// Whether it only reads what a quorum of the stripe's nodes has attested, so that no lease is
    /// needed.
    pub fn is_quorum_read(&self) -> bool {
        matches!(self.cut, ReadCut::Attested(..)) && self.effect == Effect::None
    }

    /// How far the stripe is settled for all that the part says: the primary of an update reads at
    /// its own mark.
    pub fn known_mark(&self) -> Option<CommittedMark> {
        match (&self.effect, self.cut) {
            (Effect::Record { .. } | Effect::Append { .. }, ReadCut::Exactly(sequence)) => {
                Some(CommittedMark {
                    stripe: self.part.stripe,
                    epoch: self.epoch,
                    sequence,
                })
            }
            _ => None,
        }
    }
}

/// A record above the committed mark, as a survivor reports it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PendingRecord {
    /// The survivor's chunk that the record changes.
    pub chunk: ChunkIndex,
    /// The term of the update's primary.
    pub epoch: Epoch,
    /// The update.
    pub sequence: Sequence,
    /// Chunks whose nodes must hold a record for the update to stand.
    pub participants: Vec<ChunkIndex>,
}

/// What a node holds of a stripe.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Holding {
    /// Its committed mark.
    pub mark: Sequence,
    /// Its records above the mark.
    pub records: Vec<PendingRecord>,
    /// What it holds of the append phase, above the mark and below.
    pub appended: AppendedState,
}

/// What a client wants to know that lost the answer to an update: what has become of its run. It has
/// withdrawn the run where it staged new bytes, so that what has not begun never will.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunQuestion {
    /// The stripe.
    pub stripe: StripeId,
    /// The generation with which the update was asked for.
    pub generation: Generation,
    /// The run.
    pub run: RunId,
    /// If the update was made, its number is larger: nodes knew of this one when bytes were staged.
    pub after: Sequence,
    /// The data chunks that it changes.
    pub chunks: Vec<ChunkIndex>,
}

/// What has become of a client's run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RunFate {
    /// Its update is committed, under this number.
    Stood(Sequence),
    /// Its update was not made, and never will be.
    Never,
    /// Its update was made or not, and will not be made any more: too few nodes that would know remember
    /// that time.
    Forgotten,
}

/// What a node knows of a stripe, for a quorum read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attestation {
    /// The newest term that it knows.
    pub epoch: Epoch,
    /// The newest generation that it knows.
    pub generation: Generation,
    /// Its committed mark.
    pub mark: Sequence,
    /// Its records above the mark.
    pub records: Vec<PendingRecord>,
}

/// What a node's scrub found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Scrubbed {
    /// Chunks verified.
    pub chunk_count: u64,
    /// Bytes verified.
    pub bytes: u64,
    /// What is wrong.
    pub damage: Vec<Damage>,
}

/// A node's reply.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NodeReply {
    /// Done; nothing to tell.
    Done,
    /// The bytes are kept.
    Staged {
        /// The last update of the stripe of which the node knows, settled or not.
        newest: Sequence,
    },
    /// What has become of the run.
    Fate(RunFate),
    /// What is remembered of the run.
    Recollection(RunMemory),
    /// The run's part will never begin on this node.
    Unstaged {
        /// Bytes were waiting for the part, so it has not begun before either.
        was_waiting: bool,
    },
    /// The part is done.
    PartDone {
        /// For a part that read at the committed mark: the mark.
        as_of: Sequence,
        /// How far the node has come with it.
        progress: Option<Progress>,
    },
    /// The update is committed.
    Updated {
        /// Its number.
        sequence: Sequence,
    },
    /// The committed mark.
    Mark {
        /// The lease term that vouches for it.
        epoch: Epoch,
        /// The last settled update.
        sequence: Sequence,
    },
    /// What is known of the stripe.
    Attested(Attestation),
    /// What is held of the stripe.
    Holding(Holding),
    /// The ranges of the chunk, each with the data chunk whose change it was. None when the records
    /// do not reach back so far.
    Missed(Option<Vec<(ChunkIndex, ByteRange)>>),
    /// The newest update of each stripe that the node knows, by stripe.
    Latest(Vec<(StripeId, Sequence)>),
    /// Bytes of an unfinished chunk that are written, in order; none where there is no such chunk.
    Written(Option<Vec<ByteRange>>),
    /// What a scrub found.
    Scrubbed(Scrubbed),
    /// The farthest that the newest run of the other node is known to have come.
    Progress(Option<Progress>),
    /// Bytes sent so far, and what plans have said of them.
    Meter {
        /// What this node has sent.
        sent: Meter,
        /// What all nodes were to send for the updates and commits that this node has run as a primary,
        /// if these ended well.
        planned: Meter,
    },
    /// What its disk has done so far.
    StoreCounts(StoreCounts),
    /// Not done.
    Refused(Refusal),
    /// The update is not made: it was refused before it got a number, so no part of it was started. This
    /// request starts none later.
    NotBegun(Refusal),
}
