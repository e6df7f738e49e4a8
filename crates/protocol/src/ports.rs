//! The roles' interface to their environment: peers, time, chance and threads for disk work.
//!
//! A server gives sockets and a clock; the simulator gives a seed. Everything here may be called
//! from any task at any time.

use crate::doubts::Doubts;
use crate::event::Event;
use crate::measure::Measure;
use crate::message::{
    ArrayStatus, CoordinatorCall, CoordinatorReply, CoordinatorRequest, Denial, EventPage, Flow,
    Meter, NodeCall, NodeReply, NodeRequest, NodeStatus, Refusal, ask,
};
use bytes::Bytes;
use futures::channel::mpsc::UnboundedReceiver;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use futures::{FutureExt, select_biased};
use gabion_layout::NodeId;
use std::pin::pin;
use thiserror::Error;

/// The receiver of a flow frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Address {
    /// A node.
    Node(NodeId),
    /// The sender of this connection's request.
    Origin(u64),
}

/// The process from which a request to a node comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asker {
    /// A node or the coordinator.
    Member,
    /// A client or an operator: the request needs a ticket ([`NodeRequest::claim`]).
    User,
}

/// A peer could not be asked, or did not answer in time. Whether it has executed the request is unknown.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{peer} {reason}")]
pub struct CallError {
    /// The silent peer.
    pub peer: String,
    /// The cause, as the end of a sentence.
    pub reason: String,
}

/// The reason why a node has not executed a request.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum NodeError {
    /// It refused before it began, and will not begin.
    #[error("{0}")]
    NotBegun(Refusal),
    /// It refused.
    #[error("{0}")]
    Refused(Refusal),
    /// Its reply does not belong to the request.
    #[error("a node sent the reply of another request: {0}")]
    Misfit(String),
    /// It did not answer.
    #[error("{0}")]
    Silent(CallError),
}

impl From<NodeError> for Refusal {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::NotBegun(refusal) | NodeError::Refused(refusal) => refusal,
            NodeError::Misfit(_) => Self::Failed(error.to_string()),
            NodeError::Silent(error) => Self::Unavailable(error.peer),
        }
    }
}

/// The reason why the coordinator has not executed a request.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum CoordinatorError {
    /// It refused.
    #[error("{0}")]
    Refused(Denial),
    /// Refused for now; a retry may succeed.
    #[error("{0}")]
    Busy(Denial),
    /// Its reply does not belong to the request.
    #[error("the coordinator sent the reply of another request: {0}")]
    Misfit(String),
    /// It did not answer.
    #[error("{0}")]
    Silent(CallError),
}

