//! What a node is asked, by clients, by the coordinator and by other nodes, and what it answers.
//! Why it may refuse is in [`Refusal`].

use super::meter::Meter;
use super::purpose::Purpose;
use super::refusal::{Damage, Refusal};
use bytes::Bytes;
use gabion_layout::{
    ByteRange, ChunkId, ChunkIndex, ChunkRange, Epoch, Generation, NodeId, RunId, Sequence,
    StripeId,
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

/// A request to a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NodeRequest {
    /// Keep new bytes of a data chunk for the run that will take them as input.
    Stage {
        /// The run.
        run: RunId,
        /// The stripe.
        stripe: StripeId,
        /// The data chunk.
        chunk: ChunkIndex,
        /// Where in the chunk they go.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// Throw away what is staged for the run, and never begin its part from now on.
    Unstage {
        /// The run.
        run: RunId,
    },
    /// Do this part, and reply when it is done and durable.
    RunPart(Box<RunPart>),
    /// To a stripe's primary: run an update whose bytes are staged under `run`.
    Update {
        /// The run under which the bytes are staged.
        run: RunId,
        /// The stripe.
        stripe: StripeId,
        /// The generation that the client knows.
        generation: Generation,
        /// What changes.
        ranges: Vec<ChunkRange>,
        /// Lost chunks, each with the node where its new bytes are staged, by chunk. The bytes of
        /// all others are at their own nodes.
        substitutes: Vec<(ChunkIndex, NodeId)>,
    },
    /// To a stripe's primary: what has become of a run?
    Fate(RunQuestion),
    /// What does the node remember of a run at a chunk?
    Recollect {
        /// The chunk.
        chunk: ChunkId,
        /// The asker's term.
        epoch: Epoch,
        /// The run.
        run: RunId,
    },
    /// To a stripe's primary: what is the committed mark?
    Mark {
        /// The stripe.
        stripe: StripeId,
        /// Settle the stripe anew first: a node holds records of an earlier term, which no mark of
        /// this term vouches for.
        settle: bool,
        /// Commit first what was appended, so that the code has everything up to the mark: the asker
        /// will read through it.
        reconstruct: bool,
    },
    /// What is known of the stripe, without any promise? Answered without a lease.
    Attest {
        /// The stripe.
        stripe: StripeId,
    },
    /// To a stripe's primary: commit what was appended, if anything was.
    Commit {
        /// The stripe.
        stripe: StripeId,
    },
    /// Fence off older lease terms, then say what is held of the stripe.
    Collect {
        /// The stripe.
        stripe: StripeId,
        /// The new term.
        epoch: Epoch,
        /// The stripe's generation.
        generation: Generation,
    },
    /// Refuse older lease terms and older layouts of a stripe from now on, durably. For nodes whose chunks
    /// the term leaves out.
    Fence {
        /// The stripe.
        stripe: StripeId,
        /// The new term.
        epoch: Epoch,
        /// The stripe's generation.
        generation: Generation,
    },
    /// The outcome of the recovery rule.
    Resolve {
        /// The stripe.
        stripe: StripeId,
        /// The term.
        epoch: Epoch,
        /// All records up to here that are not dropped stand.
        mark: Sequence,
        /// Updates that nobody was told of.
        dropped: Vec<Sequence>,
    },
    /// How far updates of some stripes are committed. Sent without need; losing it loses nothing.
    Committed {
        /// At most one a stripe.
        marks: Vec<CommittedMark>,
        /// The primary, and how far it has come.
        from: Option<(NodeId, Progress)>,
    },
    /// Bring no update after this one into the stripe's chunks themselves, so that they can be read
    /// as of it. A restart forgets it.
    Pin {
        /// The stripe.
        stripe: StripeId,
        /// The update.
        cut: Sequence,
        /// Forget it after so long.
        hold_ms: u64,
    },
    /// Forget a pin.
    Unpin {
        /// The stripe.
        stripe: StripeId,
        /// The update.
        cut: Sequence,
    },
    /// Which ranges of a chunk have settled updates touched since this one?
    Missed {
        /// The chunk.
        chunk: ChunkId,
        /// The update.
        after: Sequence,
    },
    /// The newest update of each of some stripes, settled or not.
    Latest {
        /// The stripes.
        stripes: Vec<StripeId>,
    },
    /// What is written of a chunk that a run has left unfinished?
    Written {
        /// The chunk.
        chunk: ChunkId,
        /// As of which update it was being made.
        base: Sequence,
    },
    /// Delete chunks of stripes that are gone.
    Remove {
        /// The chunks.
        chunks: Vec<ChunkId>,
    },
    /// Delete a chunk that is not the node's any more, of a stripe that lives on. A node that knows
    /// of a later term refuses: it may have been given the chunk again since.
    Discard {
        /// The chunk.
        chunk: ChunkId,
        /// The asker's term of the stripe, or the last one that it knows of.
        epoch: Epoch,
    },
    /// Verify every stored byte of some chunks, all of them when none are named.
    Scrub {
        /// The chunks.
        chunks: Vec<ChunkId>,
    },
    /// Bytes that are thrown away, to see how long they take.
    Probe {
        /// The bytes.
        bytes: Bytes,
    },
    /// Does another node answer? Answered without a lease, with [`NodeReply::Done`] if it does.
    Reach {
        /// The other node.
        node: NodeId,
    },
    /// How far has another node come, for all that it has said? Answered without a lease.
    Progress {
        /// The other node.
        node: NodeId,
    },
    /// Bytes sent so far, and planned as a primary.
    Meter,
    /// What its disk has done so far.
    StoreCounts,
}

impl NodeRequest {
    /// Whether only a node with a lease may answer. A reader that has asked a quorum knows by itself
    /// whether the node was left behind.
    pub fn needs_lease(&self) -> bool {
        match self {
            Self::Attest { .. } | Self::Reach { .. } | Self::Progress { .. } => false,
            Self::RunPart(part) => !part.is_quorum_read(),
            _ => true,
        }
    }
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
    Scrubbed {
        /// Chunks verified.
        chunk_count: u64,
        /// Bytes verified.
        bytes: u64,
        /// What is wrong.
        damage: Vec<Damage>,
    },
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

impl NodeReply {
    /// What a reply that does not fit its question comes to.
    pub(crate) fn unexpected(&self) -> Refusal {
        Refusal::Failed(format!(
            "a node's reply does not fit the question: {self:?}"
        ))
    }
}
