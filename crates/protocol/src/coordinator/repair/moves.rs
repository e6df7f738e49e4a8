//! The end of a layout whose chunks move: nodes of it refuse it before any chunk counts elsewhere.
//!
//! A term settles a stripe with k nodes of its present layout, which after moves may be few of an earlier
//! one. A reader without the coordinator takes n-k+1 nodes of the layout that it knows. So each layout, when
//! it ends by a move, is refused by k of its n nodes, and any n-k+1 of them include one of these.

use super::Repair;
use super::survey::{Survey, TaskError};
use crate::fence::fence;
use futures::stream::{FuturesUnordered, StreamExt};
use gabion_layout::{Epoch, StripeId};
use gabion_meta::{KeyValue, Meta};

impl<K: KeyValue + Send + Sync + 'static> Repair<K> {
    /// Begins a move of chunks under the lease: k nodes of the present layout durably refuse it from now on.
    ///
    /// # Errors
    /// When fewer nodes take the new generation. The move is given up then.
    pub(in crate::coordinator) async fn begin_move(
        &self,
        survey: &Survey,
        epoch: Epoch,
    ) -> Result<(), TaskError> {
        let (id, expected) = (survey.stripe.id, survey.stripe.generation);
        let begin = move |meta: &Meta<K>| meta.begin_move(id, expected);
        let generation = self.core.with_meta(begin).await?;
        let nodes = survey.stripe.nodes.iter();
        let calls = nodes.map(|&node| fence(&*self.core.ports, node, (id, epoch, generation)));
        let mut calls: FuturesUnordered<_> = calls.collect();
        let needed_count = survey.facts.code.k();
        let mut fenced_count = 0;
        while fenced_count < needed_count {
            match calls.next().await {
                Some(Ok(())) => fenced_count += 1,
                Some(Err(_)) => {}
                None => {
                    self.give_up_move(id).await?;
                    return Err(TaskError(format!(
                        "only {fenced_count} of the {needed_count} nodes that must refuse the present \
                         layout have answered"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Gives up a move that has begun and will not count.
    ///
    /// # Errors
    /// When the metadata fails.
    pub(in crate::coordinator) async fn give_up_move(&self, id: StripeId) -> Result<(), TaskError> {
        Ok(self
            .core
            .with_meta(move |meta| meta.give_up_move(id))
            .await?)
    }
}
