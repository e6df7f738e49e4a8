//! Redundancy and repair as a user sees them: counted afresh from the records whenever somebody
//! asks, never better than the truth.

use crate::coordinator::Coordinator;
use crate::coordinator::core::{Answer, PAGE, lock};
use crate::coordinator::members::fleet::Fleet;
use crate::message::{ClusterStatus, CoordinatorReply, Liveness, RepairStatus};
use gabion_layout::{NodeId, PoolId};
use gabion_meta::{KeyValue, Meta, MetaError};
use gabion_planner::endurance::failures_left_appending;
use gabion_planner::placement::Space;
use gabion_planner::repair::Scheme;
use gabion_planner::update;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl<K: KeyValue + Send + Sync + 'static> Coordinator<K> {
    /// Counts all stripes by how many more losses they survive.
    pub(super) async fn status(self: &Arc<Self>) -> Answer {
        let this = Arc::clone(self);
        let count = move |meta: &Meta<K>| this.count_stripes(meta);
        let status = self.core.with_meta(count).await?;
        Ok(CoordinatorReply::Status(status))
    }

    fn count_stripes(&self, meta: &Meta<K>) -> Result<ClusterStatus, MetaError> {
        // Looked at first: what is counted after nothing was being worked at is all that has been done.
        let running_count = lock(&self.queue).running_count() as u64;
        let fleet = self.fleet();
        let (spaces, silence_ms) = self.last_heard(&fleet);
        let mut status = ClusterStatus {
            spaces,
            silence_ms,
            joining: lock(&self.sessions).progress(),
            nodes: fleet.nodes().to_vec(),
            arrays: lock(&self.roster).arrays(self.core.ports.now_ms()),
            repair: lock(&self.repaired).clone(),
            grouped_chunk_count: lock(&self.agenda).moved_count,
            planned: lock(&self.planned).clone(),
            lifecycle: lock(&self.converted).clone(),
            ..ClusterStatus::default()
        };
        status.repair.running_count = running_count;
        status.repair.last_error = self.core.last_error();
        status.lifecycle.waiting_count = lock(&self.timetable).waiting_count();
        scheme_name(*lock(&self.scheme)).clone_into(&mut status.repair.scheme);
        let appending = meta.phases()?;
        let pools = meta.pools()?.into_iter();
        let encoded = pools.filter_map(|pool| Some(pool.lifecycle?.encoded));
        let encoded: BTreeSet<PoolId> = encoded.collect();
        let mut after = None;
        loop {
            let page = meta.stripes(after, PAGE)?;
            if page.is_empty() {
                self.tell_speed(&mut status.repair);
                return Ok(status);
            }
            after = page.last().map(|stripe| stripe.id);
            for stripe in &page {
                let facts = self.pool_facts(meta, stripe.pool)?;
                let lifecycle = &mut status.lifecycle;
                lifecycle.replicated_block_count += u64::from(facts.record.lifecycle.is_some());
                lifecycle.encoded_stripe_count += u64::from(encoded.contains(&stripe.pool));
                let lost = fleet.lost(stripe);
                let mut left = self.failures_left(meta, stripe.pool, &lost)?;
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
            }
        }
    }

    /// What nodes that are not failed have last said of their disks, and how long ago.
    fn last_heard(&self, fleet: &Fleet) -> (BTreeMap<NodeId, Space>, BTreeMap<NodeId, u64>) {
        let now_ms = self.core.ports.now_ms();
        let reports = lock(&self.reports);
        let live = fleet.nodes().iter();
        let live = live.filter(|status| status.liveness != Liveness::Failed);
        let live: Vec<NodeId> = live.map(|status| status.node).collect();
        let nodes = live.iter().copied();
        let spaces = nodes.filter_map(|node| Some((node, reports.space(node)?)));
        let nodes = live.iter().copied();
        let silences = nodes.filter_map(|node| Some((node, reports.silence_ms(node, now_ms)?)));
        (spaces.collect(), silences.collect())
    }

    /// How fast repairs are and may be, and how long they will take.
    fn tell_speed(&self, repair: &mut RepairStatus) {
        let now_ms = self.core.ports.now_ms();
        let mut throttle = lock(&self.throttle);
        repair.bytes_per_s = throttle.made().bytes_per_s(now_ms);
        repair.rest_ms = throttle.made().rest_ms(repair.left_bytes, now_ms);
        repair.is_paused = throttle.is_paused();
        repair.limits = throttle.limits();
        repair.p99_target_ms = throttle.p99_target_ms();
        repair.p99_ms = throttle.p99_ms();
        repair.guard_bytes_per_s = throttle.guard_bytes_per_s();
    }

    /// How many failures appended updates of a pool survive before parity follows.
    fn phase_survives(&self, meta: &Meta<K>, pool: PoolId) -> Result<usize, MetaError> {
        let facts = self.pool_facts(meta, pool)?;
        let spec = &facts.record.spec;
        let survives = update::phase_survives(spec.update, spec.append, &facts.code);
        Ok(survives.unwrap_or(usize::MAX))
    }
}

fn scheme_name(scheme: Scheme) -> &'static str {
    let mut names = Scheme::NAMES.iter();
    let name = names.find(|(_, known)| *known == scheme);
    name.expect("every scheme has a name").0
}
