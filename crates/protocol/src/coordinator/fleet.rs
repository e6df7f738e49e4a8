//! What the coordinator knows of its nodes: their records, which are durable, and their heartbeats,
//! which are not. A [`Fleet`] is a picture of both at one instant, for those who decide by it.

use crate::message::{Liveness, NodeStatus};
use gabion_layout::{ChunkIndex, NodeId, NodePlace, StaleChunk, StripeRecord, Topology};
use gabion_meta::{Heartbeat, Membership, NodeRecord, NodeState, Timing};
use std::collections::{BTreeMap, BTreeSet};

/// Nodes as they are now.
#[derive(Debug)]
pub(super) struct Roster {
    membership: Membership,
    records: BTreeMap<NodeId, NodeRecord>,
    /// Failed nodes whose time of grace a user has ended.
    hurried: BTreeSet<NodeId>,
}

impl Roster {
    /// The nodes that a coordinator finds at its own start.
    pub(super) fn new(timing: Timing, records: Vec<NodeRecord>, now_ms: u64) -> Self {
        let mut membership = Membership::new(timing);
        for record in &records {
            membership.expect(record.id, record.failed, now_ms);
        }
        let records = records.into_iter().map(|r| (r.id, r)).collect();
        Self {
            membership,
            records,
            hurried: BTreeSet::new(),
        }
    }

    /// A copy of the membership, for questions that metadata asks of it.
    pub(super) fn membership(&self) -> Membership {
        self.membership.clone()
    }

    /// A node counts as failed when that is durable and not before: until then others may still
    /// act on its being a member.
    pub(super) fn liveness(&self, node: NodeId, now_ms: u64) -> Liveness {
        match (self.records.get(&node), self.membership.state(node, now_ms)) {
            (None, _) => Liveness::Failed,
            (Some(record), _) if record.failed => Liveness::Failed,
            (_, Some(NodeState::Up)) => Liveness::Up,
            _ => Liveness::Suspect,
        }
    }

    /// Renews a member's lease. Whether it is renewed: a node that is unknown, failed or superseded
    /// must join first.
    pub(super) fn renew(&mut self, node: NodeId, incarnation: u64, now_ms: u64) -> bool {
        let failed = self.records.get(&node).is_none_or(|record| record.failed)
            || self.membership.state(node, now_ms) >= Some(NodeState::Failed);
        !failed && self.admit(node, incarnation, now_ms)
    }

    /// Starts the lease of a node that joins. False when a later run of it has joined already.
    pub(super) fn admit(&mut self, node: NodeId, incarnation: u64, now_ms: u64) -> bool {
        match self.membership.heartbeat(node, incarnation, now_ms) {
            Heartbeat::Granted(_) => true,
            Heartbeat::Superseded { .. } => false,
        }
    }

    /// Takes over what is durable now.
    pub(super) fn learn(&mut self, record: NodeRecord) {
        if !record.failed {
            self.hurried.remove(&record.id);
        }
        self.records.insert(record.id, record);
    }

    /// Lets time pass: the nodes to declare failed, and those whose time of grace has just ended.
    pub(super) fn tick(&mut self, now_ms: u64) -> (Vec<NodeId>, Vec<NodeId>) {
        let ended = self.membership.tick(now_ms).into_iter();
        let ended = ended.filter(|t| t.to == NodeState::Dead).map(|t| t.node);
        let ended = ended.collect();
        let silent = |record: &&NodeRecord| {
            !record.failed && self.membership.state(record.id, now_ms) >= Some(NodeState::Failed)
        };
        let silent = self.records.values().filter(silent).map(|r| r.id).collect();
        (silent, ended)
    }

    /// Ends the time of grace of all failed nodes, and names them.
    pub(super) fn hurry(&mut self) -> Vec<NodeId> {
        let failed = self.records.values().filter(|record| record.failed);
        let failed: Vec<NodeId> = failed.map(|record| record.id).collect();
        self.hurried.extend(&failed);
        failed
    }

    /// All nodes, by id.
    pub(super) fn statuses(&self, now_ms: u64) -> Vec<NodeStatus> {
        let status = |record: &NodeRecord| NodeStatus {
            node: record.id,
            rack: record.rack,
            address: record.address.clone(),
            liveness: self.liveness(record.id, now_ms),
        };
        self.records.values().map(status).collect()
    }

