//! Machines, their processes, and the requests and replies between them.

use crate::world::ProcessId;
use futures::future::BoxFuture;
use gabion_layout::NodeId;
use gabion_protocol::message::{
    CoordinatorReply, CoordinatorRequest, Flow, NodeReply, NodeRequest,
};
use gabion_protocol::ports::{Address, Asker};
use thiserror::Error;

/// A machine, with one process after another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Slot(pub(crate) usize);

/// A process on its machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Party {
    pub(crate) slot: Slot,
    pub(crate) process: ProcessId,
}

#[derive(Clone, Debug)]
pub(crate) enum Request {
    /// The process that answers at the address must be that node.
    Node(NodeId, NodeRequest),
    Coordinator(CoordinatorRequest),
}

#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Node(NodeReply),
    Coordinator(Box<CoordinatorReply>),
}

/// The reason for which a call has no reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub(crate) enum Unanswered {
    #[error("broke the connection")]
    Broken,
    #[error("did not answer in time")]
    Late,
}

/// A process's handler of messages.
pub(crate) trait Service: Send + Sync {
    fn request(&self, request: Request, origin: (Address, Asker)) -> BoxFuture<'static, Reply>;
    fn flow(&self, flow: Flow);
    /// Its node id.
    fn node(&self) -> Option<NodeId>;
}

/// The receiver of a stream of frames.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Destination {
    Machine(Slot),
    Dialer(u64),
}
