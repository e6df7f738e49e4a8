//! The possible next steps. Each is one atomic act: of the database, of a leader, of a standby, of a node or of a
//! client; or time goes on. A message that is lost is one whose step is never taken, and one that is late arrives
//! whenever its step is taken. A process that is paused, or has crashed, is one that takes no step.

use crate::leader::membership;
use crate::leader::moves;
use crate::leader::rules::{Mutation, Rules};
use crate::leader::state::{AGE_MAX, CHANGES, Reading, State, Work};
use crate::leader::transactions;

/// One step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A tick passes on all clocks, except on that of this run, whose machine is stopped.
    Tick { stopped: Option<usize> },
    /// A server of the database falls behind.
    Lag,
    /// A standby reads a row whose lease is over.
    Watch,
    /// The standby takes the row over, and reads the rows, be it from the server that lags.
    TakeOver { is_lagging: bool },
    /// A leader sends its changes as one transaction, or renews its lease.
    Send { run: usize },
    /// It sends them again on a new connection.
    SendAgain { run: usize },
    /// The database executes a transaction.
    Execute { at: usize },
    /// A leader gets the answer.
    Hear { run: usize },
    /// Its connection ends before that.
    Lose { run: usize },
    /// Its patience ends while a transaction is in doubt.
    Fail { run: usize },
    /// It ends, and releases its lease.
    End { run: usize },
    /// A client's change, be it a late copy of the request, reaches a leader.
    Change { run: usize, change: u8 },
    /// The leader acknowledges it.
    Acknowledge { run: usize, change: u8 },
    /// A client's look-up reaches a leader, which looks at its rows.
    Look { run: usize },
    /// The leader answers it.
    Reply { run: usize },
    /// The node sends a heartbeat. It waits for the answers of earlier ones no more.
    Beat { run: usize },
    /// The heartbeat arrives.
    HearBeat,
    /// The answer arrives.
    Renew,
    /// A leader declares the node failed, which it has not heard for long enough.
    DeclareFailed { run: usize },
    /// A primary that knows this from the leader leaves the node out of an update.
    LeaveOut { run: usize },
    /// A leader takes the stripe's lease, under the next term.
    Lease { run: usize },
    /// It orders a copy of the chunk.
    Copy { run: usize },
    /// It notes the copy as the chunk that counts.
    Count { run: usize },
    /// It orders the former chunk to be removed.
    Remove { run: usize },
    /// It abandons the move, and orders the copy to be removed.
    Abandon { run: usize },
    /// A run whose last commit is in doubt does the same. The code never does.
    Undo { run: usize },
    /// A node carries an order out.
    Deliver { at: usize },
}

impl Step {
    /// Steps that may be possible in a state; [`take`] decides.
    pub(crate) fn all(state: &State, steps: &mut Vec<Self>) {
        let work = state.bounds.work;
        steps.extend([Self::Tick { stopped: None }, Self::Lag, Self::Watch]);
        steps.extend([false, true].map(|is_lagging| Self::TakeOver { is_lagging }));
        steps.extend((0..state.attempts.len()).map(|at| Self::Execute { at }));
        for run in 0..state.runs.len() {
            let stopped = Some(run);
            steps.extend([
                Self::Tick { stopped },
                Self::Send { run },
                Self::SendAgain { run },
                Self::Hear { run },
                Self::Lose { run },
                Self::End { run },
            ]);
            match work {
                Work::Rows => {
                    steps.extend([Self::Look { run }, Self::Reply { run }]);
                    for change in 0..state.bounds.change_count {
                        let asked = Self::Change { run, change };
                        steps.extend([asked, Self::Acknowledge { run, change }]);
                    }
                }
                Work::Membership => steps.extend([
                    Self::Beat { run },
                    Self::DeclareFailed { run },
                    Self::LeaveOut { run },
                ]),
                // Without orders, a run that fails is one that does nothing more.
                Work::Moves => steps.extend([
                    Self::Fail { run },
                    Self::Lease { run },
                    Self::Copy { run },
                    Self::Count { run },
                    Self::Remove { run },
                    Self::Abandon { run },
                    Self::Undo { run },
                ]),
            }
        }
        match work {
            Work::Rows => {}
            Work::Membership => steps.extend([Self::HearBeat, Self::Renew]),
            Work::Moves => steps.extend((0..state.orders.len()).map(|at| Self::Deliver { at })),
        }
    }
}

/// The state after a step; none if the step is not possible or changes nothing.
pub(crate) fn take(rules: Rules, state: &State, step: Step) -> Option<State> {
    let mut next = state.clone();
    match step {
        Step::Tick { stopped } => tick(&mut next, stopped)?,
        Step::Lag => transactions::lag(&mut next)?,
        Step::Watch => transactions::watch(rules, &mut next)?,
        Step::TakeOver { is_lagging } => transactions::take_over(rules, &mut next, is_lagging)?,
        Step::Execute { at } => transactions::execute(rules, &mut next, at),
        Step::HearBeat => membership::hear_beat(rules, &mut next)?,
        Step::Renew => membership::renew(rules, &mut next)?,
        Step::Deliver { at } => moves::deliver(rules, &mut next, at)?,
        Step::Undo { run } => moves::undo(&mut next, run)?,
        Step::Send { run }
        | Step::SendAgain { run }
        | Step::Hear { run }
        | Step::Lose { run }
        | Step::Fail { run }
        | Step::End { run }
        | Step::Change { run, .. }
        | Step::Acknowledge { run, .. }
        | Step::Look { run }
        | Step::Reply { run }
        | Step::Beat { run }
        | Step::DeclareFailed { run }
        | Step::LeaveOut { run }
        | Step::Lease { run }
        | Step::Copy { run }
        | Step::Count { run }
        | Step::Remove { run }
        | Step::Abandon { run } => {
            let is_alive = !state.runs[run].is_over;
            is_alive.then_some(())?;
            lead(rules, &mut next, step, run)?;
        }
    }
    transactions::forget_void(rules, &mut next);
    next.attempts.sort_unstable();
    next.orders.sort_unstable();
    (next != *state).then_some(next)
}

