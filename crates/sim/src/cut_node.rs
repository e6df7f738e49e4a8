//! Reads and writes beside a node that its peers cannot reach, and that the coordinator and the clients can. Until the
//! node is evicted and the primaries hear of it, updates of its stripes wait.

use crate::cluster::Cluster;
use crate::race::{Runner, STRIPE_CELLS, Sharing, options, prepare, shape};
use crate::run::run_script;
use crate::snapshots::Snapshots;
use crate::verify::verify;
use crate::world::lock;
use gabion_layout::UpdateScheme;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Time that the node stays cut off from its peers.
const CUT_US: u64 = 6_000_000;
/// One cell in each data chunk of the second stripe.
const CELLS: [Range<u64>; 2] = [
    STRIPE_CELLS + 300..STRIPE_CELLS + 301,
    2 * STRIPE_CELLS - 300..2 * STRIPE_CELLS - 299,
];

/// The directions in which messages between a node and its peers are lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CutDirection {
    /// To the node.
    Inward,
    /// From the node.
    Outward,
    /// Both.
    Both,
}

impl CutDirection {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Inward, Self::Outward, Self::Both];
}

/// A cut of a node off from others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeCut {
    /// The chunk of the stripe that is on the node.
    pub chunk: usize,
    /// The lost messages.
    pub direction: CutDirection,
    /// Whether the node of the first chunk, which is the stripe's primary, reaches the node.
    pub spares_primary: bool,
}

/// The longest calls of a client, in virtual microseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct LongestCalls {
    /// The longest read.
    pub read_us: u64,
    /// The longest write.
    pub write_us: u64,
}

/// The result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkBesideIt {
    /// The broken promise, if one was.
    pub failure: Option<String>,
    /// The last events, oldest first.
    pub log: Vec<String>,
    /// The longest calls while the node was cut off.
    pub longest: LongestCalls,
}

/// Reads and writes both data chunks of a stripe while the node of one of its chunks is cut off from its peers.
pub fn work_beside_a_cut_node(seed: u64, cut: NodeCut) -> WorkBesideIt {
    let ran = run_script(seed, shape(UpdateScheme::Plr), move |cluster, longest| {
        script(cluster, longest, cut)
    });
    WorkBesideIt {
        failure: ran.failure,
        log: ran.log,
        longest: ran.notes,
    }
}

async fn script(cluster: Arc<Cluster>, longest: Arc<Mutex<LongestCalls>>, of: NodeCut) {
    let world = Arc::clone(&cluster.world);
    let snapshots = Arc::new(Snapshots::default());
    let (operator, _) = prepare(&cluster, (Sharing::Never, &snapshots)).await;
    let writer = Runner::new(&cluster, 0, &snapshots, options()).await;
    let reader = Runner::new(&cluster, 1, &snapshots, options()).await;
    for cells in &CELLS {
        Call::Write.make(&writer, cells).await;
        Call::Read.make(&reader, cells).await;
    }
    let stripes = cluster.stripes();
    let slot_of = |chunk: usize| cluster.slot_of(stripes[1].nodes[chunk]);
    let cut = slot_of(of.chunk).expect("each chunk of the stripe has a node");
    let spared = [Some(cut), slot_of(0).filter(|_| of.spares_primary)];
    let mut peers = cluster.node_slots();
    peers.retain(|&peer| !spared.contains(&Some(peer)));
    for peer in peers {
        if of.direction != CutDirection::Inward {
            cluster.network.cut(cut, peer, true);
        }
        if of.direction != CutDirection::Outward {
            cluster.network.cut(peer, cut, true);
        }
    }
    let until_us = world.now_us() + CUT_US;
    let (read_us, write_us) = futures::join!(
        Call::Read.longest_us(&reader, until_us),
        Call::Write.longest_us(&writer, until_us)
    );
    *lock(&longest) = LongestCalls { read_us, write_us };
    cluster.network.heal_links();
    verify(&cluster, &operator).await;
}

/// A client's call.
#[derive(Clone, Copy, Debug)]
enum Call {
    Read,
    Write,
}

impl Call {
    async fn make(self, by: &Runner, cells: &Range<u64>) {
        let made = match self {
            Self::Read => by.client.read(&by.file, cells).await,
            Self::Write => by.client.write(&by.file, cells).await.map(|_| ()),
        };
        if let Err(error) = made {
            by.client.fail(format!("{self:?} fails: {error}"));
        }
    }

    /// Makes the call for each of the cells by turns until this time. Returns the longest call's time.
    async fn longest_us(self, by: &Runner, until_us: u64) -> u64 {
        let mut longest_us = 0;
        for cells in CELLS.iter().cycle() {
            let began_us = by.client.now_us();
            self.make(by, cells).await;
            longest_us = longest_us.max(by.client.now_us() - began_us);
            if by.client.now_us() > until_us {
                break;
            }
        }
        longest_us
    }
}
