//! Another cluster's coordinator, which a node takes for its own if it is started with the wrong address.

use crate::cluster::{Cluster, coordinator_options, wall_time};
use crate::meta_disk::MetaDisk;
use crate::parties::Slot;
use crate::services::Service;
use crate::world::lock;
use gabion_meta::{ClusterId, Meta, WallClock};
use gabion_protocol::coordinator::Coordinator;
use std::sync::Arc;

/// The other cluster's name.
const OTHER: ClusterId = ClusterId(2);

impl Cluster {
    /// Starts a node with the other cluster's coordinator, and later with its own again. Returns whether the node has
    /// an identity, which the other cluster must refuse.
    pub(crate) async fn mislead(self: &Arc<Self>, slot: Slot, misled_ms: u64) -> bool {
        let has_identity = self.node_on(slot).is_some();
        if has_identity {
            let looks = format!("machine {} looks for another cluster", slot.0);
            self.world.note(&looks);
            self.kill_node(slot, false);
            self.begin_other(slot);
            self.start_node(slot);
            self.world.sleep(misled_ms * 1000).await;
            self.kill_node(slot, false);
            self.lead_back(slot);
            self.start_node(slot);
        }
        has_identity
    }

    /// A machine finds the other cluster's coordinator in the place of its own.
    fn begin_other(&self, slot: Slot) {
        let mut state = lock(&self.other.state);
        state.machines.insert(slot);
        if state.coordinator.is_some() {
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
        self.network.serve(party, Service::Coordinator(coordinator));
        state.coordinator = Some(party);
    }

    /// A machine finds its own coordinator again, if it did not. A new node may join any cluster, so a machine with an
    /// empty disk has to.
    pub(crate) fn lead_back(&self, slot: Slot) {
        let mut state = lock(&self.other.state);
        state.machines.remove(&slot);
        if state.machines.is_empty()
            && let Some(party) = state.coordinator.take()
        {
            self.end(party);
        }
    }
}
