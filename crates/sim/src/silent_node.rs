//! Reads beside a node that takes requests and whose replies are lost. A hedged read asks another source after a delay
//! taken from earlier reads, and later reads ask the silent node last.

use crate::cluster::Cluster;
use crate::race::{Raced, Runner, Sharing, WITHIN, options, prepare, shape};
use crate::run::{end, execute};
use crate::snapshots::Snapshots;
use crate::verify::verify;
use crate::world::{World, lock};
use gabion_layout::UpdateScheme;
use std::sync::{Arc, Mutex};

const SEED: u64 = 3;
const KEPT_LINE_COUNT: usize = 2_000;
/// Reads before the node is silent, from which the client takes its delay.
const WARM_COUNT: usize = 200;

/// Reads behind the first one beside the silent node: more than the client may hedge in a row.
const LATER_COUNT: usize = 20;

/// Times of reads of one chunk, in virtual microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadTimes {
    /// The longest while all nodes answer.
    pub usual_us: u64,
    /// The first one when the chunk's node is silent.
    pub first_us: u64,
    /// Those behind that, together.
    pub later_us: u64,
}

/// Runs it.
pub fn reads_beside_a_silent_node() -> (Raced, ReadTimes) {
    let world = World::new(SEED, KEPT_LINE_COUNT);
    let cluster = Cluster::new(&world, shape(UpdateScheme::Plr));
    let times = Arc::new(Mutex::new(ReadTimes::default()));
    let failure = execute(&cluster, script(Arc::clone(&cluster), Arc::clone(&times)));
    end(&cluster);
    let raced = Raced {
        failure,
        log: world.take_journal().into_lines(),
        step_count: 0,
    };
    let times = *lock(&times);
    (raced, times)
}

async fn script(cluster: Arc<Cluster>, times: Arc<Mutex<ReadTimes>>) {
    let world = Arc::clone(&cluster.world);
    let snapshots = Arc::new(Snapshots::default());
    let (operator, _) = prepare(&cluster, (Sharing::Never, &snapshots)).await;
    let reader = Runner::new(&cluster, 0, &snapshots, options()).await;
    // In the second chunk of the second stripe, whose node is not the stripe's primary.
    let cells = WITHIN.end - 1..WITHIN.end;
    let read = async || {
        let began_us = world.now_us();
        if let Err(error) = reader.client.read(&reader.file, &cells).await {
            world.fail(format!("a read fails: {error}"));
        }
        world.now_us() - began_us
    };
    let mut usual_us = 0;
    for _ in 0..WARM_COUNT {
        usual_us = read().await.max(usual_us);
    }
    let second_stripe = cluster.stripes().into_iter().nth(1);
    let holder = second_stripe.and_then(|stripe| cluster.slot_of(stripe.nodes[1]));
    let holder = holder.expect("the stripe has a node for its second chunk");
    let reader_slot = reader.client.party.slot;
    cluster.network.cut(holder, reader_slot, true);
    let first_us = read().await;
    let mut later_us = 0;
    for _ in 0..LATER_COUNT {
        later_us += read().await;
    }
    *lock(&times) = ReadTimes {
        usual_us,
        first_us,
        later_us,
    };
    cluster.network.heal_links();
    verify(&cluster, &operator).await;
}
