//! Processes as receivers of messages.

use crate::meta_disk::MetaDisk;
use crate::parties::{Reply, Request};
use futures::FutureExt;
use futures::future::BoxFuture;
use gabion_layout::NodeId;
use gabion_protocol::client_ports::FlowRouter;
use gabion_protocol::coordinator::Coordinator;
use gabion_protocol::message::{Flow, NodeReply, NodeRequest};
use gabion_protocol::node::Node;
use gabion_protocol::ports::{Address, Asker};
use std::sync::Arc;

/// A process's handler of messages.
#[derive(Clone)]
pub(crate) enum Service {
    Node(Arc<Node>),
    Coordinator(Arc<Coordinator<MetaDisk>>),
    /// A client: it takes the frames of its runs.
    Client(Arc<FlowRouter>),
}

impl Service {
    /// Answers a request; none if it is for a process of another role, or for another node.
    pub(crate) fn request(
        &self,
        request: Request,
        origin: (Address, Asker),
    ) -> Option<BoxFuture<'static, Reply>> {
        match (self, request) {
            (_, Request::Node(node, request)) => {
                let answer = self.node_request(node, request, origin)?;
                Some(answer.map(Reply::Node).boxed())
            }
            (Self::Coordinator(coordinator), Request::Coordinator(request)) => {
                let coordinator = Arc::clone(coordinator);
                let answer = async move { coordinator.handle(request).await };
                Some(
                    answer
                        .map(|reply| Reply::Coordinator(Box::new(reply)))
                        .boxed(),
                )
            }
            (Self::Node(_) | Self::Client(_), Request::Coordinator(_)) => None,
        }
    }

    /// Answers a request to a node; none if this is not that node.
    pub(crate) fn node_request(
        &self,
        id: NodeId,
        request: NodeRequest,
        (origin, asker): (Address, Asker),
    ) -> Option<BoxFuture<'static, NodeReply>> {
        match self {
            Self::Node(node) if node.id() == id => Some(node.handle(request, origin, asker)),
            _ => None,
        }
    }

    pub(crate) fn flow(&self, flow: Flow) {
        match self {
            Self::Node(node) => node.flow(flow),
            Self::Coordinator(_) => {}
            Self::Client(router) => router.route(flow),
        }
    }
}
