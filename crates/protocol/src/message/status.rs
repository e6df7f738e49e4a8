//! How the cluster fares: its nodes, what its stripes still survive, and what repair is doing.

use super::array::ArrayStatus;
use super::meter::Meter;
use gabion_layout::{NodeId, RackId};
use gabion_meta::Departure;
use gabion_planner::manager::{Latencies, Limits};
use gabion_planner::placement::Space;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How far a node's join is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct JoinProgress {
    /// Chunks that it has told of.
    pub told_chunk_count: u64,
    /// Chunks that it holds.
    pub chunk_count: u64,
    /// Chunks that it has and of which nothing is known, when it waits for the operator's word to set
    /// them aside; none when it does not wait.
    pub waits_with_unknown: Option<u64>,
}

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
    /// Where it listens; empty while another node listens where it did.
    pub address: String,
    /// Whether it lives.
    pub liveness: Liveness,
    /// Whether it is on its way out.
    pub departure: Departure,
}

/// What a node says of itself with each heartbeat.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Vitals {
    /// How long it took for what clients have asked of it since its last heartbeat.
    pub foreground: Latencies,
    /// Bytes a second that its links to others were found to carry since its last heartbeat.
    pub links: Vec<(NodeId, u64)>,
    /// The array of SSDs that it keeps its store on, if it is on one.
    pub array: Option<ArrayStatus>,
    /// What its disk has room for; none when the disk does not say.
    pub space: Option<Space>,
}

/// What the link from one node to another was last found to carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LinkRate {
    /// The sender.
    pub from: NodeId,
    /// The receiver.
    pub to: NodeId,
    /// Bytes a second.
    pub bytes_per_s: u64,
    /// How long ago.
    pub age_ms: u64,
}

/// Redundancy and repair state of the cluster, never better than the truth.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// All nodes.
    pub nodes: Vec<NodeStatus>,
    /// The arrays of those that are not failed and keep their stores on one, as they last said.
    pub arrays: BTreeMap<NodeId, ArrayStatus>,
    /// What the disks of all of these have room for, as they last said.
    pub spaces: BTreeMap<NodeId, Space>,
    /// How long ago nodes that are not failed were last heard, in milliseconds; those that were not heard since
    /// the coordinator's start are not in it.
    pub silence_ms: BTreeMap<NodeId, u64>,
    /// The nodes that join now, members or not, and how far each is.
    pub joining: BTreeMap<NodeId, JoinProgress>,
    /// Damaged chunks that nodes have found among their own since the coordinator's start; a node without any is not
    /// in it. They are repaired: this shows a disk that decays.
    pub damaged_chunk_counts: BTreeMap<NodeId, u64>,
    /// How often nodes were evicted since the coordinator's start, because others could not reach them.
    pub eviction_counts: BTreeMap<NodeId, u64>,
    /// Chunks that are not lost, but whose nodes do not answer now.
    pub unreachable_chunk_count: u64,
    /// Stripes by the number of further chunk losses that they survive; stripes that have lost
    /// data are under -1.
    pub stripes_by_failures_left: BTreeMap<i32, u64>,
    /// The same of those stripes alone that have lost chunks.
    pub at_risk: BTreeMap<i32, u64>,
    /// Stripes that may have updates of which parity knows nothing yet; they survive what the copies of
    /// these do, and are counted so above.
    pub appending_stripe_count: u64,
    /// Chunks that data grouping has moved since the coordinator started.
    pub grouped_chunk_count: u64,
    /// What nodes were to send for commits and data grouping that the coordinator itself has run, if
    /// these ended well.
    pub planned: Meter,
    /// Chunks that are lost now.
    pub lost_chunk_count: u64,
    /// Whether chunks are being repaired.
    pub repair: RepairStatus,
    /// What is replicated at first, and what has become of it.
    pub lifecycle: LifecycleStatus,
}

/// Blocks that are replicated at first, and the stripes that they become.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LifecycleStatus {
    /// Blocks that are replicated now.
    pub replicated_block_count: u64,
    /// Stripes of such pools that are encoded now.
    pub encoded_stripe_count: u64,
    /// Segments that were due when they were last looked at, and are not done yet.
    pub waiting_count: u64,
    /// Segments that are being converted now.
    pub running_count: u64,
    /// Segments that were encoded since the coordinator started.
    pub encoded_count: u64,
    /// Segments whose blocks were replicated again since then.
    pub promoted_count: u64,
    /// Bytes of data of both.
    pub converted_bytes: u64,
    /// Conversions that were made in vain because the blocks were updated meanwhile.
    pub outrun_count: u64,
    /// Cross-rack bytes that the plans of encodings said.
    pub planned_encode_cross_rack_bytes: u64,
    /// Those of them that were data on their way to the node that encodes, or to another rack.
    pub planned_download_cross_rack_bytes: u64,
    /// Cross-rack bytes that the plans of promotions said.
    pub planned_promote_cross_rack_bytes: u64,
    /// Why the last conversion that failed did.
    pub last_error: Option<String>,
}

/// What repair is doing.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RepairStatus {
    /// Chunks being repaired or waiting for it.
    pub queued_chunk_count: u64,
    /// Chunks being moved off nodes that are to leave, or waiting for it.
    pub moving_chunk_count: u64,
    /// Bytes of both.
    pub left_bytes: u64,
    /// Stripes that are worked at. While there are some, the sums below may lack a chunk that counts already.
    pub running_count: u64,
    /// Bytes of chunks that were made or moved a second, of late.
    pub bytes_per_s: u64,
    /// Milliseconds until all is done at that rate; none while nothing is known of it.
    pub rest_ms: Option<u64>,
    /// No repair begins.
    pub is_paused: bool,
    /// The most that repairs may send, as users have set it.
    pub limits: Limits,
    /// Repairs make way while clients' latencies are above this.
    pub p99_target_ms: Option<u64>,
    /// The 99th percentile of clients' latencies when it was last looked at.
    pub p99_ms: Option<u64>,
    /// The most that repairs may send together while they make way.
    pub guard_bytes_per_s: Option<u64>,
    /// Chunks repaired and verified since the coordinator started.
    pub repaired_chunk_count: u64,
    /// Bytes of those.
    pub repaired_bytes: u64,
    /// Chunks moved off nodes that leave, and verified.
    pub moved_chunk_count: u64,
    /// Bytes of those.
    pub moved_bytes: u64,
    /// Chunks of returned nodes that got no more than the updates that they had missed.
    pub caught_up_chunk_count: u64,
    /// Bytes written for what chunks had missed, of returned nodes or since their repair began.
    pub caught_up_bytes: u64,
    /// How often a repair went on from where a helper had left it, with others.
    pub resumed_count: u64,
    /// Cross-rack bytes that the plans of all of these said.
    pub planned_cross_rack_bytes: u64,
    /// Time that the repairs took, added up.
    pub busy_ms: u64,
    /// The scheme in use.
    pub scheme: String,
    /// Why the last failed repair failed.
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
