//! The end of a layout whose chunks move: nodes of it refuse it before any chunk counts elsewhere.
//!
//! A term settles a stripe with k nodes of its present layout, which after moves may be few of an earlier
//! one. A reader without the coordinator takes n-k+1 nodes of the layout that it knows. So each layout, when
//! it ends by a move, is refused by k of its n nodes, and any n-k+1 of them include one of these. A node that still
//! serves the chunk that moves is always one of them: otherwise the next updates would wait for its answer.
//!
//! The chunk counts in its old place until the transaction that notes the new one. So whatever fails before, the stripe
//! has as many chunks as it had.

use super::Repair;
use super::survey::{Survey, TaskError};
use crate::fence::fence;
use futures::stream::{FuturesUnordered, StreamExt};
use gabion_layout::{Epoch, Generation, NodeId};
use gabion_meta::{KeyValue, Meta};

impl<K: KeyValue + Send + Sync + 'static> Repair<K> {
    /// Lets `count` note new places of chunks, under the lease. Before that, k nodes of the present layout
    /// durably refuse it, and `left` is one of them: a node that leaves the stripe and serves its chunk until then.
    /// Abandons the move if `count` notes nothing, and returns its result.
    ///
    /// # Errors
    /// When fewer than k nodes take the new generation, or not the one that leaves: the move is abandoned. When the
    /// metadata fail, or as `count`.
    pub(in crate::coordinator) async fn count_as_move(
        &self,
        survey: &Survey,
        epoch: Epoch,
        left: Option<NodeId>,
        count: impl Future<Output = Result<bool, TaskError>>,
    ) -> Result<bool, TaskError> {
        let (id, expected) = (survey.stripe.id, survey.stripe.generation);
        let begin = move |meta: &Meta<K>| meta.begin_move(id, expected);
        let generation = self.core.with_meta(begin).await?;
        let counted = match self.end_layout(survey, epoch, generation, left).await {
            Ok(()) => count.await,
            Err(error) => Err(error),
        };
        if !matches!(counted, Ok(true)) {
            let abandon = move |meta: &Meta<K>| meta.abandon_move(id);
            self.core.with_meta(abandon).await?;
        }
        counted
    }

    /// Has k nodes of the present layout refuse all generations before this one, first the node that leaves.
    async fn end_layout(
        &self,
        survey: &Survey,
        epoch: Epoch,
        generation: Generation,
        left: Option<NodeId>,
    ) -> Result<(), TaskError> {
        let term = (survey.stripe.id, epoch, generation);
        let mut fenced_count = 0;
        if let Some(node) = left {
            fence(&*self.core.ports, node, term).await?;
            fenced_count += 1;
        }
        let others = survey.stripe.nodes.iter().copied();
        let others = others.filter(|&node| Some(node) != left);
        let calls = others.map(|node| fence(&*self.core.ports, node, term));
        let mut calls: FuturesUnordered<_> = calls.collect();
        let needed_count = survey.facts.code.k();
        while fenced_count < needed_count {
            match calls.next().await {
                Some(Ok(())) => fenced_count += 1,
                Some(Err(_)) => {}
                None => {
                    return Err(TaskError(format!(
                        "only {fenced_count} of the {needed_count} nodes that must refuse the present \
                         layout have answered"
                    )));
                }
            }
        }
        Ok(())
    }
}
