//! The state of the cluster: its nodes, the failures that its stripes still survive, and the repairs.

use super::array::ArrayStatus;
use super::meter::Meter;
use super::usage::NodeUsage;
use gabion_layout::{NodeId, RackId};
use gabion_meta::Departure;
use gabion_planner::manager::{Latencies, Limits};
use gabion_planner::placement::Space;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The progress of a node's join.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct JoinProgress {
    /// Chunks that it has reported.
    pub told_chunk_count: u64,
    /// All its chunks.
    pub chunk_count: u64,
    /// Its unknown chunks, when it waits for the operator's permission to set them aside; none when it does
    /// not wait.
    pub waits_with_unknown: Option<u64>,
}

/// A node's state as far as the coordinator knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Liveness {
    /// Its lease is live.
    Up,
    /// Its lease has expired, but it is not declared failed yet.
    Suspect,
    /// Declared failed: it does not serve, and its chunks count as lost.
    Failed,
}

/// A node as the coordinator sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The node.
    pub node: NodeId,
    /// Its rack.
    pub rack: RackId,
    /// Its address; empty while another node uses the same one.
    pub address: String,
    /// Its liveness.
    pub liveness: Liveness,
    /// Whether it is draining.
    pub departure: Departure,
}

/// A node's health, reported with each heartbeat.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NodeHealth {
    /// Latencies of its clients' requests since its last heartbeat.
    pub foreground: Latencies,
    /// Measured rates of its links to others since its last heartbeat, in bytes a second.
    pub links: Vec<(NodeId, u64)>,
    /// The array of SSDs that its store is on, if there is one.
    pub array: Option<ArrayStatus>,
    /// The space of its disk; none when the disk does not report it.
    pub space: Option<Space>,
    /// The space that its store takes; none before it is counted.
    pub usage: Option<NodeUsage>,
    /// The clients' requests that it has served.
    pub served: Served,
}

/// The clients' requests that a node has served since its process began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Served {
    /// Updates that it has committed as a primary.
    pub update_count: u64,
    /// Parts of reads.
    pub read_count: u64,
}

/// The last measured rate of the link from one node to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LinkRate {
    /// The sender.
    pub from: NodeId,
    /// The receiver.
    pub to: NodeId,
    /// Bytes a second.
    pub bytes_per_s: u64,
    /// The age of the measurement.
    pub age_ms: u64,
}

/// Redundancy and repair state of the cluster, never better than the real state.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// All nodes.
    pub nodes: Vec<NodeStatus>,
    /// The arrays of nodes that are not failed, from their last heartbeats.
    pub arrays: BTreeMap<NodeId, ArrayStatus>,
    /// The disk space of these nodes, from their last heartbeats.
    pub spaces: BTreeMap<NodeId, Space>,
    /// The requests that these nodes have served, from their last heartbeats.
    pub served: BTreeMap<NodeId, Served>,
    /// Age of the last heartbeat of each node that is not failed, in milliseconds; nodes without a
    /// heartbeat since the coordinator's start are left out.
    pub silence_ms: BTreeMap<NodeId, u64>,
    /// The joining nodes, members or not, and their progress.
    pub joining: BTreeMap<NodeId, JoinProgress>,
    /// Damaged chunks that each node has found since the coordinator's start; nodes without any are left
    /// out. The chunks are repaired: a growing count shows a decaying disk.
    pub damaged_chunk_counts: BTreeMap<NodeId, u64>,
    /// The number of evictions of each node since the coordinator's start, because others could not reach them.
    pub eviction_counts: BTreeMap<NodeId, u64>,
    /// Chunks that are not lost, but whose nodes do not answer now.
    pub unreachable_chunk_count: u64,
    /// Stripes by the number of further chunk losses that they survive; stripes that have lost
    /// data are under -1.
    pub stripes_by_failures_left: BTreeMap<i32, u64>,
    /// The same of those stripes alone that have lost chunks.
    pub at_risk: BTreeMap<i32, u64>,
    /// Stripes that may have updates that parity does not cover yet; they survive as many losses as the
    /// copies of these updates do, and are counted so above.
    pub appending_stripe_count: u64,
    /// Chunks that data grouping has moved since the coordinator started.
    pub grouped_chunk_count: u64,
    /// Bytes that nodes should have sent for the commits and data grouping that the coordinator itself has
    /// run successfully.
    pub planned: Meter,
    /// Chunks that are lost now.
    pub lost_chunk_count: u64,
    /// Whether chunks are being repaired.
    pub repair: RepairStatus,
    /// The pools whose blocks are replicated first, and their conversions.
    pub lifecycle: LifecycleStatus,
    /// The cause if the coordinator cannot record orders, so that it refuses them: a sentence. None if it can.
    pub audit_failure: Option<String>,
    /// The space of the disk on which the coordinator keeps its metadata and logs. None if its system does not tell it.
    pub coordinator_space: Option<Space>,
}

