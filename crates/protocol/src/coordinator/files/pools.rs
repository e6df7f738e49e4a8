//! Pools: the path from a user's request to a pool that can keep its promise, and the facts derived from a pool.

use super::Files;
use crate::coordinator::core::{Answer, Rejection};
use crate::message::{Cause, Denial, LifecycleRequest, Liveness, PoolRequest, Refusal, ask};
use crate::ports::Ask as _;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use gabion_codec::Code;
use gabion_layout::{
    AppendSpec, PoolId, ReserveSpec, StripeId, StripeRecord, Topology, UpdateScheme,
};
use gabion_meta::{Departure, KeyValue, Meta, MetaError, PoolRecord, PoolSpec};
use gabion_planner::{pool, update};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Time limit of a primary's commit, including a settlement before it.
const COMMIT_DEADLINE_MS: u64 = 20_000;
/// Stripes of a pool that commit concurrently: most have primaries of their own, and share links.
const COMMIT_COUNT: usize = 8;
/// After this time a request to commit a pool is answered with the number of stripes left, so that the user
/// sees progress.
const COMMIT_ROUND_MS: u64 = 4_000;
/// Hints to another primary that a request follows.
const REDIRECT_COUNT_MAX: u32 = 3;
/// Fewest bytes of a pool's chunks.
const CHUNK_BYTES_MIN: u64 = 4 << 10;
/// Most bytes of a pool's chunks.
const CHUNK_BYTES_MAX: u64 = 1 << 30;

/// The outcome of a stripe in a round of commits.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Committed {
    /// The stripe has nothing to commit.
    Done,
    /// The round ended first.
    NotYet,
    /// The stripe could not commit: one plain sentence.
    Refused(String),
}

