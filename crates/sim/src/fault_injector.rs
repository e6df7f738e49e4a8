//! The injector of faults. In a fault period the seed chooses which faults occur and when; each ends
//! after some time. The recovery after it ends all faults, and the cluster must become whole without help.
//!
//! Crashes, cut links and full disks may hit any machine at any time. Stored bytes are lost on at most
//! one machine between two recoveries. The number of machines that have lost bytes, or have missed updates
//! and not caught up, stays within what the pool survives: a stripe is written only while it can survive
//! one more loss.

use crate::client::SimClient;
use crate::cluster::Cluster;
use crate::crash::check_up;
use crate::dice::Dice;
use crate::faults::{Fault, FaultCounts};
use crate::parties::Slot;
use crate::ports::COORDINATOR;
use crate::workload::{Files, start_worker};
use crate::world::lock;
use futures::FutureExt;
use gabion_layout::NodeId;
use gabion_planner::update::descriptor;
use gabion_protocol::message::ClusterStatus;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Virtual time of a recovery in which the cluster must become whole.
const RECOVERY_MS_MAX: u64 = 300_000;
/// A node that is silent for this time is declared failed: more than a lease and its margin.
const VERDICT_MS: u64 = 3_000;
/// Time that some hangs last longer: more than a node takes to notice that its disk hangs.
const NOTICED_HANG_MS: u64 = 11_000;
/// Time that the cuts last longer which end memberships: more than the coordinator tolerates a broken link.
const EVICTING_CUT_MS: u64 = 8_000;
/// Interval of the checks during a recovery.
const LOOK_EVERY_MS: u64 = 500;

/// Injects faults into a cluster.
pub(crate) struct FaultInjector {
    cluster: Arc<Cluster>,
    client: SimClient,
    files: Arc<Files>,
    script: crate::world::ProcessId,
    /// Machines that have lost bytes since the last recovery.
    harmed: Mutex<BTreeSet<Slot>>,
    under_way_count: Arc<AtomicUsize>,
    /// Whether there is damage that no scrub has found yet and that no other fault may join.
    is_damage_unknown: AtomicBool,
    /// Faults injected, by kind.
    counts: Mutex<FaultCounts>,
}

