//! A node's replies, and the messages for plans, marks and records. The reasons of a refusal are in
//! [`Refusal`].

use super::meter::Meter;
use super::purpose::Purpose;
use super::recovery::{KnownCluster, KnownStripes};
use super::refusal::{Damage, Refusal};
use crate::ticket::Ticket;
use gabion_layout::{
    ByteRange, ChunkId, ChunkIndex, Epoch, Generation, NodeId, RunId, Sequence, StripeId,
};
use gabion_meta::Progress;
use gabion_plan::{Logged, Part};
use gabion_store::{AppendedState, RECORD_RUN_COUNT_MAX, RunMemory, StoreCounts};
use serde::{Deserialize, Serialize};

/// The update as of which a part reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ReadCut {
    /// As of the committed mark. The reader vouches that in the given lease term all updates up to this one
    /// are settled; (0, 0) vouches for none.
    Committed(Epoch, Sequence),
    /// Exactly as of this committed update.
    Exactly(Sequence),
    /// Exactly as of this update, which every node asked has settled: no term needs to vouch for it, so it
    /// may be read while later terms begin. Nodes keep it readable while it is pinned.
    Settled(Sequence),
    /// Exactly as of an update on which a quorum of the stripe's nodes agrees ([`crate::quorum`]). A node that is in
    /// one of its terms answers without a lease.
    Attested(AttestedCut),
    /// Exactly as of this committed update, as the code has it: chunks without appended bytes, which the part recalls
    /// from logs. For a reader that decodes; its epoch is the term that vouches for the update.
    Coded(Sequence),
}

/// An update on which a quorum agrees, and the terms whose nodes hold all updates up to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AttestedCut {
    /// The term in which the update was committed, or as of which it was settled.
    pub since: Epoch,
    /// The newest of the terms: `since`, or a later term of the same primary that has acknowledged nothing yet.
    pub until: Epoch,
    /// The update.
    pub mark: Sequence,
}

impl AttestedCut {
    /// The cut of this update for nodes in this term alone.
    pub const fn of_term(epoch: Epoch, mark: Sequence) -> Self {
        Self {
            since: epoch,
            until: epoch,
            mark,
        }
    }
}

/// The effect of a part's writes and appends.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Effect {
    /// The part has no writes on this node.
    None,
    /// Appends are the record of one update.
    Record {
        /// The update's number.
        sequence: Sequence,
        /// Chunks whose nodes must all hold a record for the update to stand.
        participants: Vec<ChunkIndex>,
    },
    /// Appends are bytes that parity does not cover before a commit, as the record of one update.
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
    /// Writes are the rest of a chunk that an earlier run has left unfinished, as of the same update.
    Resume {
        /// The last update that the chunk contains.
        base: Sequence,
    },
    /// Writes make new chunks of a stripe that will replace others, and reads are of chunks of these
    /// others.
    Convert {
        /// The sources of each data chunk's bytes.
        sources: Vec<ConversionSource>,
    },
    /// Writes are the ranges that a chunk has missed, as of this update. They become a record of the chunk
    /// without other participants.
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

/// A node's part of a plan with the facts that the node needs to run it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunPart {
    /// The run.
    pub run: RunId,
    /// Further runs whose changes the update makes: their staged bytes are inputs too, and the record has
    /// their runs. At most 63; empty for all but updates.
    pub joined: Vec<RunId>,
    /// The steps.
    pub part: Part,
    /// The lease term under which the plan was made; nodes refuse older ones for anything that
    /// writes. Reads by clients carry 0.
    pub epoch: Epoch,
    /// The stripe's generation when the plan was made.
    pub generation: Generation,
    /// The update as of which the part reads.
    pub cut: ReadCut,
    /// The effect of the part's writes.
    pub effect: Effect,
    /// The purpose of the transfer.
    pub purpose: Purpose,
    /// Spread the reads evenly over this time, so that the bytes that follow from them are spread too.
    pub spread_ms: u64,
    /// Time limit of the part.
    pub deadline_ms: u64,
    /// Abort when no progress is made for this time.
    pub stall_ms: Option<u64>,
    /// A client's ticket for the stripe.
    pub ticket: Option<Ticket>,
}

