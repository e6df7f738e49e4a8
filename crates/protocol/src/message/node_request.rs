//! What clients, the coordinator and other nodes ask of a node, each request with the reply that it gets
//! when it is carried out. The replies themselves are in [`NodeReply`].

use super::calls::calls;
use super::meter;
use super::node::{
    Attestation, CommittedMark, Holding, NodeReply, RunFate, RunPart, RunQuestion, Scrubbed,
};
use bytes::Bytes;
use gabion_layout::{
    ByteRange, ChunkId, ChunkIndex, ChunkRange, Epoch, Generation, NodeId, RunId, Sequence,
    StripeId,
};
use gabion_store::RunMemory;
use serde::{Deserialize, Serialize};

calls! {
    /// A request to a node.
    NodeRequest: NodeCall, NodeReply;

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
    } -> Sequence { NodeReply::Staged { newest } => newest }
    /// Throw away what is staged for the run, and never begin its part from now on.
    Unstage {
        /// The run.
        run: RunId,
    } -> bool { NodeReply::Unstaged { was_waiting } => was_waiting }
    /// Do this part, and reply when it is done and durable.
    RunPart(Box<RunPart>) -> (Sequence, Option<gabion_meta::Progress>) {
        NodeReply::PartDone { as_of, progress } => (as_of, progress),
    }
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
    } -> Sequence { NodeReply::Updated { sequence } => sequence }
    /// To a stripe's primary: what has become of a run?
    Fate(RunQuestion) -> RunFate { NodeReply::Fate(fate) => fate }
    /// What does the node remember of a run at a chunk?
    Recollect {
        /// The chunk.
        chunk: ChunkId,
        /// The asker's term.
        epoch: Epoch,
        /// The run.
        run: RunId,
    } -> RunMemory { NodeReply::Recollection(memory) => memory }
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
    } -> (Epoch, Sequence) { NodeReply::Mark { epoch, sequence } => (epoch, sequence) }
    /// What is known of the stripe, without any promise? Answered without a lease.
    Attest {
        /// The stripe.
        stripe: StripeId,
    } -> Attestation { NodeReply::Attested(known) => known }
    /// To a stripe's primary: commit what was appended, if anything was.
    Commit {
        /// The stripe.
        stripe: StripeId,
    }
    /// Fence off older lease terms, then say what is held of the stripe.
    Collect {
        /// The stripe.
        stripe: StripeId,
        /// The new term.
        epoch: Epoch,
        /// The stripe's generation.
        generation: Generation,
    } -> Holding { NodeReply::Holding(holding) => holding }
    /// Refuse older lease terms and older layouts of a stripe from now on, durably. For nodes whose chunks
    /// the term leaves out.
    Fence {
        /// The stripe.
        stripe: StripeId,
        /// The new term.
        epoch: Epoch,
        /// The stripe's generation.
        generation: Generation,
    }
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
    }
    /// How far updates of some stripes are committed. Sent without need; losing it loses nothing.
    Committed {
        /// At most one a stripe.
        marks: Vec<CommittedMark>,
        /// The primary, and how far it has come.
        from: Option<(NodeId, gabion_meta::Progress)>,
    }
    /// Bring no update after this one into the stripe's chunks themselves, so that they can be read
    /// as of it. A restart forgets it.
    Pin {
        /// The stripe.
        stripe: StripeId,
        /// The update.
        cut: Sequence,
        /// Forget it after so long.
        hold_ms: u64,
    }
    /// Forget a pin.
    Unpin {
        /// The stripe.
        stripe: StripeId,
        /// The update.
        cut: Sequence,
    }
    /// Which ranges of a chunk have settled updates touched since this one?
    Missed {
        /// The chunk.
        chunk: ChunkId,
        /// The update.
        after: Sequence,
    } -> Option<Vec<(ChunkIndex, ByteRange)>> { NodeReply::Missed(missed) => missed }
    /// The newest update of each of some stripes, settled or not.
    Latest {
        /// The stripes.
        stripes: Vec<StripeId>,
    } -> Vec<(StripeId, Sequence)> { NodeReply::Latest(latest) => latest }
    /// What is written of a chunk that a run has left unfinished?
    Written {
        /// The chunk.
        chunk: ChunkId,
        /// As of which update it was being made.
        base: Sequence,
    } -> Option<Vec<ByteRange>> { NodeReply::Written(written) => written }
    /// Delete chunks of stripes that are gone.
    Remove {
        /// The chunks.
        chunks: Vec<ChunkId>,
    }
    /// Delete a chunk that is not the node's any more, of a stripe that lives on. A node that knows
    /// of a later term refuses: it may have been given the chunk again since.
    Discard {
        /// The chunk.
        chunk: ChunkId,
        /// The asker's term of the stripe, or the last one that it knows of.
        epoch: Epoch,
    }
    /// Verify every stored byte of some chunks, all of them when none are named.
    Scrub {
        /// The chunks.
        chunks: Vec<ChunkId>,
    } -> Scrubbed { NodeReply::Scrubbed(scrubbed) => scrubbed }
    /// Bytes that are thrown away, to see how long they take.
    Probe {
        /// The bytes.
        bytes: Bytes,
    }
    /// Does another node answer? Answered without a lease, with [`NodeReply::Done`] if it does.
    Reach {
        /// The other node.
        node: NodeId,
    }
    /// How far has another node come, for all that it has said? Answered without a lease.
    Progress {
        /// The other node.
        node: NodeId,
    } -> Option<gabion_meta::Progress> { NodeReply::Progress(progress) => progress }
    /// Bytes sent so far, and planned as a primary.
    Meter -> (meter::Meter, meter::Meter) { NodeReply::Meter { sent, planned } => (sent, planned) }
    /// What its disk has done so far.
    StoreCounts -> gabion_store::StoreCounts { NodeReply::StoreCounts(counts) => counts }
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
