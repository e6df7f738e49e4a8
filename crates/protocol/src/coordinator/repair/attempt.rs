//! One repair of a stripe: its schedule, the chunks under way, and the failures so far.

use super::survey::{Survey, Target, TaskError};
use crate::message::Refusal;
use crate::settle::Outcome;
use gabion_layout::{ChunkIndex, Epoch, Generation, NodeId, Sequence, StripeRecord};
use gabion_plan::{Cost, LinkBytes, Plan};
use std::collections::{BTreeMap, BTreeSet};

/// Times that a rebuilt chunk may be discarded because updates went further than the logs reach. After that, updates
/// wait until the chunk is rebuilt.
pub(in crate::coordinator) const OUTRUN_COUNT_MAX: u32 = 2;

/// The scheduled first step of a repair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Intent {
    /// The chunks that are made together and their requestors; at least one.
    pub(super) targets: Vec<Target>,
    /// The helpers in the order of the chain; empty for a chunk that is moved.
    pub(super) path: Vec<ChunkIndex>,
    /// Whether the path goes around slow links, so that it must be a chain in this order.
    pub(super) is_detour: bool,
    pub(super) links: Vec<LinkBytes>,
}

/// A repair that has its share of the budget.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Admitted {
    pub(super) intent: Intent,
    /// The time over which to spread its transfers.
    pub(super) spread_ms: u64,
}

/// The end of a stripe's repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    /// No work is left, or none that is possible now.
    Done,
    /// More work is left, for which the budget has no share now: the stripe goes back to the queue.
    Unfinished,
}

/// The reason why a node gets no chunk in this repair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Avoidance {
    /// Its disk is full.
    Full,
    /// Another reason, as a sentence without its end.
    Other(String),
}

impl Avoidance {
    /// A node has refused to write a chunk.
    pub(super) fn of(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::NoSpace => Self::Full,
            other => Self::Other(other.to_string()),
        }
    }
}

/// The state of the stripe's repair.
#[derive(Default)]
pub(super) struct Progress {
    /// The share of the budget with which it began, until it is used.
    pub(super) admitted: Option<Admitted>,
    /// Whether a chunk has been begun.
    pub(super) has_begun: bool,
    /// Whether work is left that the budget does not allow now.
    pub(super) is_unfinished: bool,
    /// Nodes that could not take a chunk, or have not confirmed an earlier order to remove one, each with the first
    /// reason.
    avoided: BTreeMap<NodeId, Avoidance>,
    /// Chunks that nodes were told to remove in this round's term: such a node gets this chunk again only in a later
    /// one.
    pub(super) taken_away: BTreeSet<Target>,
    /// Nodes that had records of the stripe that are not settled, and were told to remove what they have.
    pub(super) barred: BTreeSet<NodeId>,
    /// Nodes that have failed as helpers.
    pub(super) distrusted: BTreeSet<NodeId>,
    /// The number of times a rebuilt chunk was too old to be brought up to date.
    pub(super) outrun_count: u32,
    /// Chunks for which there is no place.
    pub(super) unplaced: BTreeSet<ChunkIndex>,
    /// Chunks that cannot be brought up to date by what they missed.
    pub(super) beyond_logs: BTreeSet<ChunkIndex>,
    /// The reason why the last of these has no place.
    pub(super) no_place: Option<TaskError>,
}

impl Progress {
    /// That of a repair which begins, with its share of the budget if it has one.
    pub(super) fn new(admitted: Option<Admitted>) -> Self {
        Self {
            admitted,
            ..Self::default()
        }
    }

    /// Gives a node no chunk in this repair any more.
    pub(super) fn avoid(&mut self, node: NodeId, why: Avoidance) {
        self.avoided.entry(node).or_insert(why);
    }

    /// Whether a node may get a chunk.
    pub(super) fn may_take(&self, node: NodeId) -> bool {
        !self.avoided.contains_key(&node)
    }

