//! Writes beside a node that its peers cannot reach, and that the coordinator and the clients can. Until the node is
//! evicted and the primaries hear of it, updates of its stripes wait.

use crate::cluster::Cluster;
use crate::race::{Runner, Sharing, WITHIN, options, prepare, shape};
use crate::run::run_script;
use crate::snapshots::Snapshots;
use crate::verify::verify;
use crate::world::lock;
use gabion_layout::UpdateScheme;
use std::sync::{Arc, Mutex};

/// Time that the node stays cut off from its peers.
const CUT_US: u64 = 12_000_000;

/// The result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WritesBesideIt {
    /// The broken promise, if one was.
    pub failure: Option<String>,
    /// The last events, oldest first.
    pub log: Vec<String>,
    /// The longest time between the ends of two consecutive writes, in virtual microseconds.
    pub gap_us: u64,
}

/// Runs it with this seed.
pub fn writes_beside_a_cut_node(seed: u64) -> WritesBesideIt {
    let ran = run_script(seed, shape(UpdateScheme::Plr), script);
    WritesBesideIt {
        failure: ran.failure,
        log: ran.log,
        gap_us: ran.notes,
    }
}

async fn script(cluster: Arc<Cluster>, longest: Arc<Mutex<u64>>) {
    let world = Arc::clone(&cluster.world);
    let snapshots = Arc::new(Snapshots::default());
    let (operator, _) = prepare(&cluster, (Sharing::Never, &snapshots)).await;
    let writer = Runner::new(&cluster, 0, &snapshots, options()).await;
    // In the second stripe, one of whose nodes is cut off.
    let cells = WITHIN.start..WITHIN.start + 1;
    let write = async || {
        if let Err(error) = writer.client.write(&writer.file, &cells).await {
            world.fail(format!("a write fails: {error}"));
        }
    };
    write().await;
    let second_stripe = cluster.stripes().into_iter().nth(1);
    let cut = second_stripe.and_then(|stripe| cluster.slot_of(stripe.nodes[2]));
    let cut = cut.expect("the stripe has a node for its parity");
    for peer in cluster.node_slots().into_iter().filter(|&peer| peer != cut) {
        cluster.network.cut(cut, peer, true);
        cluster.network.cut(peer, cut, true);
    }
    let began_us = world.now_us();
    let mut gap_us = 0;
    while world.now_us() < began_us + CUT_US {
        let before_us = world.now_us();
        write().await;
        gap_us = gap_us.max(world.now_us() - before_us);
    }
    *lock(&longest) = gap_us;
    cluster.network.heal_links();
    verify(&cluster, &operator).await;
}
