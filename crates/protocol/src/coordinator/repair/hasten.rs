//! Hastened repairs: a stripe of which too few chunks are left takes no updates, because the loss of another one could
//! lose data. When a client has an update for it, its chunks on failed nodes are rebuilt at once: waiting for the
//! nodes' return would make the client wait for the grace period. Other stripes of these nodes wait.

use super::Repair;
use super::survey::{Survey, TaskError};
use crate::coordinator::core::Answer;
use crate::message::Denial;
use gabion_layout::StripeId;
use gabion_meta::KeyValue;
use std::sync::Arc;

impl<K: KeyValue + Send + Sync + 'static> Repair<K> {
    /// Repairs a stripe without waiting for its failed nodes, if it takes no updates without their chunks.
    pub(in crate::coordinator) async fn hasten(self: &Arc<Self>, id: StripeId) -> Answer<bool> {
        let survey = self.survey(id).await;
        let survey = survey.map_err(|TaskError(sentence)| Denial::from(sentence))?;
        let Some(survey) = survey else {
            return Ok(false);
        };
        let lost = survey.fleet.lost(&survey.stripe);
        let pool = survey.stripe.pool;
        let pools = Arc::clone(&self.pools);
        let left = self
            .core
            .with_meta(move |meta| pools.failures_left(meta, pool, &lost));
        if left.await? >= 1 {
            // The client's layout was old.
            return Ok(true);
        }
        let is_possible =
            !self.throttle.is_paused() && has_places(&survey) && self.nodes.hasten(id);
        if is_possible {
            self.backlog.add(vec![survey.stripe]).await?;
            if !self.backlog.holds(id) {
                // Its nodes have returned.
                self.nodes.note_repaired(id);
            }
        }
        Ok(is_possible)
    }
}

/// Whether a lost chunk has a node to go to, and helpers enough.
fn has_places(survey: &Survey) -> bool {
    let lost = survey.fleet.lost(&survey.stripe);
    let has_place = |&chunk| !survey.requestors(chunk, |_| true).is_empty();
    survey.facts.code.is_sufficient(&survey.readable()) && lost.iter().any(has_place)
}
