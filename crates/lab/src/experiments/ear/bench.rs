//! Encodings on a testbed for an experiment: the racks and their links, and in each trial the
//! placement of replicas and the concurrent writes of clients. The results include the places, so
//! that the model can be given the same plans. Clusters are started elsewhere.

use gabion_layout::{NodeId, ReplicaPlacement};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A cluster on a testbed of equal racks, and the trials that are run on it one after another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EncodeBench {
    /// The directory for the cluster; empty. Its content is in memory and ends with the testbed.
    pub directory: PathBuf,
    /// Racks.
    pub rack_count: u32,
    /// Nodes of each of them.
    pub nodes_per_rack: u32,
    /// Rate of each node's link in each direction, in bytes a second.
    pub node_bytes_per_s: u64,
    /// Rate of each rack's link to other racks in each direction, in bytes a second.
    pub rack_bytes_per_s: u64,
    /// Whether links serve their connections in turn, and these do not share a queue.
    pub is_fair: bool,
    /// The code, as users write it.
    pub code: String,
    /// Replicas of a block.
    pub replica_count: usize,
    /// Bytes of a block.
    pub chunk_bytes: u64,
    /// Files that are stored in each trial, and segments of each.
    pub file_count: u64,
    /// Segments of a file, each of which becomes a stripe.
    pub segments_per_file: u64,
    /// The timed trials.
    pub trials: Vec<EncodeTrial>,
}

/// Files that are encoded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EncodeTrial {
    /// The placement of their replicas.
    pub placement: ReplicaPlacement,
    /// When clients put a segment each, in seconds since the order to encode, ascending. None begins when
    /// all is encoded.
    pub puts_at_s: Vec<f64>,
}

/// The results of a bench.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Encodings {
    /// Time to encode a segment of nearly empty blocks while nothing else runs, in seconds:
    /// messages, and the nodes' work besides moving bytes.
    pub idle_encode_s: f64,
    /// Time of the put of such a segment, in seconds.
    pub idle_put_s: f64,
    /// Segments that the coordinator encodes at once.
    pub conversions_at_once: usize,
    /// Size of the slices in bytes.
    pub slice_bytes: u64,
    /// The result of each trial.
    pub trials: Vec<EncodeTime>,
}

/// The result of a trial.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EncodeTime {
    /// From the order until the last segment was encoded, in seconds.
    pub seconds: f64,
    /// Former and current places of the segments, in the order in which their encodings began.
    pub segments: Vec<SegmentPlaces>,
    /// The puts that began by then.
    pub puts: Vec<PutTime>,
    /// Bytes that encodings sent across racks, by the nodes' meters.
    pub encode_cross_rack_bytes: u64,
    /// Processors in use on average, by all of the cluster's processes.
    pub cores: f64,
    /// Processors in use by everything else on this machine.
    pub other_cores: f64,
}

/// Former and current place of a segment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SegmentPlaces {
    /// By block, the nodes of its replicas.
    pub replicas: Vec<Vec<NodeId>>,
    /// By chunk, its node.
    pub placement: Vec<NodeId>,
}

/// A put of one segment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PutTime {
    /// By block, the nodes of its replicas.
    pub replicas: Vec<Vec<NodeId>>,
    /// When it began, in seconds since the order to encode.
    pub at_s: f64,
    /// Its duration in seconds.
    pub seconds: f64,
}