/// A step of a run that is not over.
fn lead(rules: Rules, next: &mut State, step: Step, run: usize) -> Option<()> {
    match step {
        Step::Send { .. } => transactions::send(next, run),
        Step::SendAgain { .. } => transactions::send_again(next, run),
        Step::Hear { .. } => transactions::hear(rules, next, run),
        Step::Lose { .. } => transactions::lose(rules, next, run),
        Step::Fail { .. } => transactions::fail(rules, next, run),
        Step::End { .. } => transactions::end(rules, next, run),
        Step::Change { change, .. } => make(rules, next, run, change),
        Step::Acknowledge { change, .. } => acknowledge(rules, next, run, change),
        Step::Look { .. } => look(rules, next, run),
        Step::Reply { .. } => reply(rules, next, run),
        Step::Beat { .. } => {
            membership::beat(next, run);
            Some(())
        }
        Step::DeclareFailed { .. } => membership::declare_failed(rules, &mut next.runs[run]),
        Step::LeaveOut { .. } => membership::leave_out(rules, next, run),
        Step::Lease { .. } => moves::lease(&mut next.runs[run]),
        Step::Copy { .. } => moves::copy(rules, next, run),
        Step::Count { .. } => moves::count(next, run),
        Step::Remove { .. } => moves::remove(rules, next, run),
        Step::Abandon { .. } => moves::abandon(next, run),
        _ => None,
    }
}

/// Lets time pass.
fn tick(next: &mut State, stopped: Option<usize>) -> Option<()> {
    if stopped.is_some() {
        next.bounds.stop_count = next.bounds.stop_count.checked_sub(1)?;
    }
    let older = |age: u8| (age + 1).min(AGE_MAX);
    next.database.lease = next.database.lease.saturating_sub(1);
    next.node.lease = next.node.lease.saturating_sub(1);
    if let Some(heartbeat) = &mut next.node.heartbeat {
        heartbeat.age = older(heartbeat.age);
    }
    for (at, run) in next.runs.iter_mut().enumerate() {
        if run.is_over || stopped == Some(at) {
            continue;
        }
        if next.bounds.work == Work::Membership {
            run.silence = older(run.silence);
        }
        // No move depends on the lease of its leader.
        if next.bounds.work != Work::Moves {
            run.lease = run.lease.saturating_sub(1);
            if let Some(flight) = &mut run.flight {
                flight.age = older(flight.age);
            }
        }
    }
    Some(())
}

/// Makes a client's change in memory, unless the rows show that it was made.
fn make(rules: Rules, next: &mut State, run: usize, change: u8) -> Option<()> {
    // Changes are alike, so they are first asked for in their order.
    let is_next = change == 0 || next.clients.asked & 1 << (change - 1) != 0;
    let run = &mut next.runs[run];
    (is_next && run.lease > 0).then_some(())?;
    let was_made = run.view.made() & 1 << change != 0;
    let is_known = was_made && !rules.lacks(Mutation::RepetitionUnknown);
    (!is_known && run.view.make(change)).then_some(())?;
    run.dirty |= CHANGES;
    next.clients.asked |= 1 << change;
    Some(())
}

fn acknowledge(rules: Rules, next: &mut State, run: usize, change: u8) -> Option<()> {
    let (run, change) = (&next.runs[run], 1 << change);
    let is_durable = run.is_durable(CHANGES) || rules.lacks(Mutation::AcknowledgedEarly);
    let may_answer = run.lease > 0 && is_durable && run.view.made() & change != 0;
    may_answer.then_some(())?;
    next.clients.acknowledged |= change;
    next.clients.known |= change;
    Some(())
}

fn look(rules: Rules, next: &mut State, run: usize) -> Option<()> {
    let run = &mut next.runs[run];
    let may_answer = run.lease > 0 || rules.lacks(Mutation::ReadWithoutLease);
    (may_answer && run.reading.is_none()).then_some(())?;
    next.bounds.read_count = next.bounds.read_count.checked_sub(1)?;
    let in_flight = run.flight.is_some_and(|flight| flight.wrote & CHANGES != 0);
    let wait_count = if run.dirty & CHANGES != 0 {
        1 + u8::from(run.flight.is_some())
    } else {
        u8::from(in_flight)
    };
    let is_hasty = rules.lacks(Mutation::ReadBeforeDurable);
    run.reading = Some(Reading {
        seen: run.view.made(),
        known: next.clients.known,
        wait_count: if is_hasty { 0 } else { wait_count },
    });
    Some(())
}

fn reply(rules: Rules, next: &mut State, run: usize) -> Option<()> {
    let run = &mut next.runs[run];
    let may_answer = run.lease > 0 || rules.lacks(Mutation::ReadWithoutLease);
    let done = |reading: &Reading| may_answer && reading.wait_count == 0;
    let Reading { seen, known, .. } = run.reading.take_if(|reading| done(reading))?;
    next.clients.has_read_old |= known & !seen != 0;
    next.clients.known |= seen;
    Some(())
}
