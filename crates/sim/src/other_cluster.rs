//! Another cluster's coordinator, which a node takes for its own if it is started with the wrong address.

use crate::cluster::{Cluster, coordinator_options, wall_time};
use crate::meta_disk::MetaDisk;
use crate::parties::{Party, Slot};
use crate::ports::COORDINATOR;
use crate::services::CoordinatorService;
use crate::world::lock;
use gabion_meta::{ClusterId, Meta, WallClock};
use gabion_protocol::coordinator::Coordinator;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// The other cluster's name.
const OTHER: ClusterId = ClusterId(2);

/// Machines that look for their coordinator in the other cluster.
#[derive(Debug)]
pub(crate) struct OtherCluster {
    /// The machine of its coordinator.
    machine: Slot,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    misled: BTreeSet<Slot>,
    /// The coordinator, while a machine is misled.
    running: Option<Party>,
}

impl OtherCluster {
    pub(crate) fn new(machine: Slot) -> Self {
        let state = Mutex::default();
        Self { machine, state }
    }

    /// The machine that a machine takes for its coordinator's.
    pub(crate) fn coordinator_of(&self, slot: Slot) -> Slot {
        if lock(&self.state).misled.contains(&slot) {
            self.machine
        } else {
            COORDINATOR
        }
    }
}

impl Cluster {
    /// Starts a node with the other cluster's coordinator, and later with its own again. Returns whether the node has an
    /// identity, which the other cluster must refuse.
    pub(crate) async fn mislead(self: &Arc<Self>, slot: Slot, misled_ms: u64) -> bool {
        let has_identity = self.node_on(slot).is_some();
        if has_identity {
            let looks = format!("machine {} looks for another cluster", slot.0);
            self.world.note(&looks);
            self.kill_node(slot, false);
            self.begin_other(slot);
            self.start_node(slot);
            self.world.sleep(misled_ms * 1000).await;
            // Another fault may have emptied the disk: a new node may join any cluster.
            let has_changed_sides = self.has_changed_sides(slot);
            self.kill_node(slot, false);
            self.end_other(slot);
            if has_changed_sides {
                self.wipe(slot);
            }
            self.start_node(slot);
        }
        has_identity
    }

    /// A machine finds the other cluster's coordinator in the place of its own.
    fn begin_other(&self, slot: Slot) {
        let mut state = lock(&self.other.state);
        state.misled.insert(slot);
        if state.running.is_some() {
            return;
        }
        let party = self.begin(self.other.machine);
        let world = Arc::clone(&self.world);
        let clock = WallClock::new(move || wall_time(&world));
        let meta = Meta::create(MetaDisk::default(), OTHER, clock);
        let meta = meta.expect("an empty store takes a cluster");
        let options = coordinator_options(self.shape.window_stripe_count);
        let coordinator = Coordinator::new(meta, self.ports(party, None), options);
        let coordinator = coordinator.expect("nothing is wrong with new metadata");
        coordinator.start();
        self.network
            .serve(party, Arc::new(CoordinatorService(coordinator)));
        state.running = Some(party);
    }

    /// A machine finds its own coordinator again.
    fn end_other(&self, slot: Slot) {
        let mut state = lock(&self.other.state);
        state.misled.remove(&slot);
        if state.misled.is_empty()
            && let Some(party) = state.running.take()
        {
            self.end(party);
        }
    }

    /// Whether a machine's node has become one of the other cluster.
    fn has_changed_sides(&self, slot: Slot) -> bool {
        let store = self.sound_store(slot);
        store.is_some_and(|store| store.identity().cluster == Some(OTHER))
    }
}
