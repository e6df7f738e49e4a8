//! Orders to nodes, by the example of a chunk that moves to another node and back. Orders carry no number of a
//! coordinator. What makes a late order of a former leader harmless is the term of the stripe, and that each order
//! follows from changes that are durable.

use crate::leader::rules::{Mutation, Rules};
use crate::leader::state::{Move, Order, PLACE, Run, STRIPE_LEASE, State};

/// Terms of the stripe.
const EPOCH_MAX: u8 = 3;

pub(crate) fn lease(run: &mut Run) -> Option<()> {
    (run.moving.0 == Move::None && run.view.epoch < EPOCH_MAX).then_some(())?;
    run.view.epoch += 1;
    run.dirty |= STRIPE_LEASE;
    run.moving = (Move::Leased, run.view.epoch);
    Some(())
}

/// Sends an order. A transport may still deliver an equal one that was sent before.
fn order(next: &mut State, node: u8, epoch: u8, is_copy: bool) {
    let is_equal =
        |other: &Order| (other.node, other.epoch, other.is_copy) == (node, epoch, is_copy);
    next.orders.retain(|other| !is_equal(other));
    next.orders.push(Order {
        node,
        epoch,
        is_copy,
        is_done: false,
    });
}

pub(crate) fn copy(rules: Rules, next: &mut State, at: usize) -> Option<()> {
    let run = &mut next.runs[at];
    let (Move::Leased, epoch) = run.moving else {
        return None;
    };
    let is_durable = run.is_durable(STRIPE_LEASE) || rules.lacks(Mutation::EpochEarly);
    is_durable.then_some(())?;
    run.moving.0 = Move::Copying;
    let node = 1 - run.view.place;
    order(next, node, epoch, true);
    Some(())
}

pub(crate) fn count(next: &mut State, at: usize) -> Option<()> {
    let run = &mut next.runs[at];
    let (Move::Copying, epoch) = run.moving else {
        return None;
    };
    let node = 1 - run.view.place;
    let is_made = |order: &Order| {
        (order.node, order.epoch, order.is_copy, order.is_done) == (node, epoch, true, true)
    };
    next.orders.iter().any(is_made).then_some(())?;
    run.view.place = node;
    run.dirty |= PLACE;
    run.moving.0 = Move::Counting;
    Some(())
}

pub(crate) fn remove(rules: Rules, next: &mut State, at: usize) -> Option<()> {
    let run = &mut next.runs[at];
    let (Move::Counting, epoch) = run.moving else {
        return None;
    };
    let is_durable = run.is_durable(PLACE) || rules.lacks(Mutation::OrderedEarly);
    is_durable.then_some(())?;
    run.moving = (Move::None, 0);
    let node = 1 - run.view.place;
    order(next, node, epoch, false);
    Some(())
}

pub(crate) fn abandon(next: &mut State, at: usize) -> Option<()> {
    let run = &mut next.runs[at];
    let (Move::Copying, epoch) = run.moving else {
        return None;
    };
    run.moving = (Move::None, 0);
    let node = 1 - run.view.place;
    order(next, node, epoch, false);
    Some(())
}

pub(crate) fn undo(next: &mut State, at: usize) -> Option<()> {
    let run = &mut next.runs[at];
    let (Move::Counting, epoch) = run.moving else {
        return None;
    };
    run.is_over.then_some(())?;
    run.moving = (Move::None, 0);
    let node = std::mem::take(&mut run.view.place);
    order(next, node, epoch, false);
    Some(())
}

/// A node carries an order out, unless it knows a later term.
pub(crate) fn deliver(rules: Rules, next: &mut State, at: usize) -> Option<()> {
    let order = &mut next.orders[at];
    let holder = &mut next.holders[usize::from(order.node)];
    let is_of_term = order.epoch >= holder.epoch;
    if order.is_copy {
        is_of_term.then_some(())?;
        (holder.has_chunk, holder.epoch) = (true, order.epoch);
    } else {
        (is_of_term || rules.lacks(Mutation::OrderWithoutTerm)).then_some(())?;
        holder.has_chunk = false;
    }
    order.is_done = true;
    Some(())
}