impl FaultInjector {
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        client: SimClient,
        files: Arc<Files>,
        script: crate::world::ProcessId,
    ) -> Arc<Self> {
        Arc::new(Self {
            cluster,
            client,
            files,
            script,
            harmed: Mutex::default(),
            under_way_count: Arc::default(),
            is_damage_unknown: AtomicBool::new(false),
            counts: Mutex::default(),
        })
    }

    /// Faults injected so far, by kind.
    pub(crate) fn counts(&self) -> FaultCounts {
        lock(&self.counts).clone()
    }

    /// Injects faults for this time, and waits until each of them has ended.
    pub(crate) async fn inject(self: &Arc<Self>, duration_ms: u64) {
        let world = &self.cluster.world;
        let until_us = world.now_us() + duration_ms * 1000;
        let repeat_one_in = self.cluster.shape.repeat_one_in;
        self.cluster.network.repeat_messages(repeat_one_in);
        // Single faults and simultaneous faults find different defects.
        let gap_ms = world.roll(|dice| *dice.pick(&[400, 1_500, 4_000]));
        while world.now_us() < until_us {
            let (wait_ms, fault) = world.roll(|dice| {
                let wait_ms = match dice.below(4) {
                    0 => dice.between(1, 50),
                    _ => dice.between(50, 2 * gap_ms),
                };
                (wait_ms, Fault::draw(dice))
            });
            world.sleep(wait_ms * 1000).await;
            while self.is_damage_unknown.load(Ordering::Relaxed) {
                world.sleep(LOOK_EVERY_MS * 1000).await;
            }
            self.under_way_count.fetch_add(1, Ordering::Relaxed);
            self.keep_image();
            let injector = Arc::clone(self);
            let happen = async move {
                if injector.happen(fault).await {
                    *lock(&injector.counts).entry(fault).or_default() += 1;
                }
                injector.under_way_count.fetch_sub(1, Ordering::Relaxed);
            };
            world.spawn(self.script, happen.boxed());
        }
        while self.under_way_count.load(Ordering::Relaxed) > 0 {
            world.sleep(LOOK_EVERY_MS * 1000).await;
        }
    }

    /// Sometimes makes a copy of a machine's disk, which a later fault may bring back.
    fn keep_image(&self) {
        let slots = self.cluster.node_slots();
        let is_kept = |dice: &mut Dice| dice.one_in(4).then(|| *dice.pick(&slots));
        if self.cluster.world.roll(|dice| dice.one_in(12)) {
            self.cluster.keep_meta_image();
        }
        if let Some(slot) = self.cluster.world.roll(is_kept) {
            self.cluster.keep_image(slot);
        }
    }

    /// Injects a fault and ends it. Returns whether it was possible.
    async fn happen(&self, fault: Fault) -> bool {
        let cluster = &self.cluster;
        let world = &cluster.world;
        let slots = cluster.node_slots();
        let (slot, short_ms, long_ms, lasting_ms) = world.roll(|dice| {
            let slot = *dice.pick(&slots);
            let lasting_ms = match dice.below(30) {
                0 => dice.between(20_000, 120_000),
                _ => dice.between(100, 8_000),
            };
            (
                slot,
                dice.between(1, 300),
                dice.between(10, 6_000),
                lasting_ms,
            )
        });
        match fault {
            Fault::KillClient => self.kill_client(short_ms).await,
            Fault::Kill => self.restart(&[slot], false, long_ms).await,
            Fault::PowerLoss => self.restart(&[slot], true, long_ms).await,
            Fault::AllLosePower => {
                if world.roll(|dice| dice.one_in(2)) {
                    cluster.kill_coordinator();
                }
                self.restart(&slots, true, short_ms).await;
                cluster.start_coordinator();
            }
            Fault::PowerLossInWrite
            | Fault::DiskError
            | Fault::ProcessRestart
            | Fault::SyncError
            | Fault::FailedStore => {
                self.fail_disk(fault, slot, (short_ms + long_ms / 4, long_ms, lasting_ms))
                    .await;
            }
            Fault::ReadError | Fault::BitRot | Fault::LostPage => {
                return self.spoil(fault, slot).await;
            }
            Fault::DeadDisk => return self.kill_disk(slot, lasting_ms, long_ms).await,
            Fault::HungDisk => self.hang(slot, lasting_ms).await,
            Fault::NoDescriptors => {
                world.note(&format!("machine {} has no descriptors left", slot.0));
                cluster.disk(slot).give_descriptors(false);
                world.sleep(long_ms * 1000).await;
                cluster.disk(slot).give_descriptors(true);
            }
            Fault::DiskFull => self.fill_disk(slot, long_ms).await,
            Fault::DiskLoss => return self.lose_disk(slot, long_ms).await,
            Fault::Rollback => return self.roll_back(slot, long_ms).await,
            Fault::WrongCluster => return cluster.mislead(slot, lasting_ms).await,
            Fault::Pause => self.pause(lasting_ms, true).await,
            Fault::Suspend => self.pause(lasting_ms, false).await,
            Fault::KillCoordinator => self.restart_coordinator(long_ms).await,
            Fault::CoordinatorAway => self.restart_coordinator(4_000 + lasting_ms).await,
            Fault::OldMetadata => return self.use_old_metadata(short_ms, long_ms).await,
            Fault::MetaError | Fault::UnknownCommit => {
                self.fail_meta(fault, long_ms / 2, short_ms).await;
            }
            Fault::Cut | Fault::Isolate | Fault::OneWay => self.cut(fault, slot, lasting_ms).await,
            Fault::FlakyConnections => self.break_connections(long_ms).await,
            Fault::Slow => self.slow_down(slot, 2 * long_ms).await,
        }
        true
    }

    /// Makes one of the next operations of a disk fail, and restarts the affected machine or process.
    async fn fail_disk(
        &self,
        fault: Fault,
        slot: Slot,
        (soon_ms, down_ms, lasting_ms): (u64, u64, u64),
    ) {
        let world = &self.cluster.world;
        let (more, with_power) = world.roll(|dice| (dice.between(1, 30), dice.one_in(2)));
        world.note(&format!(
            "{fault:?} on machine {} in {more} operations",
            slot.0
        ));
        let disk = self.cluster.disk(slot);
        let number = disk.counts().operation_count + more;
        match fault {
            Fault::PowerLossInWrite => disk.power_off_at(number),
            Fault::SyncError => disk.fail_next_sync(),
            _ => disk.fail_operation(number),
        }
        let (wait_ms, loses_power) = match fault {
            Fault::ProcessRestart | Fault::SyncError => (soon_ms, false),
            Fault::FailedStore => (lasting_ms, with_power),
            _ => (soon_ms, true),
        };
        if fault == Fault::PowerLossInWrite {
            // A process without power sends no message, not even that its disk cannot be read.
            for _ in 0..wait_ms {
                if disk.has_lost_power() {
                    break;
                }
                world.sleep(1000).await;
            }
        } else {
            world.sleep(wait_ms * 1000).await;
        }
        self.restart(&[slot], loses_power, down_ms).await;
    }

    async fn restart_coordinator(&self, down_ms: u64) {
        self.cluster.kill_coordinator();
        self.cluster.world.sleep(down_ms * 1000).await;
        self.cluster.start_coordinator();
    }

    /// Runs the coordinator with an old copy of its metadata for a while. Returns whether there was one.
    async fn use_old_metadata(&self, down_ms: u64, old_ms: u64) -> bool {
        let (cluster, world) = (&self.cluster, &self.cluster.world);
        cluster.kill_coordinator();
        world.sleep(down_ms * 1000).await;
        let has_happened = cluster.start_coordinator_on_image();
        if has_happened {
            world.sleep(old_ms * 1000).await;
            cluster.kill_coordinator();
        }
        cluster.start_coordinator();
        has_happened
    }

    async fn fail_meta(&self, fault: Fault, failing_ms: u64, down_ms: u64) {
        let world = &self.cluster.world;
        let more = world.roll(|dice| dice.between(1, 40));
        world.note(&format!("{fault:?} after {more} operations"));
        if fault == Fault::MetaError {
            self.cluster.fail_meta_after(more);
        } else {
            self.cluster.doubt_commit_after(1 + more / 8);
        }
        world.sleep(failing_ms * 1000).await;
        self.restart_coordinator(down_ms).await;
    }

    /// Stops a process: a node, the coordinator or a client.
    async fn pause(&self, paused_ms: u64, clock_goes_on: bool) {
        let world = &self.cluster.world;
        let parties = self.cluster.parties();
        if parties.is_empty() {
            return;
        }
        let party = world.roll(|dice| *dice.pick(&parties));
        let how = if clock_goes_on { "paused" } else { "suspended" };
        world.note(&format!("machine {} is {how}", party.slot.0));
        world.pause(party.process, clock_goes_on);
        world.sleep(paused_ms * 1000).await;
        world.note(&format!("machine {} goes on", party.slot.0));
        world.resume(party.process);
    }

    /// Kills a client at any point of its work, and starts another on its machine.
    async fn kill_client(&self, down_ms: u64) {
        let cluster = &self.cluster;
        let count = cluster.shape.client_count as u64;
        let number = cluster.world.roll(|dice| dice.below(count)) as usize;
        cluster.kill_client(number);
        cluster.world.sleep(down_ms * 1000).await;
        // Another fault may have started one in that time.
        cluster.kill_client(number);
        start_worker(cluster, &self.files, number);
    }

    async fn hang(&self, slot: Slot, hung_ms: u64) {
        let world = &self.cluster.world;
        // Some hangs last until the node notices them.
        let is_noticed = world.roll(|dice| dice.one_in(3));
        let hung_ms = hung_ms + if is_noticed { NOTICED_HANG_MS } else { 0 };
        world.note(&format!("the disk of machine {} hangs", slot.0));
        self.cluster.hangs.begin(slot, world.now_us());
        world.sleep(hung_ms * 1000).await;
        self.cluster.hangs.end(slot);
    }

    /// A disk dies under its process, and is replaced later.
    async fn kill_disk(&self, slot: Slot, dead_ms: u64, down_ms: u64) -> bool {
        if !self.may_harm(slot) {
            return false;
        }
        self.cluster
            .world
            .note(&format!("the disk of machine {} dies", slot.0));
        self.cluster.disk(slot).die();
        if let Some(node) = self.cluster.node_on(slot) {
            self.cluster.watch.doubts(node);
        }
        self.cluster.world.sleep(dead_ms * 1000).await;
        self.replace_disk(slot, down_ms).await;
        true
    }

    /// Replaces a machine's disk by one of its earlier images. That counts as a loss of the disk: all later
    /// acknowledged writes of the node are gone.
    async fn roll_back(&self, slot: Slot, down_ms: u64) -> bool {
        let Some(image) = self.cluster.old_image(slot) else {
            return false;
        };
        if !self.may_harm(slot) {
            return false;
        }
        let loses_power = self.cluster.world.roll(|dice| dice.one_in(2));
        self.cluster.kill_node(slot, loses_power);
        self.cluster.roll_back(slot, image);
        self.cluster.world.sleep(down_ms * 1000).await;
        self.cluster.start_node(slot);
        true
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
        // Other files may take the last block.
        let free = world.roll(|dice| {
            if dice.one_in(3) {
                0
            } else {
                dice.below(300 << 10)
            }
        });
        let used = self.cluster.used_bytes(slot);
        world.note(&format!("machine {} has {free} bytes free", slot.0));
        self.cluster.disk(slot).set_capacity(used + free);
        world.sleep(full_ms * 1000).await;
        self.cluster
            .disk(slot)
            .set_capacity(self.cluster.capacity_bytes());
    }

    async fn cut(&self, fault: Fault, slot: Slot, cut_ms: u64) {
        let world = &self.cluster.world;
        let (from_all, ways) = world.roll(|dice| match fault {
            Fault::Cut => (false, [true, true]),
            Fault::Isolate => (true, [true, true]),
            _ => (dice.one_in(3), *dice.pick(&[[true, false], [false, true]])),
        });
        // Some cuts last until the coordinator evicts an end, and some spare the link to the coordinator.
        let is_stubborn = world.roll(|dice| dice.one_in(3));
        let cut_ms = cut_ms + if is_stubborn { EVICTING_CUT_MS } else { 0 };
        let is_spared = |other| is_stubborn && fault == Fault::Isolate && other == COORDINATOR;
        let machine_count = 1 + self.cluster.shape.node_count + self.cluster.shape.client_count;
        let others = (0..machine_count).map(Slot);
        let others = others.filter(|&other| other != slot && !is_spared(other));
        let mut others: Vec<Slot> = others.collect();
        if !from_all {
            if is_stubborn {
                others.retain(|other| self.cluster.node_slots().contains(other));
            }
            others = vec![world.roll(|dice| *dice.pick(&others))];
        }
        world.note(&format!(
            "machine {} is cut off from {others:?}, {ways:?}",
            slot.0
        ));
        let cut = |is_cut| {
            for &other in &others {
                for (from, to) in [(slot, other), (other, slot)]
                    .into_iter()
                    .zip(ways)
                    .filter_map(|(way, is_one)| is_one.then_some(way))
                {
                    self.cluster.network.cut(from, to, is_cut);
                }
            }
        };
        cut(true);
        world.sleep(cut_ms * 1000).await;
        cut(false);
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

    /// Whether a machine may lose bytes.
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

    /// A bit that had been durable for a while rots, or such a page cannot be read: before the store has
    /// written a witness, damage to the newest record cannot be told from a record torn by a crash. Or one
    /// read fails.
    ///
    /// Unknown damage and a node that misses an update are two losses. So in a pool that survives one loss,
    /// no other fault happens before a scrub has found the damage.
    async fn spoil(&self, fault: Fault, slot: Slot) -> bool {
        let world = &self.cluster.world;
        let shape = &self.cluster.shape;
        // Undetected damage and a node that missed an append are two losses of the append's two copies.
        if descriptor(shape.update).appends_by_rack() && shape.survived_count < 2 {
            return false;
        }
        let must_be_alone = shape.survived_count < 2;
        let is_alone = self.under_way_count.load(Ordering::Relaxed) == 1;
        if must_be_alone && !(is_alone && self.cluster.behind().is_empty()) {
            return false;
        }
        let Some(store) = self.cluster.sound_store(slot) else {
            return false;
        };
        if store
            .sync_all()
            .and_then(|()| store.log_witnesses())
            .is_err()
        {
            return false;
        }
        let disk = self.cluster.disk(slot);
        let files = disk.files();
        let chunks: Vec<&String> = files.iter().filter(|f| f.starts_with("chunks/")).collect();
        if chunks.is_empty() || !self.may_harm(slot) {
            return false;
        }
        let path = world.roll(|dice| (*dice.pick(&chunks)).clone());
        let length = disk.contents(&path).map_or(0, |bytes| bytes.len() as u64);
        if length == 0 {
            return false;
        }
        let bit = world.roll(|dice| dice.below(length * 8));
        if fault == Fault::ReadError {
            // It may be of any file: the disk tells the watch which.
            world.note(&format!("{fault:?} on machine {}", slot.0));
            disk.fail_next_read();
        } else {
            world.note(&format!(
                "{fault:?} on machine {}, bit {bit} of {path}",
                slot.0
            ));
            if fault == Fault::BitRot {
                disk.flip_bit(&path, bit);
            } else {
                disk.lose_page(&path, bit / 8);
            }
            self.cluster.watch.rots(path);
        }
        if must_be_alone {
            self.is_damage_unknown.store(true, Ordering::Relaxed);
            // A scrub that fails may have found it or not; the next fault happens either way.
            let _ = self.client.client.scrub().await;
            self.is_damage_unknown.store(false, Ordering::Relaxed);
        }
        true
    }

    async fn lose_disk(&self, slot: Slot, down_ms: u64) -> bool {
        let may_be = self.may_harm(slot);
        if may_be {
            self.replace_disk(slot, down_ms).await;
        }
        may_be
    }

    async fn replace_disk(&self, slot: Slot, down_ms: u64) {
        self.cluster.kill_node(slot, true);
        self.cluster.wipe(slot);
        self.cluster.world.sleep(down_ms * 1000).await;
        self.cluster.start_node(slot);
    }

    /// Ends all faults, and waits until the cluster is whole; fails the run if it does not become
    /// whole.
    pub(crate) async fn recover(&self) {
        let cluster = &self.cluster;
        let world = &cluster.world;
        world.note("recovery");
        cluster.network.heal_links();
        if world.roll(|dice| dice.one_in(2)) {
            cluster.kill_coordinator();
        }
        cluster.start_coordinator();
        for slot in cluster.node_slots() {
            cluster.disk(slot).set_capacity(cluster.capacity_bytes());
            cluster.disk(slot).give_descriptors(true);
            if cluster.sound_store(slot).is_none() || world.roll(|dice| dice.one_in(4)) {
                cluster.kill_node(slot, true);
                cluster.start_node(slot);
            }
        }
        // A coordinator that has just started does not know the failed nodes yet, and counts none of their
        // chunks as lost.
        world.sleep(VERDICT_MS * 1000).await;
        let mut why = String::new();
        for look in 0..RECOVERY_MS_MAX / LOOK_EVERY_MS {
            world.sleep(LOOK_EVERY_MS * 1000).await;
            if look % 20 == 10 {
                // Repair at once: a lost disk does not return.
                let _ = self.client.client.repair_now(None).await;
            }
            match self.look().await {
                Ok(()) => {
                    world.note("the cluster is whole");
                    lock(&self.harmed).clear();
                    self.cluster.watch.is_whole(&self.cluster);
                    return;
                }
                Err(still) => why = still,
            }
        }
        world.fail(format!("the cluster does not become whole: {why}"));
    }

    /// Checks that the cluster is whole; the error says why it is not.
    async fn look(&self) -> Result<(), String> {
        let status = self.ask_status().await?;
        check_up(&self.cluster, &status)?;
        // Clients continue during a recovery, and so may the conversions that they request.
        if status.lifecycle.waiting_count > 0 {
            return Err(format!("segments wait: {:?}", status.lifecycle));
        }
        let scrubbed = self.client.client.scrub().await;
        let scrubbed = scrubbed.map_err(|error| error.to_string())?;
        if !scrubbed.damage.is_empty() {
            return Err(format!("a scrub finds {:?}", scrubbed.damage));
        }
        let is_here = |node: &&NodeId| self.cluster.slot_of(**node).is_some();
        if let Some(node) = scrubbed.unreachable.iter().find(is_here) {
            return Err(format!("{node} was not scrubbed"));
        }
        // A scrub finds damage that no read has found, and a repair may have begun since.
        match self.ask_status().await? {
            status if status.lost_chunk_count == 0 => Ok(()),
            status => Err(format!("{} chunks are lost", status.lost_chunk_count)),
        }
    }

    async fn ask_status(&self) -> Result<ClusterStatus, String> {
        let status = self.client.client.status().await;
        status.map_err(|error| error.to_string())
    }
}
