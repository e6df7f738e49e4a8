//! What the roles need from the world: peers, time, chance and a place to wait for the disk.
//!
//! A server gives sockets and a clock; the simulator gives a seed. Everything here may be called
//! from any task at any time.

use crate::event::Event;
use crate::message::{
    ArrayStatus, CoordinatorReply, CoordinatorRequest, Flow, NodeReply, NodeRequest, NodeStatus,
    Refusal,
};
use bytes::Bytes;
use futures::FutureExt;
use futures::channel::mpsc::UnboundedReceiver;
use futures::future::{BoxFuture, join_all};
use gabion_layout::NodeId;
use thiserror::Error;

/// Whom a flow frame goes to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Address {
    /// A node.
    Node(NodeId),
    /// Whoever sent the request of this connection.
    Origin(u64),
}

/// A peer could not be asked, or did not answer in time. Whether it did what it was asked is not
/// known.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{peer} {reason}")]
pub struct CallError {
    /// Who did not answer.
    pub peer: String,
    /// What happened, as the end of a sentence.
    pub reason: String,
}

/// Peers, time and chance.
pub trait Ports: Send + Sync + 'static {
    /// Asks a node, and waits for the reply for at most so long.
    fn call_node(
        &self,
        node: NodeId,
        request: NodeRequest,
        deadline_ms: u64,
    ) -> BoxFuture<'static, Result<NodeReply, CallError>>;

    /// Asks the coordinator, and waits for the reply for at most so long.
    fn call_coordinator(
        &self,
        request: CoordinatorRequest,
        deadline_ms: u64,
    ) -> BoxFuture<'static, Result<CoordinatorReply, CallError>>;

    /// Sends flow frames in their order, until there are no more or the receiver is gone
    /// ([`crate::message::Refusal::Unavailable`]). Credit bounds how many can wait.
    fn send_flows(
        &self,
        to: Address,
        flows: UnboundedReceiver<Flow>,
    ) -> BoxFuture<'static, Result<(), Refusal>>;

    /// Learns where nodes listen.
    fn learn_nodes(&self, nodes: &[NodeStatus]);

    /// Milliseconds of a clock that never steps back.
    fn now_ms(&self) -> u64;

    /// Waits.
    fn sleep_ms(&self, ms: u64) -> BoxFuture<'static, ()>;

    /// Runs a task beside this one.
    fn spawn(&self, task: BoxFuture<'static, ()>);

    /// Runs work that waits for a disk where it holds up nothing else. When the run-time is going
    /// down, the future may never be done.
    fn blocking(&self, work: Box<dyn FnOnce() + Send>);

    /// Whether blocking work waits and none has come to an end for some seconds. Never where nobody
    /// watches.
    fn disk_hangs(&self) -> bool {
        false
    }

    /// Waits until blocking work that begins now waits for a disk that hangs.
    fn disk_hang(&self) -> BoxFuture<'static, ()> {
        futures::future::pending().boxed()
    }

    /// Bytes a second that this process's links to nodes were found to carry, where that is news.
    /// Nothing where nobody measures.
    fn take_link_rates(&self) -> Vec<(NodeId, u64)> {
        Vec::new()
    }

    /// How the array of SSDs fares that this process keeps its store on; none where it is on none.
    fn array(&self) -> Option<ArrayStatus> {
        None
    }

    /// Puts an event into the process's log.
    fn note_event(&self, _event: &Event) {}

    /// A random number.
    fn random(&self) -> u64;
}

/// How long a node may take to answer when all that is asked is whether it does.
pub const REACH_DEADLINE_MS: u64 = 1_000;

/// Whether a node answers, whatever it says.
///
/// # Errors
/// When it does not in time.
pub async fn reach(ports: &dyn Ports, node: NodeId) -> Result<(), CallError> {
    let probe = NodeRequest::Probe {
        bytes: Bytes::new(),
    };
    let answer = ports.call_node(node, probe, REACH_DEADLINE_MS).await;
    answer.map(|_| ())
}

/// How long nodes may be at something before they are asked whether they live.
const REACH_AFTER_MS: u64 = 1_000;

/// Waits until one of these nodes has twice in a row not answered a question that costs it nothing. Work
/// may take long where links or disks are slow, but a node that is at it lives.
pub async fn until_hung(ports: &dyn Ports, nodes: &[NodeId]) -> (NodeId, CallError) {
    loop {
        ports.sleep_ms(REACH_AFTER_MS).await;
        let asked = nodes.iter().map(|&node| async move {
            reach(ports, node).await.err()?;
            Some((node, reach(ports, node).await.err()?))
        });
        if let Some(hung) = join_all(asked).await.into_iter().flatten().next() {
            return hung;
        }
    }
}

/// Runs blocking work through the ports and waits for its result.
pub async fn run_blocking<R: Send + 'static>(
    ports: &dyn Ports,
    work: impl FnOnce() -> R + Send + 'static,
) -> R {
    let (sender, receiver) = futures::channel::oneshot::channel();
    ports.blocking(Box::new(move || {
        // Nobody waits any more when the asker was cancelled; the work is done all the same.
        let _ = sender.send(work());
    }));
    match receiver.await {
        Ok(result) => result,
        // The work panicked or the run-time is going down with it.
        Err(_) => futures::future::pending().await,
    }
}