/// Blocks that are replicated first, and the stripes that they become.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LifecycleStatus {
    /// Blocks that are replicated now.
    pub replicated_block_count: u64,
    /// Stripes of such pools that are encoded now.
    pub encoded_stripe_count: u64,
    /// Segments that were due at their last check, and are not converted yet.
    pub waiting_count: u64,
    /// Segments that are being converted now.
    pub running_count: u64,
    /// Segments that were encoded since the coordinator started.
    pub encoded_count: u64,
    /// Segments whose blocks were replicated again since then.
    pub promoted_count: u64,
    /// Bytes of data of both.
    pub converted_bytes: u64,
    /// Conversions that were discarded because the blocks were updated during the conversion.
    pub outrun_count: u64,
    /// Planned cross-rack bytes of encodings.
    pub planned_encode_cross_rack_bytes: u64,
    /// Those of them that were data sent to the encoding node, or to another rack.
    pub planned_download_cross_rack_bytes: u64,
    /// Planned cross-rack bytes of promotions.
    pub planned_promote_cross_rack_bytes: u64,
    /// The error of the last failed conversion.
    pub last_error: Option<String>,
}

/// The state of repairs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RepairStatus {
    /// Chunks being repaired or waiting for it.
    pub queued_chunk_count: u64,
    /// Chunks being moved off leaving nodes, or waiting for it.
    pub moving_chunk_count: u64,
    /// Bytes of both.
    pub left_bytes: u64,
    /// Stripes under repair. While there are some, the sums below may lack a chunk that counts already.
    pub running_count: u64,
    /// Recent rate of rebuilt and moved chunks, in bytes a second.
    pub bytes_per_s: u64,
    /// Milliseconds until all is done at that rate; none while the rate is unknown.
    pub rest_ms: Option<u64>,
    /// Repairs are paused.
    pub is_paused: bool,
    /// The users' limits on repair traffic.
    pub limits: Limits,
    /// Repairs slow down while clients' latencies are above this.
    pub p99_target_ms: Option<u64>,
    /// The 99th percentile of clients' latencies at the last check.
    pub p99_ms: Option<u64>,
    /// The limit on all repairs together while they are slowed down.
    pub guard_bytes_per_s: Option<u64>,
    /// Chunks repaired and verified since the coordinator started.
    pub repaired_chunk_count: u64,
    /// Bytes of those.
    pub repaired_bytes: u64,
    /// Chunks moved off leaving nodes, and verified.
    pub moved_chunk_count: u64,
    /// Bytes of those.
    pub moved_bytes: u64,
    /// Chunks of returned nodes that only caught up with missed updates.
    pub caught_up_chunk_count: u64,
    /// Bytes written to catch up, for returned nodes or after a rebuild.
    pub caught_up_bytes: u64,
    /// The number of times a repair was resumed with other helpers.
    pub resumed_count: u64,
    /// Planned cross-rack bytes of all of these.
    pub planned_cross_rack_bytes: u64,
    /// Total time of the repairs.
    pub busy_ms: u64,
    /// The scheme in use.
    pub scheme: String,
    /// The error of the last failed repair.
    pub last_error: Option<String>,
}

/// The nodes that the coordinator has declared failed.
pub fn failed_nodes(nodes: &[NodeStatus]) -> Vec<NodeId> {
    nodes
        .iter()
        .filter(|n| n.liveness == Liveness::Failed)
        .map(|n| n.node)
        .collect()
}
