//! The possible next steps: every message that may arrive, every step that a role may take, every fault. Each is one
//! atomic step. A message that is lost is one that never arrives, and one that is late arrives whenever its step is
//! taken, so neither needs a step of its own; nor does the crash of a primary, which is a term that takes no more
//! steps.

use crate::model::retry;
use crate::model::rules::{Mutation, Rules};
use crate::model::settlement;
use crate::model::state::{
    Answer, CHUNK_COUNT, Closing, DATA_COUNT, Fate, Faults, Note, Part, Presence, Report, Run, Set,
    State, Term, UPDATE_COUNT, has, is_data, only, participants, version, written,
};
use gabion_layout::{ChunkId, ChunkIndex, Epoch, NodeId, Sequence, StripeId};
use gabion_meta::{Exclusion, Held, StoodUpdate};
use std::array;

/// One step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A primary numbers an update and sends its parts.
    Issue { epoch: u8, update: usize },
    /// A data node gets its part, reads its old bytes and sends the delta to the parity nodes.
    Read { run: usize, node: usize },
    /// A participant's record becomes durable, and it replies. It has heard of its primary's mark.
    Record { run: usize, node: usize },
    /// The primary has all replies, and answers the client.
    Acknowledge { run: usize },
    /// The client abandons an attempt that has no number yet, and a node withdraws it.
    Abandon { update: usize },
    /// The request of that attempt reaches a primary.
    IssueLate { epoch: u8, update: usize },
    /// The client has heard no answer, and has a node withdraw the run.
    Withdraw { run: usize, node: usize },
    /// The client asks a primary after a run; these nodes say what they remember.
    Ask { epoch: u8, run: usize, nodes: Set },
    /// A node hears of a mark, from the primary or from a reader who vouches for it.
    Hear { epoch: u8, mark: u8, node: usize },
    /// The coordinator grants the next term, be it to a node, whatever has become of the holder
    /// before, or to itself for a repair.
    Grant,
    /// The coordinator reads the stripe's record for the lease's answer.
    LookUp { epoch: u8 },
    /// A survivor refuses older terms from now on, and says what it holds.
    Collect { epoch: u8, node: usize },
    /// The settler applies the recovery rule.
    Decide { epoch: u8 },
    /// The coordinator notes who was left out.
    Note { epoch: u8 },
    /// A survivor makes the outcome durable.
    Resolve { epoch: u8, node: usize },
    /// A process dies, and another is there before it is missed.
    Crash { node: usize, keeps_mark: bool },
    /// A disk is lost.
    Lose { node: usize },
    /// The coordinator declares a node failed, whose lease has ended.
    DeclareFailed { node: usize },
    /// A node that was declared failed says what it holds; again if it hears nothing.
    Return { node: usize },
    /// The coordinator looks at what the node said, and counts it again.
    Judge { node: usize },
    /// The node hears that it is a member, and what was decided.
    Admit { node: usize },
}

impl Step {
    /// Steps that may be possible in a state. Those left out are not; [`take`] says of the others.
    pub(crate) fn all(state: &State, steps: &mut Vec<Self>) {
        let nodes = 0..CHUNK_COUNT;
        if state.faults.lease_count > 0 {
            steps.push(Self::Grant);
        }
        if state.faults.retry_count > 0 {
            steps.extend((0..UPDATE_COUNT).map(|update| Self::Abandon { update }));
        }
        for (at, term) in state.terms.iter().enumerate() {
            let epoch = at as u8 + 1;
            match *term {
                Term::Granted { .. } => steps.push(Self::LookUp { epoch }),
                Term::Collecting { .. } => {
                    steps.push(Self::Decide { epoch });
                    steps.extend(nodes.clone().map(|node| Self::Collect { epoch, node }));
                }
                Term::Noting { .. } => steps.push(Self::Note { epoch }),
                Term::Resolving { .. } => {
                    steps.extend(nodes.clone().map(|node| Self::Resolve { epoch, node }));
                }
                Term::Serving { mark, .. } => {
                    steps.extend((0..UPDATE_COUNT).map(|update| Self::Issue { epoch, update }));
                    let late = (0..UPDATE_COUNT).filter(|&update| has(state.late, update));
                    steps.extend(late.map(|update| Self::IssueLate { epoch, update }));
                    let heard =
                        (1..=mark).flat_map(|mark| nodes.clone().map(move |node| (mark, node)));
                    steps.extend(heard.map(|(mark, node)| Self::Hear { epoch, mark, node }));
                }
            }
        }
        for (run, it) in state.runs.iter().enumerate() {
            steps.push(Self::Acknowledge { run });
            retry::steps(state, run, steps);
            for node in nodes.clone() {
                match it.parts[node] {
                    Part::Sent if is_data(node) => steps.push(Self::Read { run, node }),
                    Part::Sent | Part::Read => steps.push(Self::Record { run, node }),
                    Part::Recorded | Part::Dead => {}
                }
            }
        }
        for node in nodes {
            Self::faults(state, node, steps);
        }
    }

