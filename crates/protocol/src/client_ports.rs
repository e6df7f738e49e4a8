//! The ports that a client needs beside those of every role. A client takes part in the plans that it
//! starts, serves no requests, and must know whether a request was sent at all.

use crate::message::{Flow, RunId};
use crate::ports::{CallError, Ports};
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::future::BoxFuture;
use gabion_layout::NodeId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The ports of a client.
pub trait ClientPorts: Ports {
    /// The frames of a run in which this client takes part, until they are dropped.
    ///
    /// # Panics
    /// When this client takes part in the run already.
    fn flows_of(&self, run: RunId) -> RunFlows;

    /// Connects to the coordinator unless there is a connection.
    ///
    /// # Errors
    /// When the connection fails or times out. No request has been sent then.
    fn reach_coordinator(&self, deadline_ms: u64) -> BoxFuture<'static, Result<(), CallError>>;

    /// Whether the coordinator may be one of several processes, which take over from each other.
    fn has_several_coordinators(&self) -> bool {
        false
    }

    /// Connects to a node unless there is a connection.
    ///
    /// # Errors
    /// When the connection fails or times out. No request has been sent then.
    fn reach_node(
        &self,
        node: NodeId,
        deadline_ms: u64,
    ) -> BoxFuture<'static, Result<(), CallError>>;
}

/// Hands incoming frames to the runs that they belong to.
#[derive(Debug, Default)]
pub struct FlowRouter {
    runs: Mutex<BTreeMap<RunId, UnboundedSender<Flow>>>,
}

impl FlowRouter {
    /// The frames of a run from now on, until they are dropped.
    ///
    /// # Panics
    /// When the run is registered already.
    pub fn register(self: &Arc<Self>, run: RunId) -> RunFlows {
        let (sender, flows) = unbounded();
        let previous = self.lock().insert(run, sender);
        assert!(previous.is_none(), "runs are drawn at random from 2^64");
        RunFlows {
            run,
            router: Arc::clone(self),
            flows,
        }
    }

    /// Hands a frame to its run. A frame of an ended run is dropped.
    pub fn route(&self, flow: Flow) {
        if let Some(run) = self.lock().get(&flow.run()) {
            // The part may have ended before its last frames.
            let _ = run.unbounded_send(flow);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RunId, UnboundedSender<Flow>>> {
        // The map is whole after every call.
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The incoming frames of one run.
#[derive(Debug)]
pub struct RunFlows {
    run: RunId,
    router: Arc<FlowRouter>,
    /// The frames, in the order of their arrival.
    pub flows: UnboundedReceiver<Flow>,
}

impl Drop for RunFlows {
    fn drop(&mut self) {
        self.router.lock().remove(&self.run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_go_to_their_run_while_it_lasts() {
        let router = Arc::new(FlowRouter::default());
        let (one, other) = (RunId(1), RunId(2));
        let mut registered = router.register(one);
        router.route(Flow::Abort { run: other });
        router.route(Flow::Abort { run: one });
        let frame = registered.flows.try_recv();
        assert!(matches!(frame, Ok(Flow::Abort { run }) if run == one));
        assert!(registered.flows.try_recv().is_err(), "the other run's");
        drop(registered);
        router.route(Flow::Abort { run: one });
        drop(router.register(one));
    }
}