impl<K: KeyValue + Send + Sync + 'static> Files<K> {
    /// All pools.
    pub(in crate::coordinator) async fn pools(&self) -> Answer<Vec<PoolRecord>> {
        Ok(self.core.with_meta(Meta::pools).await?)
    }

    /// Makes a pool on the nodes that have not failed, with a code chosen for the promise when
    /// none is given.
    pub(in crate::coordinator) async fn create_pool(
        &self,
        request: PoolRequest,
    ) -> Answer<PoolRecord> {
        let PoolRequest {
            survive,
            chunk_bytes,
            update: name,
            ..
        } = request;
        let scheme = update::descriptor(name);
        let topology = self.nodes.fleet().topology(|status| {
            status.liveness != Liveness::Failed && status.departure == Departure::None
        });
        let code: Code = match request.code {
            Some(text) => text.parse()?,
            None => pool::choose_code(survive, &topology)?,
        };
        let chunks_per_rack = pool::fit(&code, survive, &topology)?;
        check_chunk_bytes(&code, chunk_bytes)?;
        let spec = PoolSpec {
            name: request.name,
            code: code.to_string(),
            k: code.k(),
            m: code.m(),
            sub_chunks: code.sub_chunks(),
            chunk_bytes,
            survive,
            chunks_per_rack,
            update: name,
            reserve: request.reserve.or_else(|| {
                let usual = || ReserveSpec::usual(chunk_bytes);
                scheme.reserves_space().then(usual)
            }),
            append: request
                .append
                .or_else(|| scheme.appends().then(AppendSpec::default)),
            inline_bytes: request.inline_bytes,
        };
        update::check_pool(spec.update, spec.reserve, spec.append)?;
        let create: Create<K> = match request.lifecycle {
            None => Box::new(move |meta| meta.create_pool(&spec)),
            Some(lifecycle) => {
                let blocks = block_spec(&spec, lifecycle.replica_count, &topology)?;
                let encoded = PoolSpec {
                    name: format!("{}-encoded", spec.name),
                    ..spec
                };
                let LifecycleRequest {
                    after, placement, ..
                } = lifecycle;
                Box::new(move |meta| {
                    meta.create_pool_with_lifecycle(&blocks, &encoded, after, placement)
                })
            }
        };
        Ok(self.core.with_meta(create).await?)
    }

    /// Changes the quota of a pool.
    pub(in crate::coordinator) async fn set_quota(&self, asked: ask::SetQuota) -> Answer<()> {
        let set = move |meta: &Meta<K>| meta.set_quota(&asked.pool, asked.change);
        Ok(self.core.with_meta(set).await?)
    }

    /// Commits the stripes of a pool at their primaries, for at most one round. Returns the number of stripes left.
    pub(in crate::coordinator) async fn commit_pool(self: &Arc<Self>, name: String) -> Answer<u64> {
        let find = move |meta: &Meta<K>| {
            let pool = meta.pool_named(&name)?.id;
            let mut stripes = Vec::new();
            for id in meta.phases()? {
                match meta.stripe(id) {
                    Ok(stripe) if stripe.pool == pool => stripes.push(stripe),
                    Ok(_) | Err(MetaError::UnknownStripe(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(stripes)
        };
        let stripes = self.core.with_meta(find).await?;
        let until_ms = self.core.ports.now_ms() + COMMIT_ROUND_MS;
        let commits = stripes
            .into_iter()
            .map(|stripe| self.commit_until(stripe, until_ms));
        let commits = stream::iter(commits).buffer_unordered(COMMIT_COUNT);
        let outcomes: Vec<Committed> = commits.try_collect().await?;
        let left = |outcome: &&Committed| **outcome == Committed::NotYet;
        let left_count = outcomes.iter().filter(left).count() as u64;
        let refused = outcomes.into_iter().find_map(|outcome| match outcome {
            Committed::Refused(why) => Some(why),
            Committed::Done | Committed::NotYet => None,
        });
        refused.map_or(Ok(left_count), |why| Err(Rejection::busy(why)))
    }

    /// Commits a stripe unless the round has ended.
    async fn commit_until(&self, stripe: StripeRecord, until_ms: u64) -> Result<Committed, Denial> {
        if self.core.ports.now_ms() >= until_ms {
            return Ok(Committed::NotYet);
        }
        let id = stripe.id;
        let Err(refusal) = self.commit_stripe(&stripe).await else {
            return Ok(Committed::Done);
        };
        Ok(
            if self.core.with_meta(move |meta| meta.appends(id)).await? {
                Committed::Refused(format!("{id} is not committed: {refusal}"))
            } else {
                Committed::Done
            },
        )
    }

    /// Commits a stripe at its primary. A node that is not the primary answers with a hint.
    async fn commit_stripe(&self, stripe: &StripeRecord) -> Result<(), Refusal> {
        let fleet = self.nodes.fleet();
        let mut asked = stripe.nodes.iter().copied().find(|&node| fleet.is_up(node));
        for _ in 0..REDIRECT_COUNT_MAX {
            let Some(node) = asked.take() else { break };
            let commit = ask::Commit { stripe: stripe.id };
            let ports = &self.core.ports;
            let committed = ports.ask_node(node, commit, COMMIT_DEADLINE_MS).await;
            match committed.map_err(Refusal::from) {
                Err(Refusal::NotPrimary(other)) => asked = Some(other),
                done => return done,
            }
        }
        Err(Refusal::Unavailable(format!("every node of {}", stripe.id)))
    }

    /// The pools and reserves of those stripes that exist and have any.
    pub(in crate::coordinator) async fn reserves(
        &self,
        stripes: Vec<StripeId>,
    ) -> Answer<Vec<(StripeId, PoolId, ReserveSpec)>> {
        let found = self.core.with_meta(move |meta| {
            let mut specs = BTreeMap::new();
            let mut found = Vec::new();
            for stripe in stripes {
                let pool = match meta.stripe(stripe) {
                    Ok(record) => record.pool,
                    Err(MetaError::UnknownStripe(_)) => continue,
                    Err(error) => return Err(error),
                };
                let spec = match specs.get(&pool) {
                    Some(spec) => *spec,
                    None => *specs.entry(pool).or_insert(meta.pool(pool)?.spec.reserve),
                };
                found.extend(spec.map(|spec| (stripe, pool, spec)));
            }
            Ok(found)
        });
        Ok(found.await?)
    }
}

/// Makes a pool's record.
type Create<K> = Box<dyn FnOnce(&Meta<K>) -> Result<PoolRecord, MetaError> + Send>;

/// The pool of a stripe's blocks while they are replicated. It keeps the same promise.
fn block_spec(
    encoded: &PoolSpec,
    replica_count: usize,
    topology: &Topology,
) -> Result<PoolSpec, Denial> {
    let code: Code = format!("rep({replica_count})").parse()?;
    let chunks_per_rack = pool::fit(&code, encoded.survive, topology)?;
    if replica_count > 2 && chunks_per_rack < 2 {
        return Err(Denial::new(
            Cause::Invalid,
            format!(
                "two of a block's {replica_count} replicas share a rack, so {} needs more replicas; use more replicas, \
                or a smaller failure to survive",
                encoded.survive
            ),
        ));
    }
    Ok(PoolSpec {
        code: code.to_string(),
        k: code.k(),
        m: code.m(),
        sub_chunks: code.sub_chunks(),
        chunks_per_rack,
        // Replicas are written in place: they have no parity, so they need no log.
        update: UpdateScheme::Pl,
        reserve: None,
        append: None,
        ..encoded.clone()
    })
}

fn check_chunk_bytes(code: &Code, chunk_bytes: u64) -> Result<(), Denial> {
    if !(CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&chunk_bytes) {
        return Err(Denial::new(
            Cause::Invalid,
            format!(
                "a chunk has {CHUNK_BYTES_MIN} to {CHUNK_BYTES_MAX} bytes (4 KiB to 1 GiB), not {chunk_bytes}; choose \
                a size in this range"
            ),
        ));
    }
    let rows = code.sub_chunks() as u64;
    if !chunk_bytes.is_multiple_of(rows) {
        return Err(Denial::new(
            Cause::Invalid,
            format!(
                "{code} cuts each chunk into {rows} equal rows, which {chunk_bytes} bytes do not \
             allow; use {} bytes",
                chunk_bytes.next_multiple_of(rows)
            ),
        ));
    }
    Ok(())
}

/// The pool with a name, or without one the only pool, if there is exactly one. Pools that hold the stripes of another
/// pool's blocks do not count.
pub(super) fn pool_of<K: KeyValue>(
    meta: &Meta<K>,
    name: Option<&str>,
) -> Result<Option<PoolId>, MetaError> {
    if let Some(name) = name {
        return Ok(Some(meta.pool_named(name)?.id));
    }
    let pools = meta.pools()?;
    let is_another = |pool: &&PoolRecord| {
        let lifecycles = pools.iter().filter_map(|other| other.lifecycle);
        !lifecycles
            .map(|lifecycle| lifecycle.encoded)
            .any(|encoded| encoded == pool.id)
    };
    let mut own = pools.iter().filter(is_another);
    let only = own.next().filter(|_| own.next().is_none());
    Ok(only.map(|pool| pool.id))
}

/// The refusal of a request without a pool's name, if there is not exactly one.
pub(super) fn no_pool<K: KeyValue>(meta: &Meta<K>) -> Result<Denial, MetaError> {
    let pools = meta.pools()?;
    let names: Vec<&str> = pools.iter().map(|pool| &*pool.spec.name).collect();
    let sentence = if names.is_empty() {
        "there is no pool; create the first one with 'gabion pool create'".to_owned()
    } else {
        let (count, names) = (names.len(), names.join(", "));
        format!("there are {count} pools ({names}); choose one with --pool")
    };
    Ok(Denial::new(Cause::Invalid, sentence))
}
