//! A new term: granted, settled, served. The recovery rule is the real one of
//! [`gabion_protocol::settle`].

use crate::rules::{Mutation, Returning, Rules};
use crate::state::{
    Absences, Answer, CHUNK_COUNT, DATA_COUNT, Decision, Presence, Set, State, Term, decided_upto,
    has, only, participants,
};
use crate::steps::{answer, is_fenced, no_answers, spend};
use gabion_layout::{ChunkIndex, Epoch, Sequence};
use gabion_meta::StoodUpdate;
use gabion_protocol::message::{Holding, PendingRecord};
use gabion_protocol::settle::recovery_rule;
use std::collections::BTreeMap;

/// The chunks of the stripe.
const ALL: Set = 0b1111;

pub(crate) fn grant(state: &mut State) -> bool {
    let may = spend(&mut state.faults, |faults| &mut faults.lease_count);
    let granted = Term::Granted {
        stale: state.coordinator.stale,
    };
    state.terms.push(granted);
    may
}

pub(crate) fn look_up(state: &mut State, epoch: u8) -> bool {
    let failed = state.coordinator.failed;
    let term = &mut state.terms[usize::from(epoch) - 1];
    let Term::Granted { stale } = *term else {
        return false;
    };
    *term = Term::Collecting {
        stale,
        asked: ALL & !failed & !stale,
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
    let needs = rules.quorum && !rules.lacks(Mutation::NoQuorum);
    if answered != asked || (needs && (asked.count_ones() as usize) < DATA_COUNT) {
        return false;
    }
    let decision = decision(rules, state, epoch, asked, &answers);
    let is_noted = decision.stale == 0 || rules.lacks(Mutation::StaleNotNoted);
    let term = if is_noted {
        resolving(stale | decision.stale, asked, decision)
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

/// The real rule's outcome for what the survivors have answered.
fn decision(
    rules: Rules,
    state: &State,
    epoch: u8,
    asked: Set,
    answers: &[Answer; CHUNK_COUNT],
) -> Decision {
    let survivors = || (0..CHUNK_COUNT).filter(|&chunk| has(asked, chunk));
    let absences = absences(rules, epoch, asked, answers);
    let holdings: BTreeMap<ChunkIndex, Holding> = survivors()
        .map(|chunk| {
            let is_open =
                |&run: &usize| decided_upto(absences[chunk], state.runs[run].epoch).is_none();
            let records = state.runs_of(answers[chunk].records);
            let records = records.into_iter().filter(is_open);
            let holding = Holding {
                mark: Sequence(u64::from(answers[chunk].mark)),
                records: records.map(|run| pending(state, chunk, run)).collect(),
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
        stale: left_out(asked, &outcome.stood),
        next: outcome.next.0 as u8,
        absences,
    }
}

/// Chunks whose nodes were not asked and that take part in what stands: they may have missed it.
fn left_out(asked: Set, stood: &[StoodUpdate]) -> Set {
    let participants = stood.iter().flat_map(|update| &update.participants);
    let out = participants.filter(|chunk| !has(asked, chunk.at()));
    out.fold(0, |set, chunk| set | only(chunk.at()))
}

/// The settlements without some node: those that the survivors know of, and this one.
fn absences(rules: Rules, epoch: u8, asked: Set, answers: &[Answer; CHUNK_COUNT]) -> Absences {
    let mut absences = Absences::default();
    if rules.returning != Returning::Absences || rules.lacks(Mutation::ReturningTrusted) {
        return absences;
    }
    for answer in answers {
        merge(&mut absences, &answer.absences);
    }
    let known = answers.iter().map(|answer| answer.mark).max().unwrap_or(0);
    for chunk in (0..CHUNK_COUNT).filter(|&chunk| !has(asked, chunk)) {
        absences[chunk][usize::from(epoch) - 1] = known + 1;
    }
    absences
}

fn merge(known: &mut Absences, told: &Absences) {
    let told = told.iter().flatten();
    for (known, &told) in known.iter_mut().flatten().zip(told) {
        *known = told.max(*known);
    }
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

/// The coordinator takes the word of the present term alone.
pub(crate) fn note(state: &mut State, epoch: u8) -> bool {
    let is_present = epoch == state.epoch();
    let Term::Noting {
        stale,
        asked,
        decision,
    } = state.terms[usize::from(epoch) - 1]
    else {
        return false;
    };
    state.coordinator.stale |= decision.stale;
    state.terms[usize::from(epoch) - 1] = resolving(stale | decision.stale, asked, decision);
    is_present
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
    let (mut dropped, mut stands) = (0, 0);
    for run in state.runs_of(state.nodes[node].records) {
        let (sequence, term) = (state.runs[run].sequence, state.runs[run].epoch);
        let is_listed = has(decision.dropped, usize::from(sequence));
        if is_listed && sequence <= known {
            return false;
        }
        let upto = decided_upto(decision.absences[node], term);
        let is_past = sequence > known && upto.is_some_and(|upto| sequence > upto);
        if is_listed || is_past || (sequence > mark && term < epoch) {
            dropped |= only(run);
        } else if sequence <= mark {
            stands |= only(run);
        }
    }
    if !rules.lacks(Mutation::ApplyAboveMark) {
        let mut base = state.nodes[node].base;
        for run in state.runs_of(stands) {
            state.lay_over(&mut base, node, run);
        }
        state.nodes[node].base = base;
    }
    let holder = &mut state.nodes[node];
    holder.records &= !(dropped | stands);
    holder.mark = mark;
    holder.applied = mark;
    holder.fence = holder.fence.max(epoch);
    merge(&mut holder.absences, &decision.absences);
    true
}
