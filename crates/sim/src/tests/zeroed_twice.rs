//! Two clients that make the same bytes zero, while the coordinator cannot tell a node to withdraw what was there. The
//! second one finds nothing to do. It must not succeed either while a reader with an old layout can read the old bytes.

use super::run_at_steps;
use crate::cluster::Cluster;
use crate::ports::COORDINATOR;
use crate::race::{Raced, Runner, Sharing, options, prepare, second_stripe, shape};
use crate::run::run_script;
use crate::shape::Shape;
use crate::snapshots::Snapshots;
use crate::steps::Act;
use crate::verify::verify;
use crate::world::lock;
use futures::channel::oneshot;
use futures::future::join;
use gabion_client::ClientError;
use gabion_layout::UpdateScheme;
use std::sync::{Arc, Mutex};

const SEED: u64 = 5;
/// Time after which the second client begins: the first one has changed the metadata by then.
const HEAD_START_US: u64 = 20_000;
/// Time after which the node can be told, shorter than its lease.
const CUT_US: u64 = 400_000;
const READ_EVERY_US: u64 = 10_000;
/// Cells that the reader reads, in one chunk: another node could tell it that its layout is old.
const READ_COUNT: u64 = 10;

/// The change that both clients make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Zeroing {
    /// They punch the second stripe.
    Punch,
    /// They truncate the file to its first stripe.
    Truncate,
    /// They truncate it to a part of the chunk that the reader reads.
    Divide,
}

/// Runs it: the node, counted from 0, is cut off from this step of the first client's change on.
fn zeroed_twice(zeroing: Zeroing, node: usize, step: u64) -> Raced {
    let shape = Shape {
        client_count: 3,
        ..shape(UpdateScheme::Plr)
    };
    let ran = run_script(SEED, shape, |cluster, step_count| {
        script(cluster, zeroing, node, (step, step_count))
    });
    ran.into()
}

async fn script(
    cluster: Arc<Cluster>,
    zeroing: Zeroing,
    node: usize,
    (step, step_count): (u64, Arc<Mutex<u64>>),
) {
    let world = &cluster.world;
    let snapshots = Arc::new(Snapshots::default());
    let (operator, _) = prepare(&cluster, (Sharing::Never, &snapshots)).await;
    let first = Runner::new(&cluster, 0, &snapshots, options()).await;
    let second = Runner::new(&cluster, 1, &snapshots, options()).await;
    let reader = Runner::new(&cluster, 2, &snapshots, options()).await;
    let (cut, is_cut) = oneshot::channel();
    let act: Act = Box::new({
        let (cluster, untold) = (Arc::clone(&cluster), cluster.node_slots()[node]);
        move || {
            cluster.network.cut(COORDINATOR, untold, true);
            cut.send(()).unwrap_or(());
        }
    });
    world.steps.count(Some((step, act)));
    let zero_first = async {
        let done = zero(&first, zeroing).await;
        *lock(&step_count) = world.steps.end();
        done
    };
    let rest = async {
        if is_cut.await.is_err() {
            // It has fewer steps.
            return Ok(());
        }
        let zero_again = async {
            world.sleep(HEAD_START_US).await;
            zero(&second, zeroing).await
        };
        let start = second_stripe().start;
        let in_one_chunk = start..start + READ_COUNT;
        let read = async {
            let end_us = world.now_us() + CUT_US;
            while world.now_us() < end_us {
                // It fails when the file is shorter; what it shows is checked.
                let _ = reader.client.read(&reader.file, &in_one_chunk).await;
                world.sleep(READ_EVERY_US).await;
            }
            cluster.network.heal_links();
        };
        join(zero_again, read).await.0
    };
    let (done, done_again) = join(zero_first, rest).await;
    if let Err(error) = done.and(done_again) {
        world.fail(format!("a change fails: {error}"));
    }
    for runner in [first, second, reader] {
        runner.read_again(false).await;
    }
    verify(&cluster, &operator).await;
}

async fn zero(runner: &Runner, zeroing: Zeroing) -> Result<(), ClientError> {
    let stripe = second_stripe();
    match zeroing {
        Zeroing::Punch => runner.client.punch(&runner.file, &stripe).await,
        Zeroing::Truncate => runner.client.truncate(&runner.file, stripe.start).await,
        Zeroing::Divide => {
            let end = stripe.start + READ_COUNT / 2;
            runner.client.truncate(&runner.file, end).await
        }
    }
}

/// Steps between two runs.
const STRIDE: usize = 2;
const NODE_COUNT: usize = 4;

#[test]
fn zeroing_what_another_client_is_zeroing_ends_when_no_reader_sees_the_old_bytes() {
    for zeroing in [Zeroing::Punch, Zeroing::Truncate, Zeroing::Divide] {
        for node in 0..NODE_COUNT {
            let run = |step| zeroed_twice(zeroing, node, step);
            run_at_steps(&(zeroing, node), STRIDE, run);
        }
    }
}
