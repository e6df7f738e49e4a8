//! Images of disks, which are restored later: the state of a node after a snapshot was restored, a disk
//! lost synced writes, or a journal was cut.

use crate::cluster::{Cluster, store_options};
use crate::network::Slot;
use crate::world::lock;
use gabion_store::{SimDisk, Store};
use std::sync::Arc;

/// Images of a disk that are kept.
const IMAGE_COUNT_MAX: usize = 4;

impl Cluster {
    /// Keeps an image of a disk as a loss of power would leave it now, and a few earlier ones.
    pub(crate) fn keep_image(&self, slot: Slot) {
        let seed = self.world.roll(crate::dice::Dice::any);
        let machine = &mut lock(&self.nodes)[slot.0 - 1];
        if machine.id.is_some() {
            machine.images.push_back(machine.disk.after_crash(seed));
            machine.images.truncate(IMAGE_COUNT_MAX);
        }
    }

    /// An image that the cluster promises to distinguish from the disk: it is older than the last admitted
    /// start, or its journal ends before a position that the coordinator knows durably.
    pub(crate) fn old_image(&self, slot: Slot) -> Option<SimDisk> {
        let seed = self.world.roll(crate::dice::Dice::any);
        let (id, images) = {
            let machine = &lock(&self.nodes)[slot.0 - 1];
            (machine.id?, machine.images.clone())
        };
        let admitted = self.observer.node(id).ok()?.admitted?;
        let known = self.observer.progress().ok()?;
        let (_, reached) = known.into_iter().find(|&(node, _)| node == id)?;
        let is_old = |image: &&SimDisk| {
            let opened = Store::open(Arc::new(image.after_crash(seed)), store_options());
            let Ok(identity) = opened.map(|(store, _)| store.identity()) else {
                return false;
            };
            let is_other = !identity.starts.contains(&admitted);
            let ends_before = identity
                .found_position
                .is_some_and(|found| found < reached.position);
            identity.node == Some(id) && (is_other || ends_before)
        };
        let old: Vec<&SimDisk> = images.iter().filter(is_old).collect();
        let image = old.get(seed as usize % old.len().max(1))?;
        Some(image.after_crash(seed))
    }

    /// Restores an image of a machine's disk; the machine is stopped.
    pub(crate) fn roll_back(&self, slot: Slot, image: SimDisk) {
        let machine = &mut lock(&self.nodes)[slot.0 - 1];
        assert!(
            machine.running.is_none(),
            "a running machine keeps its disk"
        );
        self.world
            .note(&format!("machine {} goes back to an image", slot.0));
        machine.disk = image;
        if let Some(node) = machine.id {
            self.watch.doubts(node);
        }
    }
}
