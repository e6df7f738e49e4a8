//! Ports of a client under test: a script answers its requests, on a clock that only waiting and the script move.

use futures::channel::mpsc::UnboundedReceiver;
use futures::future::{BoxFuture, ready};
use futures::{FutureExt, StreamExt};
use gabion_layout::NodeId;
use gabion_protocol::client_ports::{ClientPorts, RunFlows};
use gabion_protocol::message::{
    CoordinatorReply, CoordinatorRequest, Flow, NodeReply, NodeRequest, NodeStatus, Refusal, RunId,
};
use gabion_protocol::ports::{Address, CallError, Ports};
use std::sync::{Arc, Mutex, MutexGuard};

/// The peers of a client.
pub(crate) trait Script: Send + Sync + 'static {
    /// The reply of a node.
    fn ask_node(&self, node: NodeId, request: NodeRequest) -> Result<NodeReply, CallError>;

    /// The reply of the coordinator. The script may move the clock.
    fn ask_coordinator(&self, request: CoordinatorRequest, now_ms: &mut u64) -> CoordinatorReply;
}

/// The ports. They start no tasks.
pub(crate) struct ScriptedPorts<S> {
    pub(crate) script: S,
    now_ms: Arc<Mutex<u64>>,
}

impl<S> ScriptedPorts<S> {
    pub(crate) fn new(script: S) -> Self {
        let now_ms = Arc::default();
        Self { script, now_ms }
    }

    fn now(&self) -> MutexGuard<'_, u64> {
        self.now_ms.lock().expect("no script panics with the clock")
    }
}

impl<S: Script> Ports for ScriptedPorts<S> {
    fn call_node(
        &self,
        node: NodeId,
        request: NodeRequest,
        _: u64,
    ) -> BoxFuture<'static, Result<NodeReply, CallError>> {
        ready(self.script.ask_node(node, request)).boxed()
    }

    fn call_coordinator(
        &self,
        request: CoordinatorRequest,
        _: u64,
    ) -> BoxFuture<'static, Result<CoordinatorReply, CallError>> {
        let reply = self.script.ask_coordinator(request, &mut self.now());
        ready(Ok(reply)).boxed()
    }

    fn send_flows(
        &self,
        _: Address,
        flows: UnboundedReceiver<Flow>,
    ) -> BoxFuture<'static, Result<(), Refusal>> {
        flows.for_each(|_| ready(())).map(Ok).boxed()
    }

    fn learn_nodes(&self, _: &[NodeStatus]) {}

    fn now_ms(&self) -> u64 {
        *self.now()
    }

    fn sleep_ms(&self, ms: u64) -> BoxFuture<'static, ()> {
        let now_ms = Arc::clone(&self.now_ms);
        async move { *now_ms.lock().expect("no script panics with the clock") += ms }.boxed()
    }

    fn spawn(&self, _: BoxFuture<'static, ()>) {}

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }

    fn random(&self) -> u64 {
        4
    }
}

impl<S: Script> ClientPorts for ScriptedPorts<S> {
    fn flows_of(&self, run: RunId) -> RunFlows {
        panic!("{run:?} takes no part in a plan")
    }

    fn reach_coordinator(&self, _: u64) -> BoxFuture<'static, Result<(), CallError>> {
        ready(Ok(())).boxed()
    }

    fn reach_node(&self, _: NodeId, _: u64) -> BoxFuture<'static, Result<(), CallError>> {
        ready(Ok(())).boxed()
    }
}
