//! Storms and calms. In a storm, the seed chooses what goes wrong and when; each fault mends itself
//! after a while. In a calm everything is mended and the cluster must become whole again by itself.
//!
//! Crashes, cuts and full disks may hit anything at any time. Loss of what is stored may hit only
//! one machine between two calms, and only while no more have missed updates and not caught up yet
//! than the pool promises to survive: stripes are written as long as they could bear one more loss
//! than those that are known.

use crate::client::Client;
use crate::cluster::Cluster;
use crate::network::Slot;
use crate::world::lock;
use futures::FutureExt;
use gabion_layout::NodeId;
use gabion_protocol::message::{ClusterStatus, CoordinatorReply, CoordinatorRequest, Liveness};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Virtual time within which a calm cluster must be whole.
const CALM_MS_MAX: u64 = 300_000;
/// How often a calm looks whether all is well.
const LOOK_EVERY_MS: u64 = 500;

/// Something that goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Kill,
    PowerLoss,
    /// Power goes in the middle of a disk operation.
    PowerLossInWrite,
    /// A disk operation fails; the machine is restarted when somebody notices.
    DiskError,
    DiskFull,
    AllLosePower,
    KillCoordinator,
    MetaError,
    Cut,
    Isolate,
    FlakyConnections,
    /// All that a machine sends and gets is late: repairs that it takes part in last.
    Slow,
    /// A bit of a stored chunk rots.
    BitRot,
    /// A machine loses its disk.
    DiskLoss,
}

/// As often as each should happen.
const FAULTS: [Fault; 26] = [
    Fault::Kill,
    Fault::Kill,
    Fault::Kill,
    Fault::PowerLoss,
    Fault::PowerLoss,
    Fault::PowerLossInWrite,
    Fault::PowerLossInWrite,
    Fault::PowerLossInWrite,
    Fault::DiskError,
    Fault::DiskError,
    Fault::DiskFull,
    Fault::AllLosePower,
    Fault::KillCoordinator,
    Fault::KillCoordinator,
    Fault::MetaError,
    Fault::Cut,
    Fault::Cut,
    Fault::Isolate,
    Fault::Isolate,
    Fault::FlakyConnections,
    Fault::Slow,
    Fault::Slow,
    Fault::BitRot,
    Fault::BitRot,
    Fault::DiskLoss,
    Fault::DiskLoss,
];

/// What makes things go wrong.
pub(crate) struct Weather {
    cluster: Arc<Cluster>,
    client: Arc<Client>,
    script: crate::world::ProcessId,
    /// Machines that have lost something since the last calm.
    harmed: Mutex<BTreeSet<Slot>>,
    under_way_count: Arc<AtomicUsize>,
    fault_count: AtomicUsize,
}