    /// The reason why a chunk has no place, if it had one without the nodes that this repair avoids.
    pub(super) fn kept_away(&self, survey: &Survey, chunk: ChunkIndex) -> Option<TaskError> {
        let is_place = |place: &(&NodeId, &Avoidance)| {
            let node = *place.0;
            !survey.requestors(chunk, |other| other == node).is_empty()
        };
        let (mut full, mut reasons) = (Vec::new(), Vec::new());
        for (node, why) in self.avoided.iter().filter(is_place) {
            match why {
                Avoidance::Full => full.push(node.to_string()),
                Avoidance::Other(why) => reasons.push(format!("{node} cannot take it: {why}")),
            }
        }
        let mut advice = "repair these nodes or add others";
        if !full.is_empty() {
            reasons.insert(0, format!("the disk is full of {}", full.join(", ")));
            advice = "delete files or add nodes";
        }
        if reasons.is_empty() {
            return None;
        }
        let reasons = reasons.join("; ");
        let sentence = format!("there is no place for {chunk}: {reasons}; {advice}");
        Some(TaskError(sentence))
    }

    /// Those of the chunks whose nodes have not failed as helpers.
    pub(super) fn trusted(&self, stripe: &StripeRecord, chunks: &[ChunkIndex]) -> Vec<ChunkIndex> {
        let is_trusted = |chunk: &ChunkIndex| !self.distrusted.contains(&stripe.nodes[chunk.at()]);
        chunks.iter().copied().filter(is_trusted).collect()
    }

    /// The helpers that were chosen when the repair was admitted, if it is this one.
    pub(super) fn path_for(&self, targets: &[Target]) -> Option<Vec<ChunkIndex>> {
        let intent = &self.admitted.as_ref()?.intent;
        let is_it = intent.targets == targets && !intent.path.is_empty();
        is_it.then(|| intent.path.clone())
    }

    /// Whether the scheduled path avoids slow links.
    pub(super) fn is_detour(&self) -> bool {
        let admitted = self.admitted.as_ref();
        admitted.is_some_and(|admitted| admitted.intent.is_detour)
    }

    /// The node that was to have a chunk when the repair was admitted, if it still may.
    pub(super) fn scheduled(&self, chunk: ChunkIndex, candidates: &[NodeId]) -> Option<NodeId> {
        let targets = &self.admitted.as_ref()?.intent.targets;
        let (_, node) = targets.iter().find(|target| target.0 == chunk)?;
        candidates.contains(node).then_some(*node)
    }

    /// Whether a chunk is to be rebuilt, and not brought up to date or left.
    pub(super) fn is_to_be_made(&self, survey: &Survey, chunk: ChunkIndex) -> bool {
        let catches_up = survey.behind(chunk).is_some() && !self.beyond_logs.contains(&chunk);
        !catches_up && !self.unplaced.contains(&chunk)
    }
}

/// A term of the coordinator, under which the stripe is settled and does not change.
pub(super) struct Round {
    pub(super) epoch: Epoch,
    pub(super) outcome: Outcome,
    /// Nodes that were failed when updates were settled. A node that returns during the repair may hold
    /// records of updates whose outcome it does not know, so it helps only after the next settlement.
    pub(super) absent: Vec<NodeId>,
}

/// One try to make a chunk, or all lost ones of a stripe together (`ECPipe` section 4.4).
pub(super) struct Rebuild {
    /// At least one. If there are several, all are lost.
    pub(super) made: Vec<Made>,
    /// The term under which it was planned.
    pub(super) epoch: Epoch,
    /// The generation in which it is made.
    pub(super) generation: Generation,
    /// The update as of which it is made.
    pub(super) base: Sequence,
    pub(super) plan: Plan,
    /// Chunks that could not be read when it was planned.
    pub(super) lost: Vec<ChunkIndex>,
    pub(super) cost: Cost,
    /// Whether the chunk is whole where it is, and is moved.
    pub(super) is_move: bool,
    /// The time over which to spread its reads.
    pub(super) spread_ms: u64,
    pub(super) began_ms: u64,
}

impl Rebuild {
    /// The chunks to make, and their nodes.
    pub(super) fn targets(&self) -> Vec<Target> {
        let made = self.made.iter();
        made.map(|made| (made.chunk, made.requestor)).collect()
    }
}

/// A chunk that is being made, and may be done before others of its rebuild.
#[derive(Clone, Copy)]
pub(super) struct Made {
    pub(super) chunk: ChunkIndex,
    pub(super) requestor: NodeId,
    /// The number of times the requestor had joined when the try began.
    pub(super) joins: Option<u64>,
    /// Whether the requestor holds the chunk that is to be replaced.
    pub(super) in_place: bool,
    /// Whether the requestor has confirmed that it is whole.
    pub(super) is_done: bool,
}