    /// Faults of a node, and its ways back.
    fn faults(state: &State, node: usize, steps: &mut Vec<Self>) {
        let Faults {
            crash_count,
            loss_count,
            failure_count,
            ..
        } = state.faults;
        if crash_count > 0 {
            steps.extend([true, false].map(|keeps_mark| Self::Crash { node, keeps_mark }));
        }
        if loss_count > 0 {
            steps.push(Self::Lose { node });
        }
        if failure_count > 0 {
            steps.push(Self::DeclareFailed { node });
        }
        match state.nodes[node].presence {
            Presence::Away => steps.push(Self::Return { node }),
            Presence::Returning(_) => steps.push(Self::Judge { node }),
            Presence::Judged(_) => {
                steps.extend([Self::Return { node }, Self::Admit { node }]);
            }
            Presence::Serving | Presence::Gone => {}
        }
    }
}

/// The state after a step. None when the step is not possible.
pub(crate) fn take(rules: Rules, state: &State, step: Step) -> Option<State> {
    let mut next = state.clone();
    let is_possible = match step {
        Step::Issue { epoch, update } => {
            let is_open = |run: &Run| run.update == update && !retry::is_abandoned(rules, run);
            let is_issued = next.runs.iter().any(is_open);
            !is_issued && issue(&mut next, epoch, update)
        }
        Step::Abandon { update } => retry::abandon(&mut next, update),
        Step::IssueLate { epoch, update } => retry::issue_late(rules, &mut next, epoch, update),
        Step::Read { run, node } => read(rules, &mut next, run, node),
        Step::Record { run, node } => record(rules, &mut next, run, node),
        Step::Acknowledge { run } => acknowledge(rules, &mut next, run),
        Step::Withdraw { run, node } => retry::withdraw(rules, &mut next, run, node),
        Step::Ask { epoch, run, nodes } => retry::ask(rules, &mut next, epoch, run, nodes),
        Step::Hear { epoch, mark, node } => hear(&mut next, epoch, mark, node),
        Step::Grant => settlement::grant(&mut next),
        Step::LookUp { epoch } => settlement::look_up(&mut next, epoch),
        Step::Collect { epoch, node } => settlement::collect(rules, &mut next, epoch, node),
        Step::Decide { epoch } => settlement::decide(rules, &mut next, epoch),
        Step::Note { epoch } => settlement::note(rules, &mut next, epoch),
        Step::Resolve { epoch, node } => settlement::resolve(rules, &mut next, epoch, node),
        Step::Crash { node, keeps_mark } => crash(&mut next, node, keeps_mark),
        Step::Lose { node } => lose(&mut next, node),
        Step::DeclareFailed { node } => declare_failed(&mut next, node),
        Step::Return { node } => come_back(&mut next, node),
        Step::Judge { node } => judge(rules, &mut next, node),
        Step::Admit { node } => admit(rules, &mut next, node),
    };
    is_possible.then_some(next)
}

/// A node's chunk as of an update.
pub(crate) fn content(rules: Rules, state: &State, node: usize, cut: u8) -> [Set; DATA_COUNT] {
    if rules.lacks(Mutation::ApplyAboveMark) {
        return state.nodes[node].base;
    }
    state.content(node, cut)
}

/// Whether a node refuses a term as too old.
pub(crate) fn is_fenced(rules: Rules, state: &State, node: usize, epoch: u8) -> bool {
    epoch < state.nodes[node].fence && !rules.lacks(Mutation::NoFencing)
}