/// Peers, time and chance.
pub trait Ports: Send + Sync + 'static {
    /// Asks a node, and waits for the reply for at most this time.
    fn call_node(
        &self,
        node: NodeId,
        request: NodeRequest,
        deadline_ms: u64,
    ) -> BoxFuture<'static, Result<NodeReply, CallError>>;

    /// Asks the coordinator, and waits for the reply for at most this time.
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

    /// Updates the addresses of nodes.
    fn learn_nodes(&self, nodes: &[NodeStatus]);

    /// Milliseconds of a clock that never steps back.
    fn now_ms(&self) -> u64;

    /// Microseconds of the same clock.
    fn now_us(&self) -> u64 {
        self.now_ms().saturating_mul(1000)
    }

    /// Waits.
    fn sleep_ms(&self, ms: u64) -> BoxFuture<'static, ()>;

    /// Runs a task beside this one.
    fn spawn(&self, task: BoxFuture<'static, ()>);

    /// Runs work that may wait for a disk, on a thread where it blocks no other work. When the run-time
    /// shuts down, the future may never complete.
    fn blocking(&self, work: Box<dyn FnOnce() + Send>);

    /// Whether blocking work waits and none has completed for some seconds. Never true where this is not
    /// monitored.
    fn disk_hangs(&self) -> bool {
        false
    }

    /// Waits until blocking work that begins now waits for a disk that hangs.
    fn disk_hang(&self) -> BoxFuture<'static, ()> {
        futures::future::pending().boxed()
    }

    /// Waits until the disk is worth a try, since blocking work is delayed. Never where this is not monitored.
    fn disk_delay(&self) -> BoxFuture<'static, ()> {
        futures::future::pending().boxed()
    }

    /// Runs a try of the disk: work that ends soon if the disk works, and waits for no other work. If it takes seconds,
    /// the disk hangs, though other work may end, until another try ends soon.
    fn try_disk(&self, work: Box<dyn FnOnce() + Send>) {
        self.blocking(work);
    }

    /// The reason, as a sentence, if the disk of the coordinator's metadata is so full that only changes which free
    /// space are made: they need some themselves. None where this is not monitored.
    fn full_metadata_disk(&self) -> Option<String> {
        None
    }

    /// Measured rates of this process's links to nodes since the last call, in bytes a second. Empty where
    /// they are not measured.
    fn take_link_rates(&self) -> Vec<(NodeId, u64)> {
        Vec::new()
    }

    /// The health of the array of SSDs that this process's store is on; none without an array.
    fn array(&self) -> Option<ArrayStatus> {
        None
    }

    /// The nodes that the process found silent lately; none where it does not note them.
    fn doubts(&self) -> Option<&Doubts> {
        None
    }

    /// Notes that a node was found silent, or has answered. Later waits for a silent node then detect silence sooner,
    /// and the coordinator hears of it.
    fn doubt(&self, node: NodeId, is_silent: bool) {
        if let Some(doubts) = self.doubts() {
            doubts.note(node, is_silent, self.now_ms());
        }
        if is_silent {
            self.suspect(node);
        }
    }

    /// Whether a node was found silent recently.
    fn is_doubted(&self, node: NodeId) -> bool {
        let doubts = self.doubts();
        doubts.is_some_and(|doubts| doubts.holds(node, self.now_ms()))
    }

    /// Reports a node that does not answer to the coordinator, at most once a second. The call returns without waiting
    /// for a reply.
    fn suspect(&self, node: NodeId) {
        let begins = |doubts: &Doubts| doubts.begin_report(node, self.now_ms());
        if self.doubts().is_some_and(begins) {
            let request = ask::Suspect { node }.into();
            let told = self.call_coordinator(request, SUSPECT_DEADLINE_MS);
            self.spawn(told.map(|_| ()).boxed());
        }
    }

    /// The progress of the exchange with a node; none where it is not counted.
    fn passage(&self, _node: NodeId) -> Passage {
        Passage::default()
    }

    /// Puts an event into the process's log.
    fn note_event(&self, _event: &Event) {}

    /// Notes a measurement of this process's work. Nothing depends on it.
    fn measure(&self, _measure: &Measure<'_>) {}

    /// Bytes that this process has sent so far; none where they are not counted.
    fn meter(&self) -> Meter {
        Meter::default()
    }

    /// A part of the process's event log; empty where there is none.
    fn event_page(&self, _asked: &ask::Events) -> EventPage {
        EventPage::default()
    }

    /// A random number.
    fn random(&self) -> u64;
}

/// Requests by their types: the result is the request's own reply.
pub trait Ask: Ports {
    /// Asks a node, and waits for the reply for at most this time.
    fn ask_node<C: NodeCall>(
        &self,
        node: NodeId,
        call: C,
        deadline_ms: u64,
    ) -> BoxFuture<'static, Result<C::Reply, NodeError>> {
        let reply = self.call_node(node, call.into(), deadline_ms);
        let typed = reply.map(|reply| match reply.map_err(NodeError::Silent)? {
            NodeReply::NotBegun(refusal) => Err(NodeError::NotBegun(refusal)),
            NodeReply::Refused(refusal) => Err(NodeError::Refused(refusal)),
            reply => C::reply_of(reply).map_err(NodeError::Misfit),
        });
        typed.boxed()
    }

    /// Asks the coordinator, and waits for the reply for at most this time.
    fn ask_coordinator<C: CoordinatorCall>(
        &self,
        call: C,
        deadline_ms: u64,
    ) -> BoxFuture<'static, Result<C::Reply, CoordinatorError>> {
        let reply = self.call_coordinator(call.into(), deadline_ms);
        let typed = reply.map(|reply| match reply.map_err(CoordinatorError::Silent)? {
            CoordinatorReply::Refused(why) => Err(CoordinatorError::Refused(why)),
            CoordinatorReply::Busy(why) => Err(CoordinatorError::Busy(why)),
            reply => C::reply_of(reply).map_err(CoordinatorError::Misfit),
        });
        typed.boxed()
    }
}

impl<P: Ports + ?Sized> Ask for P {}

/// The progress of a process's exchange with another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Passage {
    /// Bytes received from the other.
    pub received_bytes: u64,
    /// Bytes that the other's operating system has acknowledged.
    pub acknowledged_bytes: u64,
    /// Bytes that it has not acknowledged yet.
    pub waiting_bytes: u64,
}

impl Passage {
    /// Whether the other has sent bytes since `earlier`, or the bytes on their way to it make progress. A
    /// full link is slow, not silent. An operating system also acknowledges bytes for a hung process, so
    /// without bytes on their way that is no sign of life.
    pub fn shows_life_since(&self, earlier: Self) -> bool {
        self.received_bytes > earlier.received_bytes
            || (self.waiting_bytes > 0 && self.acknowledged_bytes > earlier.acknowledged_bytes)
    }
}

