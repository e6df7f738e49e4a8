//! The space of the cluster: files and chunks from the metadata, disks and reserves from the nodes' last
//! heartbeats.
//!
//! The count of files and stripes may be an earlier one (`counts.rs`). Disks, reserves and quotas are as of now in each
//! answer.

use crate::coordinator::Coordinator;
use crate::coordinator::core::{Answer, each_file, each_stripe};
use crate::message::{ClusterSpace, ClusterUsage, NodeUsage, PoolSpace, PoolUsage, raw_bytes};
use gabion_layout::{NodeId, PoolId};
use gabion_meta::{KeyValue, Meta, MetaError, PoolRecord};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The pools that users name, and the pool of each pool that holds the stripes of another one's blocks.
struct Users(BTreeMap<PoolId, PoolId>);

impl Users {
    fn new(pools: &[PoolRecord]) -> Self {
        let encoded = pools
            .iter()
            .filter_map(|pool| Some((pool.lifecycle?.encoded, pool.id)));
        Self(encoded.collect())
    }

    /// The pool to which what is in this one belongs.
    fn of(&self, pool: PoolId) -> PoolId {
        self.0.get(&pool).copied().unwrap_or(pool)
    }
}

impl<K: KeyValue + Send + Sync + 'static> Coordinator<K> {
    /// The space of files, chunks and reserves by pool, and of nodes. The counts of files and chunks may have begun
    /// this time before the request; without one, they begin after it.
    pub(super) async fn usage(self: &Arc<Self>, age_ms: Option<u64>) -> Answer<ClusterUsage> {
        let core = &self.shared.core;
        let (now_ms, count) = (|| core.ports.now_ms(), || core.scan_meta(count_pools));
        let pools = self.counts.last_or(age_ms, now_ms, count).await?;
        let this = Arc::clone(self);
        let add = move |meta: &Meta<K>| this.with_present(meta, pools);
        Ok(core.scan_meta(add).await?)
    }

    /// The same of a count that is made now. Waits for the disk.
    pub(super) fn count_usage(&self, meta: &Meta<K>) -> Result<ClusterUsage, MetaError> {
        self.with_present(meta, count_pools(meta)?)
    }

    /// The space of the cluster with these counts, and all else as of now.
    fn with_present(
        &self,
        meta: &Meta<K>,
        mut counted: BTreeMap<PoolId, PoolUsage>,
    ) -> Result<ClusterUsage, MetaError> {
        let fleet = self.shared.nodes.fleet();
        let nodes = self.shared.nodes.usages(&fleet);
        let pools = pool_spaces(meta, &nodes)?;
        let mut usage = ClusterUsage {
            nodes,
            spaces: self.shared.nodes.spaces(&fleet),
            directories: meta.directory_quotas()?,
            open_file_count: self.shared.core.sessions.open_count() as u64,
            ..ClusterUsage::default()
        };
        for (id, pool) in pools {
            let counted = counted.remove(&id).unwrap_or_default();
            let known = PoolUsage {
                name: meta.pool(id)?.spec.name,
                quota: pool.quota,
                used: pool.used,
                reserved_bytes: pool.reserved_bytes,
                ..counted
            };
            usage.pools.insert(id, known);
        }
        Ok(usage)
    }

    /// The space for new chunks, and the quotas.
    pub(super) async fn space(self: &Arc<Self>) -> Answer<ClusterSpace> {
        let this = Arc::clone(self);
        let find = move |meta: &Meta<K>| {
            let fleet = this.shared.nodes.fleet();
            let mut spaces = this.shared.nodes.spaces(&fleet);
            spaces.retain(|&node, _| !fleet.is_leaving(node));
            let pools = pool_spaces(meta, &this.shared.nodes.usages(&fleet))?;
            Ok(ClusterSpace { pools, spaces })
        };
        Ok(self.shared.core.with_meta(find).await?)
    }
}

/// The quota of each pool that users name, what counts against it, and its reserves on these nodes.
fn pool_spaces<K: KeyValue>(
    meta: &Meta<K>,
    nodes: &BTreeMap<NodeId, NodeUsage>,
) -> Result<BTreeMap<PoolId, PoolSpace>, MetaError> {
    let records = meta.pools()?;
    let users = Users::new(&records);
    let mut pools = BTreeMap::new();
    for pool in records.iter().filter(|pool| users.of(pool.id) == pool.id) {
        let (quota, used) = meta.quota(pool.id)?;
        let known = PoolSpace {
            used,
            quota,
            reserved_bytes: 0,
        };
        pools.insert(pool.id, known);
    }
    for node in nodes.values() {
        for (&pool, bytes) in &node.reserved_bytes {
            if let Some(known) = pools.get_mut(&users.of(pool)) {
                known.reserved_bytes = known.reserved_bytes.saturating_add(*bytes);
            }
        }
    }
    Ok(pools)
}

/// Counts files and chunks of all pools. Waits for the disk.
fn count_pools<K: KeyValue>(meta: &Meta<K>) -> Result<BTreeMap<PoolId, PoolUsage>, MetaError> {
    let users = Users::new(&meta.pools()?);
    let mut pools: BTreeMap<PoolId, PoolUsage> = BTreeMap::new();
    each_file(meta, |file| {
        let known = pools.entry(users.of(file.pool)).or_default();
        known.file_count += 1;
        known.logical_bytes = known.logical_bytes.saturating_add(file.size_bytes);
        if file.link_count == 0 {
            known.orphan_count += 1;
            known.orphan_bytes = known.orphan_bytes.saturating_add(file.size_bytes);
        }
        known.inline_bytes += file.inline.map_or(0, |inline| inline.length_bytes);
        Ok(())
    })?;
    each_stripe(meta, |stripe| {
        let known = pools.entry(users.of(stripe.pool)).or_default();
        known.raw_bytes = known.raw_bytes.saturating_add(raw_bytes(stripe));
        Ok(())
    })?;
    Ok(pools)
}
