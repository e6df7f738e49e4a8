//! Pools, and what they cost.

use gabion_codec::{Code, CodeError};
use gabion_meta::{PoolRecord, PoolSpec};
use gabion_planner::pool::PoolCost;
use gabion_planner::update;
use serde::Serialize;
use utoipa::ToSchema;

/// The cost of a pool.
///
/// # Errors
/// If this release does not know its code.
pub fn cost_of(pool: &PoolRecord) -> Result<PoolCost, CodeError> {
    let code: Code = pool.spec.code.parse()?;
    Ok(PoolCost::of(&code))
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
    /// The share of the disks that data takes, 0 to 1.
    pub usable_share: f64,
    /// Its cost against three replicas.
    pub share_of_three_replicas: f64,
    /// The same if all parity chunks have their initial reserves.
    pub usable_share_with_reserves: f64,
    /// The same against three replicas.
    pub share_of_three_replicas_with_reserves: f64,
    /// Chunks that a small update writes.
    pub chunk_writes_per_update: usize,
    /// When replicated blocks are encoded.
    pub encode_after: Option<String>,
    /// The placement of their replicas.
    pub placement: Option<String>,
}

impl PoolView {
    /// A pool, and its cost.
    pub fn of(pool: &PoolRecord, cost: PoolCost) -> Self {
        let (spec, lifecycle) = (&pool.spec, pool.lifecycle);
        let whole = with_reserves(spec, cost);
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
            usable_share_with_reserves: whole.usable_share,
            share_of_three_replicas_with_reserves: whole.share_of_three_replicas,
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

/// The pool's cost if all stripes are updated and have their initial reserves. Reviews shrink unused
/// ones, stalls enlarge them.
pub fn with_reserves(spec: &PoolSpec, cost: PoolCost) -> PoolCost {
    let reserved_bytes = spec.m as f64 * reserve_bytes(spec).unwrap_or(0) as f64;
    cost.with_reserves(reserved_bytes / (spec.k as f64 * spec.chunk_bytes as f64))
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
