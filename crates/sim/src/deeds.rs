//! What a run has really done of what it is there to try: a simulator that never writes without
//! some chunk, catches up, or repairs while updates go on, proves nothing about these.

use crate::network::{Reply, Request, Slot};
use crate::world::lock;
use gabion_layout::StripeId;
use gabion_plan::Step;
use gabion_protocol::message::{
    CoordinatorReply, CoordinatorRequest, Effect, NodeReply, NodeRequest, Purpose, RunPart,
};
use std::collections::BTreeSet;
use std::ops::AddAssign;
use std::sync::Mutex;

/// How often each happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Deeds {
    /// Updates that were acknowledged although a chunk had no part in them.
    pub degraded_update_count: u64,
    /// Updates that were acknowledged before parity followed.
    pub appended_update_count: u64,
    /// Commits that were begun.
    pub commit_count: u64,
    /// Notes of the coordinator that updates leave chunks out.
    pub degraded_note_count: u64,
    /// Chunks that data grouping copied to where they were to be.
    pub grouped_chunk_count: u64,
    /// Chunks that were made anew.
    pub repair_count: u64,
    /// Records of what a chunk had missed while it was made anew: updates went on meanwhile.
    pub overtaken_repair_count: u64,
    /// Records of what the chunk of a returned node had missed.
    pub catch_up_count: u64,
    /// Appends that waited for a merge because a reserve was full.
    pub stalled_append_count: u64,
    /// Updates without an answer that their client withdrew before they began, and tried again.
    pub withdrawn_count: u64,
    /// Updates without an answer that had begun, and were made as it turned out.
    pub stood_count: u64,
    /// Updates without an answer that may have begun, and were not made as it turned out.
    pub settled_count: u64,
    /// Updates without an answer of which no node remembered what became.
    pub forgotten_count: u64,
    /// Requests and frames that were delivered twice.
    pub repeated_count: u64,
    /// Stripes that were begun to be made of others.
    pub conversion_count: u64,
}

impl Deeds {
    /// Each count and what it is of.
    pub fn rows(&self) -> [(&'static str, u64); 15] {
        [
            ("degraded updates", self.degraded_update_count),
            ("appended updates", self.appended_update_count),
            ("commits", self.commit_count),
            ("notes of chunks left out", self.degraded_note_count),
            ("chunks grouped", self.grouped_chunk_count),
            ("repairs", self.repair_count),
            ("records during repairs", self.overtaken_repair_count),
            ("records of catching up", self.catch_up_count),
            ("stalled appends", self.stalled_append_count),
            ("withdrawn updates", self.withdrawn_count),
            ("updates that stood", self.stood_count),
            ("settled updates", self.settled_count),
            ("forgotten updates", self.forgotten_count),
            ("repeated messages", self.repeated_count),
            ("conversions begun", self.conversion_count),
        ]
    }
}

impl AddAssign for Deeds {
    fn add_assign(&mut self, other: Self) {
        self.degraded_update_count += other.degraded_update_count;
        self.appended_update_count += other.appended_update_count;
        self.commit_count += other.commit_count;
        self.degraded_note_count += other.degraded_note_count;
        self.grouped_chunk_count += other.grouped_chunk_count;
        self.repair_count += other.repair_count;
        self.overtaken_repair_count += other.overtaken_repair_count;
        self.catch_up_count += other.catch_up_count;
        self.stalled_append_count += other.stalled_append_count;
        self.withdrawn_count += other.withdrawn_count;
        self.stood_count += other.stood_count;
        self.settled_count += other.settled_count;
        self.forgotten_count += other.forgotten_count;
        self.repeated_count += other.repeated_count;
        self.conversion_count += other.conversion_count;
    }
}

/// Counts while a run goes on.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    deeds: Deeds,
    /// Chunks made anew on machines whose nodes have not joined since: these have missed nothing but
    /// what came in between.
    rebuilt: BTreeSet<(StripeId, Slot)>,
}

/// What a request asks for, of what is counted once it is done.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Intent {
    NoteDegraded,
    Group,
    Rebuild(StripeId),
    CatchUp(StripeId),
}

impl Intent {
    /// What a request asks for, if that is counted.
    pub(crate) fn of(request: &Request) -> Option<Self> {
        match request {
            Request::Coordinator(CoordinatorRequest::NoteDegraded { .. }) => {
                Some(Self::NoteDegraded)
            }
            Request::Node(_, NodeRequest::RunPart(part)) if writes(part) => {
                let stripe = part.part.stripe;
                match part.effect {
                    Effect::Install { .. } | Effect::Resume { .. }
                        if part.purpose == Purpose::Repair =>
                    {
                        Some(Self::Rebuild(stripe))
                    }
                    Effect::Install { .. } if part.purpose == Purpose::Grouping => {
                        Some(Self::Group)
                    }
                    Effect::CatchUp { .. } => Some(Self::CatchUp(stripe)),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

fn writes(part: &RunPart) -> bool {
    let mut steps = part.part.steps.iter();
    steps.any(|step| matches!(step.step, Step::Write { .. }))
}

impl Tally {
    /// Counts what a machine has answered.
    pub(crate) fn answered(&self, intent: Intent, slot: Slot, reply: &Reply) {
        let state = &mut *lock(&self.0);
        let part_is_done = matches!(reply, Reply::Node(NodeReply::PartDone { .. }));
        match (intent, reply) {
            (Intent::NoteDegraded, Reply::Coordinator(reply)) => {
                let is_noted = **reply == CoordinatorReply::Done;
                state.deeds.degraded_note_count += u64::from(is_noted);
            }
            (Intent::Group, _) if part_is_done => state.deeds.grouped_chunk_count += 1,
            (Intent::Rebuild(stripe), _) if part_is_done => {
                state.deeds.repair_count += 1;
                state.rebuilt.insert((stripe, slot));
            }
            (Intent::CatchUp(stripe), _) if part_is_done => {
                if state.rebuilt.contains(&(stripe, slot)) {
                    state.deeds.overtaken_repair_count += 1;
                } else {
                    state.deeds.catch_up_count += 1;
                }
            }
            _ => {}
        }
    }

    /// A machine's node asks to join: from now on its chunks may have missed more.
    pub(crate) fn joins(&self, slot: Slot) {
        lock(&self.0).rebuilt.retain(|&(_, other)| other != slot);
    }

    /// Adds what somebody else has counted.
    pub(crate) fn add(&self, change: impl FnOnce(&mut Deeds)) {
        change(&mut lock(&self.0).deeds);
    }

    /// What has been done so far.
    pub(crate) fn deeds(&self) -> Deeds {
        lock(&self.0).deeds
    }
}