impl Weather {
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        client: Arc<Client>,
        script: crate::world::ProcessId,
    ) -> Arc<Self> {
        Arc::new(Self {
            cluster,
            client,
            script,
            harmed: Mutex::default(),
            under_way_count: Arc::default(),
            fault_count: AtomicUsize::new(0),
        })
    }

    /// How many faults there were.
    pub(crate) fn fault_count(&self) -> usize {
        self.fault_count.load(Ordering::Relaxed)
    }

    /// Lets things go wrong for a while, and waits until each fault is mended.
    pub(crate) async fn storm(self: &Arc<Self>, duration_ms: u64) {
        let world = &self.cluster.world;
        let until_us = world.now_us() + duration_ms * 1000;
        let repeat_one_in = self.cluster.shape.repeat_one_in;
        self.cluster.network.roughen(repeat_one_in);
        // Faults that come one by one and faults that come together find different things.
        let gap_ms = world.roll(|dice| *dice.pick(&[400, 1_500, 4_000]));
        while world.now_us() < until_us {
            let (wait_ms, fault) = world.roll(|dice| {
                let wait_ms = match dice.below(4) {
                    0 => dice.between(1, 50),
                    _ => dice.between(50, 2 * gap_ms),
                };
                (wait_ms, *dice.pick(&FAULTS))
            });
            world.sleep(wait_ms * 1000).await;
            self.under_way_count.fetch_add(1, Ordering::Relaxed);
            self.fault_count.fetch_add(1, Ordering::Relaxed);
            let weather = Arc::clone(self);
            let happen = async move {
                weather.happen(fault).await;
                weather.under_way_count.fetch_sub(1, Ordering::Relaxed);
            };
            world.spawn(self.script, happen.boxed());
        }
        while self.under_way_count.load(Ordering::Relaxed) > 0 {
            world.sleep(LOOK_EVERY_MS * 1000).await;
        }
    }

    async fn happen(&self, fault: Fault) {
        let cluster = &self.cluster;
        let world = &cluster.world;
        let slots = cluster.node_slots();
        let slot = world.roll(|dice| *dice.pick(&slots));
        let (short_ms, long_ms) =
            world.roll(|dice| (dice.between(1, 300), dice.between(10, 6_000)));
        match fault {
            Fault::Kill => self.restart(&[slot], false, long_ms).await,
            Fault::PowerLoss => self.restart(&[slot], true, long_ms).await,
            Fault::AllLosePower => {
                if world.roll(|dice| dice.one_in(2)) {
                    cluster.kill_coordinator();
                }
                self.restart(&slots, true, short_ms).await;
                cluster.start_coordinator();
            }
            Fault::PowerLossInWrite | Fault::DiskError => {
                let more = world.roll(|dice| dice.between(1, 30));
                world.note(&format!(
                    "{fault:?} on machine {} in {more} operations",
                    slot.0
                ));
                if fault == Fault::DiskError {
                    cluster.fail_disk_after(slot, more);
                } else {
                    let disk = cluster.disk(slot);
                    disk.power_off_at(disk.counts().operation_count + more);
                }
                world.sleep((short_ms + long_ms / 4) * 1000).await;
                self.restart(&[slot], true, long_ms).await;
            }
            Fault::DiskFull => self.fill_disk(slot, long_ms).await,
            Fault::KillCoordinator => {
                cluster.kill_coordinator();
                world.sleep(long_ms * 1000).await;
                cluster.start_coordinator();
            }
            Fault::MetaError => {
                let more = world.roll(|dice| dice.between(1, 40));
                world.note(&format!("metadata fails after {more} operations"));
                cluster.fail_meta_after(more);
                world.sleep(long_ms * 500).await;
                cluster.kill_coordinator();
                world.sleep(short_ms * 1000).await;
                cluster.start_coordinator();
            }
            Fault::Cut | Fault::Isolate => self.cut(slot, fault == Fault::Isolate, long_ms).await,
            Fault::FlakyConnections => self.break_connections(long_ms).await,
            Fault::Slow => self.slow_down(slot, 2 * long_ms).await,
            Fault::BitRot => self.rot(slot),
            Fault::DiskLoss => self.lose_disk(slot, long_ms).await,
        }
    }

    async fn restart(&self, slots: &[Slot], loses_power: bool, down_ms: u64) {
        for &slot in slots {
            self.cluster.kill_node(slot, loses_power);
        }
        self.cluster.world.sleep(down_ms * 1000).await;
        for &slot in slots {
            self.cluster.start_node(slot);
        }
    }

    async fn fill_disk(&self, slot: Slot, full_ms: u64) {
        let world = &self.cluster.world;
        let free = world.roll(|dice| dice.below(300 << 10));
        let used = self.cluster.used_bytes(slot);
        world.note(&format!("machine {} has {free} bytes free", slot.0));
        self.cluster.disk(slot).set_capacity(used + free);
        world.sleep(full_ms * 1000).await;
        self.cluster.disk(slot).set_capacity(u64::MAX);
    }

    async fn cut(&self, slot: Slot, from_all: bool, cut_ms: u64) {
        let world = &self.cluster.world;
        let machine_count = 1 + self.cluster.shape.node_count + self.cluster.shape.client_count;
        let others = (0..machine_count).map(Slot).filter(|&other| other != slot);
        let mut others: Vec<Slot> = others.collect();
        if !from_all {
            others = vec![world.roll(|dice| *dice.pick(&others))];
        }
        world.note(&format!("machine {} is cut off from {others:?}", slot.0));
        for &other in &others {
            self.cluster.network.cut(slot, other, true);
        }
        world.sleep(cut_ms * 1000).await;
        for &other in &others {
            self.cluster.network.cut(slot, other, false);
        }
    }

    async fn break_connections(&self, flaky_ms: u64) {
        let world = &self.cluster.world;
        let many = world.roll(|dice| dice.between(5, 200));
        world.note(&format!("connections break on one message in {many}"));
        self.cluster.network.set_break_one_in(many);
        world.sleep(flaky_ms * 1000).await;
        self.cluster.network.set_break_one_in(0);
    }

    async fn slow_down(&self, slot: Slot, slow_ms: u64) {
        let world = &self.cluster.world;
        world.note(&format!("machine {} is slow", slot.0));
        self.cluster.network.slow_down(slot, true);
        world.sleep(slow_ms * 1000).await;
        self.cluster.network.slow_down(slot, false);
    }

    /// Whether a machine may lose something.
    fn may_harm(&self, slot: Slot) -> bool {
        let mut incomplete = self.cluster.behind();
        let mut harmed = lock(&self.harmed);
        incomplete.extend(harmed.iter().copied());
        incomplete.insert(slot);
        let may = incomplete.len() <= self.cluster.shape.survived_count
            && harmed.iter().all(|&other| other == slot);
        if may {
            harmed.insert(slot);
        }
        may
    }

    /// A bit rots that had been durable for a while: nothing may tell damage to the newest record
    /// from one that a crash has torn before the store has borne witness.
    fn rot(&self, slot: Slot) {
        let world = &self.cluster.world;
        let Some(store) = self.cluster.sound_store(slot) else {
            return;
        };
        if store
            .sync_all()
            .and_then(|()| store.bear_witness())
            .is_err()
        {
            return;
        }
        let disk = self.cluster.disk(slot);
        let files = disk.files();
        let chunks: Vec<&String> = files.iter().filter(|f| f.starts_with("chunks/")).collect();
        if chunks.is_empty() || !self.may_harm(slot) {
            return;
        }
        let path = world.roll(|dice| (*dice.pick(&chunks)).clone());
        let length = disk.contents(&path).map_or(0, |bytes| bytes.len() as u64);
        if length > 0 {
            let bit = world.roll(|dice| dice.below(length * 8));
            world.note(&format!("machine {}: bit {bit} of {path} rots", slot.0));
            disk.flip_bit(&path, bit);
            self.cluster.watch.rots(path);
        }
    }

    async fn lose_disk(&self, slot: Slot, down_ms: u64) {
        if !self.may_harm(slot) {
            return;
        }
        self.cluster.kill_node(slot, true);
        self.cluster.wipe(slot);
        self.cluster.world.sleep(down_ms * 1000).await;
        self.cluster.start_node(slot);
    }

    /// Mends everything, and waits until the cluster is whole; fails the run when it does not
    /// become so.
    pub(crate) async fn calm(&self) {
        let cluster = &self.cluster;
        let world = &cluster.world;
        world.note("calm");
        cluster.network.heal_links();
        if world.roll(|dice| dice.one_in(2)) {
            cluster.kill_coordinator();
        }
        cluster.start_coordinator();
        for slot in cluster.node_slots() {
            cluster.disk(slot).set_capacity(u64::MAX);
            if cluster.sound_store(slot).is_none() || world.roll(|dice| dice.one_in(4)) {
                cluster.kill_node(slot, true);
                cluster.start_node(slot);
            }
        }
        let mut why = String::new();
        for look in 0..CALM_MS_MAX / LOOK_EVERY_MS {
            world.sleep(LOOK_EVERY_MS * 1000).await;
            if look % 20 == 10 {
                // Nobody waits for a disk that is gone.
                let _ = self
                    .client
                    .ask(CoordinatorRequest::RepairNow { scheme: None })
                    .await;
            }
            match self.look().await {
                Ok(()) => {
                    world.note("the cluster is whole");
                    lock(&self.harmed).clear();
                    self.cluster.watch.is_whole();
                    return;
                }
                Err(still) => why = still,
            }
        }
        world.fail(format!("the cluster does not become whole: {why}"));
    }

    /// Whether all is well, or what is not.
    async fn look(&self) -> Result<(), String> {
        let status = self.ask_status().await?;
        for slot in self.cluster.node_slots() {
            let id = self.cluster.node_on(slot);
            let mut known = status.nodes.iter();
            let is_up = known.any(|s| Some(s.node) == id && s.liveness == Liveness::Up);
            if !is_up || self.cluster.sound_store(slot).is_none() {
                return Err(format!("machine {} ({id:?}) is not up", slot.0));
            }
        }
        if status.lost_chunk_count > 0 || status.repair.queued_chunk_count > 0 {
            return Err(format!(
                "{} chunks are lost: {:?}",
                status.lost_chunk_count, status.repair
            ));
        }
        // In a storm's calm clients go on, and so may what they order.
        if status.lifecycle.waiting_count > 0 {
            return Err(format!("segments wait: {:?}", status.lifecycle));
        }
        let scrubbed = self.client.ask(CoordinatorRequest::ScrubAll).await;
        match scrubbed.map_err(|error| error.to_string())? {
            CoordinatorReply::Scrubbed {
                damage,
                unreachable,
                ..
            } if damage.is_empty() => {
                let is_here = |node: &&NodeId| self.cluster.slot_of(**node).is_some();
                if let Some(node) = unreachable.iter().find(is_here) {
                    return Err(format!("{node} was not scrubbed"));
                }
            }
            other => return Err(format!("a scrub says {other:?}")),
        }
        // A scrub finds what nobody has read, and a repair may have begun since.
        match self.ask_status().await? {
            status if status.lost_chunk_count == 0 => Ok(()),
            status => Err(format!("{} chunks are lost", status.lost_chunk_count)),
        }
    }

    async fn ask_status(&self) -> Result<ClusterStatus, String> {
        match self.client.ask(CoordinatorRequest::Status).await {
            Ok(CoordinatorReply::Status(status)) => Ok(status),
            Ok(other) => Err(format!("{other:?}")),
            Err(error) => Err(error.to_string()),
        }
    }
}