/// Time limit of a node's answer to a probe.
pub const REACH_DEADLINE_MS: u64 = 1_000;

/// Whether a node gives any answer, or the answer is delayed by traffic on the way.
///
/// # Errors
/// When it does not answer in time.
pub async fn reach(ports: &dyn Ports, node: NodeId) -> Result<(), CallError> {
    reach_within(ports, node, REACH_DEADLINE_MS).await
}

/// Whether a node answers a cheap request as soon as a live node does.
///
/// # Errors
/// When it does not answer.
pub(crate) async fn lives(ports: &dyn Ports, node: NodeId) -> Result<(), CallError> {
    reach_within(ports, node, LIVES_DEADLINE_MS).await
}

async fn reach_within(ports: &dyn Ports, node: NodeId, deadline_ms: u64) -> Result<(), CallError> {
    let bytes = Bytes::new();
    let probe = ask::Probe { bytes }.into();
    let before = ports.passage(node);
    match ports.call_node(node, probe, deadline_ms).await {
        Err(_) if ports.passage(node).shows_life_since(before) => Ok(()),
        answer => answer.map(|_| ()),
    }
}

/// Time limit of the coordinator's answer to a report.
const SUSPECT_DEADLINE_MS: u64 = 2_000;
/// Time limit of the answer that shows that a node lives.
const LIVES_DEADLINE_MS: u64 = 500;
/// Time that nodes may work before they are probed, and the time limit of each of two consecutive probes: together less
/// than a second, since reads and writes wait for them.
const PROBED_AFTER_MS: u64 = 250;
const PROBE_DEADLINE_MS: u64 = 350;
/// The same for nodes that were silent recently.
const DOUBTED_AFTER_MS: u64 = 100;
const DOUBTED_DEADLINE_MS: u64 = 200;

/// Waits until one of these nodes has missed two consecutive probes. Work may take long where links or
/// disks are slow, but a node that works on it answers probes. A node that was silent recently is probed
/// sooner.
pub async fn until_hung(ports: &dyn Ports, nodes: &[NodeId]) -> (NodeId, CallError) {
    let mut watched: FuturesUnordered<_> = nodes
        .iter()
        .map(|&node| async move { (node, until_silent(ports, node).await) })
        .collect();
    match watched.next().await {
        Some(hung) => hung,
        None => futures::future::pending().await,
    }
}

async fn until_silent(ports: &dyn Ports, node: NodeId) -> CallError {
    loop {
        let (after_ms, deadline_ms) = if ports.is_doubted(node) {
            (DOUBTED_AFTER_MS, DOUBTED_DEADLINE_MS)
        } else {
            (PROBED_AFTER_MS, PROBE_DEADLINE_MS)
        };
        ports.sleep_ms(after_ms).await;
        if reach_within(ports, node, deadline_ms).await.is_ok() {
            ports.doubt(node, false);
            continue;
        }
        match reach_within(ports, node, deadline_ms).await {
            Ok(()) => ports.doubt(node, false),
            Err(error) => {
                ports.doubt(node, true);
                return error;
            }
        }
    }
}

/// Asks a node, until it has answered, the time is over, or it has missed two consecutive probes.
///
/// # Errors
/// When it has not executed the request. If it has not answered, whether it has is unknown.
pub async fn ask_living<C: NodeCall>(
    ports: &dyn Ports,
    node: NodeId,
    call: C,
    deadline_ms: u64,
) -> Result<C::Reply, NodeError> {
    let mut reply = ports.ask_node(node, call, deadline_ms).fuse();
    let mut silent = pin!(until_silent(ports, node).fuse());
    select_biased! {
        reply = reply => reply,
        error = silent => Err(NodeError::Silent(error)),
    }
}