/// A primary's statement that all updates of a stripe up to one are committed.
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
    /// The runs whose changes it makes, in the order in which their requests arrived.
    pub fn runs(&self) -> Vec<RunId> {
        [&[self.run], &*self.joined].concat()
    }

    /// Whether it has no more runs than a record can, and more than one only if it is of an update. A client, which
    /// makes no updates itself, must not take the staged bytes of other runs.
    pub(crate) fn has_valid_runs(&self) -> bool {
        let is_update = matches!(self.effect, Effect::Record { .. } | Effect::Append { .. });
        self.joined.is_empty() || (is_update && self.joined.len() < RECORD_RUN_COUNT_MAX)
    }

    /// Whether it only reads updates that a quorum of the stripe's nodes has attested, so that it needs no
    /// lease.
    pub fn is_quorum_read(&self) -> bool {
        matches!(self.cut, ReadCut::Attested(..)) && self.effect == Effect::None
    }

    /// The settled mark of the stripe that the part implies: the primary of an update reads at its own
    /// mark.
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

/// A node's records of a stripe.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Holding {
    /// Its committed mark.
    pub mark: Sequence,
    /// Its records above the mark.
    pub records: Vec<PendingRecord>,
    /// Its state of the append phase, above the mark and below.
    pub appended: AppendedState,
}

/// A client's question after a lost answer to an update: the fate of its run. The client has withdrawn the
/// run where it staged new bytes, so a part that has not begun never will.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunQuestion {
    /// The stripe.
    pub stripe: StripeId,
    /// The generation with which the update was asked for.
    pub generation: Generation,
    /// The run.
    pub run: RunId,
    /// If the update exists, its sequence is larger: nodes knew this one when bytes were staged.
    pub after: Sequence,
    /// The data chunks that it changes.
    pub chunks: Vec<ChunkIndex>,
}

/// The fate of a client's run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RunFate {
    /// Its update is committed, with this sequence.
    Stood(Sequence),
    /// It has no update, and never will.
    Never,
    /// Unknown: it will have no update later, but too few nodes remember that time to tell whether it had
    /// one.
    Forgotten,
}

/// A node's knowledge of a stripe, for a quorum read.
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
    /// The node's word as the stripe's primary; none if it is not the primary, or does not know.
    pub led: Option<AttestedCut>,
}

/// The result of a node's scrub.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Scrubbed {
    /// Chunks verified.
    pub chunk_count: u64,
    /// Bytes verified.
    pub bytes: u64,
    /// The damage found.
    pub damage: Vec<Damage>,
}

/// A node's reply.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NodeReply {
    /// Done, without a result.
    Done,
    /// The bytes are kept.
    Staged {
        /// The last update of the stripe that the node knows, settled or not.
        newest: Sequence,
    },
    /// The fate of the run.
    Fate(RunFate),
    /// The node's memory of the run.
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
        /// The node's journal position.
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
        /// The bytes of the ranges to decode in logs, as of that update.
        appended: Vec<Logged>,
    },
    /// The node's knowledge of the stripe.
    Attested(Attestation),
    /// The node's records of the stripe.
    Holding(Holding),
    /// The ranges of the chunk, each with the changed data chunk. None when the records do not reach back
    /// far enough.
    Missed(Option<Vec<(ChunkIndex, ByteRange)>>),
    /// The newest known update of each stripe, by stripe.
    Latest(Vec<(StripeId, Sequence)>),
    /// Written bytes of an unfinished chunk, in order; none if there is no such chunk.
    Written(Option<Vec<ByteRange>>),
    /// The result of a scrub.
    Scrubbed(Scrubbed),
    /// The farthest known journal position of the newest run of the other node.
    Progress(Option<Progress>),
    /// Bytes sent so far, and bytes planned.
    Meter {
        /// Bytes that this node has sent.
        sent: Meter,
        /// Bytes that all nodes should have sent for the updates and commits that this node has run
        /// successfully as a primary.
        planned: Meter,
    },
    /// Counts of its disk's work so far.
    StoreCounts(StoreCounts),
    /// Refused.
    Refused(Refusal),
    /// The update is refused: it got no sequence, so no part of it was started. This request starts none
    /// later.
    NotBegun(Refusal),
    /// The terms of a file's stripes in which the node refuses lower fencing tokens.
    Raised(Vec<(StripeId, Epoch)>),
    /// Bytes of reserves that have disk space, by stripe, without stripes that have none.
    ReservedBytes(Vec<(StripeId, u64)>),
    /// What the node knows of its cluster.
    Cluster(Box<KnownCluster>),
    /// Stripes of which the node holds chunks.
    Held(KnownStripes),
}
