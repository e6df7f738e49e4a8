//! The cluster's machines: a coordinator, nodes and clients, each with a disk and at most one process.
//! Processes are killed, lose power and start again here; only their disks survive.

use crate::client::SimClient;
use crate::coverage::{Coverage, Tally};
use crate::ledger::Ledger;
use crate::meta_disk::{MetaDisk, Onlooker};
use crate::network::Network;
use crate::parties::{Party, Slot};
use crate::ports::{COORDINATOR, Hangs, OtherCluster, SimPorts, address_of};
use crate::services::Service;
use crate::shape::Shape;
use crate::watch::Watch;
use crate::world::{World, lock};
use futures::FutureExt;
use gabion_client::ClientOptions;
use gabion_codec::Code;
use gabion_layout::{Geometry, NodeId, RackId, Start, StripeRecord};
use gabion_meta::{ClusterId, Meta, Timing, WallClock, WallTime};
use gabion_planner::repair::Scheme;
use gabion_protocol::coordinator::{Coordinator, CoordinatorOptions, TicketTimes};
use gabion_protocol::message::Purpose;
use gabion_protocol::node::{JoinError, Node, NodeOptions};
use gabion_protocol::ports::Ports;
use gabion_store::{Disk, SimDisk, Store};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Bytes of a journal segment: as small as large updates allow, so that segments are created and removed
/// often.
const SEGMENT_BYTES: u64 = 256 << 10;
/// Bytes that new chunks leave free.
const RESERVE_BYTES: u64 = 64 << 10;
/// Time limit of the operator's client.
const OPERATOR_PATIENCE: Duration = Duration::from_secs(10);

/// A node's machine.
pub(crate) struct NodeMachine {
    rack: RackId,
    pub(crate) disk: SimDisk,
    /// The node's identity, outside its store.
    pub(crate) id: Option<NodeId>,
    /// The number of its last start, in its directory.
    pub(crate) incarnation: u64,
    /// Its starts on any directory: their nonces are never drawn twice.
    start_count: u64,
    /// Earlier states of the disk, as a loss of power would have left them, oldest first.
    pub(crate) images: VecDeque<SimDisk>,
    pub(crate) running: Option<Running>,
}

/// Age of a copy of the metadata that may return: since then, nodes have learnt of later changes and stored
/// that.
const IMAGE_AGE_US: u64 = 20_000_000;

pub(crate) struct Running {
    party: Party,
    /// Set once it has joined.
    store: Option<Arc<Store>>,
}

impl NodeMachine {
    /// Counts a start, as one above `number`.
    fn begin_above(&mut self, slot: Slot, number: u64) -> Start {
        self.incarnation = self.incarnation.max(number) + 1;
        self.start_count += 1;
        Start {
            number: self.incarnation,
            nonce: (slot.0 as u64) << 32 | self.start_count,
        }
    }
}

/// All machines.
pub(crate) struct Cluster {
    pub(crate) world: Arc<World>,
    pub(crate) network: Arc<Network>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) tally: Arc<Tally>,
    pub(crate) shape: Shape,
    meta: MetaDisk,
    /// A copy of the metadata of an earlier time, and when it was made.
    meta_image: Mutex<Option<(MetaDisk, u64)>>,
    /// Reads the metadata beside the coordinator.
    pub(crate) observer: Arc<Meta<Onlooker>>,
    pub(crate) watch: Watch,
    pub(crate) hangs: Arc<Hangs>,
    pub(crate) other: Arc<OtherCluster>,
    /// Clients that run, by number.
    clients: Mutex<BTreeMap<usize, Party>>,
    coordinator: Mutex<Option<Party>>,
    pub(crate) nodes: Mutex<Vec<NodeMachine>>,
}

