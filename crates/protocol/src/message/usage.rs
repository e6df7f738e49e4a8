//! The space that files take in their pools and on nodes.

use gabion_layout::{NodeId, PoolId};
use gabion_meta::{PoolUse, Quota, QuotaStatus};
use gabion_planner::placement::Space;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
    /// Bytes of these files.
    pub logical_bytes: u64,
    /// Bytes of all chunks that count, parity included, without headers and reserves.
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
    /// The disks of these nodes.
    pub spaces: BTreeMap<NodeId, Space>,
    /// The directories with quotas.
    pub directories: Vec<QuotaStatus>,
}
