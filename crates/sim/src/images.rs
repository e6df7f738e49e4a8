//! Images of disks, which are restored later: the state of a node after a snapshot was restored, a disk
//! lost synced writes, or a journal was cut.

use crate::cluster::{Cluster, store_options};
use crate::parties::Slot;
use crate::world::lock;
use gabion_store::{SimDisk, Store};
use std::sync::Arc;

/// Images of a disk that are kept.
const IMAGE_COUNT_MAX: u64 = 4;

impl Cluster {
    /// Keeps an image of a disk as a loss of power would leave it now, and a few others from before.
    pub(crate) fn keep_image(&self, slot: Slot) {
        let (seed, dropped) = self
            .world
            .roll(|dice| (dice.any(), dice.below(IMAGE_COUNT_MAX)));
        let machine = &mut lock(&self.nodes)[slot.0 - 1];
        if machine.id.is_some() {
            if machine.images.len() == IMAGE_COUNT_MAX as usize {
                machine.images.remove(dropped as usize);
            }
            machine.images.push_back(machine.disk.after_crash(seed));
        }
    }

    /// An image that the cluster promises to distinguish from the disk: it is older than the last admitted
    /// start, or its journal ends before a position that the coordinator knows durably. With the number of the
    /// start that made it.
    pub(crate) fn old_image(&self, slot: Slot) -> Option<(SimDisk, u64)> {
        let seed = self.world.roll(crate::dice::Dice::any);
        let (id, images) = {
            let machine = &lock(&self.nodes)[slot.0 - 1];
            (machine.id?, machine.images.clone())
        };
        let admitted = self.observer.node(id).ok()?.admitted?;
        let known = self.observer.progress().ok()?;
        let (_, reached) = known.into_iter().find(|&(node, _)| node == id)?;
        let old = |image: &SimDisk| {
            let opened = Store::open(Arc::new(image.after_crash(seed)), store_options());
            let identity = opened.ok()?.0.identity();
            let is_other = !identity.starts.contains(&admitted);
            let ends_before = identity
                .found_position
                .is_some_and(|found| found < reached.position);
            let is_old = identity.node == Some(id) && (is_other || ends_before);
            let number = identity.starts.last().map_or(0, |start| start.number);
            is_old.then(|| (image.after_crash(seed), number))
        };
        let old: Vec<_> = images.iter().filter_map(old).collect();
        old.get(seed as usize % old.len().max(1)).cloned()
    }

    /// Restores an image of a machine's disk; the machine is stopped.
    pub(crate) fn roll_back(&self, slot: Slot, (image, number): (SimDisk, u64)) {
        let machine = &mut lock(&self.nodes)[slot.0 - 1];
        assert!(
            machine.running.is_none(),
            "a running machine keeps its disk"
        );
        self.world
            .note(&format!("machine {} goes back to an image", slot.0));
        machine.disk = image;
        machine.incarnation = number;
        if let Some(node) = machine.id {
            self.watch.doubts(node);
        }
    }
}
