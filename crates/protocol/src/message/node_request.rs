//! Requests of clients, the coordinator and other nodes to a node, each with its reply when it is carried
//! out. The replies themselves are in [`NodeReply`].

use super::calls::calls;
use super::node::{
    Attestation, CommittedMark, Effect, Holding, NodeReply, RunFate, RunQuestion, Scrubbed,
};
use super::recovery::{HeldScope, KnownCluster, KnownStripes};
use super::{meter, node};
use crate::ticket::{Claim, Operations, Ticket};
use bytes::Bytes;
use gabion_layout::{
    ByteRange, ChunkId, ChunkIndex, ChunkRange, Epoch, Generation, NodeId, RunId, Sequence,
    StripeId,
};
use gabion_meta::{FencingToken, PutId};
use gabion_plan::Logged;
use gabion_store::RunMemory;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
        /// Their offset in the chunk.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
        /// A client's ticket for the stripe.
        ticket: Option<Ticket>,
    } -> Sequence { NodeReply::Staged { newest } => newest }
    /// Discard the staged bytes of the run, and never begin its part from now on.
    Unstage {
        /// The run.
        run: RunId,
    } -> bool { NodeReply::Unstaged { was_waiting } => was_waiting }
    /// Do this part, and reply when it is done and durable.
    RunPart(Box<node::RunPart>) -> (Sequence, Option<gabion_meta::Progress>) {
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
        /// The changed range.
        ranges: Vec<ChunkRange>,
        /// Lost chunks, each with the node where its new bytes are staged, by chunk. The bytes of
        /// all others are at their own nodes.
        substitutes: Vec<(ChunkIndex, NodeId)>,
        /// The put that brought the file.
        file: PutId,
        /// The file's fencing token, of which the client knows.
        token: FencingToken,
        /// A client's ticket for the stripe.
        ticket: Option<Ticket>,
    } -> Sequence { NodeReply::Updated { sequence } => sequence }
    /// To a stripe's primary: the fate of a run.
    Fate {
        /// The question.
        question: RunQuestion,
        /// A client's ticket for the stripe.
        ticket: Option<Ticket>,
    } -> RunFate { NodeReply::Fate(fate) => fate }
    /// Refuse updates of these files with lower fencing tokens from now on. Answered when no earlier one runs in
    /// the node's present terms, with those that are known to be of the files' stripes. Answered without a
    /// lease.
    RaiseTokens {
        /// The lowest token of each file, by the put that brought it.
        tokens: BTreeMap<PutId, FencingToken>,
    } -> Vec<(StripeId, Epoch)> { NodeReply::Raised(terms) => terms }
    /// The node's memory of a run at a chunk.
    Recollect {
        /// The chunk.
        chunk: ChunkId,
        /// The asker's term.
        epoch: Epoch,
        /// The run.
        run: RunId,
    } -> RunMemory { NodeReply::Recollection(memory) => memory }
    /// To a stripe's primary: the committed mark.
    Mark {
        /// The stripe.
        stripe: StripeId,
        /// Settle the stripe anew first: a node holds records of an earlier term, which no mark of
        /// this term vouches for.
        settle: bool,
        /// Ranges that the asker will decode from parity. Parity does not include appended updates, so the reply
        /// names the logs that have bytes of these ranges.
        decode: Vec<ChunkRange>,
        /// A client's ticket for the stripe.
        ticket: Option<Ticket>,
    } -> (Epoch, Sequence, Vec<Logged>) {
        NodeReply::Mark { epoch, sequence, appended } => (epoch, sequence, appended),
    }
    /// The node's knowledge of the stripe, without any promise. Answered without a lease.
    Attest {
        /// The stripe.
        stripe: StripeId,
    } -> Attestation { NodeReply::Attested(known) => known }
    /// To a stripe's primary: commit the appended updates, if there are any.
    Commit {
        /// The stripe.
        stripe: StripeId,
    }
    /// Fence older lease terms, then return the node's records of the stripe.
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
        /// Updates that were not acknowledged.
        dropped: Vec<Sequence>,
    }
    /// Committed marks of some stripes. A hint: its loss has no effect.
    Committed {
        /// At most one a stripe.
        marks: Vec<CommittedMark>,
        /// The primary, and its journal position.
        from: Option<(NodeId, gabion_meta::Progress)>,
    }
    /// Bring no update after this one into the stripe's chunks themselves, so that they can be read
    /// as of it. A restart forgets it.
    Pin {
        /// The stripe.
        stripe: StripeId,
        /// The update.
        cut: Sequence,
        /// The pin's lifetime.
        hold_ms: u64,
    }
    /// Forget a pin.
    Unpin {
        /// The stripe.
        stripe: StripeId,
        /// The update.
        cut: Sequence,
    }
    /// The ranges of a chunk that settled updates have changed since this one.
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
    /// The written bytes of a chunk that a run has left unfinished.
    Written {
        /// The chunk.
        chunk: ChunkId,
        /// The update as of which it was being made.
        base: Sequence,
    } -> Option<Vec<ByteRange>> { NodeReply::Written(written) => written }
    /// Delete chunks of stripes that are gone, and all others of these stripes on the node.
    Remove {
        /// The chunks.
        chunks: Vec<ChunkId>,
    }
    /// Delete a chunk that is no longer the node's own, of a live stripe. A node that knows a later term
    /// refuses: it may have been given the chunk again since.
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
    /// Bytes that the node discards, to measure the transfer time.
    Probe {
        /// The bytes.
        bytes: Bytes,
    }
    /// Whether another node answers. Answered without a lease, with [`NodeReply::Done`] if it does.
    Reach {
        /// The other node.
        node: NodeId,
    }
    /// Send the next heartbeat at once, since the members have changed. Answered without a lease.
    Renew
    /// The other node's journal position, as far as this node knows it. Answered without a lease.
    Progress {
        /// The other node.
        node: NodeId,
    } -> Option<gabion_meta::Progress> { NodeReply::Progress(progress) => progress }
    /// Bytes sent so far, and planned as a primary.
    Meter -> (meter::Meter, meter::Meter) { NodeReply::Meter { sent, planned } => (sent, planned) }
    /// Counts of its disk's work so far.
    StoreCounts -> gabion_store::StoreCounts { NodeReply::StoreCounts(counts) => counts }
    /// Bytes of reserves that have disk space behind the node's chunks of some stripes.
    ReservedBytes {
        /// The stripes, at most [`RESERVES_ASKED_MAX`](super::RESERVES_ASKED_MAX).
        stripes: Vec<StripeId>,
    } -> Vec<(StripeId, u64)> { NodeReply::ReservedBytes(reserved) => reserved }
    /// What the node knows of its cluster, for a coordinator with an earlier copy of the metadata. The node does not
    /// follow that coordinator. Answered without a lease.
    Cluster -> Box<KnownCluster> { NodeReply::Cluster(known) => known }
    /// The chunks of some stripes on the node, for the same. Changes nothing. Answered without a lease.
    Held {
        /// The stripes.
        scope: HeldScope,
    } -> KnownStripes { NodeReply::Held(held) => held }
}

