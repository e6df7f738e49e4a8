//! Random placement: any set of distinct nodes that keeps the rack limit, as CAU (section 5.1) and
//! `RackCU` (section IV-A) place stripes.

use super::descriptor::{Layout, LayoutDescriptor};
use super::in_order::take_in_order;
use crate::PlanError;
use gabion_layout::{ChunkIndex, NodeId, Topology};
use rand::Rng;
use rand::seq::{IndexedRandom, SliceRandom};

/// Its name, which a colon and a seed may follow.
pub(super) const NAME: &str = "random";

/// The seed if none is named.
const DEFAULT_SEED: u64 = 0;

/// The layout as all others know it.
pub(super) const DESCRIPTOR: LayoutDescriptor = LayoutDescriptor {
    forms: "random, random:SEED",
    example: "random:7",
    read,
    help: "an order of nodes for each stripe, drawn from SEED",
    paper: "CAU section 5.1; RackCU section IV-A",
};

fn read(text: &str) -> Option<Result<Layout, PlanError>> {
    let seed = match text.strip_prefix(NAME)? {
        "" => return Some(Ok(Layout::Random { seed: DEFAULT_SEED })),
        rest => rest.strip_prefix(':')?,
    };
    let read = seed.parse().map(|seed| Layout::Random { seed });
    Some(read.map_err(|_| {
        let message = format!("the seed '{seed}' of layout '{text}' is not a whole number");
        PlanError::Layout(message)
    }))
}

/// Places `chunks` chunks on random distinct nodes with at most `per_rack` a rack.
///
/// # Errors
/// [`PlanError::NoRoom`] when the topology is too small.
pub fn random(
    topology: &Topology,
    chunks: usize,
    per_rack: usize,
    rng: &mut impl Rng,
) -> Result<Vec<NodeId>, PlanError> {
    let mut nodes: Vec<NodeId> = topology.nodes().map(|place| place.node).collect();
    nodes.shuffle(rng);
    take_in_order(topology, nodes.into_iter(), chunks, per_rack)
}

/// A random node of `candidates` to hold `chunk` instead of the node that `placement` gives it: one
/// that holds no other chunk of the stripe and in whose rack fewer than `per_rack` other chunks are.
///
/// `topology` has all nodes, failed ones too: the chunks on them still count in their racks, because
/// those nodes may come back. `candidates` are the nodes that are up and wanted; the chunk's present
/// node may be one of them, and one that the topology does not have is passed over.
///
/// # Errors
/// [`PlanError::NoRoom`] when no candidate will do.
///
/// ```
/// use gabion_layout::{ChunkIndex, NodeId, Topology};
/// use gabion_planner::placement::replacement;
/// use rand::SeedableRng;
///
/// // Three racks of three nodes, two chunks in each rack; node 4 fails and takes chunk 3 with it.
/// let topology = Topology::uniform(3, 3);
/// let placement = [0, 1, 3, 4, 6, 7].map(NodeId);
/// let up: Vec<NodeId> = topology.nodes().map(|p| p.node).filter(|&n| n != NodeId(4)).collect();
/// let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
/// let chosen = replacement(&topology, &up, &placement, ChunkIndex(3), 2, &mut rng);
/// assert_eq!(chosen, Ok(NodeId(5)), "the other racks hold two chunks already");
/// ```
pub fn replacement(
    topology: &Topology,
    candidates: &[NodeId],
    placement: &[NodeId],
    chunk: ChunkIndex,
    per_rack: usize,
    rng: &mut impl Rng,
) -> Result<NodeId, PlanError> {
    let nodes = replacements(topology, candidates, placement, chunk, per_rack);
    nodes.choose(rng).copied().ok_or(PlanError::NoRoom {
        chunks: placement.len(),
        per_rack,
        room: placement.len().saturating_sub(1),
    })
}

/// All nodes of `candidates` among which [`replacement`] chooses, in their order.
#[must_use]
pub fn replacements(
    topology: &Topology,
    candidates: &[NodeId],
    placement: &[NodeId],
    chunk: ChunkIndex,
    per_rack: usize,
) -> Vec<NodeId> {
    let mut others: Vec<NodeId> = placement.to_vec();
    if chunk.at() < others.len() {
        others.remove(chunk.at());
    }
    let has_room = |&candidate: &NodeId| {
        let Some(rack) = topology.rack_of(candidate) else {
            return false;
        };
        let in_rack = others
            .iter()
            .filter(|&&node| topology.rack_of(node) == Some(rack));
        !others.contains(&candidate) && in_rack.count() < per_rack
    };
    candidates.iter().copied().filter(has_room).collect()
}
