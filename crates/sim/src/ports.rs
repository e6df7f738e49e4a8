//! The protocol's ports in the simulated world: the environment of a process.

use crate::cells::cell_count;
use crate::coverage::Tally;
use crate::ledger::Ledger;
use crate::network::Network;
use crate::parties::{Caller, Destination, Party, Request, Slot, Unanswered};
use crate::world::{World, lock};
use futures::FutureExt;
use futures::channel::mpsc::UnboundedReceiver;
use futures::future::BoxFuture;
use futures::stream::StreamExt;
use gabion_layout::NodeId;
use gabion_protocol::client_ports::{ClientPorts, FlowRouter, RunFlows};
use gabion_protocol::doubts::Doubts;
use gabion_protocol::event::Event;
use gabion_protocol::message::{
    CoordinatorReply, CoordinatorRequest, Flow, NodeReply, NodeRequest, NodeStatus, Refusal, RunId,
    ask,
};
use gabion_protocol::ports::{Address, CallError, Ports};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, Weak};

/// The coordinator's machine.
pub(crate) const COORDINATOR: Slot = Slot(0);
/// The coordinator's name in error messages.
const COORDINATOR_NAME: &str = "the coordinator";

/// Parts in a thousand by which clocks run fast or slow: well within what a membership lease's
/// margin allows.
const DRIFT_PER_MILLE: u64 = 40;

/// Interval at which work on a hung disk checks whether the hang is over.
const HANG_LOOK_US: u64 = 50_000;

/// Time until the operator agrees that a node sets aside chunks that no metadata names.
const OPERATOR_US: u64 = 1_000_000;

/// A machine's address.
pub(crate) fn address_of(slot: Slot) -> String {
    format!("machine:{}", slot.0)
}

fn slot_at(address: &str) -> Option<Slot> {
    let number = address.strip_prefix("machine:")?;
    number.parse().ok().map(Slot)
}

/// A disk hangs when it has completed no work for this time.
const HANGS_AFTER_US: u64 = 10_000_000;

/// Machines with hung disks, and the start of each hang.
#[derive(Debug, Default)]
pub(crate) struct Hangs(Mutex<BTreeMap<Slot, u64>>);

impl Hangs {
    /// A machine's disk hangs from now on.
    pub(crate) fn begin(&self, slot: Slot, now_us: u64) {
        lock(&self.0).insert(slot, now_us);
    }

    /// Ends the hang: the disk executes the operations that it received during it.
    pub(crate) fn end(&self, slot: Slot) {
        lock(&self.0).remove(&slot);
    }

    /// Whether a disk has hung for so long that its process notices it.
    fn is_noticed(&self, slot: Slot, now_us: u64) -> bool {
        let since_us = self.since_us(slot);
        since_us.is_some_and(|since_us| now_us >= since_us + HANGS_AFTER_US)
    }

    fn since_us(&self, slot: Slot) -> Option<u64> {
        lock(&self.0).get(&slot).copied()
    }
}

/// Machines that look for their coordinator in the other cluster.
#[derive(Debug)]
pub(crate) struct OtherCluster {
    /// The machine of its coordinator.
    pub(crate) machine: Slot,
    pub(crate) state: Mutex<Misled>,
}

/// The machines that are misled now.
#[derive(Debug, Default)]
pub(crate) struct Misled {
    pub(crate) machines: BTreeSet<Slot>,
    /// The other cluster's coordinator, while a machine is misled.
    pub(crate) coordinator: Option<Party>,
}

impl OtherCluster {
    pub(crate) fn new(machine: Slot) -> Self {
        let state = Mutex::default();
        Self { machine, state }
    }

    /// The machine that a machine takes for its coordinator's.
    pub(crate) fn coordinator_of(&self, slot: Slot) -> Slot {
        if lock(&self.state).machines.contains(&slot) {
            self.machine
        } else {
            COORDINATOR
        }
    }
}

