//! Coverage of a run: how often it reached the states and events that the simulator tests. A run without
//! degraded updates, catching up, or updates during repairs proves nothing about these.

use crate::parties::{Reply, Request, Slot};
use crate::world::lock;
use gabion_layout::{Sequence, StripeId};
use gabion_plan::Step;
use gabion_protocol::event::Event;
use gabion_protocol::message::{
    CoordinatorReply, CoordinatorRequest, Effect, NodeReply, NodeRequest, Purpose, Refusal,
    RunFate, RunPart, TicketFault, ask,
};
use std::collections::BTreeSet;
use std::ops::AddAssign;
use std::sync::Mutex;

/// Counts of the states and events that a run reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Coverage {
    /// Updates that were acknowledged although a chunk that they write was lost.
    pub degraded_update_count: u64,
    /// Updates that were begun for which parity follows later.
    pub appended_update_count: u64,
    /// Commits that were begun.
    pub commit_count: u64,
    /// Notes of the coordinator that updates leave chunks out.
    pub degraded_note_count: u64,
    /// Chunks that data grouping copied to their new places.
    pub grouped_chunk_count: u64,
    /// Chunks that were rebuilt.
    pub repair_count: u64,
    /// Records of updates of a chunk during its rebuild.
    pub overtaken_repair_count: u64,
    /// Records of missed updates for the chunk of a returned node.
    pub catch_up_count: u64,
    /// Appends that waited for a merge because a reserve was full.
    pub stalled_append_count: u64,
    /// Attempts at updates that their client withdrew before they began.
    pub withdrawn_count: u64,
    /// Attempts at updates without an answer that had begun and succeeded.
    pub stood_count: u64,
    /// Attempts at updates without an answer that may have begun and did not succeed.
    pub settled_count: u64,
    /// Attempts at updates without an answer whose outcome no node remembered.
    pub forgotten_count: u64,
    /// Requests and frames that were delivered twice.
    pub repeated_count: u64,
    /// Conversions that were started.
    pub conversion_count: u64,
    /// Stripes that were replaced, by a write across borders or one that was too large for records.
    pub replacement_count: u64,
    /// Files that were stored completely.
    pub put_count: u64,
    /// Files that were removed.
    pub removal_count: u64,
    /// Files that were renamed.
    pub rename_count: u64,
    /// Stripes of puts that were placed anew, because a node had not taken its chunk.
    pub placed_anew_count: u64,
    /// Parts of reads at the cut of a quorum.
    pub quorum_read_count: u64,
    /// Pieces of updates for which a node had no staging room.
    pub unstaged_count: u64,
    /// Nodes that were evicted because several others could not reach them.
    pub eviction_count: u64,
    /// Nodes that were evicted for a single broken link.
    pub link_eviction_count: u64,
    /// Notes in the logs of nodes and coordinators that a disk hangs.
    pub hang_count: u64,
    /// Nodes that were detected to have gone back in time.
    pub rollback_count: u64,
    /// Requests that a coordinator refused because its metadata was detected to be an old copy.
    pub old_metadata_count: u64,
    /// Requests that a coordinator refused because too few nodes vouched for its metadata.
    pub unvouched_count: u64,
    /// Acknowledged writes behind the end that their client knew.
    pub write_behind_count: u64,
    /// Exclusive opens of files.
    pub exclusive_open_count: u64,
    /// Snapshots and clones that were made.
    pub snapshot_count: u64,
    /// Snapshots and clones of directories.
    pub tree_count: u64,
    /// Writes of clones.
    pub clone_write_count: u64,
    /// Directories that were moved with a file below.
    pub directory_count: u64,
    /// Acknowledged appends.
    pub append_count: u64,
    /// Acknowledged writes in pieces, those of appends included.
    pub write_in_pieces_count: u64,
    /// Acknowledged growths of files by zeros.
    pub growth_count: u64,
    /// Acknowledged truncations.
    pub truncation_count: u64,
    /// Holes that were punched.
    pub hole_count: u64,
    /// Holes of files that clients were told.
    pub hole_read_count: u64,
    /// Requests of clients that a node refused because their ticket had expired.
    pub expired_ticket_count: u64,
    /// Requests of clients that a node refused because it did not have the key of their ticket.
    pub unknown_key_count: u64,
    /// Updates that were begun with the changes of several requests.
    pub joint_update_count: u64,
    /// Parts of reads that recalled appended bytes.
    pub recalling_read_count: u64,
}

