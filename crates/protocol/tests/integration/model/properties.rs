//! Properties that must hold in every state, and others that must be possible in some: a model in which nothing happens
//! would prove nothing.

use crate::model::rules::Rules;
use crate::model::state::{
    CHUNK_COUNT, Closing, DATA_COUNT, FIRST_VERSION, Presence, Run, Set, State, Term, has, is_data,
    only, version, written,
};
use crate::model::steps::{content, is_fenced};

/// Whether what a reader is given under the newest serving term is the stripe after some updates,
/// the acknowledged ones among them, each on all chunks or on none.
///
/// An update is made once, however often its client has tried: no history has two of its runs, nor one that the
/// client took for not made.
///
/// The reader is any that may reconstruct from whichever chunks answer at the term's mark. They all
/// agree with one history, and thus every sufficient set of them gives the same bytes.
pub(crate) fn reads_are_whole(rules: Rules, state: &State) -> bool {
    let serving = |(at, term): (usize, &Term)| match *term {
        Term::Serving { stale, mark, .. } => Some((at as u8 + 1, stale, mark)),
        _ => None,
    };
    let Some((epoch, written_off, mark)) = state.terms.iter().enumerate().rev().find_map(serving)
    else {
        return true;
    };
    let answers = |&node: &usize| {
        !has(written_off, node)
            && !has(state.coordinator.stale, node)
            && state.nodes[node].presence == Presence::Serving
            && state.nodes[node].applied <= mark
            && !is_fenced(rules, state, node, epoch)
            && state.vouches(node, epoch, mark)
    };
    let helpers: Vec<usize> = (0..CHUNK_COUNT).filter(answers).collect();
    let fits = |history: Set| {
        let values = values_after(state, history);
        helpers.iter().all(|&node| {
            let found = content(rules, state, node, mark);
            if is_data(node) {
                found[node] == values[node]
            } else {
                found == values
            }
        })
    };
    let runs = |wanted: &dyn Fn(usize) -> bool| -> Set {
        (0..state.runs.len())
            .filter(|&run| wanted(run))
            .map(only)
            .sum()
    };
    let known = |run: &Run| run.is_acknowledged || run.closing == Closing::Stood;
    let acknowledged = runs(&|run| known(&state.runs[run]));
    let denied = runs(&|run| state.runs[run].closing == Closing::Never);
    let settled = runs(&|run| state.runs[run].sequence <= mark);
    let mut histories = 0..1 << state.runs.len();
    histories.any(|history: Set| {
        history & acknowledged == acknowledged
            && history & (denied | !settled) == 0
            && is_made_once(state, history)
            && fits(history)
    })
}

/// Whether no update has two runs in a history.
fn is_made_once(state: &State, history: Set) -> bool {
    let runs = state.runs_of(history);
    let updates: Set = runs
        .iter()
        .fold(0, |all, &run| all | only(state.runs[run].update));
    updates.count_ones() as usize == runs.len()
}

/// The versions of the data chunks after some updates.
fn values_after(state: &State, history: Set) -> [Set; DATA_COUNT] {
    let mut values = [FIRST_VERSION; DATA_COUNT];
    for run in state.runs_of(history) {
        let update = state.runs[run].update;
        for (chunk, value) in values.iter_mut().enumerate() {
            if has(written(update), chunk) {
                *value = version(update);
            }
        }
    }
    values
}

/// Whether a data node that answers a plain read, of its own mark and without asking anybody, gives
/// bytes that are no older than the last acknowledged update of its chunk.
pub(crate) fn plain_reads_are_fresh(rules: Rules, state: &State) -> bool {
    (0..DATA_COUNT).all(|node| {
        let holder = &state.nodes[node];
        let is_silent = holder.presence != Presence::Serving
            || has(state.coordinator.stale, node)
            || state.undecided(node) != 0;
        let touching = state
            .runs
            .iter()
            .filter(|run| has(written(run.update), node));
        let acknowledged = touching.clone().filter(|run| run.is_acknowledged);
        let Some(last) = acknowledged.map(|run| run.sequence).max() else {
            return true;
        };
        let found = content(rules, state, node, holder.mark)[node];
        let mut fresh = touching.filter(|run| run.sequence >= last);
        is_silent || fresh.any(|run| version(run.update) == found)
    })
}

/// Whether enough chunks still count to read the stripe, once their nodes are there.
pub(crate) fn enough_chunks_count(state: &State) -> bool {
    let written_off = state.coordinator.stale.count_ones() as usize;
    written_off <= CHUNK_COUNT - DATA_COUNT
}

/// Whether the client was told that all its updates are done.
pub(crate) fn all_are_acknowledged(state: &State) -> bool {
    state.runs.len() == crate::model::state::UPDATE_COUNT
        && state.runs.iter().all(|run| run.is_acknowledged)
}

/// Whether a term has decided that an update is dropped.
pub(crate) fn one_is_dropped(state: &State) -> bool {
    let drops =
        |term: &Term| matches!(term, Term::Resolving { decision, .. } if decision.dropped != 0);
    state.terms.iter().any(drops)
}

/// Whether a node serves again whose chunk was written off.
pub(crate) fn a_returned_chunk_is_stale(state: &State) -> bool {
    let is_back = |&node: &usize| {
        has(state.coordinator.stale, node) && state.nodes[node].presence == Presence::Serving
    };
    (0..CHUNK_COUNT).any(|node| is_back(&node))
}

/// Whether a node holds a record that was decided without it, under a number that stands for another
/// update.
pub(crate) fn a_number_is_used_again(state: &State) -> bool {
    let is_again = |&node: &usize| {
        let held = state.runs_of(state.undecided(node));
        let other = |run: usize| {
            let same = |other: &Run| {
                other.sequence == state.runs[run].sequence && other.epoch > state.runs[run].epoch
            };
            state
                .runs
                .iter()
                .any(|run| run.is_acknowledged && same(run))
        };
        held.into_iter().any(other)
    };
    (0..CHUNK_COUNT).any(|node| is_again(&node))
}

/// Whether the client was told that an update stands of which it did not know.
pub(crate) fn one_stood_unheard(state: &State) -> bool {
    state.runs.iter().any(|run| run.closing == Closing::Stood)
}

/// Whether an update is done that the client has made anew.
pub(crate) fn one_is_made_anew(state: &State) -> bool {
    let denied = state
        .runs
        .iter()
        .filter(|run| run.closing == Closing::Never);
    let is_done = |update| {
        let mut runs = state.runs.iter();
        runs.any(|run| run.update == update && run.is_acknowledged)
    };
    denied.map(|run| run.update).any(is_done)
}
