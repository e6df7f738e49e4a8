//! How the cluster fares: its nodes, what its stripes still survive, and what repair is doing.

use gabion_layout::{NodeId, RackId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the coordinator knows of a node's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Liveness {
    /// Its lease is live.
    Up,
    /// Its lease has run out, but it is not declared failed yet.
    Suspect,
    /// Declared failed: it serves nothing, and its chunks count as lost.
    Failed,
}

/// A node as the coordinator sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The node.
    pub node: NodeId,
    /// Its rack.
    pub rack: RackId,
    /// Where it listens.
    pub address: String,
    /// Whether it lives.
    pub liveness: Liveness,
}

/// Redundancy and repair state of the cluster, never better than the truth.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// All nodes.
    pub nodes: Vec<NodeStatus>,
    /// Stripes by the number of further chunk losses that they survive; stripes that have lost
    /// data are under -1.
    pub stripes_by_failures_left: BTreeMap<i32, u64>,
    /// Chunks that are lost now.
    pub lost_chunk_count: u64,
    /// Whether chunks are being repaired.
    pub repair: RepairStatus,
}

/// What repair is doing.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RepairStatus {
    /// Chunks being repaired or waiting for it.
    pub queued_chunk_count: u64,
    /// Chunks repaired and verified since the coordinator started.
    pub repaired_chunk_count: u64,
    /// Bytes of those.
    pub repaired_bytes: u64,
    /// Chunks of returned nodes that got no more than the updates that they had missed.
    pub caught_up_chunk_count: u64,
    /// Bytes written for what chunks had missed, of returned nodes or since their repair began.
    pub caught_up_bytes: u64,
    /// How often a repair went on from where a helper had left it, with others.
    pub resumed_count: u64,
    /// Cross-rack bytes that the plans of both said.
    pub planned_cross_rack_bytes: u64,
    /// Time that the repairs took, added up.
    pub busy_ms: u64,
    /// The scheme in use.
    pub scheme: String,
    /// Why the last failed repair failed.
    pub last_error: Option<String>,
}