/// The ports of one process.
pub(crate) struct SimPorts {
    /// Its own handle.
    itself: Weak<Self>,
    world: Arc<World>,
    network: Arc<Network>,
    party: Party,
    hangs: Arc<Hangs>,
    other: Arc<OtherCluster>,
    addresses: Mutex<BTreeMap<NodeId, Slot>>,
    doubts: Doubts,
    started_us: u64,
    /// Milliseconds that this process's clock counts in a thousand true ones.
    pace: u64,
    /// The receiver of frames for a client's runs.
    router: Arc<FlowRouter>,
    /// The observer of the put that each client's file is of, and of the one that its removal is of.
    ledger: Option<Arc<Ledger>>,
    /// Runs that a client has withdrawn, or whose fate it has asked for: it may not send them again.
    ended_runs: Mutex<BTreeSet<RunId>>,
}

impl SimPorts {
    pub(crate) fn new(
        world: Arc<World>,
        network: Arc<Network>,
        (hangs, other): (Arc<Hangs>, Arc<OtherCluster>),
        party: Party,
        ledger: Option<Arc<Ledger>>,
    ) -> Arc<Self> {
        let pace = world.roll(|dice| dice.between(1000 - DRIFT_PER_MILLE, 1000 + DRIFT_PER_MILLE));
        let started_us = world.now_us();
        Arc::new_cyclic(|itself| Self {
            itself: itself.clone(),
            world,
            network,
            party,
            hangs,
            other,
            addresses: Mutex::default(),
            doubts: Doubts::default(),
            started_us,
            pace,
            router: Arc::default(),
            ledger,
            ended_runs: Mutex::default(),
        })
    }

    pub(crate) fn world(&self) -> &Arc<World> {
        &self.world
    }

    pub(crate) fn tally(&self) -> &Arc<Tally> {
        self.network.tally()
    }

    pub(crate) fn router(&self) -> &Arc<FlowRouter> {
        &self.router
    }

    /// Fails the world if an update is sent under an ended run: a node's memory of the run would not
    /// distinguish the two attempts.
    fn check_run(&self, request: &NodeRequest) {
        let mut ended = lock(&self.ended_runs);
        match request {
            NodeRequest::Unstage(ask::Unstage { run }) => {
                ended.insert(*run);
            }
            NodeRequest::Fate(asked) => {
                ended.insert(asked.question.run);
            }
            NodeRequest::Update(ask::Update { run, .. }) if ended.contains(run) => {
                self.world
                    .fail(format!("{run:?} is sent again after it has ended"));
            }
            _ => {}
        }
    }

    /// True microseconds of a time by this process's clock.
    fn true_us(&self, ms: u64) -> u64 {
        ms.saturating_mul(1_000_000) / self.pace
    }

    /// Microseconds that this process's clock has counted since its start.
    fn counted_us(&self) -> u64 {
        let uncounted_us = self.world.uncounted_us(self.party.process);
        (self.world.now_us() - self.started_us - uncounted_us) * self.pace / 1000
    }

    fn reach(
        &self,
        to: Option<Slot>,
        peer: String,
        deadline_ms: u64,
    ) -> BoxFuture<'static, Result<(), CallError>> {
        let (network, party) = (Arc::clone(&self.network), self.party);
        let wait_us = self.true_us(deadline_ms);
        async move {
            match to {
                Some(to) if network.reach(party, to, wait_us).await => Ok(()),
                _ => {
                    let reason = "cannot be reached".to_owned();
                    Err(CallError { peer, reason })
                }
            }
        }
        .boxed()
    }
}

impl ClientPorts for SimPorts {
    fn flows_of(&self, run: RunId) -> RunFlows {
        self.router.register(run)
    }

    fn reach_coordinator(&self, deadline_ms: u64) -> BoxFuture<'static, Result<(), CallError>> {
        let to = self.other.coordinator_of(self.party.slot);
        self.reach(Some(to), COORDINATOR_NAME.to_owned(), deadline_ms)
    }

    fn reach_node(
        &self,
        node: NodeId,
        deadline_ms: u64,
    ) -> BoxFuture<'static, Result<(), CallError>> {
        let to = lock(&self.addresses).get(&node).copied();
        self.reach(to, node.to_string(), deadline_ms)
    }
}

