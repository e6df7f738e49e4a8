//! The demo's measurements.

use serde::Serialize;

/// All measurements, in their order.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The code of the file's pool.
    pub code: String,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Rate of a node's link.
    pub node_bytes_per_s: u64,
    /// Rate of a rack's link.
    pub rack_bytes_per_s: u64,
    /// Time to start the cluster and create the pool.
    pub start_s: f64,
    /// Time to store the file.
    pub put_s: f64,
    /// The writes in place while all nodes are up.
    pub updates: Updates,
    /// Time of one chunk from one node.
    pub direct_send_s: f64,
    /// Conversions of a replicated file.
    pub forms: Vec<Form>,
    /// Work while a node is lost, for each lost node.
    pub degraded: Vec<Degraded>,
    /// The repairs after that.
    pub repairs: Vec<Repair>,
    /// The database on a mount.
    pub database: DatabaseStep,
    /// Time to read the whole file at the end.
    pub final_read_s: f64,
    /// Bytes that the scrub verified on disk.
    pub scrubbed_bytes: u64,
    /// Failures that the weakest stripe survives at the end.
    pub failures_left: i32,
}

/// Writes in place, one after the other.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Updates {
    /// The source of the writes.
    pub source: String,
    /// Number of writes.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Time of all.
    pub seconds: f64,
    /// Median latency.
    pub p50_ms: f64,
    /// Latency that 99 % do not exceed.
    pub p99_ms: f64,
    /// Cross-rack bytes of the plans.
    pub planned_cross_rack_bytes: u64,
    /// Cross-rack bytes that nodes have sent.
    pub metered_cross_rack_bytes: u64,
}

/// Work while a node is lost.
#[derive(Clone, Debug, Serialize)]
pub struct Degraded {
    /// The node.
    pub node: u32,
    /// Failures that the weakest stripe survived while the node was lost.
    pub failures_left: i32,
    /// Writes in place during that time.
    pub updates: Updates,
    /// Time to read the whole file.
    pub seconds: f64,
}

/// The repair of a lost node's chunks.
#[derive(Clone, Debug, Serialize)]
pub struct Repair {
    /// The repair scheme.
    pub scheme: String,
    /// Repaired chunks.
    pub chunk_count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Time of all repairs.
    pub seconds: f64,
    /// Sum of the times of the single repairs.
    pub busy_s: f64,
    /// Cross-rack bytes of the plans.
    pub planned_cross_rack_bytes: u64,
    /// Cross-rack bytes that nodes have sent.
    pub metered_cross_rack_bytes: u64,
}

/// Replicated blocks that became stripes, or stripes that became blocks.
#[derive(Clone, Debug, Serialize)]
pub struct Form {
    /// The direction: `encode` or `promote`.
    pub name: String,
    /// Bytes of data.
    pub bytes: u64,
    /// Time of the conversion.
    pub seconds: f64,
    /// Writes in place during the conversion.
    pub write_count: u64,
    /// Latency of the slowest of them.
    pub slowest_write_ms: f64,
    /// Number of segments restarted because of these.
    pub begun_anew_count: u64,
    /// Data that crossed racks for encoding.
    pub data_cross_rack_bytes: u64,
    /// Planned bytes of the successful attempts.
    pub planned_cross_rack_bytes: u64,
    /// Measured bytes of all attempts.
    pub metered_cross_rack_bytes: u64,
}

/// The step with a database on a mount.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DatabaseStep {
    /// It ran.
    Done(Database),
    /// This machine lacks something, in one sentence.
    NotRun(String),
}

impl Default for DatabaseStep {
    fn default() -> Self {
        Self::NotRun("the demo has not reached this step".to_owned())
    }
}

/// Transactions of a database on a mount of the cluster, while a node is killed.
#[derive(Clone, Debug, Serialize)]
pub struct Database {
    /// The killed node.
    pub node: u32,
    /// Number of transactions.
    pub transaction_count: u64,
    /// Number of rows, each compared after the cluster was mounted anew.
    pub row_count: u64,
    /// Time of all transactions.
    pub seconds: f64,
    /// Time of the longest transaction.
    pub longest_commit_ms: f64,
}
