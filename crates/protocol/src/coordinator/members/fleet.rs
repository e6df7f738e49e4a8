//! A snapshot of all nodes, for the rooms that decide by it.

use crate::message::{Liveness, NodeStatus};
use gabion_layout::{ChunkIndex, NodeId, NodePlace, StaleChunk, StripeId, StripeRecord, Topology};
use gabion_meta::Departure;
use std::collections::BTreeSet;
use std::sync::Arc;

/// All nodes at one instant.
#[derive(Clone, Debug)]
pub(in crate::coordinator) struct Fleet {
    /// By id.
    nodes: Vec<NodeStatus>,
    /// Failed nodes whose return the coordinator awaits no longer.
    abandoned: BTreeSet<NodeId>,
    /// Failed nodes that are likely to join soon.
    joining: BTreeSet<NodeId>,
    /// Stripes that do not await their failed nodes.
    hastened: Arc<BTreeSet<StripeId>>,
}

impl Fleet {
    /// Nodes by id, the failed ones whose return the coordinator awaits no longer, and those that are likely to join
    /// soon.
    pub(super) fn new(
        nodes: Vec<NodeStatus>,
        abandoned: BTreeSet<NodeId>,
        joining: BTreeSet<NodeId>,
    ) -> Self {
        Self {
            nodes,
            abandoned,
            joining,
            hastened: Arc::default(),
        }
    }

    /// The same, with these stripes that do not await their failed nodes.
    pub(super) fn hastening(self, hastened: Arc<BTreeSet<StripeId>>) -> Self {
        Self { hastened, ..self }
    }

    fn status(&self, node: NodeId) -> Option<&NodeStatus> {
        let found = self.nodes.binary_search_by_key(&node, |status| status.node);
        found.ok().map(|at| &self.nodes[at])
    }

    /// A node's liveness. Unknown nodes count as failed.
    pub(in crate::coordinator) fn liveness(&self, node: NodeId) -> Liveness {
        self.status(node)
            .map_or(Liveness::Failed, |status| status.liveness)
    }

    /// Whether a node is draining or drained.
    pub(in crate::coordinator) fn is_leaving(&self, node: NodeId) -> bool {
        self.status(node)
            .is_some_and(|status| status.departure != Departure::None)
    }

    /// Whether a node's lease has not expired.
    pub(in crate::coordinator) fn is_up(&self, node: NodeId) -> bool {
        self.liveness(node) == Liveness::Up
    }

    /// Whether a node that is not up may be up soon: it is silent and not declared failed yet, or is likely to join.
    pub(in crate::coordinator) fn may_grow_soon(&self) -> bool {
        !self.joining.is_empty() || !self.with(Liveness::Suspect).is_empty()
    }

    /// Whether a node has failed and the coordinator still awaits its return.
    pub(in crate::coordinator) fn may_return(&self, node: NodeId) -> bool {
        let is_failed =
            |status: &NodeStatus| status.node == node && status.liveness == Liveness::Failed;
        self.nodes.iter().any(is_failed) && !self.abandoned.contains(&node)
    }

    /// All nodes that may get new chunks, by id: their leases run, and they stay.
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

    /// The same nodes, with some of those that are up marked as unreliable.
    pub(in crate::coordinator) fn distrusting(mut self, nodes: &[NodeId]) -> Self {
        let is_meant = |s: &&mut NodeStatus| s.liveness == Liveness::Up && nodes.contains(&s.node);
        for status in self.nodes.iter_mut().filter(is_meant) {
            status.liveness = Liveness::Suspect;
        }
        self
    }

    /// The positions of the nodes that `wanted` selects.
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

    /// The lost chunks of a stripe that are to be repaired. A chunk on a failed node that may return is
    /// not, unless it would be useless even then, or the stripe takes no updates without it.
    pub(in crate::coordinator) fn due(&self, stripe: &StripeRecord) -> Vec<ChunkIndex> {
        let is_hastened = self.hastened.contains(&stripe.id);
        let due = |&(node, chunk): &(NodeId, ChunkIndex)| {
            let has_failed = self.liveness(node) == Liveness::Failed;
            let is_due = |stale: StaleChunk| stale.missed_after.is_none() || !has_failed;
            stripe.staleness(chunk).is_some_and(is_due)
                || self.abandoned.contains(&node)
                || (has_failed && is_hastened)
        };
        placed(stripe).filter(due).map(|(_, chunk)| chunk).collect()
    }

    /// The chunks of a stripe that are whole and are to be moved, because their nodes leave.
    pub(in crate::coordinator) fn to_move(&self, stripe: &StripeRecord) -> Vec<ChunkIndex> {
        let leaves = |&(node, chunk): &(NodeId, ChunkIndex)| {
            !stripe.is_stale(chunk) && self.is_up(node) && self.is_leaving(node)
        };
        let leaving = placed(stripe).filter(leaves);
        leaving.map(|(_, chunk)| chunk).collect()
    }

    /// All chunks of a stripe that need a repair or a move, lost ones first.
    pub(in crate::coordinator) fn work(&self, stripe: &StripeRecord) -> Vec<ChunkIndex> {
        let mut work = self.due(stripe);
        work.extend(self.to_move(stripe));
        work
    }

    /// The chunks of a stripe that no read should use now: the lost ones and those whose nodes do not
    /// answer.
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
