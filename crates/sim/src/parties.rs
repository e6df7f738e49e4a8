//! Machines, their processes, and the requests and replies between them.

use crate::world::ProcessId;
use futures::channel::oneshot;
use gabion_layout::NodeId;
use gabion_protocol::message::{CoordinatorReply, CoordinatorRequest, NodeReply, NodeRequest};
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

/// A caller that waits for the reply of the role that it has asked.
pub(crate) enum Caller {
    OfNode(oneshot::Sender<NodeReply>),
    OfCoordinator(oneshot::Sender<Box<CoordinatorReply>>),
}

impl Caller {
    /// Hands a reply over. A reply of another role breaks the call.
    pub(crate) fn hear(self, reply: Reply) {
        // The caller may have been cancelled.
        match (self, reply) {
            (Self::OfNode(caller), Reply::Node(reply)) => drop(caller.send(reply)),
            (Self::OfCoordinator(caller), Reply::Coordinator(reply)) => drop(caller.send(reply)),
            (Self::OfNode(_), Reply::Coordinator(_)) | (Self::OfCoordinator(_), Reply::Node(_)) => {
            }
        }
    }
}

/// The receiver of a stream of frames.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Destination {
    Machine(Slot),
    Dialer(u64),
}
