//! What nodes' disks have room for, as their heartbeats say, and when they were last heard.

use crate::coordinator::Coordinator;
use crate::coordinator::core::{Denied, lock};
use crate::event::Event;
use crate::message::Vitals;
use gabion_layout::{NodeId, Topology};
use gabion_meta::KeyValue;
use gabion_planner::placement::{Room, Space};
use std::collections::BTreeMap;

/// What nodes have said of themselves, and when.
#[derive(Debug, Default)]
pub(in crate::coordinator) struct Reports(BTreeMap<NodeId, Report>);

#[derive(Clone, Copy, Debug)]
struct Report {
    at_ms: u64,
    space: Option<Space>,
}

impl Reports {
    /// Takes in a heartbeat. Gives what there is to tell of the disk.
    fn note(&mut self, node: NodeId, space: Option<Space>, at_ms: u64) -> Option<Event> {
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
    pub(in crate::coordinator) fn space(&self, node: NodeId) -> Option<Space> {
        self.0.get(&node)?.space
    }

    /// How long ago a node was heard.
    pub(in crate::coordinator) fn silence_ms(&self, node: NodeId, now_ms: u64) -> Option<u64> {
        Some(now_ms.saturating_sub(self.0.get(&node)?.at_ms))
    }

    fn spaces(&self) -> BTreeMap<NodeId, Space> {
        let spaces = self.0.iter();
        spaces
            .filter_map(|(&node, report)| Some((node, report.space?)))
            .collect()
    }

    /// Those of some nodes that are not full; all of them where all are.
    pub(in crate::coordinator) fn roomy(&self, nodes: Vec<NodeId>, bytes: u64) -> Vec<NodeId> {
        let is_roomy = |node: &NodeId| {
            let space = self.space(*node);
            space.is_none_or(|space| !space.is_full() && space.free_bytes >= bytes)
        };
        let roomy: Vec<NodeId> = nodes.iter().copied().filter(is_roomy).collect();
        if roomy.is_empty() { nodes } else { roomy }
    }
}

impl<K: KeyValue + Send + Sync + 'static> Coordinator<K> {
    /// Notes what a node has said of its disk.
    pub(in crate::coordinator) fn note_space(&self, node: NodeId, vitals: &Vitals) {
        let now_ms = self.core.ports.now_ms();
        let event = lock(&self.reports).note(node, vitals.space, now_ms);
        if let Some(event) = event {
            self.core.ports.note_event(&event);
        }
    }

    /// The room on some nodes.
    pub(in crate::coordinator) fn room(&self, nodes: Topology) -> Room {
        Room::new(nodes, lock(&self.reports).spaces())
    }

    /// Why new chunks of `bytes` a node have no places, where that is because of disks that are full `when`.
    pub(in crate::coordinator) fn no_room(
        &self,
        nodes: &Topology,
        bytes: u64,
        when: &str,
    ) -> Option<Denied> {
        let reports = lock(&self.reports);
        let is_short = |node: &NodeId| {
            let space = reports.space(*node);
            space.is_some_and(|space| space.free_bytes < bytes)
        };
        let short = nodes.nodes().map(|place| place.node).filter(is_short);
        let short: Vec<String> = short.map(|node| node.to_string()).collect();
        (!short.is_empty()).then(|| {
            Denied(format!(
                "the disk is full of {}{when}, and the other nodes are too few for a stripe; delete files or add nodes",
                short.join(", ")
            ))
        })
    }
}