impl Coverage {
    /// The number of counts.
    pub const ROW_COUNT: usize = 44;

    /// Each count with its name.
    pub fn rows(&self) -> [(&'static str, u64); Self::ROW_COUNT] {
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
            ("stripes replaced", self.replacement_count),
            ("puts", self.put_count),
            ("removals", self.removal_count),
            ("renames", self.rename_count),
            ("stripes placed anew", self.placed_anew_count),
            ("reads by quorum", self.quorum_read_count),
            ("pieces without room", self.unstaged_count),
            ("evictions", self.eviction_count),
            ("evictions for a link", self.link_eviction_count),
            ("notes of hung disks", self.hang_count),
            ("rollbacks found", self.rollback_count),
            ("requests to old metadata", self.old_metadata_count),
            ("requests to metadata in doubt", self.unvouched_count),
            ("writes behind the end", self.write_behind_count),
            ("exclusive opens", self.exclusive_open_count),
            ("snapshots", self.snapshot_count),
            ("snapshots of directories", self.tree_count),
            ("writes of clones", self.clone_write_count),
            ("directories moved", self.directory_count),
            ("appends", self.append_count),
            ("writes in pieces", self.write_in_pieces_count),
            ("growths", self.growth_count),
            ("truncations", self.truncation_count),
            ("holes punched", self.hole_count),
            ("holes seen", self.hole_read_count),
            ("expired tickets", self.expired_ticket_count),
            ("tickets of unknown keys", self.unknown_key_count),
            ("updates made together", self.joint_update_count),
            ("reads from logs", self.recalling_read_count),
        ]
    }
}

impl AddAssign for Coverage {
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
        self.replacement_count += other.replacement_count;
        self.put_count += other.put_count;
        self.removal_count += other.removal_count;
        self.rename_count += other.rename_count;
        self.placed_anew_count += other.placed_anew_count;
        self.quorum_read_count += other.quorum_read_count;
        self.unstaged_count += other.unstaged_count;
        self.eviction_count += other.eviction_count;
        self.link_eviction_count += other.link_eviction_count;
        self.hang_count += other.hang_count;
        self.rollback_count += other.rollback_count;
        self.old_metadata_count += other.old_metadata_count;
        self.unvouched_count += other.unvouched_count;
        self.write_behind_count += other.write_behind_count;
        self.exclusive_open_count += other.exclusive_open_count;
        self.snapshot_count += other.snapshot_count;
        self.tree_count += other.tree_count;
        self.clone_write_count += other.clone_write_count;
        self.directory_count += other.directory_count;
        self.append_count += other.append_count;
        self.write_in_pieces_count += other.write_in_pieces_count;
        self.growth_count += other.growth_count;
        self.truncation_count += other.truncation_count;
        self.hole_count += other.hole_count;
        self.hole_read_count += other.hole_read_count;
        self.expired_ticket_count += other.expired_ticket_count;
        self.unknown_key_count += other.unknown_key_count;
        self.joint_update_count += other.joint_update_count;
        self.recalling_read_count += other.recalling_read_count;
    }
}

/// The counts during a run.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    coverage: Coverage,
    /// Chunks rebuilt on machines whose nodes have not joined since: these have only missed updates during
    /// the rebuild.
    rebuilt: BTreeSet<(StripeId, Slot)>,
    /// Commits that were begun.
    commits: BTreeSet<(StripeId, Sequence)>,
    /// Updates that were begun whose parity follows later.
    appended: BTreeSet<(StripeId, Sequence)>,
    /// Updates that were begun with the changes of several requests.
    joint: BTreeSet<(StripeId, Sequence)>,
    /// Conversions that were started.
    converted: BTreeSet<StripeId>,
}

/// The event that a request causes, counted once it has succeeded.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Intent {
    NoteDegraded,
    Group,
    Rebuild(StripeId),
    CatchUp(StripeId),
    /// An update of a lost chunk.
    UpdateDegraded,
    /// The end of an attempt at an update.
    Close,
    /// The replacement of a stripe.
    Replace,
    /// A file becomes visible.
    Put,
    /// A file is removed.
    Remove,
    /// A file is renamed.
    Rename,
    /// A stripe of a put is placed anew.
    PlaceAnew,
    /// A part of a read at the cut of a quorum.
    ReadByQuorum,
    /// A part of a read that recalls appended bytes.
    Recall,
    /// New bytes are staged for an update.
    Stage,
    /// Any other request to the coordinator.
    Other,
}