/// The error of a call to a process without a known address.
fn unknown_address(peer: String) -> CallError {
    let reason = "has no known address".to_owned();
    CallError { peer, reason }
}

impl Ports for SimPorts {
    fn call_node(
        &self,
        node: NodeId,
        request: NodeRequest,
        deadline_ms: u64,
    ) -> BoxFuture<'static, Result<NodeReply, CallError>> {
        self.check_run(&request);
        let to = lock(&self.addresses).get(&node).copied();
        let (network, party) = (Arc::clone(&self.network), self.party);
        let (world, ports) = (Arc::clone(&self.world), self.itself.clone());
        let wait_us = self.true_us(deadline_ms);
        async move {
            let failed = |reason: String| CallError {
                peer: node.to_string(),
                reason,
            };
            let to = to.ok_or_else(|| unknown_address(node.to_string()))?;
            if to == party.slot {
                let answer = network.own(party, node, request);
                let answer = answer.ok_or_else(|| failed("serves nothing".to_owned()))?;
                return Ok(answer.await);
            }
            let request = (Request::Node(node, request), Caller::OfNode);
            let replied = Arc::clone(&network).call(party, to, request, wait_us).await;
            if let Err(Unanswered::Broken) = replied
                && let Some(ports) = ports.upgrade()
            {
                ports.suspect(node);
            }
            let reply = replied.map_err(|unanswered| failed(unanswered.to_string()))?;
            if let Some(fault) = network.tally().refused_ticket(&reply) {
                world.fail(format!("{node} refuses an honest client: {fault}"));
            }
            Ok(reply)
        }
        .boxed()
    }

    fn call_coordinator(
        &self,
        request: CoordinatorRequest,
        deadline_ms: u64,
    ) -> BoxFuture<'static, Result<CoordinatorReply, CallError>> {
        let (ledger, client) = (self.ledger.clone(), self.party.slot);
        let mut put_of = None;
        match &request {
            CoordinatorRequest::BeginPut(ask::BeginPut {
                at,
                size_bytes,
                whole,
                ..
            }) => {
                let key = (client, at.path.clone(), cell_count(*size_bytes));
                if let (Some(whole), Some(ledger)) = (whole, &ledger) {
                    ledger.may_put(key.clone(), whole.number);
                }
                put_of = Some(key);
            }
            CoordinatorRequest::RemoveFile(ask::RemoveFile { at, file, .. }) => {
                if let Some(ledger) = &ledger {
                    ledger.removing(client, &at.path, *file);
                }
            }
            _ => {}
        }
        // A coordinator has no other one to ask.
        let is_own = self.party.slot == COORDINATOR;
        let to = (!is_own).then(|| self.other.coordinator_of(self.party.slot));
        let (network, party) = (Arc::clone(&self.network), self.party);
        let wait_us = self.true_us(deadline_ms);
        async move {
            let to = to.ok_or_else(|| unknown_address(COORDINATOR_NAME.to_owned()))?;
            let request = (Request::Coordinator(request), Caller::OfCoordinator);
            let replied = network.call(party, to, request, wait_us).await;
            let reply = replied.map_err(|unanswered| CallError {
                peer: COORDINATOR_NAME.to_owned(),
                reason: unanswered.to_string(),
            })?;
            if let CoordinatorReply::Put(places) = &*reply
                && let (Some(key), Some(ledger)) = (&put_of, &ledger)
            {
                ledger.put_has_begun(key, places.put.id);
            }
            Ok(*reply)
        }
        .boxed()
    }

    fn doubts(&self) -> Option<&Doubts> {
        Some(&self.doubts)
    }

    fn send_flows(
        &self,
        to: Address,
        mut flows: UnboundedReceiver<Flow>,
    ) -> BoxFuture<'static, Result<(), Refusal>> {
        let (network, party) = (Arc::clone(&self.network), self.party);
        let (destination, name) = match to {
            Address::Node(node) => {
                let slot = lock(&self.addresses).get(&node).copied();
                (slot.map(Destination::Machine), node.to_string())
            }
            Address::Origin(connection) => (
                Some(Destination::Dialer(connection)),
                "the asker".to_owned(),
            ),
        };
        async move {
            let gone = || Refusal::Unavailable(name.clone());
            let destination = destination.ok_or_else(gone)?;
            if matches!(destination, Destination::Machine(slot) if slot == party.slot) {
                while let Some(flow) = flows.next().await {
                    network.service(party).ok_or_else(gone)?.flow(flow);
                }
                return Ok(());
            }
            let stream = network.open(party, destination).ok_or_else(gone)?;
            while let Some(flow) = flows.next().await {
                if !network.push(stream, flow) {
                    return Err(gone());
                }
            }
            Ok(())
        }
        .boxed()
    }

    fn learn_nodes(&self, nodes: &[NodeStatus]) {
        let mut addresses = lock(&self.addresses);
        for status in nodes {
            // A node whose address another node has taken over has none.
            if let Some(slot) = slot_at(&status.address) {
                addresses.insert(status.node, slot);
            }
        }
    }

    fn now_us(&self) -> u64 {
        self.counted_us()
    }

    fn now_ms(&self) -> u64 {
        self.counted_us() / 1000
    }

    fn sleep_ms(&self, ms: u64) -> BoxFuture<'static, ()> {
        let (world, process) = (Arc::clone(&self.world), self.party.process);
        let (mut left_us, mut uncounted_us) = (self.true_us(ms), world.uncounted_us(process));
        async move {
            while left_us > 0 {
                world.sleep(left_us).await;
                // A clock that has stood still still has to count the missed time.
                let now = world.uncounted_us(process);
                left_us = now - uncounted_us;
                uncounted_us = now;
            }
        }
        .boxed()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.world.spawn(self.party.process, task);
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) {
        let wait_us = self.world.roll(|dice| match dice.below(40) {
            0 => dice.between(1_000, 200_000),
            1..20 => dice.between(10, 1_000),
            _ => 0,
        });
        let (world, hangs) = (Arc::clone(&self.world), Arc::clone(&self.hangs));
        let slot = self.party.slot;
        let task = async move {
            world.sleep(wait_us).await;
            while hangs.since_us(slot).is_some() {
                world.sleep(HANG_LOOK_US).await;
            }
            if let Some(act) = world.steps.step() {
                // The process to be killed may be this one, and must not be killed by its own task.
                world.after(0, act);
                world.sleep(1).await;
            }
            work();
            world.steps.changed();
        };
        self.world.spawn(self.party.process, task.boxed());
    }

    fn disk_hangs(&self) -> bool {
        self.hangs.is_noticed(self.party.slot, self.world.now_us())
    }

    fn disk_hang(&self) -> BoxFuture<'static, ()> {
        let (world, hangs, slot) = (
            Arc::clone(&self.world),
            Arc::clone(&self.hangs),
            self.party.slot,
        );
        async move {
            world.sleep(HANGS_AFTER_US).await;
            while !hangs.is_noticed(slot, world.now_us()) {
                world.sleep(HANGS_AFTER_US).await;
            }
        }
        .boxed()
    }

    fn note_event(&self, event: &Event) {
        self.network.tally().noted(event);
        // The operator reads a node's log periodically, and always agrees.
        if let Event::JoinHeld(node, _) = event
            && self.party.slot != COORDINATOR
        {
            let request = Request::Coordinator(CoordinatorRequest::Accept(*node));
            let request = (request, Caller::OfCoordinator);
            let (world, network) = (Arc::clone(&self.world), Arc::clone(&self.network));
            let party = self.party;
            let agree = async move {
                world.sleep(OPERATOR_US).await;
                // If this message is lost, the next join reports the disagreement.
                let _ = network.call(party, COORDINATOR, request, OPERATOR_US).await;
            };
            self.world.spawn(self.party.process, agree.boxed());
        }
    }

    fn random(&self) -> u64 {
        self.world.roll(crate::dice::Dice::any)
    }
}
