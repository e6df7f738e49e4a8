//! A cluster of many nodes that exist in the coordinator's answers only.

use futures::FutureExt as _;
use futures::channel::mpsc::UnboundedReceiver;
use futures::future::{BoxFuture, ready};
use gabion_client::{Client, ClientOptions};
use gabion_layout::{NodeId, RackId};
use gabion_planner::placement::Space;
use gabion_protocol::client_ports::{ClientPorts, FlowRouter, RunFlows};
use gabion_protocol::message::{
    ClusterStatus, CoordinatorReply, CoordinatorRequest, Departure, EventPage, Flow, Liveness,
    Meter, NodeReply, NodeRequest, NodeStatus, Purpose, Refusal, RepairOrder, RunId,
};
use gabion_protocol::ports::{Address, CallError, Ports};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Nodes of a rack.
pub(crate) const NODES_PER_RACK: u32 = 40;

/// A client of a cluster with this number of nodes. One node in a hundred has failed.
pub(crate) async fn client(node_count: u32) -> Client {
    slow_client(node_count, Duration::ZERO).await
}

/// The same, whose nodes wait this long before they tell what they have sent.
pub(crate) async fn slow_client(node_count: u32, wait: Duration) -> Client {
    let crowd = Crowd {
        wait,
        status: Mutex::new(status(node_count)),
        begun: Instant::now(),
        flows: Arc::default(),
    };
    let client = Client::connect(Arc::new(crowd), ClientOptions::default()).await;
    client.expect("it answers from memory")
}

fn status(node_count: u32) -> ClusterStatus {
    let ids = || (0..node_count).map(NodeId);
    let has_failed = |node: NodeId| node.0 % 100 == 7;
    let nodes = ids().map(|node| NodeStatus {
        node,
        rack: RackId(node.0 / NODES_PER_RACK),
        address: format!("10.{}.{}.1:7070", node.0 / 250, node.0 % 250),
        liveness: if has_failed(node) {
            Liveness::Failed
        } else {
            Liveness::Up
        },
        departure: Departure::None,
    });
    let up = || ids().filter(move |&node| !has_failed(node));
    let space = |node: NodeId| Space {
        capacity_bytes: 16 << 40,
        free_bytes: (1 + u64::from(node.0 * 7919 % 12)) << 40,
    };
    let mut status = ClusterStatus {
        nodes: nodes.collect(),
        spaces: up().map(|node| (node, space(node))).collect(),
        silence_ms: up().map(|node| (node, u64::from(node.0 % 700))).collect(),
        coordinator_space: Some(Space {
            capacity_bytes: 1 << 40,
            free_bytes: 900 << 30,
        }),
        stripes_by_failures_left: [(1, 90_000), (2, 1_200_000), (3, 98_000_000)].into(),
        at_risk: [(1, 90_000), (2, 1_200_000)].into(),
        lost_chunk_count: 1_380_000,
        ..ClusterStatus::default()
    };
    status.repair.queued_chunk_count = 1_380_000;
    status.repair.left_bytes = 1_380_000 << 20;
    status.repair.bytes_per_s = 6 << 30;
    status.repair.rest_ms = Some(225_000);
    "pipeline".clone_into(&mut status.repair.scheme);
    status
}

struct Crowd {
    wait: Duration,
    status: Mutex<ClusterStatus>,
    begun: Instant,
    flows: Arc<FlowRouter>,
}

impl Ports for Crowd {
    fn call_node(
        &self,
        node: NodeId,
        request: NodeRequest,
        _deadline_ms: u64,
    ) -> BoxFuture<'static, Result<NodeReply, CallError>> {
        assert_eq!(request, NodeRequest::Meter, "nothing else is asked");
        let mut sent = Meter::default();
        let rack = RackId(node.0 / NODES_PER_RACK);
        let to = RackId((rack.0 + 1 + node.0 % 5) % 250);
        sent.count(
            Some(rack),
            Some(to),
            Purpose::Repair,
            u64::from(node.0) << 20,
        );
        let planned = Meter::default();
        let wait = self.wait;
        async move {
            tokio::time::sleep(wait).await;
            Ok(NodeReply::Meter { sent, planned })
        }
        .boxed()
    }

    fn call_coordinator(
        &self,
        request: CoordinatorRequest,
        _deadline_ms: u64,
    ) -> BoxFuture<'static, Result<CoordinatorReply, CallError>> {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let reply = match request {
            CoordinatorRequest::Nodes => CoordinatorReply::Nodes(status.nodes.clone()),
            CoordinatorRequest::Status => CoordinatorReply::Status(Box::new(status.clone())),
            CoordinatorRequest::OrderRepair(RepairOrder::Limit {
                limits,
                p99_target_ms,
            }) => {
                status.repair.limits = limits;
                status.repair.p99_target_ms = p99_target_ms;
                CoordinatorReply::Done
            }
            CoordinatorRequest::Pools => CoordinatorReply::Pools(Vec::new()),
            CoordinatorRequest::Events(_) => CoordinatorReply::Events(EventPage::default()),
            other => CoordinatorReply::Refused(format!("{} has no answer", other.name()).into()),
        };
        ready(Ok(reply)).boxed()
    }

    fn send_flows(
        &self,
        _to: Address,
        _flows: UnboundedReceiver<Flow>,
    ) -> BoxFuture<'static, Result<(), Refusal>> {
        ready(Ok(())).boxed()
    }

    fn learn_nodes(&self, _nodes: &[NodeStatus]) {}

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn sleep_ms(&self, ms: u64) -> BoxFuture<'static, ()> {
        tokio::time::sleep(Duration::from_millis(ms)).boxed()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }

    fn random(&self) -> u64 {
        4
    }
}

impl ClientPorts for Crowd {
    fn flows_of(&self, run: RunId) -> RunFlows {
        self.flows.register(run)
    }

    fn reach_coordinator(&self, _deadline_ms: u64) -> BoxFuture<'static, Result<(), CallError>> {
        ready(Ok(())).boxed()
    }

    fn reach_node(
        &self,
        _node: NodeId,
        _deadline_ms: u64,
    ) -> BoxFuture<'static, Result<(), CallError>> {
        ready(Ok(())).boxed()
    }
}
