//! The space that files take in their pools and on nodes.

use gabion_layout::{NodeId, PoolId, StripeRecord};
use gabion_meta::{PoolUse, Quota, QuotaStatus};
use gabion_planner::placement::Space;
use gabion_store::chunk_disk_bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most stripes in one question about reserves to a node.
pub const RESERVES_ASKED_MAX: usize = 4096;

/// Most age of the counts in the answer to a request for the recent usage, in milliseconds. Nodes count their space as
/// often.
pub const USAGE_AGE_MS: u64 = 10_000;

/// Raw bytes of a stripe: the disk space of all its chunks, parity, headers and checksums included, without reserves.
/// A lost chunk counts, because a repair takes its space again.
pub fn raw_bytes(stripe: &StripeRecord) -> u64 {
    (stripe.nodes.len() as u64).saturating_mul(chunk_disk_bytes(stripe.chunk_bytes))
}

/// The disk space of a node's store. It is counted each 10 s.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NodeUsage {
    /// Bytes that the store takes: chunks with their headers and reserves, the journal, the trash.
    pub used_bytes: u64,
    /// Bytes of reserves that have disk space, by pool.
    pub reserved_bytes: BTreeMap<PoolId, u64>,
}

/// The files and the space of a pool. The stripes that a pool's replicated blocks become belong to it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PoolUsage {
    /// The pool's name.
    pub name: String,
    /// Number of files.
    pub file_count: u64,
    /// Logical bytes: the sizes of these files, holes included.
    pub logical_bytes: u64,
    /// Number of files without a name that clients have open.
    pub orphan_count: u64,
    /// Bytes of these.
    pub orphan_bytes: u64,
    /// Raw bytes: the disk space of all chunks that count, without reserves. Stripes of several files count once.
    pub raw_bytes: u64,
    /// Inline bytes: those of small files, which are in the metadata.
    pub inline_bytes: u64,
    /// Bytes of reserves that have disk space, from the nodes' last heartbeats.
    pub reserved_bytes: u64,
    /// The bytes and files that count against the quota.
    pub used: PoolUse,
    /// The quota.
    pub quota: Quota,
}

/// The space of a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ClusterUsage {
    /// The pools, in the order in which they were made.
    pub pools: BTreeMap<PoolId, PoolUsage>,
    /// The space of nodes that have not failed, from their last heartbeats.
    pub nodes: BTreeMap<NodeId, NodeUsage>,
    /// The disks of these nodes. A node that leaves gets no new chunks, so it has no free bytes.
    pub spaces: BTreeMap<NodeId, Space>,
    /// The directories with quotas.
    pub directories: Vec<QuotaStatus>,
    /// Files that clients have open in their sessions, counted for each client.
    pub open_file_count: u64,
}

/// What a pool takes, as far as no count of its files is needed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PoolSpace {
    /// The bytes and files that count against the quota.
    pub used: PoolUse,
    /// The quota.
    pub quota: Quota,
    /// Bytes of reserves that have disk space, from the nodes' last heartbeats.
    pub reserved_bytes: u64,
}

/// The space of a cluster for new chunks, and the quotas of its pools.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ClusterSpace {
    /// The pools. The stripes that a pool's replicated blocks become belong to it.
    pub pools: BTreeMap<PoolId, PoolSpace>,
    /// The disks of nodes that have not failed and do not leave, from their last heartbeats.
    pub spaces: BTreeMap<NodeId, Space>,
}