impl Cluster {
    /// Machines without processes.
    pub(crate) fn new(world: &Arc<World>, shape: Shape) -> Arc<Self> {
        let tally = Arc::new(Tally::default());
        // The operator has a machine, too, and another cluster's coordinator.
        let other = Slot(1 + shape.node_count + shape.client_count + 1);
        let machine_count = other.0 + 1;
        let machines = (machine_count, shape.node_count);
        let nodes = (0..shape.node_count).map(|at| NodeMachine {
            rack: RackId(at as u32 % shape.rack_count),
            disk: SimDisk::new(world.roll(crate::dice::Dice::any)),
            id: None,
            incarnation: 0,
            start_count: 0,
            images: VecDeque::new(),
            running: None,
        });
        let nodes = nodes.collect();
        let meta = MetaDisk::default();
        let observer = Meta::create(
            Onlooker(meta.clone()),
            ClusterId(1),
            WallClock::stopped(WallTime::default()),
        );
        let observer = Arc::new(observer.expect("an empty store takes a cluster"));
        let ledger = Ledger::new(Arc::clone(world), &shape, Arc::clone(&observer));
        let network = Network::new(Arc::clone(world), machines, Arc::clone(&tally));
        if shape.is_thin {
            network.thin_out(Purpose::Repair);
        }
        let cluster = Arc::new(Self {
            world: Arc::clone(world),
            network,
            ledger,
            tally,
            shape,
            meta,
            meta_image: Mutex::default(),
            observer,
            watch: Watch::default(),
            hangs: Arc::default(),
            other: Arc::new(OtherCluster::new(other)),
            clients: Mutex::default(),
            coordinator: Mutex::default(),
            nodes: Mutex::new(nodes),
        });
        let watched = Arc::downgrade(&cluster);
        world.steps.watch_with(Box::new(move || {
            let cluster = watched.upgrade();
            // Hostile peers may destroy what they like.
            let watched = cluster.filter(|cluster| cluster.network.altered_count().is_none());
            if let Some(cluster) = watched {
                cluster.watch.look(&cluster);
            }
        }));
        cluster
    }

    /// The number of metadata transactions.
    pub(crate) fn meta_write_count(&self) -> u64 {
        self.meta.write_count.load(Ordering::Relaxed)
    }

    /// Nodes that are declared failed.
    pub(crate) fn failed(&self) -> BTreeSet<NodeId> {
        let nodes = self.observer.nodes();
        let nodes = nodes.expect("onlookers can read").into_iter();
        nodes
            .filter(|node| node.failed)
            .map(|node| node.id)
            .collect()
    }

    /// The stripes that count.
    pub(crate) fn stripes(&self) -> Vec<StripeRecord> {
        let stripes = self.observer.stripes(None, usize::MAX);
        stripes.expect("onlookers can read")
    }

    /// Machines whose nodes have missed updates, or may be about to: they are declared failed, or have a
    /// chunk that does not count.
    pub(crate) fn behind(&self) -> BTreeSet<Slot> {
        let failed = self.failed().into_iter();
        let stripes = self.stripes();
        let stale = stripes.iter().flat_map(|stripe| {
            let stale = stripe.stale.iter();
            stale.filter_map(|stale| stripe.node_of(stale.chunk))
        });
        failed
            .chain(stale)
            .filter_map(|node| self.slot_of(node))
            .collect()
    }

    /// The machines of nodes.
    pub(crate) fn node_slots(&self) -> Vec<Slot> {
        (1..=self.shape.node_count).map(Slot).collect()
    }

    /// The operator's client, which is free of faults.
    pub(crate) async fn operator(&self) -> SimClient {
        let party = self.begin(Slot(1 + self.shape.node_count + self.shape.client_count));
        let options = ClientOptions {
            deadline: OPERATOR_PATIENCE,
            ..ClientOptions::default()
        };
        self.client(party, options).await
    }

    /// Starts the process of a client.
    pub(crate) fn begin_client(&self, number: usize) -> Party {
        let party = self.begin(Slot(1 + self.shape.node_count + number));
        lock(&self.clients).insert(number, party);
        party
    }

    /// Ends the process of a client at any point of its work.
    pub(crate) fn kill_client(&self, number: usize) {
        if let Some(party) = lock(&self.clients).remove(&number) {
            self.world.note(&format!("client {number} is killed"));
            self.end(party);
        }
    }

    /// A client in its process, once it has found the coordinator.
    pub(crate) async fn client(&self, party: Party, options: ClientOptions) -> SimClient {
        let ledger = Arc::clone(&self.ledger);
        let ports = self.ports(party, Some(Arc::clone(&ledger)));
        let service = Service::Client(Arc::clone(ports.router()));
        self.network.serve(party, service);
        SimClient::connect(ports, party, ledger, options).await
    }

