//! The nodes' records, which are durable, and their heartbeats, which are not.

use super::fleet::Fleet;
use super::suspicions::Suspicions;
use crate::message::{ArrayStatus, Liveness, NodeStatus};
use gabion_layout::NodeId;
use gabion_meta::{Departure, Heartbeat, Membership, NodeRecord, NodeState, Standing, Timing};
use std::collections::{BTreeMap, BTreeSet};

/// Nodes as they are now.
#[derive(Debug)]
pub(super) struct Roster {
    membership: Membership,
    records: BTreeMap<NodeId, NodeRecord>,
    /// Nodes that are not named have the default.
    standings: BTreeMap<NodeId, Standing>,
    /// The failed nodes whose return this run of the coordinator has ceased to await.
    abandoned: BTreeSet<NodeId>,
    /// The last reports of nodes.
    arrays: BTreeMap<NodeId, ArrayStatus>,
}

impl Roster {
    /// The nodes at the coordinator's own start. None counts as silent before `heard_ms`, which may lie ahead.
    pub(super) fn new(
        timing: Timing,
        records: Vec<NodeRecord>,
        standings: Vec<(NodeId, Standing)>,
        heard_ms: u64,
    ) -> Self {
        let mut membership = Membership::new(timing);
        for record in &records {
            membership.expect(record.id, record.failed, heard_ms);
        }
        let records = records.into_iter().map(|r| (r.id, r)).collect();
        Self {
            membership,
            records,
            standings: standings.into_iter().collect(),
            abandoned: BTreeSet::new(),
            arrays: BTreeMap::new(),
        }
    }

    /// A copy of the membership, for questions that metadata asks of it.
    pub(super) fn membership(&self) -> Membership {
        self.membership.clone()
    }

    /// A node counts as failed only after that is durable: until then others may still rely on its
    /// membership.
    pub(super) fn liveness(&self, node: NodeId, now_ms: u64) -> Liveness {
        match (self.records.get(&node), self.membership.state(node, now_ms)) {
            (None, _) => Liveness::Failed,
            (Some(record), _) if record.failed => Liveness::Failed,
            (_, Some(NodeState::Up)) => Liveness::Up,
            _ => Liveness::Suspect,
        }
    }

    /// Renews a member's lease. Returns whether it is renewed: an unknown, failed or superseded node must
    /// join first.
    pub(super) fn renew(&mut self, node: NodeId, incarnation: u64, now_ms: u64) -> bool {
        self.membership.run(now_ms);
        let failed = self.records.get(&node).is_none_or(|record| record.failed)
            || self.membership.state(node, now_ms) >= Some(NodeState::Failed);
        !failed && self.admit(node, incarnation, now_ms)
    }

    /// Extends the grace period of a failed node.
    pub(super) fn await_return(&mut self, node: NodeId, now_ms: u64) {
        self.membership.await_return(node, now_ms);
    }

    /// Whether the node has spoken since the coordinator's start.
    pub(super) fn was_heard(&self, node: NodeId) -> bool {
        self.membership.was_heard(node)
    }

    /// The nodes that count as up.
    pub(super) fn up(&self, now_ms: u64) -> Vec<NodeId> {
        let nodes = self.records.keys().copied();
        nodes
            .filter(|&node| self.liveness(node, now_ms) == Liveness::Up)
            .collect()
    }

    /// The expected nodes: all that have ever been members, but for drained ones and those whose return this run of the
    /// coordinator awaits no longer. A node that an earlier run abandoned counts: in an old copy of the metadata that
    /// is no longer so.
    pub(super) fn expected(&self) -> impl Iterator<Item = NodeId> {
        let members = self.records.values().filter(|r| r.admitted.is_some());
        let nodes = members.map(|record| record.id);
        nodes.filter(|node| !self.abandoned.contains(node) && !self.is_drained(*node))
    }

    /// The latest run of a node that has been a member of this run of the coordinator.
    pub(super) fn latest_run(&self, node: NodeId) -> Option<u64> {
        self.membership.incarnation(node)
    }

