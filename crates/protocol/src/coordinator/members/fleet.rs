//! What the coordinator knows of its nodes: their records, which are durable, and their heartbeats,
//! which are not. A [`Fleet`] is a picture of both at one instant, for those who decide by it.

use super::suspicion::Suspicions;
use crate::message::{ArrayStatus, Liveness, NodeStatus};
use gabion_layout::{ChunkIndex, NodeId, NodePlace, StaleChunk, StripeRecord, Topology};
use gabion_meta::{Departure, Heartbeat, Membership, NodeRecord, NodeState, Standing, Timing};
use std::collections::{BTreeMap, BTreeSet};

/// Nodes as they are now.
#[derive(Debug)]
pub(in crate::coordinator) struct Roster {
    membership: Membership,
    records: BTreeMap<NodeId, NodeRecord>,
    /// Nodes that are not named have the default.
    standings: BTreeMap<NodeId, Standing>,
    /// As nodes said with their last heartbeats.
    arrays: BTreeMap<NodeId, ArrayStatus>,
}

impl Roster {
    /// The nodes that a coordinator finds at its own start.
    pub(in crate::coordinator) fn new(
        timing: Timing,
        records: Vec<NodeRecord>,
        standings: Vec<(NodeId, Standing)>,
        now_ms: u64,
    ) -> Self {
        let mut membership = Membership::new(timing);
        for record in &records {
            membership.expect(record.id, record.failed, now_ms);
        }
        let records = records.into_iter().map(|r| (r.id, r)).collect();
        Self {
            membership,
            records,
            standings: standings.into_iter().collect(),
            arrays: BTreeMap::new(),
        }
    }

    /// A copy of the membership, for questions that metadata asks of it.
    pub(in crate::coordinator) fn membership(&self) -> Membership {
        self.membership.clone()
    }

    /// A node counts as failed when that is durable and not before: until then others may still
    /// act on its being a member.
    pub(in crate::coordinator) fn liveness(&self, node: NodeId, now_ms: u64) -> Liveness {
        match (self.records.get(&node), self.membership.state(node, now_ms)) {
            (None, _) => Liveness::Failed,
            (Some(record), _) if record.failed => Liveness::Failed,
            (_, Some(NodeState::Up)) => Liveness::Up,
            _ => Liveness::Suspect,
        }
    }

    /// Renews a member's lease. Whether it is renewed: a node that is unknown, failed or superseded
    /// must join first.
    pub(in crate::coordinator) fn renew(
        &mut self,
        node: NodeId,
        incarnation: u64,
        now_ms: u64,
    ) -> bool {
        let failed = self.records.get(&node).is_none_or(|record| record.failed)
            || self.membership.state(node, now_ms) >= Some(NodeState::Failed);
        !failed && self.admit(node, incarnation, now_ms)
    }

    /// Lets a failed node take its time to come back.
    pub(in crate::coordinator) fn await_return(&mut self, node: NodeId, now_ms: u64) {
        self.membership.await_return(node, now_ms);
    }

    /// Whether a node was heard since the coordinator's start.
    pub(in crate::coordinator) fn was_heard(&self, node: NodeId) -> bool {
        self.membership.was_heard(node)
    }

    /// Starts the lease of a node that joins. False when a later run of it has joined already.
    pub(in crate::coordinator) fn admit(
        &mut self,
        node: NodeId,
        incarnation: u64,
        now_ms: u64,
    ) -> bool {
        match self.membership.heartbeat(node, incarnation, now_ms) {
            Heartbeat::Granted(_) => true,
            Heartbeat::Superseded { .. } => false,
        }
    }

    /// Ends a member's lease, since that run of it serves nothing more. Whether it had one.
    pub(in crate::coordinator) fn end(
        &mut self,
        node: NodeId,
        incarnation: u64,
        now_ms: u64,
    ) -> bool {
        let is_member = self.records.get(&node).is_some_and(|record| !record.failed);
        is_member && self.membership.end(node, incarnation, now_ms)
    }

    /// Takes over what is durable now.
    pub(in crate::coordinator) fn learn(&mut self, record: NodeRecord) {
        if !record.failed
            && let Some(standing) = self.standings.get_mut(&record.id)
        {
            standing.given_up = false;
        }
        self.records.insert(record.id, record);
    }

    /// Takes over what is durable now of a node's standing.
    pub(in crate::coordinator) fn learn_standing(&mut self, node: NodeId, standing: Standing) {
        self.standings.insert(node, standing);
    }