    /// The code and the shape of a stripe.
    pub(crate) fn shape_of(&self, stripe: &StripeRecord) -> (Code, Geometry) {
        let pool = self.observer.pool(stripe.pool).expect("onlookers can read");
        let code: Code = pool.spec.code.parse().expect("pools have known codes");
        let geometry = Geometry::new(code.k(), code.m(), code.sub_chunks(), stripe.chunk_bytes);
        (code, geometry.expect("stripes have possible shapes"))
    }

    /// Starts the coordinator unless it runs.
    pub(crate) fn start_coordinator(&self) {
        self.start_coordinator_on(self.meta.clone());
    }

    /// Makes a copy of the metadata.
    pub(crate) fn keep_meta_image(&self) {
        let image = (self.meta.copy(), self.world.now_us());
        *lock(&self.meta_image) = Some(image);
    }

    /// Starts the coordinator with the copy of the metadata, if there is one and nodes know enough later
    /// changes to detect it. Returns whether it was started.
    pub(crate) fn start_coordinator_on_image(&self) -> bool {
        let now_us = self.world.now_us();
        let image = lock(&self.meta_image).take_if(|(_, at_us)| *at_us + IMAGE_AGE_US <= now_us);
        let Some((image, _)) = image else {
            return false;
        };
        self.world
            .note("the coordinator gets an old copy of its metadata");
        self.start_coordinator_on(image);
        true
    }

    fn start_coordinator_on(&self, disk: MetaDisk) {
        let mut running = lock(&self.coordinator);
        if running.is_some() {
            return;
        }
        let party = self.begin(COORDINATOR);
        let world = Arc::clone(&self.world);
        let clock = WallClock::new(move || wall_time(&world));
        let opened = Meta::open(disk, clock).and_then(|meta| {
            let options = coordinator_options(self.shape.window_stripe_count);
            Coordinator::new(meta, self.ports(party, None), options)
        });
        match opened {
            Ok(coordinator) => {
                self.world.note("the coordinator starts");
                coordinator.start();
                self.network.serve(party, Service::Coordinator(coordinator));
                *running = Some(party);
            }
            Err(error) => {
                self.world
                    .note(&format!("the coordinator cannot start: {error}"));
                self.end(party);
            }
        }
    }

    /// Kills the coordinator if it runs; its disk works again from then on.
    pub(crate) fn kill_coordinator(&self) {
        let running = lock(&self.coordinator).take();
        if let Some(party) = running {
            self.world.note("the coordinator is killed");
            self.end(party);
        }
        self.meta.store.heal();
        self.meta.doubtful.store(0, Ordering::Relaxed);
    }

    /// Makes the coordinator's disk fail after some more operations.
    pub(crate) fn fail_meta_after(&self, operation_count: u64) {
        self.meta.store.fail_after(operation_count);
    }

    /// Makes the commit of one of the next transactions report a failure although it is durable. All later
    /// commits also fail.
    pub(crate) fn doubt_commit_after(&self, write_count: u64) {
        let number = self.meta_write_count() + write_count;
        self.meta.doubtful.store(number, Ordering::Relaxed);
    }

    /// All running processes: the coordinator, nodes and clients.
    pub(crate) fn parties(&self) -> Vec<Party> {
        let clients: Vec<Party> = lock(&self.clients).values().copied().collect();
        let coordinator = *lock(&self.coordinator);
        let nodes = lock(&self.nodes);
        let nodes = nodes.iter().filter_map(|machine| machine.running.as_ref());
        let nodes = nodes.map(|running| running.party);
        clients
            .into_iter()
            .chain(coordinator)
            .chain(nodes)
            .collect()
    }

    /// Starts a node unless it runs. It recovers its store and joins as soon as it can.
    pub(crate) fn start_node(self: &Arc<Self>, slot: Slot) {
        let (options, disk) = {
            let mut nodes = lock(&self.nodes);
            let machine = &mut nodes[slot.0 - 1];
            if machine.running.is_some() {
                return;
            }
            let start = machine.begin_above(slot, 0);
            let options = NodeOptions {
                node: machine.id,
                rack: machine.rack,
                address: address_of(slot),
                capacity_bytes: 1 << 30,
                reserve_bytes_per_s: 16 << 20,
                // So small that faults and other work occur between the pages of a join.
                page_chunk_count: 1 + start.number as usize % 4,
                start,
                limits: self.shape.limits,
            };
            (options, machine.disk.clone())
        };
        // A new process has its own descriptors.
        disk.give_descriptors(true);
        let party = self.begin(slot);
        lock(&self.nodes)[slot.0 - 1].running = Some(Running { party, store: None });
        let cluster = Arc::clone(self);
        let run = async move { cluster.run_node(party, options, disk).await };
        self.world.spawn(party.process, run.boxed());
    }

