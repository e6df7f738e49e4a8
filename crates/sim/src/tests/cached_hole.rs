//! A hole that another client punches under bytes that a client has in its cache. The client's changes stay readable;
//! its writes into the hole go to the cluster at once, and older changes in its cache must not undo them.

use super::run_at_steps;
use crate::cached::Cached;
use crate::cluster::Cluster;
use crate::race::{Raced, Runner, Sharing, options, prepare, second_stripe, shape};
use crate::run::run_script;
use crate::snapshots::Snapshots;
use crate::steps::Act;
use crate::verify::verify;
use crate::world::lock;
use gabion_client::{ClientError, ClientOptions};
use gabion_layout::UpdateScheme;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SEED: u64 = 4;
/// Time after which the first client's operations fail.
const DEADLINE: Duration = Duration::from_secs(3);
const PAUSE_US: u64 = 100_000;
/// Attempts of an operation until it must succeed in a whole cluster.
const ATTEMPT_COUNT_MAX: usize = 200;

/// Runs it. With a `step`, the client first flushes into the hole, and is cut off from all others from this step of the
/// flush on, so that it cannot know whether its changes are stored. Before its last flush, the hole is punched again.
fn writes_into_a_hole_under_cached_bytes(scheme: UpdateScheme, step: Option<u64>) -> Raced {
    let ran = run_script(SEED, shape(scheme), |cluster, step_count| {
        script(cluster, (step, step_count))
    });
    ran.into()
}

async fn script(cluster: Arc<Cluster>, (step, step_count): (Option<u64>, Arc<Mutex<u64>>)) {
    let world = Arc::clone(&cluster.world);
    let snapshots = Arc::new(Snapshots::default());
    let (operator, _) = prepare(&cluster, (Sharing::Never, &snapshots)).await;
    let short = ClientOptions {
        deadline: DEADLINE,
        ..options()
    };
    let first = Runner::new(&cluster, 0, &snapshots, short).await;
    let second = Runner::new(&cluster, 1, &snapshots, options()).await;
    let done = match step {
        None => write_into_the_hole(&first, &second).await,
        Some(step) => write_behind_a_doubt((&first, &second), (step, step_count)).await,
    };
    if let Err(error) = done {
        world.fail(format!("an operation in a whole cluster fails: {error}"));
    }
    for runner in [first, second] {
        runner.read_again(false).await;
    }
    verify(&cluster, &operator).await;
}

/// Cells of the second stripe.
fn at(from: u64, to: u64) -> Range<u64> {
    let first = second_stripe().start;
    first + from..first + to
}

/// Clean bytes, changes beside them, and a hole under both that the client knows.
async fn prepare_hole(first: &Runner, second: &Runner) -> Result<Cached, ClientError> {
    let (client, cached) = (&first.client, first.open_cached().await);
    client.read_cached(&cached, &at(0, 200)).await?;
    client.write_cached(&cached, &at(100, 400)).await?;
    second.client.punch(&second.file, &second_stripe()).await?;
    // It is not cached, so the client finds the hole.
    client.read_cached(&cached, &at(900, 901)).await?;
    client.read_own(&cached, &at(100, 400)).await?;
    Ok(cached)
}

async fn write_into_the_hole(first: &Runner, second: &Runner) -> Result<(), ClientError> {
    let (client, cached) = (&first.client, prepare_hole(first, second).await?);
    client.write_cached(&cached, &at(0, 300)).await?;
    client.read_own(&cached, &at(0, 400)).await?;
    client.flush(&cached).await?;
    client.read_own(&cached, &at(0, 400)).await
}

async fn write_behind_a_doubt(
    (first, second): (&Runner, &Runner),
    (step, step_count): (u64, Arc<Mutex<u64>>),
) -> Result<(), ClientError> {
    let (client, cached) = (&first.client, prepare_hole(first, second).await?);
    let (cluster, world) = (&first.cluster, &first.cluster.world);
    let cut_off: Act = Box::new({
        let (cluster, alone) = (Arc::clone(cluster), client.party.slot);
        move || {
            for party in cluster.parties() {
                cluster.network.cut(party.slot, alone, true);
                cluster.network.cut(alone, party.slot, true);
            }
        }
    });
    world.steps.count(Some((step, cut_off)));
    let flushed = client.flush(&cached).await;
    *lock(&step_count) = world.steps.end();
    world.note(&format!("the first flush: {:?}", flushed.err()));
    cluster.network.heal_links();
    let mut attempts = 1..ATTEMPT_COUNT_MAX;
    while let Err(error) = client.write_cached(&cached, &at(0, 300)).await {
        attempts.next().ok_or(error)?;
        world.sleep(PAUSE_US).await;
    }
    second.client.punch(&second.file, &second_stripe()).await?;
    second.read_all().await?;
    let mut attempts = 1..ATTEMPT_COUNT_MAX;
    while let Err(error) = client.flush(&cached).await {
        attempts.next().ok_or(error)?;
        world.sleep(PAUSE_US).await;
    }
    Ok(())
}

#[test]
fn older_changes_in_the_cache_do_not_undo_a_write_into_a_hole() {
    for scheme in [UpdateScheme::Plr, UpdateScheme::Cau] {
        let run = writes_into_a_hole_under_cached_bytes(scheme, None);
        assert_eq!(run.failure, None, "{}\n{scheme}", run.log.join("\n"));
    }
}

/// They are stored before that write, or never.
#[test]
fn a_flush_into_a_hole_with_an_unknown_outcome_does_not_undo_a_later_write() {
    let run = |step| writes_into_a_hole_under_cached_bytes(UpdateScheme::Plr, Some(step));
    let step_count = run_at_steps(&(), 1, run);
    assert!(step_count > 10, "a flush has steps");
}
