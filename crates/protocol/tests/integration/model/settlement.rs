//! A new term: granted, settled, served. The recovery rule is the real one of
//! [`gabion_protocol::settle`].

use crate::model::rules::{Mutation, Rules};
use crate::model::state::{
    Answer, CHUNK_COUNT, DATA_COUNT, Decision, Note, Presence, Set, State, Term, has, only,
    participants,
};
use crate::model::steps::{answer, is_fenced, no_answers, settle_at, spend};
use gabion_layout::{ChunkIndex, Epoch, Sequence};
use gabion_meta::StoodUpdate;
use gabion_protocol::message::{Holding, PendingRecord};
use gabion_protocol::settle::recovery_rule;
use gabion_store::AppendedState;
use std::collections::BTreeMap;

/// The chunks of the stripe.
const ALL: Set = 0b1111;

pub(crate) fn grant(state: &mut State) -> bool {
    let may = spend(&mut state.faults, |faults| &mut faults.lease_count);
    let granted = Term::Granted {
        failed: state.coordinator.failed,
    };
    state.terms.push(granted);
    may
}

pub(crate) fn look_up(state: &mut State, epoch: u8) -> bool {
    let lost = state.coordinator.stale;
    let term = &mut state.terms[usize::from(epoch) - 1];
    let Term::Granted { failed } = *term else {
        return false;
    };
    *term = Term::Collecting {
        stale: lost,
        asked: ALL & !failed & !lost,
        answered: 0,
        answers: no_answers(),
    };
    true
}

pub(crate) fn collect(rules: Rules, state: &mut State, epoch: u8, node: usize) -> bool {
    let told = answer(state, node);
    let may =
        state.nodes[node].presence == Presence::Serving && !is_fenced(rules, state, node, epoch);
    let Term::Collecting {
        asked,
        answered,
        answers,
        ..
    } = &mut state.terms[usize::from(epoch) - 1]
    else {
        return false;
    };
    if !may || !has(*asked & !*answered, node) {
        return false;
    }
    answers[node] = told;
    *answered |= only(node);
    state.nodes[node].fence = state.nodes[node].fence.max(epoch);
    true
}

pub(crate) fn decide(rules: Rules, state: &mut State, epoch: u8) -> bool {
    let Term::Collecting {
        stale,
        asked,
        answered,
        answers,
    } = state.terms[usize::from(epoch) - 1]
    else {
        return false;
    };
    let needs = !rules.lacks(Mutation::NoQuorum);
    if answered != asked || (needs && (asked.count_ones() as usize) < DATA_COUNT) {
        return false;
    }
    let decision = decision(rules, state, asked, answers);
    let is_noted = left_out(stale, asked) == 0 || rules.lacks(Mutation::NotNoted);
    let term = if is_noted {
        resolving(stale, asked, decision)
    } else {
        Term::Noting {
            stale,
            asked,
            decision,
        }
    };
    state.terms[usize::from(epoch) - 1] = term;
    true
}

/// The nodes that a settlement leaves out because they are declared failed.
fn left_out(stale: Set, asked: Set) -> Set {
    ALL & !asked & !stale
}

/// The real rule's outcome for what the survivors have answered.
fn decision(rules: Rules, state: &State, asked: Set, answers: [Answer; CHUNK_COUNT]) -> Decision {
    let survivors = (0..CHUNK_COUNT).filter(|&chunk| has(asked, chunk));
    let holdings: BTreeMap<ChunkIndex, Holding> = survivors
        .map(|chunk| {
            let records = state.runs_of(answers[chunk].records).into_iter();
            let holding = Holding {
                mark: Sequence(u64::from(answers[chunk].mark)),
                records: records.map(|run| pending(state, chunk, run)).collect(),
                appended: AppendedState::default(),
            };
            (ChunkIndex::new(chunk), holding)
        })
        .collect();
    let mut outcome = recovery_rule(&holdings);
    if rules.lacks(Mutation::NoDrop) {
        outcome.mark = outcome.dropped.drain(..).fold(outcome.mark, Sequence::max);
    }
    Decision {
        mark: outcome.mark.0 as u8,
        dropped: outcome.dropped.iter().map(|s| only(s.0 as usize)).sum(),
        known: outcome.known.0 as u8,
        stood: runs_of_updates(state, &outcome.stood),
        next: outcome.next.0 as u8,
    }
}