/// Runs blocking work through the ports and waits for its result.
pub async fn run_blocking<R: Send + 'static>(
    ports: &dyn Ports,
    work: impl FnOnce() -> R + Send + 'static,
) -> R {
    let (sender, receiver) = futures::channel::oneshot::channel();
    ports.blocking(Box::new(move || {
        // The receiver is gone if the asker was cancelled; the work completes all the same.
        let _ = sender.send(work());
    }));
    match receiver.await {
        Ok(result) => result,
        // The work panicked, or the run-time is shutting down.
        Err(_) => futures::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use futures::future::{pending, ready};
    use std::sync::{Mutex, MutexGuard};

    /// Time passes while it sleeps or waits for an answer that does not come.
    #[derive(Default)]
    struct World {
        now_ms: u64,
        /// Whether the node answers probes.
        lives: bool,
        /// The number of probes.
        probe_count: u32,
        is_doubted: bool,
        /// Bytes for the node make progress until then.
        moves_until_ms: u64,
        acknowledged_bytes: u64,
    }

    #[derive(Default)]
    struct WorldPorts(Mutex<World>);

    impl WorldPorts {
        fn world(&self) -> MutexGuard<'_, World> {
            self.0.lock().unwrap()
        }
    }

    impl Ports for WorldPorts {
        fn call_node(
            &self,
            _: NodeId,
            request: NodeRequest,
            deadline_ms: u64,
        ) -> BoxFuture<'static, Result<NodeReply, CallError>> {
            if !matches!(request, NodeRequest::Probe { .. }) {
                // It takes longer than any caller waits.
                return pending().boxed();
            }
            let mut world = self.world();
            world.probe_count += 1;
            if world.lives {
                return ready(Ok(NodeReply::Done)).boxed();
            }
            world.now_ms += deadline_ms;
            if world.now_ms < world.moves_until_ms {
                world.acknowledged_bytes += 1;
            }
            let (peer, reason) = ("node 3".to_owned(), "is silent".to_owned());
            ready(Err(CallError { peer, reason })).boxed()
        }

        fn call_coordinator(
            &self,
            _: CoordinatorRequest,
            _: u64,
        ) -> BoxFuture<'static, Result<CoordinatorReply, CallError>> {
            pending().boxed()
        }

        fn send_flows(
            &self,
            _: Address,
            _: UnboundedReceiver<Flow>,
        ) -> BoxFuture<'static, Result<(), Refusal>> {
            pending().boxed()
        }

        fn learn_nodes(&self, _: &[NodeStatus]) {}

        fn now_ms(&self) -> u64 {
            self.world().now_ms
        }

        fn sleep_ms(&self, ms: u64) -> BoxFuture<'static, ()> {
            let mut world = self.world();
            world.now_ms += ms;
            // Then it dies.
            world.lives &= world.probe_count < 5;
            ready(()).boxed()
        }

        fn spawn(&self, _: BoxFuture<'static, ()>) {}

        fn blocking(&self, work: Box<dyn FnOnce() + Send>) {
            work();
        }

        fn doubt(&self, _: NodeId, is_silent: bool) {
            self.world().is_doubted = is_silent;
        }

        fn is_doubted(&self, _: NodeId) -> bool {
            self.world().is_doubted
        }

        fn passage(&self, _: NodeId) -> Passage {
            Passage {
                acknowledged_bytes: self.world().acknowledged_bytes,
                waiting_bytes: 1,
                ..Passage::default()
            }
        }

        fn random(&self) -> u64 {
            4
        }
    }

    #[test]
    fn a_silent_node_is_waited_for_shortly_and_the_next_time_more_shortly() {
        let ports = WorldPorts::default();
        let call =
            || block_on(ask_living(&ports, NodeId(3), ask::StoreCounts, 60_000)).unwrap_err();
        assert_eq!(call().to_string(), "node 3 is silent");
        assert_eq!(ports.now_ms(), 950);
        call();
        assert_eq!(ports.now_ms(), 1_450);
    }

    #[test]
    fn a_node_that_is_slow_and_lives_is_waited_for() {
        let ports = WorldPorts::default();
        ports.world().lives = true;
        let (node, _) = block_on(until_hung(&ports, &[NodeId(3)]));
        assert_eq!(node, NodeId(3));
        let world = ports.world();
        assert!(world.probe_count > 5 && world.now_ms >= 1_900, "five times");
    }

    #[test]
    fn a_node_behind_a_full_link_is_waited_for_as_long_as_bytes_move() {
        let ports = WorldPorts::default();
        ports.world().moves_until_ms = 10_000;
        let (node, _) = block_on(until_hung(&ports, &[NodeId(3)]));
        let waited_ms = ports.now_ms();
        assert_eq!(node, NodeId(3));
        assert!((10_000..12_000).contains(&waited_ms), "{waited_ms} ms");
    }

    #[test]
    fn what_the_system_of_a_hung_process_acknowledges_is_no_life() {
        let at = |received_bytes, acknowledged_bytes, waiting_bytes| Passage {
            received_bytes,
            acknowledged_bytes,
            waiting_bytes,
        };
        assert!(
            !at(5, 9, 0).shows_life_since(at(5, 3, 6)),
            "all has arrived"
        );
        assert!(at(5, 4, 5).shows_life_since(at(5, 3, 6)), "it comes nearer");
        assert!(!at(5, 3, 6).shows_life_since(at(5, 3, 0)), "nothing moves");
        assert!(at(6, 3, 0).shows_life_since(at(5, 3, 0)), "it was heard");
        assert!(!at(0, 0, 0).shows_life_since(at(5, 3, 0)), "it is closed");
    }
}
