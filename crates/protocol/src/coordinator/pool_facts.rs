//! Facts derived from a pool's record, computed once for all rooms, since pools never change.

use super::core::lock;
use crate::message::Denial;
use gabion_codec::Code;
use gabion_layout::{ChunkIndex, Geometry, PoolId, StripeRecord};
use gabion_meta::{KeyValue, Meta, MetaError, PoolRecord};
use gabion_plan::Keepings;
use gabion_planner::endurance::failures_left;
use gabion_planner::update;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A pool and the facts derived from its record.
#[derive(Debug)]
pub(super) struct PoolFacts {
    pub(super) record: PoolRecord,
    pub(super) code: Code,
}

impl PoolFacts {
    /// The shape of a stripe of the pool whose chunks have this many bytes.
    pub(super) fn geometry(&self, chunk_bytes: u64) -> Result<Geometry, Denial> {
        let (k, m, rows) = (self.code.k(), self.code.m(), self.code.sub_chunks());
        Ok(Geometry::new(k, m, rows, chunk_bytes)?)
    }

    /// The keeping of records for chunks of this many bytes.
    pub(super) fn keepings(&self, chunk_bytes: u64) -> Keepings {
        let spec = &self.record.spec;
        update::keepings(spec.update, spec.reserve, chunk_bytes)
    }
}

/// The pools that were used since the start.
#[derive(Debug, Default)]
pub(super) struct Pools {
    facts: Mutex<BTreeMap<PoolId, Arc<PoolFacts>>>,
    /// Further losses that stripes survive, by the chunks that they have lost.
    endurance: Mutex<BTreeMap<(PoolId, Vec<ChunkIndex>), i32>>,
    /// How often a stripe was found that cannot be decoded any more.
    loss_count: AtomicU64,
}

impl Pools {
    /// A pool with its code. Waits for the disk the first time.
    pub(super) fn facts<K: KeyValue>(
        &self,
        meta: &Meta<K>,
        id: PoolId,
    ) -> Result<Arc<PoolFacts>, MetaError> {
        if let Some(facts) = lock(&self.facts).get(&id) {
            return Ok(Arc::clone(facts));
        }
        let record = meta.pool(id)?;
        let code = record.spec.code.parse();
        let code = code.map_err(|error| MetaError::Pool(format!("{error}")))?;
        let spec = &record.spec;
        let checked = update::check_pool(spec.update, spec.reserve, spec.append);
        checked.map_err(|error| MetaError::Pool(error.to_string()))?;
        let facts = Arc::new(PoolFacts { record, code });
        lock(&self.facts).insert(id, Arc::clone(&facts));
        Ok(facts)
    }

    /// The pool of a pool's encoded blocks, if its blocks are replicated first. Waits for the disk the
    /// first time.
    pub(super) fn encoded_of<K: KeyValue>(
        &self,
        meta: &Meta<K>,
        facts: &PoolFacts,
    ) -> Result<Option<Arc<PoolFacts>>, MetaError> {
        let lifecycle = facts.record.lifecycle;
        let encoded = lifecycle.map(|lifecycle| self.facts(meta, lifecycle.encoded));
        encoded.transpose()
    }

    /// Returns the further chunk losses that a stripe of the pool survives after it has lost these. Waits for the disk
    /// the first time.
    pub(super) fn failures_left<K: KeyValue>(
        &self,
        meta: &Meta<K>,
        pool: PoolId,
        lost: &[ChunkIndex],
    ) -> Result<i32, MetaError> {
        let key = (pool, lost.to_vec());
        if let Some(&known) = lock(&self.endurance).get(&key) {
            return Ok(known);
        }
        let left = failures_left(&self.facts(meta, pool)?.code, lost);
        lock(&self.endurance).insert(key, left);
        Ok(left)
    }

    /// Whether the chunks of a stripe that are not stale determine its data. Those on failed nodes count: the nodes may
    /// return with them. Waits for the disk the first time.
    pub(super) fn is_decodable<K: KeyValue>(
        &self,
        meta: &Meta<K>,
        stripe: &StripeRecord,
    ) -> Result<bool, MetaError> {
        let stale: Vec<ChunkIndex> = stripe.stale.iter().map(|stale| stale.chunk).collect();
        Ok(stale.is_empty() || self.failures_left(meta, stripe.pool, &stale)? >= 0)
    }

    /// Notes that chunks of a stripe were marked as stale, in case it cannot be decoded any more.
    pub(super) fn note_stale<K: KeyValue>(
        &self,
        meta: &Meta<K>,
        stripe: &StripeRecord,
    ) -> Result<(), MetaError> {
        if !self.is_decodable(meta, stripe)? {
            self.loss_count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns how often since the start a stripe was found that cannot be decoded any more.
    pub(super) fn loss_count(&self) -> u64 {
        self.loss_count.load(Ordering::Relaxed)
    }
}