impl Intent {
    /// The event that a request causes, if it is counted.
    pub(crate) fn of(request: &Request) -> Option<Self> {
        match request {
            Request::Coordinator(CoordinatorRequest::NoteDegraded { .. }) => {
                Some(Self::NoteDegraded)
            }
            Request::Coordinator(CoordinatorRequest::CommitReplace { .. }) => Some(Self::Replace),
            Request::Coordinator(CoordinatorRequest::CommitPut(_)) => Some(Self::Put),
            Request::Coordinator(CoordinatorRequest::RemoveFile { .. }) => Some(Self::Remove),
            Request::Coordinator(CoordinatorRequest::Rename { .. }) => Some(Self::Rename),
            Request::Coordinator(CoordinatorRequest::PlaceAnew { .. }) => Some(Self::PlaceAnew),
            Request::Coordinator(_) => Some(Self::Other),
            Request::Node(_, NodeRequest::Stage { .. }) => Some(Self::Stage),
            Request::Node(_, NodeRequest::RunPart(part)) if part.is_quorum_read() => {
                Some(Self::ReadByQuorum)
            }
            Request::Node(_, NodeRequest::RunPart(part)) if recalls_to_read(part) => {
                Some(Self::Recall)
            }
            Request::Node(_, NodeRequest::Update(ask::Update { substitutes, .. })) => {
                (!substitutes.is_empty()).then_some(Self::UpdateDegraded)
            }
            Request::Node(_, NodeRequest::Unstage { .. } | NodeRequest::Fate(_)) => {
                Some(Self::Close)
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
            Request::Node(..) => None,
        }
    }
}

fn writes(part: &RunPart) -> bool {
    let mut steps = part.part.steps.iter();
    steps.any(|step| matches!(step.step, Step::Write { .. }))
}

fn recalls_to_read(part: &RunPart) -> bool {
    let mut steps = part.part.steps.iter();
    let recalls = steps.any(|step| matches!(step.step, Step::Recall { .. }));
    recalls && part.effect == Effect::None
}

impl Tally {
    /// Notes a request to a node when it is sent.
    pub(crate) fn sent(&self, request: &NodeRequest) {
        let NodeRequest::RunPart(part) = request else {
            return;
        };
        let state = &mut *lock(&self.0);
        let stripe = part.part.stripe;
        if let Effect::Record { sequence, .. } | Effect::Append { sequence, .. } = part.effect
            && !part.joined.is_empty()
        {
            let is_first = state.joint.insert((stripe, sequence));
            state.coverage.joint_update_count += u64::from(is_first);
        }
        match &part.effect {
            Effect::Convert { .. } => {
                let is_first = state.converted.insert(stripe);
                state.coverage.conversion_count += u64::from(is_first);
            }
            // A commit is no client's update: it changes no byte that a client reads.
            Effect::Record { sequence, .. } if part.purpose == Purpose::Commit => {
                let is_first = state.commits.insert((stripe, *sequence));
                state.coverage.commit_count += u64::from(is_first);
            }
            Effect::Append { sequence, .. } => {
                let is_first = state.appended.insert((stripe, *sequence));
                state.coverage.appended_update_count += u64::from(is_first);
            }
            _ => {}
        }
    }

    /// Counts a reply that refuses a client's ticket because it is old. Returns any other fault of a ticket: honest
    /// clients send none.
    pub(crate) fn refused_ticket(&self, reply: &NodeReply) -> Option<TicketFault> {
        let fault = match reply {
            NodeReply::Refused(Refusal::Ticket(fault))
            | NodeReply::NotBegun(Refusal::Ticket(fault)) => *fault,
            _ => return None,
        };
        match fault {
            TicketFault::Expired => self.add(|coverage| coverage.expired_ticket_count += 1),
            TicketFault::UnknownKey => self.add(|coverage| coverage.unknown_key_count += 1),
            other => return Some(other),
        }
        None
    }

