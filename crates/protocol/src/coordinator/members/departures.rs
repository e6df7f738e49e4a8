//! Nodes that leave for good. A draining node serves its chunks until they have moved to other nodes; then it may be
//! removed. The coordinator also stops waiting for failed nodes on request: that is durable, so its next run repairs
//! their chunks without a wait. Before that run trusts its metadata, it awaits them anew.

use super::Members;
use crate::coordinator::core::{Answer, lock};
use crate::event::Event;
use crate::message::Denial;
use gabion_layout::NodeId;
use gabion_meta::{Departure, KeyValue, Meta};
use std::sync::Arc;

impl<K: KeyValue + Send + Sync + 'static> Members<K> {
    /// Moves all chunks of a node to others, starting when this request is answered.
    pub(in crate::coordinator) async fn drain(self: &Arc<Self>, node: NodeId) -> Answer<()> {
        let drain = move |meta: &Meta<K>| meta.drain(node);
        let standing = self.core.with_meta(drain).await?;
        lock(&self.nodes.roster).learn_standing(node, standing);
        self.backlog.add_node(node).await?;
        Ok(())
    }

    /// Cancels a drain. Chunks that were moved stay where they are.
    pub(in crate::coordinator) async fn keep(self: &Arc<Self>, node: NodeId) -> Answer<()> {
        let keep = move |meta: &Meta<K>| meta.keep(node);
        let standing = self.core.with_meta(keep).await?;
        lock(&self.nodes.roster).learn_standing(node, standing);
        // The node takes new chunks again.
        self.backlog.retry_all();
        Ok(())
    }

    /// Releases the drained nodes, and queues the chunks of the others again when nothing is queued, and when a node
    /// answers again: a chunk whose node was silent at its turn has left the queue.
    pub(super) async fn check_departures(self: &Arc<Self>) -> Result<(), Denial> {
        let draining = lock(&self.nodes.roster).draining();
        for node in draining {
            let standing = self.core.with_meta(move |meta| meta.drained(node)).await?;
            if standing.departure == Departure::Drained {
                lock(&self.nodes.roster).learn_standing(node, standing);
                self.nodes.forget_links(node);
                self.core.ports.note_event(&Event::Drained(node));
                continue;
            }
            let is_up = self.nodes.fleet().is_up(node);
            let was_silent = {
                let mut silent = lock(&self.silent_drains);
                if is_up {
                    silent.remove(&node)
                } else {
                    silent.insert(node);
                    false
                }
            };
            if is_up && (was_silent || self.backlog.is_idle()) {
                self.backlog.add_node(node).await?;
            }
        }
        Ok(())
    }

    /// Stops waiting for failed nodes, and repairs their chunks on other nodes.
    pub(in crate::coordinator) async fn abandon_nodes(
        self: &Arc<Self>,
        nodes: Vec<NodeId>,
    ) -> Result<(), Denial> {
        for node in nodes {
            let is_abandoned = {
                // No join runs concurrently: a node either joins first and stays, or joins after it and
                // returns.
                let _joins = self.nodes.hold_joins().await;
                let standing = self
                    .core
                    .with_meta(move |meta| meta.abandon_node(node))
                    .await?;
                lock(&self.nodes.roster).abandon(node, standing);
                standing.abandoned
            };
            if !is_abandoned {
                continue;
            }
            self.note_loss(node, &Event::Abandoned(node));
            self.backlog.add_node(node).await?;
            self.leftovers.wake();
        }
        Ok(())
    }
}