    /// A picture of now.
    pub(super) fn fleet(&self, now_ms: u64) -> Fleet {
        let given_up = |record: &&NodeRecord| {
            let dead = self.membership.state(record.id, now_ms) == Some(NodeState::Dead);
            record.failed && (dead || self.hurried.contains(&record.id))
        };
        Fleet {
            given_up: self
                .records
                .values()
                .filter(given_up)
                .map(|r| r.id)
                .collect(),
            nodes: self.statuses(now_ms),
        }
    }
}

/// All nodes at one instant.
#[derive(Clone, Debug)]
pub(super) struct Fleet {
    /// By id.
    nodes: Vec<NodeStatus>,
    /// Failed nodes for which nobody waits any more.
    given_up: BTreeSet<NodeId>,
}

impl Fleet {
    /// How a node fares. Nodes that are not known are as good as failed.
    pub(super) fn liveness(&self, node: NodeId) -> Liveness {
        match self.nodes.binary_search_by_key(&node, |status| status.node) {
            Ok(at) => self.nodes[at].liveness,
            Err(_) => Liveness::Failed,
        }
    }

    /// Whether a node's lease runs.
    pub(super) fn is_up(&self, node: NodeId) -> bool {
        self.liveness(node) == Liveness::Up
    }

    /// All nodes whose lease runs, by id.
    pub(super) fn up(&self) -> Vec<NodeId> {
        self.with(Liveness::Up)
    }

    /// All nodes of one liveness, by id.
    pub(super) fn with(&self, liveness: Liveness) -> Vec<NodeId> {
        let of_it = self.nodes.iter().filter(|s| s.liveness == liveness);
        of_it.map(|status| status.node).collect()
    }

    /// All nodes, by id.
    pub(super) fn nodes(&self) -> &[NodeStatus] {
        &self.nodes
    }

    /// Where the nodes stand that `wanted` picks.
    pub(super) fn topology(&self, wanted: impl Fn(Liveness) -> bool) -> Topology {
        let wanted = self.nodes.iter().filter(|status| wanted(status.liveness));
        Topology::new(wanted.map(|status| NodePlace {
            node: status.node,
            rack: status.rack,
        }))
        .expect("metadata gives each node one id, and none the client's")
    }

    /// The chunks of a stripe that do not count now: stale ones and those on failed nodes.
    pub(super) fn lost(&self, stripe: &StripeRecord) -> Vec<ChunkIndex> {
        let lost = |&(node, chunk): &(NodeId, ChunkIndex)| {
            stripe.is_stale(chunk) || self.liveness(node) == Liveness::Failed
        };
        placed(stripe)
            .filter(lost)
            .map(|(_, chunk)| chunk)
            .collect()
    }

    /// The lost chunks of a stripe that are to be repaired: one on a failed node that may yet
    /// return is not, unless nothing of it would be of use then.
    pub(super) fn due(&self, stripe: &StripeRecord) -> Vec<ChunkIndex> {
        let due = |&(node, chunk): &(NodeId, ChunkIndex)| {
            let is_due = |stale: StaleChunk| {
                stale.missed_after.is_none() || self.liveness(node) != Liveness::Failed
            };
            stripe.staleness(chunk).is_some_and(is_due) || self.given_up.contains(&node)
        };
        placed(stripe).filter(due).map(|(_, chunk)| chunk).collect()
    }

    /// The chunks of a stripe that nobody should try to read now: the lost ones and those whose
    /// nodes do not answer.
    pub(super) fn unreadable(&self, stripe: &StripeRecord) -> Vec<ChunkIndex> {
        let gone =
            |&(node, chunk): &(NodeId, ChunkIndex)| stripe.is_stale(chunk) || !self.is_up(node);
        placed(stripe)
            .filter(gone)
            .map(|(_, chunk)| chunk)
            .collect()
    }
}

fn placed(stripe: &StripeRecord) -> impl Iterator<Item = (NodeId, ChunkIndex)> {
    stripe.nodes.iter().copied().zip(stripe.chunks())
}
