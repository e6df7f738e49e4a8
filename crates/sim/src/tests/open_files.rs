//! A file that one client has open while another one removes it. The coordinator dies at a step of the removal and
//! starts again: the file stays until its client closes it, and then it goes.

use super::run_at_steps;
use crate::cluster::Cluster;
use crate::race::{FILE, Raced, Runner, Sharing, coordinator_restarts, options, prepare, shape};
use crate::run::run_script;
use crate::snapshots::Snapshots;
use crate::world::lock;
use gabion_layout::{ByteRange, UpdateScheme};
use gabion_meta::Inode;
use std::sync::{Arc, Mutex};

const SEED: u64 = 11;
/// Time without a coordinator.
const DOWN_US: u64 = 3_000_000;
/// Interval of looking for an orphan that is to go.
const PAUSE_US: u64 = 500_000;
/// The longest time until a closed orphan has gone, in virtual microseconds: all sessions have reported or ended by
/// then.
const GOES_WITHIN_US: u64 = 60_000_000;

/// Runs it: the coordinator dies at this step of the removal. It does not die if the removal has fewer steps.
fn removed_while_open(step: u64) -> Raced {
    let ran = run_script(SEED, shape(UpdateScheme::Plr), |cluster, step_count| {
        script(cluster, (step, step_count))
    });
    ran.into()
}

async fn script(cluster: Arc<Cluster>, (step, step_count): (u64, Arc<Mutex<u64>>)) {
    let world = &cluster.world;
    let snapshots = Arc::new(Snapshots::default());
    drop(prepare(&cluster, (Sharing::Never, &snapshots)).await);
    let holder = Runner::new(&cluster, 0, &snapshots, options()).await;
    let remover = Runner::new(&cluster, 1, &snapshots, options()).await;
    let put = holder.file.put_id();
    let opened = holder.client.client.open_held(put).await;
    let held = opened.expect("the cluster is whole");
    let all = ByteRange::new(0, held.size_bytes());
    let bytes = held.read(all).await.expect("the cluster is whole");
    world
        .steps
        .count(Some((step, coordinator_restarts(&cluster, DOWN_US))));
    let done = remover.client.remove(FILE).await;
    *lock(&step_count) = world.steps.end();
    if let Err(error) = done {
        world.fail(format!("the file is not removed: {error}"));
    }
    let others = remover.client.client.open_held(put).await;
    if others.is_ok() {
        world.fail("a client opens a removed file that another one has open".to_owned());
    }
    // Longer than the report period.
    world.sleep(5 * DOWN_US).await;
    match held.read(all).await {
        Ok(read) if read == bytes => {}
        Ok(_) => world.fail("a removed file shows other bytes".to_owned()),
        Err(error) => world.fail(format!("an open file has gone: {error}")),
    }
    match holder.client.client.open_held(put).await {
        Ok(again) => drop(again),
        Err(error) => world.fail(format!("its client does not open it again: {error}")),
    }
    drop(held);
    let end_us = world.now_us() + GOES_WITHIN_US;
    while cluster.observer.inode_status(Inode::File(put)).is_ok() {
        if world.now_us() > end_us {
            world.fail("a removed file that no client has open does not go".to_owned());
            break;
        }
        world.sleep(PAUSE_US).await;
    }
    match cluster.observer.check() {
        Ok(faults) if faults.is_empty() => {}
        faults => world.fail(format!("the metadata contradict themselves: {faults:?}")),
    }
}

#[test]
fn a_removed_file_stays_until_it_is_closed_whenever_the_coordinator_dies() {
    run_at_steps(&(), 1, removed_while_open);
}
