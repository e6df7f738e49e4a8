//! A client that has lost the answer to its update: it withdraws the run, asks a primary what has become of it, and
//! makes the update anew if it was not made. What follows from what nodes remember is decided by the real
//! [`gabion_protocol::fate::fate`].

use crate::model::rules::{Mutation, Rules};
use crate::model::state::{
    CHUNK_COUNT, Closing, DATA_COUNT, Part, Presence, Run, Set, State, Term, has, is_data, only,
    written,
};
use crate::model::steps::{Step, is_fenced, issue, spend};
use gabion_layout::{ChunkIndex, Sequence};
use gabion_protocol::fate::fate;
use gabion_protocol::message::{RunFate, RunMemory};
use std::collections::BTreeMap;
use std::convert::Infallible;

/// Steps that may be possible for a run whose answer the client has not heard.
pub(crate) fn steps(state: &State, run: usize, steps: &mut Vec<Step>) {
    if state.faults.retry_count == 0 {
        return;
    }
    match state.runs[run].closing {
        Closing::No => {
            let data = (0..CHUNK_COUNT).filter(|&node| is_data(node));
            steps.extend(data.map(|node| Step::Withdraw { run, node }));
        }
        Closing::Shut => {
            let serves = |at: &usize| matches!(state.terms[*at], Term::Serving { .. });
            for at in (0..state.terms.len()).filter(serves) {
                let epoch = at as u8 + 1;
                let sets = 1..1 << CHUNK_COUNT;
                steps.extend(sets.map(|nodes| Step::Ask { epoch, run, nodes }));
            }
        }
        Closing::Stood | Closing::Never => {}
    }
}

/// The client abandons an attempt that no primary has numbered. A node withdraws it, so it makes the update anew.
pub(crate) fn abandon(state: &mut State, update: usize) -> bool {
    let is_issued = state.runs.iter().any(|run| run.update == update);
    let is_late = has(state.late, update);
    state.late |= only(update);
    !is_issued && !is_late && spend(&mut state.faults, |faults| &mut faults.retry_count)
}

/// A primary numbers it after all. The node that has withdrawn it refuses its part.
pub(crate) fn issue_late(rules: Rules, state: &mut State, epoch: u8, update: usize) -> bool {
    let may = has(state.late, update) && issue(state, epoch, update);
    state.late &= !only(update);
    let Some(run) = state.runs.last_mut().filter(|_| may) else {
        return false;
    };
    run.closing = Closing::Never;
    if !rules.lacks(Mutation::NotWithdrawn) {
        run.parts[written(update).trailing_zeros() as usize] = Part::Dead;
    }
    true
}

/// A node where new bytes were staged gives them up. If its part has not begun, it never will, and so the update
/// never stands; else a primary knows.
pub(crate) fn withdraw(rules: Rules, state: &mut State, run: usize, node: usize) -> bool {
    let it = &mut state.runs[run];
    if !has(written(it.update), node) || state.nodes[node].presence != Presence::Serving {
        return false;
    }
    let was_waiting = it.parts[node] == Part::Sent;
    if was_waiting {
        it.parts[node] = Part::Dead;
        return deny(state, run);
    }
    it.closing = Closing::Shut;
    // A client that does not ask makes the update anew from here on.
    !rules.lacks(Mutation::NotAsked) || spend(&mut state.faults, |faults| &mut faults.retry_count)
}

/// Whether the client makes the update of a run anew.
pub(crate) fn is_abandoned(rules: Rules, run: &Run) -> bool {
    match run.closing {
        Closing::Never => true,
        Closing::Shut => rules.lacks(Mutation::NotAsked),
        Closing::No | Closing::Stood => false,
    }
}

/// The client takes a run for not made.
fn deny(state: &mut State, run: usize) -> bool {
    state.runs[run].closing = Closing::Never;
    let may = spend(&mut state.faults, |faults| &mut faults.retry_count);
    if state.faults.retry_count == 0 {
        // No client asks any more.
        state.nodes.iter_mut().for_each(|node| node.remembered = 0);
    }
    may
}

/// A primary asks in its turn, when no update of its own is half made. Any of the nodes that it knows to count may
/// stay silent.
pub(crate) fn ask(rules: Rules, state: &mut State, epoch: u8, run: usize, nodes: Set) -> bool {
    let Term::Serving { stale, mark, .. } = state.terms[usize::from(epoch) - 1] else {
        return false;
    };
    let is_half_made = |run: &Run| run.epoch == epoch && !run.is_acknowledged;
    let asked = (0..CHUNK_COUNT).filter(|&node| has(nodes, node));
    let answers = |node: usize| {
        state.nodes[node].presence == Presence::Serving
            && !has(stale | state.coordinator.stale, node)
            && !is_fenced(rules, state, node, epoch)
    };
    if state.runs.iter().any(is_half_made) || !asked.clone().all(answers) {
        return false;
    }
    let sequence = Sequence(u64::from(state.runs[run].sequence));
    let memory = |node: usize| RunMemory {
        sequence: has(state.nodes[node].remembered, run).then_some(sequence),
        complete_after: Sequence(0),
    };
    let memories: BTreeMap<ChunkIndex, RunMemory> = asked
        .map(|node| (ChunkIndex::new(node), memory(node)))
        .collect();
    let needed_count = if rules.lacks(Mutation::FewRemember) {
        1
    } else {
        DATA_COUNT
    };
    let would_know = |complete: &[ChunkIndex]| Ok::<_, Infallible>(complete.len() >= needed_count);
    let Ok(fate) = fate(&memories, Sequence(0), would_know);
    match fate {
        // Of a record that no settlement has decided a new term has to tell.
        RunFate::Stood(sequence) if sequence.0 > u64::from(mark) => false,
        RunFate::Stood(_) => {
            state.runs[run].closing = Closing::Stood;
            true
        }
        RunFate::Never => deny(state, run),
        RunFate::Forgotten => false,
    }
}