    /// Takes over what a node says of its array; none where it has none.
    pub(in crate::coordinator) fn note_array(&mut self, node: NodeId, array: Option<ArrayStatus>) {
        match array {
            Some(array) => self.arrays.insert(node, array),
            None => self.arrays.remove(&node),
        };
    }

    /// The arrays of nodes that are not failed.
    pub(in crate::coordinator) fn arrays(&self, now_ms: u64) -> BTreeMap<NodeId, ArrayStatus> {
        let mut arrays = self.arrays.clone();
        arrays.retain(|&node, _| self.liveness(node, now_ms) != Liveness::Failed);
        arrays
    }

    fn standing(&self, node: NodeId) -> Standing {
        self.standings.get(&node).copied().unwrap_or_default()
    }

    /// Whether a node is drained, so that it may leave.
    pub(in crate::coordinator) fn is_drained(&self, node: NodeId) -> bool {
        self.standing(node).departure == Departure::Drained
    }

    /// Lets time pass: the nodes whose leases have just ended, those to declare failed, and those whose
    /// time of grace has just ended.
    pub(in crate::coordinator) fn tick(
        &mut self,
        now_ms: u64,
    ) -> (Vec<NodeId>, Vec<NodeId>, Vec<NodeId>) {
        let transitions = self.membership.tick(now_ms);
        let that_became = |state| {
            let became = transitions.iter().filter(move |t| t.to == state);
            became.map(|t| t.node).collect()
        };
        let (late, ended) = (
            that_became(NodeState::Suspect),
            that_became(NodeState::Dead),
        );
        let silent = |record: &&NodeRecord| {
            !record.failed && self.membership.state(record.id, now_ms) >= Some(NodeState::Failed)
        };
        let silent = self.records.values().filter(silent).map(|r| r.id).collect();
        (late, silent, ended)
    }

    /// The failed nodes.
    pub(in crate::coordinator) fn failed(&self) -> Vec<NodeId> {
        let failed = self.records.values().filter(|record| record.failed);
        failed.map(|record| record.id).collect()
    }

    /// The nodes that are being drained.
    pub(in crate::coordinator) fn draining(&self) -> Vec<NodeId> {
        let draining = self.standings.iter();
        let draining = draining.filter(|(_, s)| s.departure == Departure::Draining);
        draining.map(|(&node, _)| node).collect()
    }

    /// Whether there is such a node.
    pub(in crate::coordinator) fn is_known(&self, node: NodeId) -> bool {
        self.records.contains_key(&node)
    }

    /// All nodes, by id. One that is suspected is none to rely on, though its lease may run.
    pub(in crate::coordinator) fn statuses(
        &self,
        now_ms: u64,
        suspicions: &Suspicions,
    ) -> Vec<NodeStatus> {
        let liveness = |node| match self.liveness(node, now_ms) {
            Liveness::Up if suspicions.is_suspect(node) => Liveness::Suspect,
            known => known,
        };
        let status = |record: &NodeRecord| NodeStatus {
            node: record.id,
            rack: record.rack,
            address: record.address.clone(),
            liveness: liveness(record.id),
            departure: self.standing(record.id).departure,
        };
        self.records.values().map(status).collect()
    }

    /// A picture of now.
    pub(in crate::coordinator) fn fleet(&self, now_ms: u64, suspicions: &Suspicions) -> Fleet {
        let given_up = |record: &&NodeRecord| {
            let dead = self.membership.state(record.id, now_ms) == Some(NodeState::Dead);
            record.failed && (dead || self.standing(record.id).given_up)
        };
        Fleet {
            given_up: self
                .records
                .values()
                .filter(given_up)
                .map(|r| r.id)
                .collect(),
            nodes: self.statuses(now_ms, suspicions),
        }
    }
}

/// All nodes at one instant.
#[derive(Clone, Debug)]
pub(in crate::coordinator) struct Fleet {
    /// By id.
    nodes: Vec<NodeStatus>,
    /// Failed nodes for which nobody waits any more.
    given_up: BTreeSet<NodeId>,
}

impl Fleet {
    fn status(&self, node: NodeId) -> Option<&NodeStatus> {
        let found = self.nodes.binary_search_by_key(&node, |status| status.node);
        found.ok().map(|at| &self.nodes[at])
    }

    /// How a node fares. Nodes that are not known are as good as failed.
    pub(in crate::coordinator) fn liveness(&self, node: NodeId) -> Liveness {
        self.status(node)
            .map_or(Liveness::Failed, |status| status.liveness)
    }

