//! Nodes: their states, and the space of their disks.

use super::traffic::Rates;
use gabion_meta::Departure;
use gabion_planner::placement::Space;
use gabion_protocol::message::{ClusterStatus, Liveness, NodeStatus};
use serde::Serialize;
use utoipa::ToSchema;

/// The state of a node in a word: `up`, `suspect`, `failed`, `joining`, `draining` or `drained`.
pub fn state_name(status: &ClusterStatus, node: &NodeStatus) -> &'static str {
    if status.joining.contains_key(&node.node) {
        return "joining";
    }
    match (node.departure, node.liveness) {
        (Departure::Drained, _) => "drained",
        (Departure::Draining, Liveness::Up) => "draining",
        (_, Liveness::Up) => "up",
        (_, Liveness::Suspect) => "suspect",
        (_, Liveness::Failed) => "failed",
    }
}

/// The space of a node's disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct SpaceView {
    /// Bytes of the disk.
    pub capacity_bytes: u64,
    /// Bytes that new chunks may take.
    pub free_bytes: u64,
    /// Used share of the disk, in whole per cent.
    pub used_percent: u64,
    /// Whether it takes no new chunks.
    pub full: bool,
}

impl SpaceView {
    /// The space that a node has reported.
    pub fn of(space: &Space) -> Self {
        Self {
            capacity_bytes: space.capacity_bytes,
            free_bytes: space.free_bytes,
            used_percent: space.used_percent(),
            full: space.is_full(),
        }
    }
}

/// A node.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub struct NodeView {
    /// The node's number.
    pub node: u32,
    /// Its rack.
    pub rack: u32,
    /// Its address.
    pub address: String,
    /// `up`, `suspect`, `failed`, `joining`, `draining` or `drained`.
    pub state: &'static str,
    /// The space of its disk; null without a report.
    pub space: Option<SpaceView>,
    /// The age of its last heartbeat; null if none was heard.
    pub heard_ms_ago: Option<u64>,
    /// Updates that it commits a second; null while that is unknown.
    pub updates_per_s: Option<f64>,
    /// Parts of reads that it serves a second.
    pub read_parts_per_s: Option<f64>,
}

impl NodeView {
    /// A node of a status.
    pub fn of(status: &ClusterStatus, node: &NodeStatus, rates: Option<&Rates>) -> Self {
        let served = rates.and_then(|rates| rates.served.get(&node.node));
        Self {
            node: node.node.0,
            rack: node.rack.0,
            address: node.address.clone(),
            state: state_name(status, node),
            space: status.spaces.get(&node.node).map(SpaceView::of),
            heard_ms_ago: status.silence_ms.get(&node.node).copied(),
            updates_per_s: served.map(|served| served.0),
            read_parts_per_s: served.map(|served| served.1),
        }
    }
}
