//! The faults of a run of the model: the coordinator restarts, or a node is killed, during a few operations.

use crate::client::SimClient;
use crate::cluster::Cluster;
use crate::crash::check_up;
use crate::parties::Slot;
use std::sync::Arc;

/// Longest time until the kill: about that of a few operations.
const DELAY_US: u64 = 30_000;
/// Longest time for which the coordinator is down: a third of it is shorter than an operation's attempts.
const DOWN_US: u64 = 3_000_000;
/// Most operations during a fault.
const OPERATION_COUNT_MAX: u64 = 12;
/// Interval of looks whether the cluster is whole, and their number.
const PAUSE_US: u64 = 200_000;
const LOOK_COUNT_MAX: u32 = 900;

/// A fault.
pub(crate) struct Trouble {
    /// The machine of the killed node; none if it is the coordinator.
    pub(crate) slot: Option<Slot>,
    killed_us: u64,
    left_count: u64,
}

impl Trouble {
    /// Kills a process soon.
    pub(crate) fn begin(cluster: &Arc<Cluster>) -> Self {
        let world = &cluster.world;
        let slots = cluster.node_slots();
        let (slot, loses_power, delay_us, down_us, left_count) = world.roll(|dice| {
            let is_node = dice.one_in(2);
            let slot = *dice.pick(&slots);
            (
                is_node.then_some(slot),
                dice.one_in(2),
                dice.below(DELAY_US),
                dice.below(DOWN_US),
                dice.between(1, OPERATION_COUNT_MAX),
            )
        });
        let kills = Arc::clone(cluster);
        world.after(delay_us, move || {
            if let Some(slot) = slot {
                kills.kill_node(slot, loses_power);
            } else {
                kills.kill_coordinator();
                let world = Arc::clone(&kills.world);
                world.after(down_us, move || kills.start_coordinator());
            }
        });
        Self {
            slot,
            killed_us: world.now_us() + delay_us,
            left_count,
        }
    }

    /// An operation has ended. Returns whether it was the last one of this fault.
    pub(crate) fn is_over(&mut self) -> bool {
        self.left_count = self.left_count.saturating_sub(1);
        self.left_count == 0
    }

    /// Starts what was killed, and waits until the cluster is whole.
    pub(crate) async fn end(
        self,
        cluster: &Arc<Cluster>,
        client: &SimClient,
    ) -> Result<(), String> {
        let world = Arc::clone(&cluster.world);
        let until_kill_us = self.killed_us.saturating_sub(world.now_us());
        world.sleep(until_kill_us + 1).await;
        if let Some(slot) = self.slot {
            cluster.start_node(slot);
        }
        let mut why = String::new();
        for _ in 0..LOOK_COUNT_MAX {
            world.sleep(PAUSE_US).await;
            match look(cluster, client).await {
                Ok(()) => {
                    world.note("the cluster is whole");
                    return Ok(());
                }
                Err(still) => why = still,
            }
        }
        Err(format!("the cluster does not become whole: {why}"))
    }
}

/// Checks that the cluster is whole; the error says why it is not.
async fn look(cluster: &Cluster, client: &SimClient) -> Result<(), String> {
    let status = client.client.status().await;
    let status = status.map_err(|error| error.to_string())?;
    check_up(cluster, &status)?;
    let behind = cluster.behind();
    if !behind.is_empty() {
        return Err(format!("{behind:?} have missed updates"));
    }
    Ok(())
}
