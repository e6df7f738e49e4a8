//! Nodes that leave for good. A node that drains serves its chunks until they have moved to other nodes; then
//! it may be switched off. And failed nodes whose return the coordinator awaits no longer: that is durable, so
//! its next run does not wait for them either.

use super::Members;
use crate::coordinator::core::{Answer, Denied, lock};
use crate::event::Event;
use crate::message::CoordinatorReply;
use gabion_layout::NodeId;
use gabion_meta::{Departure, KeyValue, Meta};
use std::sync::Arc;

impl<K: KeyValue + Send + Sync + 'static> Members<K> {
    /// Has all chunks of a node moved to others, from when this is answered.
    pub(in crate::coordinator) async fn drain(self: &Arc<Self>, node: NodeId) -> Answer {
        let drain = move |meta: &Meta<K>| meta.drain(node);
        let standing = self.core.with_meta(drain).await?;
        lock(&self.nodes.roster).learn_standing(node, standing);
        self.backlog.add_node(node).await?;
        Ok(CoordinatorReply::Done)
    }

    /// Lets a node stay that was to leave. Chunks that were moved stay where they are.
    pub(in crate::coordinator) async fn keep(self: &Arc<Self>, node: NodeId) -> Answer {
        let keep = move |meta: &Meta<K>| meta.keep(node);
        let standing = self.core.with_meta(keep).await?;
        lock(&self.nodes.roster).learn_standing(node, standing);
        // It is a place for chunks again.
        self.backlog.retry_all();
        Ok(CoordinatorReply::Done)
    }

    /// Lets the nodes go that are drained, and looks again at those that are not: a chunk whose node
    /// was silent when its turn came has left the queue.
    pub(super) async fn check_departures(self: &Arc<Self>) -> Result<(), Denied> {
        let draining = lock(&self.nodes.roster).draining();
        for node in draining {
            let standing = self.core.with_meta(move |meta| meta.drained(node)).await?;
            if standing.departure == Departure::Drained {
                lock(&self.nodes.roster).learn_standing(node, standing);
                self.nodes.forget_links(node);
                self.core.ports.note_event(&Event::Drained(node));
            } else if self.backlog.is_idle() && self.nodes.fleet().is_up(node) {
                self.backlog.add_node(node).await?;
            }
        }
        Ok(())
    }

    /// Waits no more for failed nodes, and has what they hold repaired elsewhere.
    pub(in crate::coordinator) async fn give_nodes_up(
        self: &Arc<Self>,
        nodes: Vec<NodeId>,
    ) -> Result<(), Denied> {
        for node in nodes {
            {
                // No join runs beside this: a node either joins first and stays, or joins after it and returns.
                let _joins = self.nodes.hold_joins().await;
                let standing = self.core.with_meta(move |meta| meta.give_up(node)).await?;
                lock(&self.nodes.roster).learn_standing(node, standing);
            }
            self.core.ports.note_event(&Event::GivenUp(node));
            self.backlog.add_node(node).await?;
            self.leftovers.wake();
        }
        Ok(())
    }
}