/// A primary runs one update at a time, and none that touches a chunk which it knows to be stale.
/// Its knowledge of failed nodes may be out of date, so that it may try with any.
pub(crate) fn issue(state: &mut State, epoch: u8, update: usize) -> bool {
    let Term::Serving { stale, mark, next } = &mut state.terms[usize::from(epoch) - 1] else {
        return false;
    };
    let is_busy = |run: &Run| run.epoch == epoch && !run.is_acknowledged;
    if state.runs.iter().any(is_busy) || participants(update) & *stale != 0 {
        return false;
    }
    let run = Run {
        update,
        epoch,
        sequence: *next,
        cut: *mark,
        parts: [Part::Sent; CHUNK_COUNT],
        deltas: [None; DATA_COUNT],
        is_acknowledged: false,
        closing: Closing::No,
    };
    *next += 1;
    state.runs.push(run);
    true
}

/// Whether a node takes a part when its message arrives.
fn takes_part(rules: Rules, state: &State, run: usize, node: usize) -> bool {
    let Run {
        update, epoch, cut, ..
    } = state.runs[run];
    has(participants(update), node)
        && state.runs[run].parts[node] == Part::Sent
        && state.nodes[node].presence == Presence::Serving
        // Its chunk's layout is a past one, and it knows that since it was admitted.
        && !has(state.coordinator.stale, node)
        && !is_fenced(rules, state, node, epoch)
        && state.vouches(node, epoch, cut)
}

fn read(rules: Rules, state: &mut State, run: usize, node: usize) -> bool {
    let Run { update, cut, .. } = state.runs[run];
    let is_passed = cut < state.nodes[node].applied;
    if !has(written(update), node) || is_passed || !takes_part(rules, state, run, node) {
        return false;
    }
    let old = content(rules, state, node, cut)[node];
    state.runs[run].deltas[node] = Some(old ^ version(update));
    state.runs[run].parts[node] = Part::Read;
    true
}

/// A record is refused when its term, its number or its update is past.
fn record(rules: Rules, state: &mut State, run: usize, node: usize) -> bool {
    let Run {
        update,
        epoch,
        sequence,
        cut,
        parts,
        deltas,
        ..
    } = state.runs[run];
    let is_ready = if is_data(node) {
        // A part that has begun goes on while its node is no member, until it asks to be one.
        parts[node] == Part::Read
    } else {
        let has_all = (0..DATA_COUNT).all(|d| !has(written(update), d) || deltas[d].is_some());
        has_all && takes_part(rules, state, run, node)
    };
    let holder = &state.nodes[node];
    let mut held = state.runs_of(holder.records).into_iter();
    let is_taken = held.any(|held| state.runs[held].sequence == sequence);
    if !is_ready || is_taken || sequence <= holder.mark || is_fenced(rules, state, node, epoch) {
        return false;
    }
    if rules.lacks(Mutation::ApplyAboveMark) {
        let mut base = holder.base;
        state.lay_over(&mut base, node, run);
        state.nodes[node].base = base;
    }
    // The part has brought its primary's mark along.
    let is_heard = state.vouches(node, epoch, cut);
    let holder = &mut state.nodes[node];
    if is_heard {
        holder.mark = holder.mark.max(cut);
    }
    holder.fence = holder.fence.max(epoch);
    holder.records |= only(run);
    if state.faults.retry_count > 0 {
        holder.remembered |= only(run);
    }
    state.runs[run].parts[node] = Part::Recorded;
    true
}

fn acknowledge(rules: Rules, state: &mut State, run: usize) -> bool {
    let Run {
        update,
        epoch,
        sequence,
        parts,
        is_acknowledged,
        ..
    } = state.runs[run];
    let has_replied = |&node: &usize| match parts[node] {
        Part::Recorded => true,
        Part::Read => rules.lacks(Mutation::EarlyAcknowledgement),
        Part::Sent | Part::Dead => false,
    };
    let mut holders = (0..CHUNK_COUNT).filter(|&node| has(participants(update), node));
    if is_acknowledged || !holders.all(|node| has_replied(&node)) {
        return false;
    }
    let Term::Serving { mark, .. } = &mut state.terms[usize::from(epoch) - 1] else {
        unreachable!("only a serving term issues, and it serves as long as it lasts");
    };
    *mark = sequence;
    state.runs[run].is_acknowledged = true;
    true
}

