//! Repairs: the time until data is safe again. The figures come from the records and are never too optimistic: a chunk
//! counts once its node has read all of it back.

use gabion_protocol::message::{ArrayStatus, ClusterStatus, Meter, Purpose, RepairStatus};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Green when every chunk can be read, is verified and where it should be, and nodes' arrays are whole; red when
/// some stripe survives no further failure; yellow in between.
pub fn light(status: &ClusterStatus) -> &'static str {
    let repair = &status.repair;
    let is_red = |(&left, &stripes): (&i32, &u64)| left <= 0 && stripes > 0;
    if status.at_risk.iter().any(is_red) {
        "red"
    } else if status.lost_chunk_count + status.unreachable_chunk_count > 0
        || repair.queued_chunk_count + repair.moving_chunk_count > 0
        || degraded_array_count(status) > 0
    {
        "yellow"
    } else {
        "green"
    }
}

/// Nodes whose arrays tolerate fewer device failures than configured.
pub fn degraded_array_count(status: &ClusterStatus) -> usize {
    let arrays = status.arrays.values();
    arrays
        .filter(|array| ArrayStatus::is_degraded(array))
        .count()
}

/// The error of the last failed repair, while any chunk is lost or awaits repair or a move. After
/// that it is of no use to an operator.
pub fn last_error(status: &ClusterStatus) -> Option<&str> {
    let repair = &status.repair;
    let open = status.lost_chunk_count + repair.queued_chunk_count + repair.moving_chunk_count;
    repair.last_error.as_deref().filter(|_| open > 0)
}

/// The limits of repairs. Those that are none are null.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct RepairLimits {
    /// Into, and out of, each node.
    pub node_bytes_per_s: Option<u64>,
    /// Into, and out of, each rack, from and to others.
    pub rack_bytes_per_s: Option<u64>,
    /// Sent by all nodes together.
    pub total_bytes_per_s: Option<u64>,
    /// All repairs together while they are slowed down for clients.
    pub guard_bytes_per_s: Option<u64>,
    /// Repairs slow down while the 99th percentile of clients' latencies is above this.
    pub p99_target_ms: Option<u64>,
}

impl RepairLimits {
    /// The limits now.
    pub fn of(repair: &RepairStatus) -> Self {
        Self {
            node_bytes_per_s: repair.limits.node_bytes_per_s,
            rack_bytes_per_s: repair.limits.rack_bytes_per_s,
            total_bytes_per_s: repair.limits.total_bytes_per_s,
            guard_bytes_per_s: repair.guard_bytes_per_s,
            p99_target_ms: repair.p99_target_ms,
        }
    }
}

/// Bytes of repairs from one rack to another, or within it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct SentByRacks {
    /// The senders' rack.
    pub from_rack: u32,
    /// The receivers' rack.
    pub to_rack: u32,
    /// Bytes since the senders' start.
    pub bytes: u64,
}

/// Bytes of repairs between racks, and within racks.
pub fn sent_by_racks(meter: &Meter) -> Vec<SentByRacks> {
    let pairs = meter.bytes.iter().filter_map(|(&key, &bytes)| match key {
        (Some(from), Some(to), Purpose::Repair) => Some(SentByRacks {
            from_rack: from.0,
            to_rack: to.0,
            bytes,
        }),
        _ => None,
    });
    pairs.collect()
}

/// The state of repairs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct RepairView {
    /// `green`, `yellow` or `red`: whether data is safe.
    pub light: &'static str,
    /// Chunks that are lost now.
    pub lost_chunks: u64,
    /// Stripes with lost chunks by the failures that they still survive; -1 has lost data.
    pub at_risk_by_failures_left: BTreeMap<i32, u64>,
    /// Chunks that are being rebuilt, or wait for it.
    pub chunks_to_make: u64,
    /// Chunks that are being moved off leaving nodes, or wait for it.
    pub chunks_to_move: u64,
    /// Bytes of both.
    pub left_bytes: u64,
    /// Stripes under repair.
    pub stripes_at_work: u64,
    /// Recent rate.
    pub bytes_per_s: u64,
    /// Milliseconds until all is done at that rate; null while the rate is unknown.
    pub rest_ms: Option<u64>,
    /// Whether repairs are paused.
    pub paused: bool,
    /// The scheme in use.
    pub scheme: String,
    /// The limits.
    pub limits: RepairLimits,
    /// The 99th percentile of clients' latencies.
    pub p99_ms: Option<u64>,
    /// Chunks rebuilt since the coordinator started.
    pub made_chunks: u64,
    /// Their bytes.
    pub made_bytes: u64,
    /// Chunks moved since then.
    pub moved_chunks: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// Chunks of returned nodes that only caught up.
    pub caught_up_chunks: u64,
    /// Bytes written for that.
    pub caught_up_bytes: u64,
    /// Planned cross-rack bytes of repairs since the coordinator started.
    pub planned_cross_rack_bytes: u64,
    /// Metered bytes by racks.
    pub sent_by_racks: Vec<SentByRacks>,
    /// The error of the last failed repair, while anything is to be repaired.
    pub last_error: Option<String>,
}

impl RepairView {
    /// The state in a status, and the bytes of a meter.
    pub fn of(status: &ClusterStatus, meter: &Meter) -> Self {
        let repair = &status.repair;
        Self {
            light: light(status),
            lost_chunks: status.lost_chunk_count,
            at_risk_by_failures_left: status.at_risk.clone(),
            chunks_to_make: repair.queued_chunk_count,
            chunks_to_move: repair.moving_chunk_count,
            left_bytes: repair.left_bytes,
            stripes_at_work: repair.running_count,
            bytes_per_s: repair.bytes_per_s,
            rest_ms: repair.rest_ms,
            paused: repair.is_paused,
            scheme: repair.scheme.clone(),
            limits: RepairLimits::of(repair),
            p99_ms: repair.p99_ms,
            made_chunks: repair.repaired_chunk_count,
            made_bytes: repair.repaired_bytes,
            moved_chunks: repair.moved_chunk_count,
            moved_bytes: repair.moved_bytes,
            caught_up_chunks: repair.caught_up_chunk_count,
            caught_up_bytes: repair.caught_up_bytes,
            planned_cross_rack_bytes: repair.planned_cross_rack_bytes,
            sent_by_racks: sent_by_racks(meter),
            last_error: last_error(status).map(str::to_owned),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_repair_is_not_shown_when_nothing_is_to_be_repaired() {
        let mut status = ClusterStatus::default();
        status.repair.last_error = Some("node 3 does not answer".to_owned());
        assert_eq!(last_error(&status), None);
        status.lost_chunk_count = 1;
        assert_eq!(last_error(&status), Some("node 3 does not answer"));
    }
}
