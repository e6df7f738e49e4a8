//! The space of the cluster: files and chunks from the metadata, disks and reserves from the nodes' last
//! heartbeats.

use crate::coordinator::Coordinator;
use crate::coordinator::core::{Answer, each_file, each_stripe};
use crate::message::{ClusterUsage, CoordinatorReply, PoolUsage};
use gabion_layout::PoolId;
use gabion_meta::{KeyValue, Meta, MetaError};
use std::collections::BTreeMap;
use std::sync::Arc;

impl<K: KeyValue + Send + Sync + 'static> Coordinator<K> {
    /// Counts the space of files, chunks and reserves by pool, and of nodes.
    pub(super) async fn usage(self: &Arc<Self>) -> Answer {
        let this = Arc::clone(self);
        let count = move |meta: &Meta<K>| this.count_usage(meta);
        let usage = self.shared.core.scan_meta(count).await?;
        Ok(CoordinatorReply::Usage(usage))
    }

    pub(super) fn count_usage(&self, meta: &Meta<K>) -> Result<ClusterUsage, MetaError> {
        let fleet = self.shared.nodes.fleet();
        let mut usage = ClusterUsage {
            nodes: self.shared.nodes.usages(&fleet),
            spaces: self.shared.nodes.last_heard(&fleet).0,
            directories: meta.directory_quotas()?,
            ..ClusterUsage::default()
        };
        let pools = meta.pools()?;
        let encoded = pools
            .iter()
            .filter_map(|pool| Some((pool.lifecycle?.encoded, pool.id)));
        let users: BTreeMap<PoolId, PoolId> = encoded.collect();
        let user = |pool: PoolId| users.get(&pool).copied().unwrap_or(pool);
        for pool in pools.iter().filter(|pool| !users.contains_key(&pool.id)) {
            let (quota, taken) = meta.quota(pool.id)?;
            let known = PoolUsage {
                name: pool.spec.name.clone(),
                quota,
                used: taken,
                ..PoolUsage::default()
            };
            usage.pools.insert(pool.id, known);
        }
        each_file(meta, |file| {
            let known = usage.pools.entry(user(file.pool)).or_default();
            known.file_count += 1;
            known.logical_bytes += file.size_bytes;
            known.inline_bytes += file.inline.map_or(0, |inline| inline.length_bytes);
            Ok(())
        })?;
        each_stripe(meta, |stripe| {
            let known = usage.pools.entry(user(stripe.pool)).or_default();
            known.raw_bytes += stripe.nodes.len() as u64 * stripe.chunk_bytes;
            Ok(())
        })?;
        let reserved = usage.nodes.values().flat_map(|node| &node.reserved_bytes);
        for (pool, bytes) in reserved {
            usage.pools.entry(user(*pool)).or_default().reserved_bytes += bytes;
        }
        Ok(usage)
    }
}
