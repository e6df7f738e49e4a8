//! Redundancy and repair as users see them: counted from the records for each request, so the report is
//! never better than the real state.

use crate::coordinator::Coordinator;
use crate::coordinator::core::{Answer, each_stripe};
use crate::message::ClusterStatus;
use gabion_layout::PoolId;
use gabion_meta::{KeyValue, Meta, MetaError};
use gabion_planner::endurance::failures_left_appending;
use gabion_planner::update;
use std::collections::BTreeSet;
use std::sync::Arc;

impl<K: KeyValue + Send + Sync + 'static> Coordinator<K> {
    /// Counts all stripes by how many more losses they survive.
    pub(super) async fn status(self: &Arc<Self>) -> Answer<Box<ClusterStatus>> {
        let this = Arc::clone(self);
        let count = move |meta: &Meta<K>| this.count_stripes(meta);
        Ok(Box::new(self.shared.core.scan_meta(count).await?))
    }

    pub(super) fn count_stripes(&self, meta: &Meta<K>) -> Result<ClusterStatus, MetaError> {
        // Read first: if no work is under way at this point, the counts below include all finished work.
        let running_count = self.shared.backlog.running_count() as u64;
        let fleet = self.shared.nodes.fleet();
        let (spaces, silence_ms) = self.shared.nodes.last_heard(&fleet);
        let mut status = ClusterStatus {
            spaces,
            served: self.shared.nodes.served(&fleet),
            silence_ms,
            joining: self.shared.nodes.joining(),
            nodes: fleet.nodes().to_vec(),
            arrays: self.shared.nodes.arrays(),
            damaged_chunk_counts: self.repair.damaged_chunk_counts(),
            eviction_counts: self.shared.nodes.eviction_counts(),
            repair: self.repair.counts(),
            grouped_chunk_count: self.grouping.moved_count(),
            planned: self.repair.planned(),
            lifecycle: self.lifecycles.status(),
            ..ClusterStatus::default()
        };
        status.repair.running_count = running_count;
        status.repair.last_error = self.shared.core.last_error();
        let appending = meta.phases()?;
        let pools = meta.pools()?.into_iter();
        let encoded = pools.filter_map(|pool| Some(pool.lifecycle?.encoded));
        let encoded: BTreeSet<PoolId> = encoded.collect();
        each_stripe(meta, |stripe| {
            let facts = self.shared.pools.facts(meta, stripe.pool)?;
            let lifecycle = &mut status.lifecycle;
            lifecycle.replicated_block_count += u64::from(facts.record.lifecycle.is_some());
            lifecycle.encoded_stripe_count += u64::from(encoded.contains(&stripe.pool));
            let lost = fleet.lost(stripe);
            let mut left = self.shared.pools.failures_left(meta, stripe.pool, &lost)?;
            if appending.binary_search(&stripe.id).is_ok() {
                let copies = self.phase_survives(meta, stripe.pool)?;
                left = failures_left_appending(left, lost.len(), copies);
                status.appending_stripe_count += 1;
            }
            *status.stripes_by_failures_left.entry(left).or_default() += 1;
            status.lost_chunk_count += lost.len() as u64;
            let unreadable_count = fleet.unreadable(stripe).len();
            status.unreachable_chunk_count += (unreadable_count - lost.len()) as u64;
            if !lost.is_empty() {
                *status.at_risk.entry(left).or_default() += 1;
            }
            let (due, moving) = (fleet.due(stripe).len(), fleet.to_move(stripe).len());
            status.repair.queued_chunk_count += due as u64;
            status.repair.moving_chunk_count += moving as u64;
            status.repair.left_bytes += (due + moving) as u64 * stripe.chunk_bytes;
            Ok(())
        })?;
        self.repair.throttle().tell_speed(&mut status.repair);
        Ok(status)
    }

    /// Returns the failures that appended updates of a pool survive before parity follows.
    fn phase_survives(&self, meta: &Meta<K>, pool: PoolId) -> Result<usize, MetaError> {
        let facts = self.shared.pools.facts(meta, pool)?;
        let spec = &facts.record.spec;
        let survives = update::phase_survives(spec.update, spec.append, &facts.code);
        Ok(survives.unwrap_or(usize::MAX))
    }
}
