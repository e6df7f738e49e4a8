//! A snapshot of a directory, step by step: the coordinator is killed before one of its steps, and comes back.

use super::run_at_steps;
use crate::cluster::Cluster;
use crate::race::{Raced, Runner, Sharing, coordinator_restarts, options, prepare, shape};
use crate::run::run_script;
use crate::snapshots::Snapshots;
use crate::trees::Pair;
use crate::verify::verify;
use crate::world::lock;
use futures::future::join;
use gabion_layout::UpdateScheme;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

const SEED: u64 = 4;
/// Changes of the files in a scripted run, about as long as a snapshot takes at most.
const CHANGE_COUNT_MAX: u64 = 4_000;
/// The time for which the killed coordinator is down.
const DOWN_US: u64 = 300_000;
const PAUSE_US: u64 = 5_000;
/// Nodes lose their leases while the coordinator is down, and join within this time.
const PATIENCE_US: u64 = 10_000_000;

/// Takes a snapshot of a directory while the files below it change. The coordinator is killed before this step of it,
/// or never if it has fewer steps, and comes back.
fn snapshot_of_a_tree(scheme: UpdateScheme, step: u64) -> Raced {
    let ran = run_script(SEED, shape(scheme), |cluster, step_count| {
        script(cluster, (step, step_count))
    });
    ran.into()
}

async fn script(cluster: Arc<Cluster>, (step, step_count): (u64, Arc<Mutex<u64>>)) {
    let world = Arc::clone(&cluster.world);
    let snapshots = Arc::new(Snapshots::default());
    let (operator, _) = prepare(&cluster, (Sharing::Never, &snapshots)).await;
    let runner = Runner::new(&cluster, 0, &snapshots, options()).await;
    let pair = Pair::make(&cluster, &runner.client, (false, PATIENCE_US)).await;
    let pair = pair.expect("the cluster is whole");
    let kill = coordinator_restarts(&cluster, DOWN_US);
    let sharing = async {
        while pair.done.load(Ordering::Relaxed) < 4 {
            world.sleep(PAUSE_US).await;
        }
        world.steps.count(Some((step, kill)));
        let shared = pair.share().await;
        *lock(&step_count) = world.steps.end();
        // A coordinator that is down comes back.
        world.sleep(2 * DOWN_US).await;
        pair.is_over.store(true, Ordering::Relaxed);
        shared
    };
    let (written, shared) = join(pair.write(CHANGE_COUNT_MAX), sharing).await;
    for done in [written, shared] {
        if let Err(error) = done {
            world.fail(format!("a client of a whole cluster fails: {error}"));
        }
    }
    let last = pair.done.load(Ordering::Relaxed);
    match pair.read("now").await {
        Ok(shown) if shown[0].max(shown[1]) == last => {}
        read => world.fail(format!("the files show {read:?} behind {last} changes")),
    }
    if let Err(error) = pair.remove().await {
        world.fail(format!("a removal in a whole cluster fails: {error}"));
    }
    verify(&cluster, &operator).await;
}

/// Steps between two runs.
const STRIDE: usize = 7;

#[test]
fn a_snapshot_of_a_tree_is_of_one_instant_wherever_the_coordinator_is_killed() {
    for scheme in [UpdateScheme::Plr, UpdateScheme::Cau] {
        let step_count = run_at_steps(&scheme, STRIDE, |step| snapshot_of_a_tree(scheme, step));
        assert!(step_count > 40, "a snapshot has steps: {step_count}");
    }
}