    async fn run_node(self: Arc<Self>, party: Party, mut options: NodeOptions, disk: SimDisk) {
        let at = party.slot.0;
        let store = match Store::open(Arc::new(disk), store_options()) {
            Ok((store, report)) => {
                let (pending, damage) = (report.pending_count, report.damage.len());
                self.world.note(&format!(
                    "machine {at} opens its store: {pending} pending, {damage} damaged"
                ));
                Arc::new(store)
            }
            Err(error) => {
                self.world
                    .note(&format!("machine {at} cannot open its store: {error}"));
                return;
            }
        };
        let ports = self.ports(party, None);
        let node = loop {
            let world = Arc::clone(&ports) as Arc<dyn Ports>;
            match Node::join(Arc::clone(&store), world, options.clone()).await {
                Ok(node) => break node,
                Err(JoinError::Unreachable(_)) => ports.sleep_ms(300).await,
                Err(JoinError::Superseded(number)) => {
                    let machine = &mut lock(&self.nodes)[at - 1];
                    options.start = machine.begin_above(party.slot, number);
                }
                Err(error) => {
                    // The operator starts it again: a new disk is refused until the node that had the
                    // address is declared failed.
                    self.world
                        .note(&format!("machine {at} cannot join: {error}"));
                    ports.sleep_ms(1_000).await;
                }
            }
        };
        self.world
            .note(&format!("machine {at} has joined as {}", node.id()));
        {
            let mut nodes = lock(&self.nodes);
            let machine = &mut nodes[at - 1];
            machine.id = Some(node.id());
            if let Some(running) = &mut machine.running {
                running.store = Some(store);
            }
        }
        self.network.serve(party, Service::Node(Arc::clone(&node)));
        node.keep_alive().await;
    }

    /// Kills a node if it runs. A loss of power also drops writes that were not synced.
    pub(crate) fn kill_node(&self, slot: Slot, loses_power: bool) {
        let (running, disk) = {
            let mut nodes = lock(&self.nodes);
            let machine = &mut nodes[slot.0 - 1];
            (machine.running.take(), machine.disk.clone())
        };
        let how = if loses_power {
            "loses power"
        } else {
            "is killed"
        };
        self.world.note(&format!("machine {} {how}", slot.0));
        if let Some(running) = running {
            self.tally_store(&running);
            self.end(running.party);
        }
        if loses_power {
            disk.crash();
            self.world.steps.changed();
        } else {
            disk.restart_process();
        }
    }

    /// Adds the counts of a store that is gone.
    fn tally_store(&self, running: &Running) {
        let counts = running.store.as_ref().map(|store| store.counts());
        let stalled_count = counts.map_or(0, |counts| counts.stalled_append_count);
        self.tally
            .add(|coverage| coverage.stalled_append_count += stalled_count);
    }

    /// The counts of the run. Called once, at its end: it counts running processes as ended.
    pub(crate) fn coverage(&self) -> Coverage {
        for running in lock(&self.nodes).iter().filter_map(|m| m.running.as_ref()) {
            self.tally_store(running);
        }
        self.tally.coverage()
    }

    /// Gives a stopped machine an empty disk: its node is gone for good.
    pub(crate) fn wipe(&self, slot: Slot) {
        self.lead_back(slot);
        let disk = SimDisk::new(self.world.roll(crate::dice::Dice::any));
        let machine = &mut lock(&self.nodes)[slot.0 - 1];
        assert!(
            machine.running.is_none(),
            "a running machine keeps its disk"
        );
        self.world
            .note(&format!("machine {} loses its disk", slot.0));
        machine.disk = disk;
        machine.id = None;
        machine.images.clear();
    }

