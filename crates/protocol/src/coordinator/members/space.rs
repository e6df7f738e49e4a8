//! What nodes' disks have room for, as their heartbeats say, and when they were last heard.

use crate::event::Event;
use gabion_layout::NodeId;
use gabion_planner::placement::Space;
use std::collections::BTreeMap;

/// What nodes have said of themselves, and when.
#[derive(Debug, Default)]
pub(super) struct Reports(BTreeMap<NodeId, Report>);

#[derive(Clone, Copy, Debug)]
struct Report {
    at_ms: u64,
    space: Option<Space>,
}

impl Reports {
    /// Takes in a heartbeat. Gives what there is to tell of the disk.
    pub(super) fn note(&mut self, node: NodeId, space: Option<Space>, at_ms: u64) -> Option<Event> {
        let was_full = self.space(node).is_some_and(|space| space.is_full());
        self.0.insert(node, Report { at_ms, space });
        let space = space?;
        match (was_full, space.is_full()) {
            (false, true) => Some(Event::DiskFull(node, space)),
            (true, false) => Some(Event::DiskHasRoom(node, space)),
            _ => None,
        }
    }

    /// What a node's disk has room for.
    pub(super) fn space(&self, node: NodeId) -> Option<Space> {
        self.0.get(&node)?.space
    }

    /// How long ago a node was heard.
    pub(super) fn silence_ms(&self, node: NodeId, now_ms: u64) -> Option<u64> {
        Some(now_ms.saturating_sub(self.0.get(&node)?.at_ms))
    }

    pub(super) fn spaces(&self) -> BTreeMap<NodeId, Space> {
        let spaces = self.0.iter();
        spaces
            .filter_map(|(&node, report)| Some((node, report.space?)))
            .collect()
    }

    /// Those of some nodes that are not full; all of them where all are.
    pub(super) fn roomy(&self, nodes: Vec<NodeId>, bytes: u64) -> Vec<NodeId> {
        let is_roomy = |node: &NodeId| {
            let space = self.space(*node);
            space.is_none_or(|space| !space.is_full() && space.free_bytes >= bytes)
        };
        let roomy: Vec<NodeId> = nodes.iter().copied().filter(is_roomy).collect();
        if roomy.is_empty() { nodes } else { roomy }
    }
}
