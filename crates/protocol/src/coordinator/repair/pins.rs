//! Pins: settled marks that nodes keep readable while a chunk is rebuilt as of them and updates continue.

use super::Repair;
use crate::coordinator::core::SHORT_DEADLINE_MS;
use crate::message::ask;
use crate::ports::Ask as _;
use futures::FutureExt;
use futures::future::join_all;
use gabion_layout::{NodeId, Sequence, StripeId};
use gabion_meta::KeyValue;

/// A mark that nodes keep readable.
pub(in crate::coordinator) struct Pins {
    stripe: StripeId,
    cut: Sequence,
    nodes: Vec<NodeId>,
}

impl<K: KeyValue + Send + Sync + 'static> Repair<K> {
    /// Pins a mark at nodes.
    pub(in crate::coordinator) async fn pin_nodes(
        &self,
        stripe: StripeId,
        cut: Sequence,
        nodes: Vec<NodeId>,
        hold_ms: u64,
    ) -> Pins {
        let request = ask::Pin {
            stripe,
            cut,
            hold_ms,
        };
        let calls = nodes.iter().map(|&node| {
            self.core
                .ports
                .ask_node(node, request.clone(), SHORT_DEADLINE_MS)
        });
        join_all(calls).await;
        Pins { stripe, cut, nodes }
    }

    /// Releases a mark at nodes. A node that misses the message drops the pin after a timeout.
    pub(in crate::coordinator) fn unpin(&self, pins: Pins) {
        let Pins { stripe, cut, nodes } = pins;
        for node in nodes {
            let request = ask::Unpin { stripe, cut };
            let told = self.core.ports.ask_node(node, request, SHORT_DEADLINE_MS);
            self.core.ports.spawn(told.map(|_| ()).boxed());
        }
    }
}
