//! A disk that hangs in a cluster without work. Here the hang holds up heartbeats too, so the lease of its node ends.

use crate::cluster::Cluster;
use crate::race::{Raced, Sharing, prepare, shape};
use crate::run::run_script;
use crate::snapshots::Snapshots;
use gabion_layout::UpdateScheme;
use std::sync::{Arc, Mutex};

const SEED: u64 = 5;
/// The disk hangs for this time.
const HUNG_US: u64 = 20_000_000;
/// Interval of looking whether the node has joined again, and the longest time until then.
const PAUSE_US: u64 = 500_000;
const JOINS_WITHIN_US: u64 = 60_000_000;

/// Runs it: the node stops being a member, and joins again. No steps are counted.
fn hung_disk() -> Raced {
    let ran = run_script(
        SEED,
        shape(UpdateScheme::Plr),
        |cluster, _: Arc<Mutex<u64>>| script(cluster),
    );
    ran.into()
}

async fn script(cluster: Arc<Cluster>) {
    let world = &cluster.world;
    let snapshots = Arc::new(Snapshots::default());
    drop(prepare(&cluster, (Sharing::Never, &snapshots)).await);
    let slot = cluster.node_slots()[0];
    cluster.hangs.begin(slot, world.now_us());
    world.sleep(HUNG_US).await;
    if cluster.failed().is_empty() {
        world.fail("a node stays a member although its disk hangs".to_owned());
    }
    cluster.hangs.end(slot);
    let end_us = world.now_us() + JOINS_WITHIN_US;
    while !cluster.failed().is_empty() {
        if world.now_us() > end_us {
            world.fail("a node does not join after its disk has hung".to_owned());
            break;
        }
        world.sleep(PAUSE_US).await;
    }
}

#[test]
fn a_node_whose_disk_hangs_is_no_member_and_joins_again() {
    let run = hung_disk();
    assert_eq!(run.failure, None, "{}", run.log.join("\n"));
}