    /// Whether a node is on its way out, or gone.
    pub(in crate::coordinator) fn is_leaving(&self, node: NodeId) -> bool {
        self.status(node)
            .is_some_and(|status| status.departure != Departure::None)
    }

    /// Whether a node's lease runs.
    pub(in crate::coordinator) fn is_up(&self, node: NodeId) -> bool {
        self.liveness(node) == Liveness::Up
    }

    /// Whether a node has failed and is not given up.
    pub(in crate::coordinator) fn may_return(&self, node: NodeId) -> bool {
        let is_failed =
            |status: &NodeStatus| status.node == node && status.liveness == Liveness::Failed;
        self.nodes.iter().any(is_failed) && !self.given_up.contains(&node)
    }

    /// All nodes that may get new chunks, by id: their lease runs, and they are to stay.
    pub(in crate::coordinator) fn welcoming(&self) -> Vec<NodeId> {
        let welcoming = self.nodes.iter().filter(|status| is_welcoming(status));
        welcoming.map(|status| status.node).collect()
    }

    /// All nodes of one liveness, by id.
    pub(in crate::coordinator) fn with(&self, liveness: Liveness) -> Vec<NodeId> {
        let of_it = self.nodes.iter().filter(|s| s.liveness == liveness);
        of_it.map(|status| status.node).collect()
    }

    /// All nodes, by id.
    pub(in crate::coordinator) fn nodes(&self) -> &[NodeStatus] {
        &self.nodes
    }

    /// The same nodes, of whom some that are up are not to be relied on.
    pub(in crate::coordinator) fn distrusting(mut self, nodes: &[NodeId]) -> Self {
        let is_meant = |s: &&mut NodeStatus| s.liveness == Liveness::Up && nodes.contains(&s.node);
        for status in self.nodes.iter_mut().filter(is_meant) {
            status.liveness = Liveness::Suspect;
        }
        self
    }

    /// Where the nodes stand that `wanted` picks.
    pub(in crate::coordinator) fn topology(
        &self,
        wanted: impl Fn(&NodeStatus) -> bool,
    ) -> Topology {
        let wanted = self.nodes.iter().filter(|status| wanted(status));
        Topology::new(wanted.map(|status| NodePlace {
            node: status.node,
            rack: status.rack,
        }))
        .expect("metadata gives each node one id, and none the client's")
    }

    /// The chunks of a stripe that do not count now: stale ones and those on failed nodes.
    pub(in crate::coordinator) fn lost(&self, stripe: &StripeRecord) -> Vec<ChunkIndex> {
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
    pub(in crate::coordinator) fn due(&self, stripe: &StripeRecord) -> Vec<ChunkIndex> {
        let due = |&(node, chunk): &(NodeId, ChunkIndex)| {
            let is_due = |stale: StaleChunk| {
                stale.missed_after.is_none() || self.liveness(node) != Liveness::Failed
            };
            stripe.staleness(chunk).is_some_and(is_due) || self.given_up.contains(&node)
        };
        placed(stripe).filter(due).map(|(_, chunk)| chunk).collect()
    }

    /// The chunks of a stripe that are whole and are to be moved, because their nodes are to leave.
    pub(in crate::coordinator) fn to_move(&self, stripe: &StripeRecord) -> Vec<ChunkIndex> {
        let leaves = |&(node, chunk): &(NodeId, ChunkIndex)| {
            !stripe.is_stale(chunk) && self.is_up(node) && self.is_leaving(node)
        };
        let leaving = placed(stripe).filter(leaves);
        leaving.map(|(_, chunk)| chunk).collect()
    }

    /// All chunks of a stripe that repairs have to see to, lost ones first.
    pub(in crate::coordinator) fn work(&self, stripe: &StripeRecord) -> Vec<ChunkIndex> {
        let mut work = self.due(stripe);
        work.extend(self.to_move(stripe));
        work
    }

    /// The chunks of a stripe that nobody should try to read now: the lost ones and those whose
    /// nodes do not answer.
    pub(in crate::coordinator) fn unreadable(&self, stripe: &StripeRecord) -> Vec<ChunkIndex> {
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

/// Whether new chunks may be put on a node.
pub(in crate::coordinator) fn is_welcoming(status: &NodeStatus) -> bool {
    status.liveness == Liveness::Up && status.departure == Departure::None
}
