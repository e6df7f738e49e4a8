//! Nodes and the coordinator as receivers of messages.

use crate::meta_disk::MetaDisk;
use crate::parties::{Reply, Request, Service};
use futures::FutureExt;
use futures::future::BoxFuture;
use gabion_layout::NodeId;
use gabion_protocol::coordinator::Coordinator;
use gabion_protocol::message::Flow;
use gabion_protocol::node::Node;
use gabion_protocol::ports::{Address, Asker};
use std::sync::Arc;

/// A node.
pub(crate) struct NodeService(pub(crate) Arc<Node>);

impl Service for NodeService {
    fn request(
        &self,
        request: Request,
        (origin, asker): (Address, Asker),
    ) -> BoxFuture<'static, Reply> {
        match request {
            Request::Node(_, request) => {
                let answer = self.0.handle(request, origin, asker);
                answer.map(Reply::Node).boxed()
            }
            Request::Coordinator(_) => {
                unreachable!("a node is no coordinator")
            }
        }
    }

    fn flow(&self, flow: Flow) {
        self.0.flow(flow);
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.0.id())
    }
}

/// The coordinator.
pub(crate) struct CoordinatorService(pub(crate) Arc<Coordinator<MetaDisk>>);

impl Service for CoordinatorService {
    fn request(&self, request: Request, _: (Address, Asker)) -> BoxFuture<'static, Reply> {
        let coordinator = Arc::clone(&self.0);
        match request {
            Request::Coordinator(request) => {
                async move { Reply::Coordinator(Box::new(coordinator.handle(request).await)) }
                    .boxed()
            }
            Request::Node(..) => unreachable!("the coordinator is no node"),
        }
    }

    fn flow(&self, _: Flow) {}

    fn node(&self) -> Option<NodeId> {
        None
    }
}