fn hear(state: &mut State, epoch: u8, mark: u8, node: usize) -> bool {
    let is_said = match state.terms[usize::from(epoch) - 1] {
        Term::Serving { mark: last, .. } => {
            let was_last = |run: &Run| (run.epoch, run.sequence) == (epoch, mark);
            let mut committed = state.runs.iter().filter(|run| run.is_acknowledged);
            last == mark || committed.any(was_last)
        }
        _ => false,
    };
    let holder = &state.nodes[node];
    if !is_said
        || holder.presence != Presence::Serving
        || mark <= holder.mark
        || !state.vouches(node, epoch, mark)
    {
        return false;
    }
    state.nodes[node].mark = mark;
    spend(&mut state.faults, |bounds| &mut bounds.hint_count)
}

/// A crash takes what is not durable: a mark that was only heard of, unless it happened to reach
/// the disk, and parts that are under way. Where it takes nothing, it is no step. The next process
/// asks to join anew, whatever the last one has said or heard.
fn crash(state: &mut State, node: usize, keeps_mark: bool) -> bool {
    let is_gone = state.nodes[node].presence == Presence::Gone;
    if is_gone || !spend(&mut state.faults, |faults| &mut faults.crash_count) {
        return false;
    }
    let presence = &mut state.nodes[node].presence;
    let mut takes_something = matches!(presence, Presence::Returning(_) | Presence::Judged(_));
    *presence = Presence::Away;
    for run in &mut state.runs {
        if run.parts[node] == Part::Read {
            run.parts[node] = Part::Dead;
            takes_something = true;
        }
    }
    let node = &mut state.nodes[node];
    if !keeps_mark && node.mark > node.applied {
        node.mark = node.applied;
        takes_something = true;
    }
    takes_something
}

fn lose(state: &mut State, node: usize) -> bool {
    let is_gone = state.nodes[node].presence == Presence::Gone;
    if is_gone || !spend(&mut state.faults, |faults| &mut faults.loss_count) {
        return false;
    }
    for run in &mut state.runs {
        if run.parts[node] == Part::Read {
            run.parts[node] = Part::Dead;
        }
    }
    let node = &mut state.nodes[node];
    *node = crate::model::state::Node {
        presence: Presence::Gone,
        fence: 0,
        mark: 0,
        applied: 0,
        base: [0; DATA_COUNT],
        records: 0,
        remembered: 0,
    };
    true
}

fn declare_failed(state: &mut State, node: usize) -> bool {
    let presence = &mut state.nodes[node].presence;
    let is_failed = has(state.coordinator.failed, node);
    let may_fail = matches!(*presence, Presence::Serving | Presence::Gone);
    if is_failed || !may_fail || !spend(&mut state.faults, |faults| &mut faults.failure_count) {
        return false;
    }
    if *presence == Presence::Serving {
        *presence = Presence::Away;
    }
    state.coordinator.failed |= only(node);
    true
}

/// A node whose chunk is stale already takes part in nothing, which is as if it stayed away. What it
/// says is final: parts that it has begun come to nothing.
fn come_back(state: &mut State, node: usize) -> bool {
    let is_stale = has(state.coordinator.stale, node);
    for run in &mut state.runs {
        if run.parts[node] == Part::Read {
            run.parts[node] = Part::Dead;
        }
    }
    let undecided = state.undecided(node);
    let holder = &mut state.nodes[node];
    let may = matches!(holder.presence, Presence::Away | Presence::Judged(_));
    holder.presence = Presence::Returning(Report {
        fence: holder.fence,
        mark: holder.mark,
        undecided,
    });
    may && !is_stale
}