/// The runs that updates are.
fn runs_of_updates(state: &State, updates: &[StoodUpdate]) -> Set {
    let is_one = |&run: &usize| {
        let run = &state.runs[run];
        let stamp = (u64::from(run.epoch), u64::from(run.sequence));
        updates
            .iter()
            .any(|update| (update.epoch.0, update.sequence.0) == stamp)
    };
    (0..state.runs.len()).filter(is_one).map(only).sum()
}

fn pending(state: &State, chunk: usize, run: usize) -> PendingRecord {
    let run = &state.runs[run];
    let holders = (0..CHUNK_COUNT).filter(|&holder| has(participants(run.update), holder));
    PendingRecord {
        chunk: ChunkIndex::new(chunk),
        epoch: Epoch(u64::from(run.epoch)),
        sequence: Sequence(u64::from(run.sequence)),
        participants: holders.map(ChunkIndex::new).collect(),
    }
}

/// The coordinator takes the word of the present term alone, and only while the nodes are failed.
pub(crate) fn note(rules: Rules, state: &mut State, epoch: u8) -> bool {
    let is_present = epoch == state.epoch();
    let Term::Noting {
        stale,
        asked,
        decision,
    } = state.terms[usize::from(epoch) - 1]
    else {
        return false;
    };
    let without = left_out(stale, asked);
    let all_failed = without & !state.coordinator.failed == 0;
    state.coordinator.notes.push(Note {
        epoch,
        without,
        known: decision.known,
        stood: decision.stood,
    });
    state.terms[usize::from(epoch) - 1] = resolving(stale, asked, decision);
    is_present && (all_failed || rules.lacks(Mutation::LateNote))
}

fn resolving(stale: Set, asked: Set, decision: Decision) -> Term {
    told(stale, asked, 0, decision)
}

/// A term whose outcome some survivors know; it serves as soon as all do.
fn told(stale: Set, asked: Set, told: Set, decision: Decision) -> Term {
    if told == asked {
        let Decision { mark, next, .. } = decision;
        return Term::Serving { stale, mark, next };
    }
    Term::Resolving {
        stale,
        asked,
        told,
        decision,
    }
}

pub(crate) fn resolve(rules: Rules, state: &mut State, epoch: u8, node: usize) -> bool {
    let Term::Resolving {
        stale,
        asked,
        told: already,
        decision,
    } = state.terms[usize::from(epoch) - 1]
    else {
        return false;
    };
    let may = state.nodes[node].presence == Presence::Serving
        && !is_fenced(rules, state, node, epoch)
        && has(asked & !already, node);
    if !may || !learn(rules, state, epoch, node, decision) {
        return false;
    }
    state.terms[usize::from(epoch) - 1] = told(stale, asked, already | only(node), decision);
    true
}

/// A node makes an outcome durable, and brings into its chunk what stands. False when it is to drop
/// what it knows to stand.
fn learn(rules: Rules, state: &mut State, epoch: u8, node: usize, decision: Decision) -> bool {
    let known = state.nodes[node].mark;
    let mark = known.max(decision.mark);
    let mut dropped = 0;
    for run in state.runs_of(state.nodes[node].records) {
        let (sequence, term) = (state.runs[run].sequence, state.runs[run].epoch);
        let is_listed = has(decision.dropped, usize::from(sequence));
        if is_listed && sequence <= known {
            return false;
        }
        if is_listed || (sequence > mark && term < epoch) {
            dropped |= only(run);
        }
    }
    let holder = &mut state.nodes[node];
    holder.records &= !dropped;
    holder.remembered &= !dropped;
    holder.fence = holder.fence.max(epoch);
    settle_at(rules, state, node, mark);
    true
}