    /// A node's disk.
    pub(crate) fn disk(&self, slot: Slot) -> SimDisk {
        lock(&self.nodes)[slot.0 - 1].disk.clone()
    }

    /// The nodes that have a disk, and their disks.
    pub(crate) fn disks(&self) -> BTreeMap<NodeId, SimDisk> {
        let nodes = lock(&self.nodes);
        let known = nodes
            .iter()
            .filter_map(|machine| Some((machine.id?, machine.disk.clone())));
        known.collect()
    }

    /// Bytes on a node's disk.
    pub(crate) fn used_bytes(&self, slot: Slot) -> u64 {
        let disk = self.disk(slot);
        disk.set_capacity(u64::MAX);
        let available = disk.available_bytes().unwrap_or(u64::MAX);
        disk.set_capacity(self.capacity_bytes());
        u64::MAX - available
    }

    /// Bytes of a disk that is not full.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        // A simulated disk is in memory, which hostile peers may try to use up.
        if self.network.altered_count().is_some() {
            64 << 20
        } else {
            u64::MAX
        }
    }

    /// The store of a node that has joined and whose disk works.
    pub(crate) fn sound_store(&self, slot: Slot) -> Option<Arc<Store>> {
        let nodes = lock(&self.nodes);
        let store = nodes[slot.0 - 1].running.as_ref()?.store.as_ref()?;
        store.failure().is_none().then(|| Arc::clone(store))
    }

    /// The machine of a node.
    pub(crate) fn slot_of(&self, node: NodeId) -> Option<Slot> {
        let nodes = lock(&self.nodes);
        let at = nodes.iter().position(|machine| machine.id == Some(node))?;
        Some(Slot(at + 1))
    }

    /// The id of the node on a machine, once it has one.
    pub(crate) fn node_on(&self, slot: Slot) -> Option<NodeId> {
        lock(&self.nodes)[slot.0 - 1].id
    }

    pub(crate) fn begin(&self, slot: Slot) -> Party {
        let process = self.world.begin();
        let party = Party { slot, process };
        self.network.begin(party);
        party
    }

    /// Ends a process.
    pub(crate) fn end(&self, party: Party) {
        self.network.end(party);
        self.world.kill(party.process);
    }

    pub(crate) fn ports(&self, party: Party, ledger: Option<Arc<Ledger>>) -> Arc<SimPorts> {
        let (world, network) = (Arc::clone(&self.world), Arc::clone(&self.network));
        let machines = (Arc::clone(&self.hangs), Arc::clone(&self.other));
        SimPorts::new(world, network, machines, party, ledger)
    }
}

pub(crate) fn store_options() -> gabion_store::Options {
    gabion_store::Options {
        segment_bytes: SEGMENT_BYTES,
        free_bytes: RESERVE_BYTES,
        segment_count_max: 3,
        ..gabion_store::Options::default()
    }
}

/// Terms short enough that many end in a fault period, with a margin for the clocks' drift.
pub(crate) fn coordinator_options(window_stripe_count: u64) -> CoordinatorOptions {
    CoordinatorOptions {
        timing: Timing {
            lease_ms: 1_500,
            margin_ms: 500,
            grace_ms: 4_000,
        },
        heartbeat_ms: 400,
        repair_scheme: Scheme::Pipeline,
        repair_parallel: 2,
        slice_bytes: 2 << 10,
        repair_deadline_ms: 10_000,
        repair_stall_ms: 1_000,
        retry_ms: 200,
        window_stripe_count,
        // Most puts are extended.
        reserved_count: 2,
        discarded_count: 2,
        put_timeout_ms: 20_000,
        replacement_timeout_ms: 3_333,
        lifecycle_scan_ms: 500,
        progress_ms: 1_000,
        convert_parallel: 2,
        scrub_deadline_ms: 20_000,
        // So short that keys and tickets change several times in a run.
        tickets: TicketTimes {
            rotate_ms: 6_000,
            lead_ms: 2_000,
            grace_ms: 60_000,
        },
        placement_seed: None,
    }
}

/// The simulated time as the wall clock of the cluster.
pub(crate) fn wall_time(world: &World) -> WallTime {
    let now_us = world.now_us();
    WallTime {
        seconds: (now_us / 1_000_000).cast_signed(),
        nanoseconds: (now_us % 1_000_000 * 1_000) as u32,
    }
}