    /// Starts the lease of a node that joins. False when a later run of it has joined already.
    pub(super) fn admit(&mut self, node: NodeId, incarnation: u64, now_ms: u64) -> bool {
        match self.membership.heartbeat(node, incarnation, now_ms) {
            Heartbeat::Granted(_) => true,
            Heartbeat::Superseded { .. } => false,
        }
    }

    /// Ends a member's lease, because that run no longer serves. Returns whether it had one.
    pub(super) fn end(&mut self, node: NodeId, incarnation: u64, now_ms: u64) -> bool {
        let is_member = self.records.get(&node).is_some_and(|record| !record.failed);
        is_member && self.membership.end(node, incarnation, now_ms)
    }

    /// Updates the records from durable metadata.
    pub(super) fn learn(&mut self, record: NodeRecord) {
        if !record.failed {
            self.abandoned.remove(&record.id);
            if let Some(standing) = self.standings.get_mut(&record.id) {
                standing.abandoned = false;
            }
        }
        self.records.insert(record.id, record);
    }

    /// Updates a node's standing from durable metadata.
    pub(super) fn learn_standing(&mut self, node: NodeId, standing: Standing) {
        self.standings.insert(node, standing);
    }

    /// The same when this run ceases to await a node. Has no effect on a node that has returned.
    pub(super) fn abandon(&mut self, node: NodeId, standing: Standing) {
        self.learn_standing(node, standing);
        if standing.abandoned {
            self.abandoned.insert(node);
        }
    }

    /// Updates a node's report about its array; none if it has no array.
    pub(super) fn note_array(&mut self, node: NodeId, array: Option<ArrayStatus>) {
        match array {
            Some(array) => self.arrays.insert(node, array),
            None => self.arrays.remove(&node),
        };
    }

    /// The arrays of nodes that are not failed.
    pub(super) fn arrays(&self, now_ms: u64) -> BTreeMap<NodeId, ArrayStatus> {
        let mut arrays = self.arrays.clone();
        arrays.retain(|&node, _| self.liveness(node, now_ms) != Liveness::Failed);
        arrays
    }

    fn standing(&self, node: NodeId) -> Standing {
        self.standings.get(&node).copied().unwrap_or_default()
    }

    /// Whether a node is drained, so that it may leave.
    pub(super) fn is_drained(&self, node: NodeId) -> bool {
        self.standing(node).departure == Departure::Drained
    }

    /// Advances the clock: returns the nodes whose leases have just expired, those to declare failed, and
    /// those whose grace period has just ended.
    pub(super) fn tick(&mut self, now_ms: u64) -> (Vec<NodeId>, Vec<NodeId>, Vec<NodeId>) {
        self.membership.run(now_ms);
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
    pub(super) fn failed(&self) -> Vec<NodeId> {
        let failed = self.records.values().filter(|record| record.failed);
        failed.map(|record| record.id).collect()
    }

    /// The nodes that are being drained.
    pub(super) fn draining(&self) -> Vec<NodeId> {
        let draining = self.standings.iter();
        let draining = draining.filter(|(_, s)| s.departure == Departure::Draining);
        draining.map(|(&node, _)| node).collect()
    }

    /// Whether the node exists.
    pub(super) fn is_known(&self, node: NodeId) -> bool {
        self.records.contains_key(&node)
    }

    /// All nodes, by id. A suspected node counts as unreliable even while its lease runs.
    pub(super) fn statuses(&self, now_ms: u64, suspicions: &Suspicions) -> Vec<NodeStatus> {
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

    /// A snapshot.
    pub(super) fn fleet(&self, now_ms: u64, suspicions: &Suspicions) -> Fleet {
        let abandoned = |record: &&NodeRecord| record.failed && self.standing(record.id).abandoned;
        let abandoned = self.records.values().filter(abandoned).map(|r| r.id);
        let joining = self
            .records
            .values()
            .map(|record| record.id)
            .filter(|&node| {
                self.liveness(node, now_ms) == Liveness::Failed
                    && self.standing(node).departure == Departure::None
                    && self.membership.may_join_soon(node, now_ms)
            });
        Fleet::new(
            self.statuses(now_ms, suspicions),
            abandoned.collect(),
            joining.collect(),
        )
    }
}
