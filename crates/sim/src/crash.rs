//! A crash of one process at a chosen instant, and the wait for the cluster to be whole again.

use crate::cluster::Cluster;
use crate::parties::Slot;
use crate::world::ProcessId;
use futures::FutureExt;
use gabion_protocol::message::{ClusterStatus, Liveness};
use std::sync::Arc;

/// Virtual time limit of a wait, such as that for the segment's conversion, and of the recovery after it.
const WAIT_MS_MAX: u64 = 120_000;
/// Interval of attempts, and of the check for the end of a wait.
pub(crate) const LOOK_EVERY_MS: u64 = 50;

/// The process that ends, with the loss of unsynced writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Victim {
    /// The coordinator.
    Coordinator,
    /// The node on a machine, from 1 on.
    Node(usize),
}

/// Waits until this is so, or ends the run.
pub(crate) async fn until(cluster: &Cluster, otherwise: &str, is_so: impl Fn(&Cluster) -> bool) {
    for _ in 0..WAIT_MS_MAX / LOOK_EVERY_MS {
        if is_so(cluster) {
            return;
        }
        cluster.world.sleep(LOOK_EVERY_MS * 1000).await;
    }
    cluster.world.fail(otherwise.to_owned());
}

/// Checks by its status that all nodes of the cluster are up with sound stores, and that no chunk is lost or waits for
/// a repair; the error says which does not hold.
pub(crate) fn check_up(cluster: &Cluster, status: &ClusterStatus) -> Result<(), String> {
    for slot in cluster.node_slots() {
        let id = cluster.node_on(slot);
        let mut known = status.nodes.iter();
        let is_up = known.any(|one| Some(one.node) == id && one.liveness == Liveness::Up);
        if !is_up || cluster.sound_store(slot).is_none() {
            return Err(format!("machine {} ({id:?}) is not up", slot.0));
        }
    }
    if status.lost_chunk_count > 0 || status.repair.queued_chunk_count > 0 {
        return Err(format!(
            "{} chunks are lost: {:?}",
            status.lost_chunk_count, status.repair
        ));
    }
    Ok(())
}

/// Whether all nodes are up and all chunks count.
pub(crate) fn is_whole(cluster: &Cluster) -> bool {
    let mut slots = cluster.node_slots().into_iter();
    let mut stripes = cluster.stripes().into_iter();
    slots.all(|slot| cluster.sound_store(slot).is_some())
        && cluster.failed().is_empty()
        && stripes.all(|stripe| stripe.stale.is_empty())
}

/// Kills a process, which starts again from another process that does not die.
pub(crate) fn crash(cluster: &Arc<Cluster>, script: ProcessId, victim: Victim, down_ms: u64) {
    match victim {
        Victim::Coordinator => cluster.kill_coordinator(),
        Victim::Node(machine) => cluster.kill_node(Slot(machine), true),
    }
    let cluster = Arc::clone(cluster);
    let world = Arc::clone(&cluster.world);
    let again = async move {
        cluster.world.sleep(down_ms * 1000).await;
        match victim {
            Victim::Coordinator => cluster.start_coordinator(),
            Victim::Node(machine) => cluster.start_node(Slot(machine)),
        }
    };
    world.spawn(script, again.boxed());
}
