//! Pools, and what they cost.

use gabion_client::reserved_share;
use gabion_codec::{Code, CodeError};
use gabion_meta::{PoolRecord, PoolSpec};
use gabion_planner::pool::PoolCost;
use gabion_planner::update;
use gabion_protocol::message::{ClusterUsage, PoolUsage};
use serde::Serialize;
use utoipa::ToSchema;

/// The cost of a pool, reserves included.
///
/// # Errors
/// If this release does not know its code.
pub fn cost_of(pool: &PoolRecord, usage: &ClusterUsage) -> Result<PoolCost, CodeError> {
    let code: Code = pool.spec.code.parse()?;
    let reserves = Reserves::of(&pool.spec, usage.pools.get(&pool.id));
    Ok(PoolCost::of(&code).with_reserves(reserves.share))
}

/// The reserves of a pool.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reserves {
    /// Bytes of reserves for each byte of data.
    pub share: f64,
    /// Whether the nodes have told it. Otherwise it is that of full stripes whose parity chunks all have their first
    /// reserve.
    pub is_learnt: bool,
}

impl Reserves {
    /// The reserves that nodes have told of, over the pool's data bytes. Before the pool's first update there are none,
    /// so the pool's first reserve counts.
    pub fn of(spec: &PoolSpec, usage: Option<&PoolUsage>) -> Self {
        let told = usage.map_or((0, 0), |usage| {
            let data_bytes = usage.used.bytes.saturating_sub(usage.inline_bytes);
            (usage.reserved_bytes, data_bytes)
        });
        let (share, is_learnt) = reserved_share(spec, told);
        Self { share, is_learnt }
    }
}

/// Bytes that the nodes have free for new chunks and reserves; none if no node has told of its space. Nodes that leave
/// have none.
pub fn free_bytes(usage: &ClusterUsage) -> Option<u64> {
    let of_nodes = usage.spaces.values().map(|space| space.free_bytes);
    of_nodes.reduce(u64::saturating_add)
}

/// The data that fits into as many free bytes, if the nodes' free space is about even.
pub fn free_data_bytes(free_bytes: u64, cost: PoolCost) -> u64 {
    (free_bytes as f64 * cost.usable_share) as u64
}

/// A pool.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub struct PoolView {
    /// The pool's name.
    pub name: String,
    /// Its code.
    pub code: String,
    /// The failure that it survives.
    pub survive: String,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Most chunks of a stripe in a rack.
    pub chunks_per_rack: usize,
    /// Its update scheme.
    pub update: String,
    /// Size of the largest file whose bytes are in the metadata; 0 if none are.
    pub inline_bytes: u64,
    /// Initial reserve of each parity chunk of a full stripe; null if the scheme has none.
    pub reserve_bytes: Option<u64>,
    /// Interval of the reserves' reviews.
    pub reserve_period_s: Option<u64>,
    /// Weight of the newest period.
    pub reserve_alpha: Option<f64>,
    /// Copies of appended bytes until a commit.
    pub replicas: Option<u8>,
    /// Stripes of a primary that may wait for a commit.
    pub commit_stripes: Option<u64>,
    /// Bytes of them.
    pub commit_bytes: Option<u64>,
    /// Longest wait for a commit.
    pub commit_age_s: Option<u64>,
    /// The rule of data grouping.
    pub grouping: Option<String>,
    /// Failures that stripes survive while updates wait for a commit.
    pub append_phase_survives: Option<usize>,
    /// Bytes of data for each byte of chunks and reserves, 0 to 1.
    pub usable_share: f64,
    /// Its cost against three replicas, reserves included.
    pub share_of_three_replicas: f64,
    /// Bytes of reserves for each byte of data, as both shares include them.
    pub reserved_share: f64,
    /// Whether nodes have told of these reserves; otherwise every parity chunk counts with its first reserve.
    pub reserved_share_is_learnt: bool,
    /// Sizes of its files, holes included; null if the usage is unknown.
    pub logical_bytes: Option<u64>,
    /// Disk space of its chunks, parity included, without reserves; null if the usage is unknown.
    pub raw_bytes: Option<u64>,
    /// Bytes of its reserves that have disk space; null if the usage is unknown.
    pub reserved_bytes: Option<u64>,
    /// Bytes that nodes have free for new chunks and reserves of all pools; null if no node has told of its space.
    pub free_bytes: Option<u64>,
    /// The data of this pool that fits there.
    pub free_data_bytes: Option<u64>,
    /// Chunks that a small update writes.
    pub chunk_writes_per_update: usize,
    /// When replicated blocks are encoded.
    pub encode_after: Option<String>,
    /// The placement of their replicas.
    pub placement: Option<String>,
}