/// The real judgement, of what the node said, by the notes of now.
fn judge(rules: Rules, state: &mut State, node: usize) -> bool {
    let Presence::Returning(report) = state.nodes[node].presence else {
        return false;
    };
    let undecided = state.runs_of(report.undecided);
    let stamps: Vec<_> = undecided.iter().map(|&run| stamp(state, run)).collect();
    let notes: Vec<Exclusion> = state
        .coordinator
        .notes
        .iter()
        .map(|&note| exclusion(state, note))
        .collect();
    let held = Held {
        node: NodeId(node as u32),
        chunk: ChunkId {
            stripe: StripeId(0),
            index: ChunkIndex::new(node),
        },
        epoch: Epoch(u64::from(report.fence)),
        mark: Sequence(u64::from(report.mark)),
        undecided: &stamps,
    };
    let verdict = held.judge(&notes);
    if verdict.missed_after.is_some() && !rules.lacks(Mutation::MissedCounts) {
        state.coordinator.stale |= only(node);
    }
    let stands = undecided
        .into_iter()
        .filter(|&run| verdict.stands.contains(&stamp(state, run)));
    let fate = Fate {
        epoch: verdict.excluded_by.map_or(0, |epoch| epoch.0 as u8),
        stands: stands.map(only).sum(),
    };
    state.coordinator.failed &= !only(node);
    state.nodes[node].presence = Presence::Judged(fate);
    true
}

fn stamp(state: &State, run: usize) -> (Epoch, Sequence) {
    let run = &state.runs[run];
    (
        Epoch(u64::from(run.epoch)),
        Sequence(u64::from(run.sequence)),
    )
}

/// A note as the code keeps it.
fn exclusion(state: &State, note: Note) -> Exclusion {
    let without = (0..CHUNK_COUNT).filter(|&node| has(note.without, node));
    let stood = state.runs_of(note.stood).into_iter().map(|run| {
        let (epoch, sequence) = stamp(state, run);
        let takes_part = |&chunk: &usize| has(participants(state.runs[run].update), chunk);
        let chunks = (0..CHUNK_COUNT).filter(takes_part);
        StoodUpdate {
            epoch,
            sequence,
            participants: chunks.map(ChunkIndex::new).collect(),
        }
    });
    Exclusion {
        epoch: Epoch(u64::from(note.epoch)),
        nodes: without.map(|node| NodeId(node as u32)).collect(),
        known: Sequence(u64::from(note.known)),
        stood: stood.collect(),
    }
}

/// The node refuses older terms, and drops what it holds of them that does not stand.
fn admit(rules: Rules, state: &mut State, node: usize) -> bool {
    let Presence::Judged(fate) = state.nodes[node].presence else {
        return false;
    };
    state.nodes[node].presence = Presence::Serving;
    if rules.lacks(Mutation::ReturningTrusted) {
        return true;
    }
    let is_past = |&run: &usize| state.runs[run].epoch < fate.epoch && !has(fate.stands, run);
    let undecided = state.runs_of(state.undecided(node)).into_iter();
    let dropped: Set = undecided.filter(is_past).map(only).sum();
    let last = state.runs_of(fate.stands).last().copied();
    let mark = last.map_or(0, |run| state.runs[run].sequence);
    let holder = &mut state.nodes[node];
    holder.records &= !dropped;
    holder.remembered &= !dropped;
    holder.fence = holder.fence.max(fate.epoch);
    settle_at(rules, state, node, mark);
    true
}

/// A node makes durable that its records up to a mark stand, and brings them into its chunk.
pub(crate) fn settle_at(rules: Rules, state: &mut State, node: usize, mark: u8) {
    let mark = mark.max(state.nodes[node].mark);
    let mut base = state.nodes[node].base;
    for run in state.runs_of(state.nodes[node].records) {
        if state.runs[run].sequence <= mark {
            state.lay_over(&mut base, node, run);
            state.nodes[node].records &= !only(run);
        }
    }
    let holder = &mut state.nodes[node];
    if !rules.lacks(Mutation::ApplyAboveMark) {
        holder.base = base;
    }
    [holder.mark, holder.applied] = [mark; 2];
}

/// Uses up one fault, if there is one left.
pub(crate) fn spend(faults: &mut Faults, kind: impl Fn(&mut Faults) -> &mut u8) -> bool {
    let left = kind(faults);
    let may = *left > 0;
    *left -= u8::from(may);
    may
}

/// Returns a node's answer to a settler.
pub(crate) fn answer(state: &State, node: usize) -> Answer {
    let holder = &state.nodes[node];
    Answer {
        mark: holder.mark,
        records: state.undecided(node),
    }
}

/// No answers yet.
pub(crate) fn no_answers() -> [Answer; CHUNK_COUNT] {
    array::from_fn(|_| Answer::default())
}
