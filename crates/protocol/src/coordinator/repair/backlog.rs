//! The backlog: the stripes that are to be repaired, most endangered first. A room that finds a lost chunk
//! or a leaving node adds to it; `schedule` empties it.

use crate::coordinator::core::{Core, PAGE, each_page, lock};
use crate::coordinator::members::nodes::Nodes;
use crate::coordinator::pool_facts::Pools;
use crate::wake_up::WakeUp;
use futures::FutureExt;
use gabion_layout::{NodeId, StripeId, StripeRecord};
use gabion_meta::{KeyValue, Meta, MetaError};
use gabion_planner::manager::RepairQueue;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The stripes that are to be repaired, and the wake-up of the task that repairs them.
pub(in crate::coordinator) struct Backlog<K> {
    core: Arc<Core<K>>,
    pools: Arc<Pools>,
    nodes: Arc<Nodes<K>>,
    waiting: Mutex<Waiting>,
    wake_up: WakeUp,
}

/// The queue, and since when each of its stripes is in it.
#[derive(Default)]
struct Waiting {
    queue: RepairQueue,
    /// Invariant: the stripes of the queue.
    since_ms: BTreeMap<StripeId, u64>,
}

impl<K: KeyValue + Send + Sync + 'static> Backlog<K> {
    /// An empty backlog.
    pub(in crate::coordinator) fn new(
        core: &Arc<Core<K>>,
        pools: &Arc<Pools>,
        nodes: &Arc<Nodes<K>>,
    ) -> Self {
        Self {
            core: Arc::clone(core),
            pools: Arc::clone(pools),
            nodes: Arc::clone(nodes),
            waiting: Mutex::default(),
            wake_up: WakeUp::default(),
        }
    }

    /// Queues the stripes that have chunks to repair.
    pub(in crate::coordinator) async fn add(
        self: &Arc<Self>,
        stripes: Vec<StripeRecord>,
    ) -> Result<(), MetaError> {
        let this = Arc::clone(self);
        self.core
            .with_meta(move |meta| this.queue_page(meta, &stripes))
            .await
    }

    /// Queues all stripes that have a chunk to repair on a node.
    pub(in crate::coordinator) async fn add_node(
        self: &Arc<Self>,
        node: NodeId,
    ) -> Result<(), MetaError> {
        let this = Arc::clone(self);
        let add = move |meta: &Meta<K>| {
            this.queue_pages(meta, |after| meta.stripes_on(node, after, PAGE))
        };
        self.core.with_meta(add).await
    }

    /// The same in the background: it reads all stripes on the node.
    pub(in crate::coordinator) fn add_node_later(self: &Arc<Self>, node: NodeId) {
        let this = Arc::clone(self);
        let add = async move {
            if let Err(error) = this.add_node(node).await {
                this.core.note_error(error.to_string());
            }
        };
        self.core.ports.spawn(add.boxed());
    }

    /// Queues a stripe again that still has chunks to repair.
    pub(super) async fn add_again(self: &Arc<Self>, stripe: StripeId) -> Result<(), MetaError> {
        let this = Arc::clone(self);
        let add = move |meta: &Meta<K>| match meta.stripe(stripe) {
            Ok(stripe) => this.queue_page(meta, &[stripe]),
            Err(MetaError::UnknownStripe(_)) => Ok(()),
            Err(error) => Err(error),
        };
        self.core.with_meta(add).await
    }

    /// Queues all stripes that have chunks to repair.
    pub(super) async fn add_all(self: &Arc<Self>) -> Result<(), MetaError> {
        let this = Arc::clone(self);
        let add = move |meta: &Meta<K>| this.queue_pages(meta, |after| meta.stripes(after, PAGE));
        self.core.with_meta(add).await
    }

    /// Retries stripes whose repair has failed: a change may help.
    pub(in crate::coordinator) fn retry_all(&self) {
        lock(&self.waiting).queue.retry_all();
        self.wake();
    }

    /// Whether nothing is queued, waits or runs.
    pub(in crate::coordinator) fn is_idle(&self) -> bool {
        lock(&self.waiting).queue.is_idle()
    }

    /// Whether a stripe is being repaired, or could be.
    pub(in crate::coordinator) fn is_busy(&self) -> bool {
        let queue = &lock(&self.waiting).queue;
        queue.running_count() > 0 || queue.ready().next().is_some()
    }

    /// Whether a stripe waits for its repair, or is being repaired.
    pub(super) fn holds(&self, stripe: StripeId) -> bool {
        lock(&self.waiting).queue.holds(stripe)
    }

    /// Returns the number of stripes that are being repaired.
    pub(in crate::coordinator) fn running_count(&self) -> usize {
        lock(&self.waiting).queue.running_count()
    }

    /// Returns the time that the stripe that has been here longest has waited for the end of its repair.
    pub(in crate::coordinator) fn longest_wait_ms(&self) -> Option<u64> {
        let oldest_ms = lock(&self.waiting).since_ms.values().min().copied();
        oldest_ms.map(|since_ms| self.core.ports.now_ms().saturating_sub(since_ms))
    }

    /// The most endangered stripes that may be repaired now; none while `parallel` repairs run.
    pub(super) fn window(&self, parallel: usize, limit: usize) -> Vec<StripeId> {
        let queue = &lock(&self.waiting).queue;
        if queue.running_count() >= parallel {
            return Vec::new();
        }
        queue.ready().take(limit).collect()
    }

    /// Removes a stripe to repair it. Returns whether it was queued.
    pub(super) fn take(&self, stripe: StripeId) -> bool {
        lock(&self.waiting).queue.take(stripe)
    }

    /// Notes that a repair that was taken has succeeded, and calls `rest` if it was the last one.
    pub(super) fn succeeded(&self, stripe: StripeId, rest: impl FnOnce()) {
        let mut waiting = lock(&self.waiting);
        waiting.queue.succeeded(stripe);
        if !waiting.queue.holds(stripe) {
            waiting.since_ms.remove(&stripe);
        }
        if waiting.queue.is_idle() {
            rest();
        }
    }

    /// Notes that a repair has failed; returns how often. The stripe waits until it is retried.
    pub(super) fn failed(&self, stripe: StripeId) -> u32 {
        lock(&self.waiting).queue.failed(stripe)
    }

    /// Retries a stripe whose repair has failed.
    pub(super) fn retry(&self, stripe: StripeId) {
        lock(&self.waiting).queue.retry(stripe);
        self.wake();
    }

    /// Wakes the schedule: a repair has ended, or the limits have changed.
    pub(super) fn wake(&self) {
        self.wake_up.wake();
    }

    /// Waits for the next wake-up.
    pub(super) async fn woken(&self) {
        self.wake_up.woken().await;
    }

    fn queue_pages(
        &self,
        meta: &Meta<K>,
        page_after: impl Fn(Option<StripeId>) -> Result<Vec<StripeRecord>, MetaError>,
    ) -> Result<(), MetaError> {
        each_page(
            |after: Option<&StripeId>| page_after(after.copied()),
            |stripe| stripe.id,
            |stripes| self.queue_page(meta, stripes),
        )
    }

    fn queue_page(&self, meta: &Meta<K>, stripes: &[StripeRecord]) -> Result<(), MetaError> {
        let fleet = self.nodes.fleet();
        for stripe in stripes
            .iter()
            .filter(|stripe| !fleet.work(stripe).is_empty())
        {
            let lost = fleet.lost(stripe);
            let left = self.pools.failures_left(meta, stripe.pool, &lost)?;
            let now_ms = self.core.ports.now_ms();
            let mut waiting = lock(&self.waiting);
            waiting.since_ms.entry(stripe.id).or_insert(now_ms);
            waiting.queue.add(stripe.id, left);
        }
        self.wake();
        Ok(())
    }
}
