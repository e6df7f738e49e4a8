//! The leader's row and transactions: how a term begins and ends, and what a lost answer means. The code is in
//! `crates/sql` (`leader.rs`, `flush.rs`, `store.rs`).

use crate::leader::rules::{Mutation, Rules};
use crate::leader::state::{
    AGE_MAX, Attempt, DRIFT, Flight, LEASE, Line, Move, Outcome, RELIANCE, RUN_COUNT, Rows, Run,
    State,
};

/// Remembers the present rows as those of a server that lacks all later commits.
pub(crate) fn lag(next: &mut State) -> Option<()> {
    next.bounds.lag_count = next.bounds.lag_count.checked_sub(1)?;
    next.lagging = Some(next.database.rows);
    Some(())
}

pub(crate) fn watch(rules: Rules, next: &mut State) -> Option<()> {
    let is_over = next.database.lease == 0 || rules.lacks(Mutation::LeaseNotAwaited);
    let may_lead = next.bounds.takeover_count > 0 && next.runs.len() < RUN_COUNT;
    (is_over && may_lead).then_some(())?;
    next.standby = Some((next.database.term, next.database.number));
    Some(())
}

/// Begins a term if the row is as the standby has read it.
pub(crate) fn take_over(rules: Rules, next: &mut State, is_lagging: bool) -> Option<()> {
    let seen = next.standby.take()?;
    let is_same = seen == (next.database.term, next.database.number);
    (is_same || rules.lacks(Mutation::BlindTakeover)).then_some(())?;
    next.bounds.takeover_count = next.bounds.takeover_count.checked_sub(1)?;
    if !rules.lacks(Mutation::TermStays) {
        next.database.term += 1;
    }
    next.database.lease = LEASE;
    let mut run = Run::new(next.database.term, next.database);
    run.lease = reliance(rules, 0);
    if is_lagging {
        // The answer of that server has an earlier term.
        rules.lacks(Mutation::OldRows).then_some(())?;
        run.view = next.lagging?;
    }
    if rules.lacks(Mutation::OldSilence) {
        run.silence = AGE_MAX;
    }
    next.runs.push(run);
    Some(())
}

/// Sends all changes in memory as the next transaction.
pub(crate) fn send(next: &mut State, at: usize) -> Option<()> {
    let run = &mut next.runs[at];
    let is_due = run.dirty != 0 || run.lease < RELIANCE + DRIFT;
    (is_due && run.flight.is_none()).then_some(())?;
    run.flight = Some(Flight {
        wrote: std::mem::take(&mut run.dirty),
        rows: run.view,
        age: 0,
        line: Line::Waiting,
    });
    attempt(next, at)
}

/// Sends the same transaction under the same number.
pub(crate) fn send_again(next: &mut State, at: usize) -> Option<()> {
    let flight = next.runs[at].flight.as_mut()?;
    (flight.line == Line::Lost).then_some(())?;
    (flight.line, flight.age) = (Line::Waiting, 0);
    attempt(next, at)
}

fn attempt(next: &mut State, at: usize) -> Option<()> {
    next.bounds.attempt_count = next.bounds.attempt_count.checked_sub(1)?;
    let run = &next.runs[at];
    let flight = run.flight?;
    next.attempts.push(Attempt {
        run: at as u8,
        term: run.term,
        number: run.number + 1,
        wrote: flight.wrote,
        rows: flight.rows,
        is_orphan: false,
    });
    Some(())
}

/// The database executes a transaction: it begins with a change of the leader's row, and has no effect if that finds
/// another row.
pub(crate) fn execute(rules: Rules, next: &mut State, at: usize) {
    let attempt = next.attempts.remove(at);
    let database = &mut next.database;
    let is_of_term = attempt.term == database.term || rules.lacks(Mutation::TermNotCompared);
    let is_next = attempt.number == database.number + 1 || rules.lacks(Mutation::NumberNotCompared);
    let outcome = if is_of_term && is_next {
        database.rows.write(attempt.rows, attempt.wrote);
        database.number = attempt.number;
        database.lease = LEASE;
        Outcome::Committed
    } else if (attempt.term, attempt.number) == (database.term, database.number) {
        Outcome::CommittedBefore
    } else {
        Outcome::Superseded
    };
    let run = &mut next.runs[usize::from(attempt.run)];
    if let (false, Some(flight)) = (attempt.is_orphan, &mut run.flight) {
        flight.line = Line::Answered(outcome);
    }
}

