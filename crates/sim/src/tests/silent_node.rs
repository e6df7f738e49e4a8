//! Reads beside a node that takes requests and whose replies are lost. A hedged read asks another source after a delay
//! taken from earlier reads, and later reads ask the silent node last.

use crate::cluster::Cluster;
use crate::race::{Runner, Sharing, WITHIN, options, prepare, shape};
use crate::run::run_script;
use crate::snapshots::Snapshots;
use crate::verify::verify;
use crate::world::lock;
use gabion_layout::UpdateScheme;
use std::sync::{Arc, Mutex};

const SEED: u64 = 3;
/// Reads before the node is silent, from which the client takes its delay.
const WARM_COUNT: usize = 200;

/// Time without reads in which every node counts as well again.
const WELL_US: u64 = 60_000_000;

/// Reads behind the first one beside the silent node: more than the client may hedge in a row.
const LATER_COUNT: usize = 20;

/// Times of reads of one chunk, in virtual microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct ReadTimes {
    /// The median while all nodes answer.
    usual: u64,
    /// The first one when the chunk's node is silent.
    first: u64,
    /// Those behind that, together.
    later: u64,
}

/// The result.
#[derive(Clone, PartialEq, Eq, Debug)]
struct ReadBesideIt {
    /// The broken promise, if one was.
    failure: Option<String>,
    /// The last events, oldest first.
    log: Vec<String>,
    /// The times.
    times: ReadTimes,
}

/// Runs it.
fn reads_beside_a_silent_node() -> ReadBesideIt {
    let ran = run_script(SEED, shape(UpdateScheme::Plr), script);
    ReadBesideIt {
        failure: ran.failure,
        log: ran.log,
        times: ran.notes,
    }
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
    let mut warm_us = Vec::new();
    for _ in 0..WARM_COUNT {
        warm_us.push(read().await);
    }
    warm_us.sort_unstable();
    let usual_us = warm_us[WARM_COUNT / 2];
    // A node that was slow once is asked last for some time. The next read must ask the one that falls silent.
    world.sleep(WELL_US).await;
    read().await;
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
        usual: usual_us,
        first: first_us,
        later: later_us,
    };
    cluster.network.heal_links();
    verify(&cluster, &operator).await;
}

#[test]
fn a_read_asks_another_source_soon_and_later_ones_ask_the_silent_node_last() {
    let run = reads_beside_a_silent_node();
    let times = run.times;
    assert_eq!(run.failure, None, "{}", run.log.join("\n"));
    let last_lines = || run.log[run.log.len().saturating_sub(60)..].join("\n");
    // Without a second source it would wait until probes find the node silent, for some 950 ms.
    let first_is_hedged = times.first > times.usual && times.first < 500_000;
    assert!(first_is_hedged, "{}\n{times:?}", last_lines());
    // The client's hedges would not suffice for all of them.
    assert!(times.later < 1_000_000, "{}\n{times:?}", last_lines());
}
