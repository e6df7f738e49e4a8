//! A node's membership lease under several coordinators. The model asks the product's own [`Membership`] when a node
//! has failed, and its [`Origin`] which coordinator a node refuses.

use crate::leader::rules::{Mutation, Rules};
use crate::leader::state::{DRIFT, Heartbeat, NODE, NODE_LEASE, NODE_MARGIN, Run, State};
use crate::leader::transactions;
use gabion_layout::{NodeId, Start};
use gabion_meta::{Membership, NodeState, Timing};
use gabion_protocol::message::Origin;

/// The node.
const ID: NodeId = NodeId(1);

/// Whether a node has failed after this many ticks of silence.
fn has_failed(rules: Rules, silence: u8) -> bool {
    let margin = if rules.lacks(Mutation::NoMargin) {
        0
    } else {
        NODE_MARGIN
    };
    let mut membership = Membership::new(Timing {
        lease_ms: NODE_LEASE.into(),
        margin_ms: margin.into(),
        grace_ms: 100,
    });
    membership.expect(ID, false, 0);
    membership.state(ID, silence.into()) >= Some(NodeState::Failed)
}

/// A run as nodes remember it.
fn origin(run: u8) -> Origin {
    Origin {
        start: Start {
            number: run.into(),
            nonce: run.into(),
        },
        change_count: 0,
    }
}

pub(crate) fn beat(next: &mut State, run: usize) {
    next.node.heartbeat = Some(Heartbeat {
        to: run as u8,
        age: 0,
        is_answered: false,
    });
}

/// A heartbeat reaches its coordinator, which notes it, and answers if it may.
pub(crate) fn hear_beat(rules: Rules, next: &mut State) -> Option<()> {
    let heard = next.node.heard;
    let heartbeat = next.node.heartbeat.as_mut()?;
    let at = usize::from(heartbeat.to);
    let run = &mut next.runs[at];
    (!run.is_over && !heartbeat.is_answered).then_some(())?;
    let is_ignored = rules.lacks(Mutation::NewerIgnored) || rules.lacks(Mutation::OlderFollowed);
    if heartbeat.to < heard && !is_ignored {
        next.node.heartbeat = None;
        transactions::stop(rules, next, at);
        return Some(());
    }
    run.silence = 0;
    if run.view.is_failed && !rules.lacks(Mutation::FailedRenewed) {
        // The node is to join again, and serves nothing until then.
        (next.node.heartbeat, next.node.lease) = (None, 0);
    } else if run.lease > 0 || rules.lacks(Mutation::RenewedWithoutLease) {
        heartbeat.is_answered = true;
    } else {
        next.node.heartbeat = None;
    }
    Some(())
}

/// The node gets the answer.
pub(crate) fn renew(rules: Rules, next: &mut State) -> Option<()> {
    let node = &mut next.node;
    let heartbeat = node.heartbeat.take_if(|heartbeat| heartbeat.is_answered)?;
    let is_refused = origin(node.heard).refuses(&origin(heartbeat.to));
    let is_taken = rules.lacks(Mutation::OlderNotRefused) || rules.lacks(Mutation::OlderFollowed);
    if is_refused && !is_taken {
        return Some(());
    }
    let age = if rules.lacks(Mutation::NodeLeaseFromAnswer) {
        0
    } else {
        heartbeat.age
    };
    node.lease = (NODE_LEASE + DRIFT).saturating_sub(age);
    next.clients.has_followed_older |= heartbeat.to < node.heard;
    node.heard = node.heard.max(heartbeat.to);
    Some(())
}

pub(crate) fn declare_failed(rules: Rules, run: &mut Run) -> Option<()> {
    (!run.view.is_failed && has_failed(rules, run.silence)).then_some(())?;
    run.view.is_failed = true;
    run.dirty |= NODE;
    Some(())
}

/// An update leaves the node out.
pub(crate) fn leave_out(rules: Rules, next: &mut State, run: usize) -> Option<()> {
    let run = &next.runs[run];
    let is_durable = run.is_durable(NODE) || rules.lacks(Mutation::LeftOutEarly);
    (run.view.is_failed && is_durable).then_some(())?;
    next.clients.has_left_out = true;
    Some(())
}