/// Forgets orphaned transactions that can have no effect any more. Forgets the row that a standby has read if the row
/// has changed since.
pub(crate) fn forget_void(rules: Rules, next: &mut State) {
    let database = next.database;
    let is_void = |attempt: &Attempt| {
        let is_old = attempt.number <= database.number;
        let is_old = is_old && !rules.lacks(Mutation::NumberNotCompared);
        let is_foreign = attempt.term != database.term;
        let is_foreign = is_foreign && !rules.lacks(Mutation::TermNotCompared);
        attempt.is_orphan && (is_old || is_foreign)
    };
    next.attempts.retain(|attempt| !is_void(attempt));
    if !rules.lacks(Mutation::BlindTakeover) {
        // A standby that finds another row watches on.
        next.standby = next
            .standby
            .filter(|&seen| seen == (database.term, database.number));
    }
}

pub(crate) fn hear(rules: Rules, next: &mut State, at: usize) -> Option<()> {
    let run = &mut next.runs[at];
    let Flight { age, line, .. } = run.flight?;
    let Line::Answered(outcome) = line else {
        return None;
    };
    match outcome {
        Outcome::Committed => commit(run, reliance(rules, age)),
        // Later commits make sure of this one, so the lease waits for one.
        Outcome::CommittedBefore => commit(run, 0),
        Outcome::Superseded => stop(rules, next, at),
    }
    Some(())
}

/// The run knows that its transaction is committed.
fn commit(run: &mut Run, lease: u8) {
    (run.flight, run.lease) = (None, lease);
    run.number += 1;
    if let Some(reading) = &mut run.reading {
        reading.wait_count = reading.wait_count.saturating_sub(1);
    }
}

/// Ticks for which a run relies on a lease that it has asked for so long ago, by a slow clock.
fn reliance(rules: Rules, age: u8) -> u8 {
    let age = if rules.lacks(Mutation::LeaseFromAnswer) {
        0
    } else {
        age
    };
    let relied = if rules.lacks(Mutation::WholeLease) {
        LEASE
    } else {
        RELIANCE
    };
    (relied + DRIFT).saturating_sub(age)
}

pub(crate) fn lose(rules: Rules, next: &mut State, at: usize) -> Option<()> {
    let flight = next.runs[at].flight.as_mut()?;
    (flight.line != Line::Lost).then_some(())?;
    next.bounds.loss_count = next.bounds.loss_count.checked_sub(1)?;
    flight.line = Line::Lost;
    abandon_attempts(next, at);
    if rules.lacks(Mutation::LostAnswerCounts) {
        let run = &mut next.runs[at];
        let age = run.flight.map_or(0, |flight| flight.age);
        commit(run, reliance(rules, age));
    }
    Some(())
}

fn abandon_attempts(next: &mut State, at: usize) {
    for attempt in &mut next.attempts {
        attempt.is_orphan |= usize::from(attempt.run) == at;
    }
}

pub(crate) fn fail(rules: Rules, next: &mut State, at: usize) -> Option<()> {
    next.runs[at].flight?;
    stop(rules, next, at);
    Some(())
}

/// Ends a run for good.
pub(crate) fn stop(rules: Rules, next: &mut State, at: usize) {
    abandon_attempts(next, at);
    let Run {
        term, view, moving, ..
    } = next.runs[at];
    let mut over = Run::new(term, next.database);
    (over.is_over, over.lease, over.number) = (true, 0, 0);
    over.view = Rows::default();
    if rules.lacks(Mutation::OrderedInDoubt) && moving.0 == Move::Counting {
        (over.view.place, over.moving) = (view.place, moving);
    }
    next.runs[at] = over;
}

/// A run ends, and its lease with it.
pub(crate) fn end(rules: Rules, next: &mut State, at: usize) -> Option<()> {
    let run = &next.runs[at];
    let is_idle = run.flight.is_none() && run.dirty == 0;
    (is_idle && next.database.term == run.term && next.database.lease > 0).then_some(())?;
    next.bounds.end_count = next.bounds.end_count.checked_sub(1)?;
    if !rules.lacks(Mutation::ReleasedFirst) {
        stop(rules, next, at);
    }
    next.database.lease = 0;
    Some(())
}
