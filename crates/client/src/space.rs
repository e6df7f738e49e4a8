//! The space that the files of a pool can still take. The coordinator knows it without a count of files.

use crate::client::Client;
use crate::error::ClientError;
use gabion_meta::{PoolRecord, PoolSpec, PoolUse, Quota};
use gabion_planner::placement::Space;
use gabion_protocol::message::{ClusterSpace, ClusterUsage, ask};

/// The space for files of a pool, in bytes of their data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataSpace {
    /// The data that the disks could take if they had nothing else. Nodes that leave or have failed do not count.
    pub capacity_bytes: u64,
    /// The data that they can take now, if their free space is about even; none if no node has told of its space.
    pub free_bytes: Option<u64>,
    /// The same without any reserve: more than this certainly has no room.
    pub room_bytes: Option<u64>,
    /// The quota of the pool.
    pub quota: Quota,
    /// The bytes and files that count against it.
    pub used: PoolUse,
    /// The files of all pools.
    pub file_count: u64,
}

impl Client {
    /// The space of the cluster, as [`Client::usage`], but the counts of files and chunks may be some seconds old. The
    /// cluster then need not count all of them.
    ///
    /// # Errors
    /// [`ClientError::NoCoordinator`], [`ClientError::Refused`].
    pub async fn recent_usage(&self) -> Result<ClusterUsage, ClientError> {
        self.ask(ask::RecentUsage).await
    }

    /// The space for files of a pool, with parity and reserves taken off.
    ///
    /// # Errors
    /// [`ClientError::NoCoordinator`], [`ClientError::Refused`].
    pub async fn data_space(&self, pool: &PoolRecord) -> Result<DataSpace, ClientError> {
        Ok(data_space(pool, &self.ask(ask::Space).await?))
    }
}

fn data_space(pool: &PoolRecord, space: &ClusterSpace) -> DataSpace {
    let known = space.pools.get(&pool.id).cloned().unwrap_or_default();
    let spec = &pool.spec;
    let told = (known.reserved_bytes, known.used.bytes);
    // Bytes on disks for each byte of data.
    let coded = (spec.k + spec.m) as f64 / spec.k.max(1) as f64;
    let stored = coded + reserved_share(spec, told).0;
    let data = |bytes: u64| (bytes as f64 / stored) as u64;
    let sum = |bytes: fn(&Space) -> u64| {
        let all = space.spaces.values().map(bytes);
        all.reduce(u64::saturating_add)
    };
    let files = space.pools.values().map(|pool| pool.used.files);
    DataSpace {
        capacity_bytes: data(sum(|space| space.capacity_bytes).unwrap_or(0)),
        free_bytes: sum(|space| space.free_bytes).map(data),
        room_bytes: sum(|space| space.free_bytes).map(|bytes| (bytes as f64 / coded) as u64),
        quota: known.quota,
        used: known.used,
        file_count: files.fold(0, u64::saturating_add),
    }
}

/// Bytes of reserves for each byte of a pool's data, and whether nodes have told of them: `reserved_bytes` behind
/// stripes with `data_bytes`. Before the pool's first update there are none, so every parity chunk of a full stripe
/// counts with its first reserve.
pub fn reserved_share(spec: &PoolSpec, (reserved_bytes, data_bytes): (u64, u64)) -> (f64, bool) {
    let Some(reserve) = spec.reserve else {
        return (0.0, false);
    };
    if reserved_bytes > 0 && data_bytes > 0 {
        return (reserved_bytes as f64 / data_bytes as f64, true);
    }
    let first_bytes = reserve.initial_bytes(spec.chunk_bytes);
    let share = spec.m as f64 * first_bytes as f64 / (spec.k as f64 * spec.chunk_bytes as f64);
    (share, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::sample;
    use gabion_layout::{NodeId, ReserveSpec};
    use gabion_protocol::message::PoolSpace;

    const MIB: u64 = 1 << 20;

    fn pool() -> PoolRecord {
        let mut pool = sample::layout().pool;
        (pool.spec.k, pool.spec.m, pool.spec.chunk_bytes) = (4, 2, MIB);
        pool.spec.reserve = Some(ReserveSpec::default());
        pool
    }

    fn cluster(reserved_bytes: u64) -> ClusterSpace {
        let known = PoolSpace {
            used: PoolUse {
                bytes: 16 * MIB,
                files: 3,
            },
            reserved_bytes,
            ..PoolSpace::default()
        };
        let space = Space {
            capacity_bytes: 260 * MIB,
            free_bytes: 130 * MIB,
        };
        ClusterSpace {
            pools: [(pool().id, known)].into(),
            spaces: [(NodeId(1), space), (NodeId(2), space)].into(),
        }
    }

    #[test]
    fn the_space_for_data_leaves_parity_and_reserves_out() {
        let told = |pool: &PoolRecord, reserved_bytes| {
            let told = data_space(pool, &cluster(reserved_bytes));
            assert_eq!(told.file_count, 3);
            (told.capacity_bytes, told.free_bytes)
        };
        // Before an update, each parity chunk counts with a reserve of a chunk: eight chunks for four of data.
        assert_eq!(told(&pool(), 0), (260 * MIB, Some(130 * MIB)));
        // An eighth of the data is reserved: 13 bytes for 8 of data.
        assert_eq!(told(&pool(), 2 * MIB), (320 * MIB, Some(160 * MIB)));
        let mut without = pool();
        without.spec.reserve = None;
        let two_thirds = 260 * MIB * 2 / 3;
        let (_, free_bytes) = told(&without, 2 * MIB);
        assert!(free_bytes.is_some_and(|free| free.abs_diff(two_thirds) <= 1));
    }

    #[test]
    fn space_that_no_node_has_told_is_unknown() {
        let unknown = data_space(&pool(), &ClusterSpace::default());
        assert_eq!((unknown.capacity_bytes, unknown.free_bytes), (0, None));
    }
}
