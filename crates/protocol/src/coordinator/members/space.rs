//! Disk space of nodes from their heartbeats, and the time of each last heartbeat.

use crate::event::Event;
use crate::message::{NodeHealth, NodeUsage, Served};
use gabion_layout::NodeId;
use gabion_planner::placement::Space;
use std::collections::BTreeMap;

/// Nodes' reports, and their times.
#[derive(Debug, Default)]
pub(super) struct Reports(BTreeMap<NodeId, Report>);

#[derive(Clone, Debug)]
struct Report {
    at_ms: u64,
    space: Option<Space>,
    usage: Option<NodeUsage>,
    served: Served,
}

impl Reports {
    /// Notes a heartbeat. Returns the event to log about the disk, if there is one.
    pub(super) fn note(&mut self, node: NodeId, health: &NodeHealth, at_ms: u64) -> Option<Event> {
        let was_full = self.space(node).is_some_and(|space| space.is_full());
        let (space, usage) = (health.space, health.usage.clone());
        let report = Report {
            at_ms,
            space,
            usage,
            served: health.served,
        };
        self.0.insert(node, report);
        let space = space?;
        match (was_full, space.is_full()) {
            (false, true) => Some(Event::DiskFull(node, space)),
            (true, false) => Some(Event::DiskHasRoom(node, space)),
            _ => None,
        }
    }

    /// The free space of a node's disk.
    pub(super) fn space(&self, node: NodeId) -> Option<Space> {
        self.0.get(&node)?.space
    }

    /// The space that a node's store takes.
    pub(super) fn usage(&self, node: NodeId) -> Option<NodeUsage> {
        self.0.get(&node)?.usage.clone()
    }

    /// The clients' requests that a node has served.
    pub(super) fn served(&self, node: NodeId) -> Option<Served> {
        Some(self.0.get(&node)?.served)
    }

    /// The age of a node's last heartbeat.
    pub(super) fn silence_ms(&self, node: NodeId, now_ms: u64) -> Option<u64> {
        Some(now_ms.saturating_sub(self.0.get(&node)?.at_ms))
    }

    pub(super) fn spaces(&self) -> BTreeMap<NodeId, Space> {
        let spaces = self.0.iter();
        spaces
            .filter_map(|(&node, report)| Some((node, report.space?)))
            .collect()
    }

    /// Those of some nodes that are not full; all of them if all are full.
    pub(super) fn roomy(&self, nodes: Vec<NodeId>, bytes: u64) -> Vec<NodeId> {
        let is_roomy = |node: &NodeId| {
            let space = self.space(*node);
            space.is_none_or(|space| !space.is_full() && space.free_bytes >= bytes)
        };
        let roomy: Vec<NodeId> = nodes.iter().copied().filter(is_roomy).collect();
        if roomy.is_empty() { nodes } else { roomy }
    }
}
