//! Which stripes are repaired when: what fills the queue, and the task that empties it.

use super::survey::Setback;
use super::{Answer, Coordinator, PAGE, lock};
use crate::message::CoordinatorReply;
use futures::stream::{FuturesUnordered, StreamExt};
use futures::{FutureExt, select_biased};
use gabion_layout::{NodeId, StripeId, StripeRecord};
use gabion_meta::{KeyValue, Meta, MetaError};
use gabion_planner::repair::Scheme;
use std::sync::Arc;

/// How often the wait after failed repairs of a stripe doubles: the longest is 64 times the first.
const DOUBLINGS_MAX: u32 = 6;

impl<K: KeyValue + Send + Sync + 'static> Coordinator<K> {
    /// Queues those of the stripes that have chunks to repair.
    pub(super) async fn add_repairs(
        self: &Arc<Self>,
        stripes: Vec<StripeRecord>,
    ) -> Result<(), MetaError> {
        let this = Arc::clone(self);
        self.with_meta(move |meta| this.queue_repairs(meta, &stripes))
            .await
    }

    /// Queues all stripes that have a chunk to repair on a node.
    pub(super) async fn add_repairs_of(self: &Arc<Self>, node: NodeId) -> Result<(), MetaError> {
        let this = Arc::clone(self);
        let add = move |meta: &Meta<K>| {
            this.queue_pages(meta, |after| meta.stripes_on(node, after, PAGE))
        };
        self.with_meta(add).await
    }

    /// Queues all stripes that have chunks to repair.
    async fn add_all_repairs(self: &Arc<Self>) -> Result<(), MetaError> {
        let this = Arc::clone(self);
        let add = move |meta: &Meta<K>| this.queue_pages(meta, |after| meta.stripes(after, PAGE));
        self.with_meta(add).await
    }

    /// Tries stripes again whose repair has failed: something has changed that may help.
    pub(super) fn retry_repairs(&self) {
        lock(&self.queue).retry_all();
        self.repair_bell.ring();
    }

    /// Repairs what failed nodes hold without waiting for their return, and changes the scheme if
    /// asked to.
    pub(super) async fn repair_now(self: &Arc<Self>, scheme: Option<String>) -> Answer {
        if let Some(name) = scheme {
            let scheme: Scheme = name.parse()?;
            *lock(&self.scheme) = scheme;
        }
        let failed = lock(&self.roster).hurry();
        for node in failed {
            self.add_repairs_of(node).await?;
        }
        self.retry_repairs();
        Ok(CoordinatorReply::Done)
    }

    /// Repairs what is in the queue, until the metadata store fails.
    pub(super) async fn repair_forever(self: Arc<Self>) {
        if let Err(error) = self.add_all_repairs().await {
            self.note_error(error.to_string());
        }
        let mut running = FuturesUnordered::new();
        while !self.is_broken() {
            while running.len() < self.options.repair_parallel.max(1) {
                let Some(stripe) = lock(&self.queue).take() else {
                    break;
                };
                let repair = Arc::clone(&self).repair_stripe(stripe);
                running.push(repair.map(move |ended| (stripe, ended)));
            }
            select_biased! {
                (stripe, ended) = running.select_next_some() => self.note_end(stripe, ended),
                () = self.repair_bell.heard().fuse() => {}
            }
        }
    }

    fn note_end(self: &Arc<Self>, stripe: StripeId, ended: Result<(), Setback>) {
        let failure_count = {
            let mut queue = lock(&self.queue);
            match &ended {
                Ok(()) => return queue.succeeded(stripe),
                Err(_) => queue.failed(stripe),
            }
        };
        if let Err(Setback(sentence)) = ended {
            self.note_error(format!("{stripe}: {sentence}"));
        }
        let wait_ms = self.options.retry_ms << (failure_count - 1).min(DOUBLINGS_MAX);
        let this = Arc::clone(self);
        let retry = async move {
            this.ports.sleep_ms(wait_ms).await;
            lock(&this.queue).retry(stripe);
            this.repair_bell.ring();
        };
        self.ports.spawn(retry.boxed());
    }

    /// Keeps what went wrong where nobody waits for an answer, for whoever asks for the status.
    pub(super) fn note_error(&self, sentence: String) {
        lock(&self.repaired).last_error = Some(sentence);
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

    fn queue_repairs(&self, meta: &Meta<K>, stripes: &[StripeRecord]) -> Result<(), MetaError> {
        let fleet = self.fleet();
        for stripe in stripes
            .iter()
            .filter(|stripe| !fleet.due(stripe).is_empty())
        {
            let left = self.failures_left(meta, stripe.pool, &fleet.lost(stripe))?;
            lock(&self.queue).add(stripe.id, left);
        }
        self.repair_bell.ring();
        Ok(())
    }
}