    /// Counts a machine's reply.
    pub(crate) fn answered(&self, intent: Option<Intent>, slot: Slot, reply: &Reply) {
        let Some(intent) = intent else {
            return;
        };
        let state = &mut *lock(&self.0);
        let part_is_done = matches!(reply, Reply::Node(NodeReply::PartDone { .. }));
        if let Reply::Coordinator(reply) = reply {
            count_doubts(&mut state.coverage, reply);
        }
        match (intent, reply) {
            (Intent::Put, Reply::Coordinator(reply)) => {
                state.coverage.put_count += u64::from(**reply == CoordinatorReply::Done);
            }
            (Intent::Remove, Reply::Coordinator(reply)) => {
                state.coverage.removal_count += u64::from(**reply == CoordinatorReply::Done);
            }
            (Intent::Rename, Reply::Coordinator(reply)) => {
                state.coverage.rename_count += u64::from(**reply == CoordinatorReply::Done);
            }
            (Intent::PlaceAnew, Reply::Coordinator(reply)) => {
                let is_placed = matches!(**reply, CoordinatorReply::Put { .. });
                state.coverage.placed_anew_count += u64::from(is_placed);
            }
            (Intent::Stage, Reply::Node(NodeReply::Refused(Refusal::Unavailable(_)))) => {
                state.coverage.unstaged_count += 1;
            }
            (Intent::ReadByQuorum, _) if part_is_done => state.coverage.quorum_read_count += 1,
            (Intent::Recall, _) if part_is_done => state.coverage.recalling_read_count += 1,
            (Intent::NoteDegraded, Reply::Coordinator(reply)) => {
                let is_noted = **reply == CoordinatorReply::Done;
                state.coverage.degraded_note_count += u64::from(is_noted);
            }
            (Intent::Replace, Reply::Coordinator(reply)) => {
                let is_done = **reply == CoordinatorReply::Done;
                state.coverage.replacement_count += u64::from(is_done);
            }
            (Intent::UpdateDegraded, Reply::Node(NodeReply::Updated { .. })) => {
                state.coverage.degraded_update_count += 1;
            }
            (Intent::Close, Reply::Node(NodeReply::Unstaged { was_waiting: true })) => {
                state.coverage.withdrawn_count += 1;
            }
            (Intent::Close, Reply::Node(NodeReply::Fate(fate))) => match fate {
                RunFate::Stood(_) => state.coverage.stood_count += 1,
                RunFate::Never => state.coverage.settled_count += 1,
                RunFate::Forgotten => state.coverage.forgotten_count += 1,
            },
            (Intent::Group, _) if part_is_done => state.coverage.grouped_chunk_count += 1,
            (Intent::Rebuild(stripe), _) if part_is_done => {
                state.coverage.repair_count += 1;
                state.rebuilt.insert((stripe, slot));
            }
            (Intent::CatchUp(stripe), _) if part_is_done => {
                if state.rebuilt.contains(&(stripe, slot)) {
                    state.coverage.overtaken_repair_count += 1;
                } else {
                    state.coverage.catch_up_count += 1;
                }
            }
            _ => {}
        }
    }

    /// Counts an event of the coordinator's log.
    pub(crate) fn noted(&self, event: &Event) {
        let coverage = &mut lock(&self.0).coverage;
        match event {
            Event::Evicted(_) => coverage.eviction_count += 1,
            Event::EvictedForLink(..) => coverage.link_eviction_count += 1,
            Event::WentBack(_) => coverage.rollback_count += 1,
            Event::DiskHangs(_) => coverage.hang_count += 1,
            _ => {}
        }
    }

    /// A machine's node asks to join: from now on its chunks may have missed more.
    pub(crate) fn joins(&self, slot: Slot) {
        lock(&self.0).rebuilt.retain(|&(_, other)| other != slot);
    }

    /// Adds other counts.
    pub(crate) fn add(&self, change: impl FnOnce(&mut Coverage)) {
        change(&mut lock(&self.0).coverage);
    }

    /// The counts so far.
    pub(crate) fn coverage(&self) -> Coverage {
        lock(&self.0).coverage
    }
}

/// Counts a refusal of a coordinator that does not trust its metadata.
fn count_doubts(coverage: &mut Coverage, reply: &CoordinatorReply) {
    match reply {
        CoordinatorReply::Refused(why) if why.sentence.contains("metadata is an old copy") => {
            coverage.old_metadata_count += 1;
        }
        CoordinatorReply::Busy(why) if why.sentence.contains("nodes have contacted it") => {
            coverage.unvouched_count += 1;
        }
        _ => {}
    }
}