impl PoolView {
    /// A pool, its space, and its cost by [`cost_of`].
    pub fn of(pool: &PoolRecord, usage: &ClusterUsage, cost: PoolCost) -> Self {
        let (spec, lifecycle) = (&pool.spec, pool.lifecycle);
        let known = usage.pools.get(&pool.id);
        let reserves = Reserves::of(spec, known);
        let of_files = |bytes: fn(&PoolUsage) -> u64| known.map(bytes);
        let free_bytes = free_bytes(usage);
        Self {
            name: spec.name.clone(),
            code: spec.code.clone(),
            survive: spec.survive.to_string(),
            chunk_bytes: spec.chunk_bytes,
            chunks_per_rack: spec.chunks_per_rack,
            update: spec.update.to_string(),
            inline_bytes: spec.inline_bytes,
            reserve_bytes: reserve_bytes(spec),
            reserve_period_s: spec.reserve.map(|reserve| reserve.period_s),
            reserve_alpha: spec.reserve.map(|reserve| reserve.smoothing.factor()),
            replicas: spec.append.map(|append| append.replicas),
            commit_stripes: spec.append.map(|append| append.stripes_max),
            commit_bytes: spec.append.map(|append| append.log_bytes_max),
            commit_age_s: spec.append.map(|append| append.age_max_s),
            grouping: grouping(spec),
            append_phase_survives: phase_survives(spec),
            usable_share: cost.usable_share,
            share_of_three_replicas: cost.share_of_three_replicas,
            reserved_share: reserves.share,
            reserved_share_is_learnt: reserves.is_learnt,
            logical_bytes: of_files(|known| known.logical_bytes),
            raw_bytes: of_files(|known| known.raw_bytes),
            reserved_bytes: of_files(|known| known.reserved_bytes),
            free_bytes,
            free_data_bytes: free_bytes.map(|free| free_data_bytes(free, cost)),
            chunk_writes_per_update: cost.chunk_writes_per_update,
            encode_after: lifecycle.map(|lifecycle| lifecycle.after.to_string()),
            placement: lifecycle.map(|lifecycle| lifecycle.placement.to_string()),
        }
    }
}

/// Initial reserve of each parity chunk of a full stripe.
pub fn reserve_bytes(spec: &PoolSpec) -> Option<u64> {
    spec.reserve
        .map(|reserve| reserve.initial_bytes(spec.chunk_bytes))
}

/// Number of failures that stripes survive while updates of them wait for a commit.
pub fn phase_survives(spec: &PoolSpec) -> Option<usize> {
    let code: Code = spec.code.parse().ok()?;
    update::phase_survives(spec.update, spec.append, &code)
}

/// The rule of data grouping, for pools whose scheme has it.
fn grouping(spec: &PoolSpec) -> Option<String> {
    let append = spec
        .append
        .filter(|_| update::descriptor(spec.update).appends_by_rack())?;
    let rule = append.grouping.map(|rule| rule.to_string());
    Some(rule.unwrap_or_else(|| "off".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_layout::{PoolId, ReserveSpec, UpdateScheme};
    use gabion_meta::PoolUse;

    fn pool() -> PoolRecord {
        let spec = PoolSpec {
            name: "vm".to_owned(),
            code: "rs(4,2)".to_owned(),
            survive: "1-rack".parse().unwrap(),
            k: 4,
            m: 2,
            sub_chunks: 1,
            chunk_bytes: 1 << 20,
            chunks_per_rack: 2,
            update: UpdateScheme::Plr,
            reserve: Some(ReserveSpec::default()),
            append: None,
            inline_bytes: 4096,
        };
        PoolRecord {
            id: PoolId(0),
            spec,
            lifecycle: None,
        }
    }

    fn usage(reserved_bytes: u64) -> ClusterUsage {
        let known = PoolUsage {
            used: PoolUse {
                bytes: (16 << 20) + 100,
                files: 2,
            },
            inline_bytes: 100,
            reserved_bytes,
            ..PoolUsage::default()
        };
        ClusterUsage {
            pools: [(PoolId(0), known)].into(),
            ..ClusterUsage::default()
        }
    }

    #[test]
    fn costs_have_the_reserves_that_are_there_and_before_an_update_the_first_ones() {
        let pool = pool();
        let usable = |usage: &ClusterUsage| cost_of(&pool, usage).unwrap().usable_share;
        let close = |found: f64, expected: f64| {
            assert!(
                (found - expected).abs() < 1e-12,
                "{found} is not {expected}"
            );
        };
        // Two reserves of a chunk for four data chunks.
        close(usable(&ClusterUsage::default()), 1.0 / (1.5 + 0.5));
        close(usable(&usage(0)), 1.0 / (1.5 + 0.5));
        // Inline bytes have no stripes, and so no reserves.
        close(usable(&usage(2 << 20)), 1.0 / (1.5 + 0.125));
        let mut without = pool.clone();
        without.spec.update = UpdateScheme::Fo;
        without.spec.reserve = None;
        let cost = cost_of(&without, &ClusterUsage::default()).unwrap();
        close(cost.usable_share, 4.0 / 6.0);
        close(cost.share_of_three_replicas, 0.5);
        assert_eq!(free_data_bytes(9000, cost), 6000);
    }
}
