//! A flush of a client's cache whose replies are lost from a given step on, so that the client cannot know whether its
//! bytes are written. Another client reads the file, overwrites these bytes, and the first one flushes again. Bytes
//! that had arrived must not be written a second time, over the later write.

use super::run_at_steps;
use crate::cluster::Cluster;
use crate::race::{Raced, Runner, Sharing, WITHIN, options, prepare, shape};
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

const SEED: u64 = 2;
/// Time after which the first client's flush fails.
const DEADLINE: Duration = Duration::from_secs(3);
const PAUSE_US: u64 = 100_000;
/// Flushes until one must succeed in a whole cluster.
const FLUSH_COUNT_MAX: usize = 200;

/// Runs it: the replies to the client are lost from this step of its flush on, or never if that has fewer steps.
fn flush_in_doubt(scheme: UpdateScheme, sharing: Sharing, cells: &Range<u64>, step: u64) -> Raced {
    let ran = run_script(SEED, shape(scheme), |cluster, step_count| {
        script(cluster, sharing, cells.clone(), (step, step_count))
    });
    ran.into()
}

async fn script(
    cluster: Arc<Cluster>,
    sharing: Sharing,
    cells: Range<u64>,
    (step, step_count): (u64, Arc<Mutex<u64>>),
) {
    let world = Arc::clone(&cluster.world);
    let snapshots = Arc::new(Snapshots::default());
    let (operator, _) = prepare(&cluster, (sharing, &snapshots)).await;
    let short = ClientOptions {
        deadline: DEADLINE,
        ..options()
    };
    let first = Runner::new(&cluster, 0, &snapshots, short).await;
    let second = Runner::new(&cluster, 1, &snapshots, options()).await;
    let cached = first.open_cached().await;
    let kept = first.client.write_cached(&cached, &cells).await;
    kept.expect("the cache has room");
    let lose_replies: Act = Box::new({
        let (cluster, deaf) = (Arc::clone(&cluster), first.client.party.slot);
        move || {
            for party in cluster.parties() {
                cluster.network.cut(party.slot, deaf, true);
            }
        }
    });
    world.steps.count(Some((step, lose_replies)));
    let flushed = first.client.flush(&cached).await;
    *lock(&step_count) = world.steps.end();
    world.note(&format!("the first flush: {:?}", flushed.err()));
    let between = async {
        second.read_all().await?;
        second.client.write(&second.file, &cells).await?;
        second.read_all().await
    };
    if let Err(error) = between.await {
        world.fail(format!("the other client fails: {error}"));
    }
    cluster.network.heal_links();
    let mut flush_count = 0;
    while let Err(error) = first.client.flush(&cached).await {
        if matches!(error, ClientError::Forgotten(_)) {
            world.fail(
                "an outcome that all nodes and the coordinator remember is unknown".to_owned(),
            );
            break;
        }
        flush_count += 1;
        if flush_count == FLUSH_COUNT_MAX {
            world.fail(format!("flushes of a whole cluster fail: {error}"));
            break;
        }
        world.sleep(PAUSE_US).await;
    }
    let some = cells.start..cells.start + 50;
    if let Err(error) = first.client.read_cached(&cached, &some).await {
        world.fail(format!(
            "a read through the cache of a whole cluster fails: {error}"
        ));
    }
    for runner in [first, second] {
        runner.read_again(false).await;
    }
    verify(&cluster, &operator).await;
    if let Err(wrong) = snapshots.verify(&operator).await {
        world.fail(wrong);
    }
}

/// Steps between two runs.
const STRIDE: usize = 11;

/// The replies are lost from steps of the flush on: of an update in place, and of a replacement of a stripe that a
/// snapshot shares.
#[test]
fn bytes_of_a_flush_in_doubt_are_not_written_again_over_later_ones() {
    for sharing in [Sharing::Never, Sharing::Now] {
        let run = |step| flush_in_doubt(UpdateScheme::Plr, sharing, &WITHIN, step);
        run_at_steps(&sharing, STRIDE, run);
    }
}