impl NodeRequest {
    /// Returns the operation and the stripe for which the request needs a ticket if it is a client's. All requests are
    /// listed: those without a claim tell or change nothing of a stripe's bytes, name a run that only its client knows,
    /// or come from members only.
    pub fn claim(&self) -> Option<Claim> {
        let (operation, stripe, generation, file, ticket) = match self {
            Self::Stage(stage) => (Operations::UPDATE, stage.stripe, None, None, stage.ticket),
            Self::Update(update) => {
                let (generation, file) = (Some(update.generation), Some(update.file));
                (
                    Operations::UPDATE,
                    update.stripe,
                    generation,
                    file,
                    update.ticket,
                )
            }
            // The run is of an earlier layout.
            Self::Fate(fate) => {
                let stripe = fate.question.stripe;
                (Operations::UPDATE, stripe, None, None, fate.ticket)
            }
            Self::Mark(mark) => (Operations::READ, mark.stripe, None, None, mark.ticket),
            Self::RunPart(part) => {
                let is_read = part.effect == Effect::None;
                let operation = if is_read {
                    Operations::READ
                } else {
                    Operations::INSTALL
                };
                (
                    operation,
                    part.part.stripe,
                    Some(part.generation),
                    None,
                    part.ticket,
                )
            }
            Self::Unstage(_)
            | Self::RaiseTokens(_)
            | Self::Recollect(_)
            | Self::Attest(_)
            | Self::Commit(_)
            | Self::Collect(_)
            | Self::Fence(_)
            | Self::Resolve(_)
            | Self::Committed(_)
            | Self::Pin(_)
            | Self::Unpin(_)
            | Self::Missed(_)
            | Self::Latest(_)
            | Self::Written(_)
            | Self::Remove(_)
            | Self::Discard(_)
            | Self::Scrub(_)
            | Self::Probe(_)
            | Self::Reach(_)
            | Self::Renew
            | Self::Progress(_)
            | Self::Meter
            | Self::StoreCounts
            | Self::ReservedBytes(_)
            | Self::Cluster
            | Self::Held(_) => return None,
        };
        Some(Claim {
            operation,
            stripe,
            generation,
            file,
            ticket,
        })
    }

    /// Whether the request needs a node with a lease. A reader that has asked a quorum knows by itself
    /// whether the node is behind.
    pub fn needs_lease(&self) -> bool {
        match self {
            Self::Attest { .. }
            | Self::Reach { .. }
            | Self::Renew
            | Self::Progress { .. }
            | Self::Meter
            | Self::Cluster
            | Self::Held { .. }
            // A node whose lease has run out may get a new one without another join.
            | Self::RaiseTokens { .. } => false,
            Self::RunPart(part) => !part.is_quorum_read(),
            _ => true,
        }
    }
}
