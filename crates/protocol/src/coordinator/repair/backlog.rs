//! Which stripes are to be repaired: what fills the queue. The manager empties it.

use crate::coordinator::Coordinator;
use crate::coordinator::core::{Answer, PAGE, lock};
use crate::message::CoordinatorReply;
use gabion_layout::{NodeId, StripeId, StripeRecord};
use gabion_meta::{KeyValue, Meta, MetaError};
use gabion_planner::repair::Scheme;
use std::sync::Arc;

impl<K: KeyValue + Send + Sync + 'static> Coordinator<K> {
    /// Queues those of the stripes that have chunks to repair.
    pub(in crate::coordinator) async fn add_repairs(
        self: &Arc<Self>,
        stripes: Vec<StripeRecord>,
    ) -> Result<(), MetaError> {
        let this = Arc::clone(self);
        self.core
            .with_meta(move |meta| this.queue_repairs(meta, &stripes))
            .await
    }

    /// Queues all stripes that have a chunk to repair on a node.
    pub(in crate::coordinator) async fn add_repairs_of(
        self: &Arc<Self>,
        node: NodeId,
    ) -> Result<(), MetaError> {
        let this = Arc::clone(self);
        let add = move |meta: &Meta<K>| {
            this.queue_pages(meta, |after| meta.stripes_on(node, after, PAGE))
        };
        self.core.with_meta(add).await
    }

    /// Queues all stripes that have chunks to repair.
    pub(in crate::coordinator) async fn add_all_repairs(self: &Arc<Self>) -> Result<(), MetaError> {
        let this = Arc::clone(self);
        let add = move |meta: &Meta<K>| this.queue_pages(meta, |after| meta.stripes(after, PAGE));
        self.core.with_meta(add).await
    }

    /// Tries stripes again whose repair has failed: something has changed that may help.
    pub(in crate::coordinator) fn retry_repairs(&self) {
        lock(&self.queue).retry_all();
        self.repair_wake_up.wake();
    }

    /// Repairs what failed nodes hold without waiting for their return, and changes the scheme if
    /// asked to.
    pub(in crate::coordinator) async fn repair_now(
        self: &Arc<Self>,
        scheme: Option<String>,
    ) -> Answer {
        if let Some(name) = scheme {
            let scheme: Scheme = name.parse()?;
            let change = move |meta: &Meta<K>| {
                meta.change_repair_settings(|settings| settings.scheme = Some(name.clone()))
            };
            self.core.with_meta(change).await?;
            *lock(&self.scheme) = scheme;
        }
        let failed = lock(&self.roster).failed();
        self.give_nodes_up(failed).await?;
        self.retry_repairs();
        Ok(CoordinatorReply::Done)
    }

    fn queue_pages(
        &self,
        meta: &Meta<K>,
        page_after: impl Fn(Option<StripeId>) -> Result<Vec<StripeRecord>, MetaError>,
    ) -> Result<(), MetaError> {
        let mut after = None;
        loop {
            let page = page_after(after)?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            after = Some(last.id);
            self.queue_repairs(meta, &page)?;
        }
    }

    pub(in crate::coordinator) fn queue_repairs(
        &self,
        meta: &Meta<K>,
        stripes: &[StripeRecord],
    ) -> Result<(), MetaError> {
        let fleet = self.fleet();
        for stripe in stripes
            .iter()
            .filter(|stripe| !fleet.work(stripe).is_empty())
        {
            let left = self.failures_left(meta, stripe.pool, &fleet.lost(stripe))?;
            lock(&self.queue).add(stripe.id, left);
        }
        self.repair_wake_up.wake();
        Ok(())
    }
}
