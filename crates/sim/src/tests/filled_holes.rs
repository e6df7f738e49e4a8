//! Writes into many holes at the same time. Each stores a whole stripe, and the stripes of all of them share the
//! client's memory for stripes.

use crate::cluster::Cluster;
use crate::race::{Runner, Sharing, options, prepare, shape};
use crate::run::run_script;
use crate::snapshots::Snapshots;
use crate::world::lock;
use bytes::Bytes;
use futures::future::try_join_all;
use gabion_client::{ClientError, ClientOptions};
use gabion_layout::UpdateScheme;
use std::sync::{Arc, Mutex};

const SEED: u64 = 3;
const HOLE_COUNT: u64 = 12;

/// The time that the writes take together, in microseconds, by a client with this much memory for stripes; or the
/// broken promise.
///
/// # Errors
/// With a sentence, if a write fails.
fn fill_holes(in_flight_bytes: u64) -> Result<u64, String> {
    let ran = run_script(SEED, shape(UpdateScheme::Plr), |cluster, took_us| {
        script(cluster, (in_flight_bytes, took_us))
    });
    ran.failure.map_or(Ok(ran.notes), Err)
}

async fn script(cluster: Arc<Cluster>, (in_flight_bytes, took_us): (u64, Arc<Mutex<u64>>)) {
    let world = &cluster.world;
    let snapshots = Arc::new(Snapshots::default());
    drop(prepare(&cluster, (Sharing::Never, &snapshots)).await);
    let options = ClientOptions {
        in_flight_bytes,
        ..options()
    };
    let runner = Runner::new(&cluster, 0, &snapshots, options).await;
    let begun_us = world.now_us();
    match fill(&runner).await {
        Ok(()) => *lock(&took_us) = world.now_us() - begun_us,
        Err(error) => world.fail(format!("a write into a hole fails: {error}")),
    }
}

async fn fill(runner: &Runner) -> Result<(), ClientError> {
    let file = &runner.file;
    let stripe_bytes = file.pool().spec.segment_bytes();
    let first = file.size_bytes().div_ceil(stripe_bytes);
    file.grow((first + HOLE_COUNT) * stripe_bytes).await?;
    let writes = (first..first + HOLE_COUNT)
        .map(|stripe| file.write(stripe * stripe_bytes, Bytes::from_static(&[0; 8])));
    try_join_all(writes).await.map(drop)
}

#[test]
fn writes_into_holes_take_turns_if_their_stripes_do_not_fit_the_clients_memory() {
    let took_us = |in_flight_bytes| {
        let filled = fill_holes(in_flight_bytes);
        filled.unwrap_or_else(|broken| panic!("{in_flight_bytes} bytes: {broken}"))
    };
    let (at_once, in_turn) = (took_us(256 << 20), took_us(1));
    // Without a limit both are the same run.
    assert!(10 * at_once < 9 * in_turn, "{at_once} and {in_turn} µs");
}
