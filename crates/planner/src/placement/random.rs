//! Random placement: any set of distinct nodes that keeps the rack limit, as CAU (section 5.1) and
//! RackCU (section IV-A) place stripes.

use super::take_in_order;
use crate::PlanError;
use gabion_layout::{ChunkIndex, NodeId, Topology};
use rand::Rng;
use rand::seq::SliceRandom;

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

/// A random node for `chunk`, which must leave the node that it is on: one that holds no other
/// chunk of the stripe and whose rack stays within `per_rack`. `topology` has the nodes that are
/// up and wanted.
///
/// # Errors
/// [`PlanError::NoRoom`] when there is none.
pub fn replacement(
    topology: &Topology,
    placement: &[NodeId],
    chunk: ChunkIndex,
    per_rack: usize,
    rack_of: impl Fn(NodeId) -> Option<gabion_layout::RackId>,
    rng: &mut impl Rng,
) -> Result<NodeId, PlanError> {
    let others = || {
        placement
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != chunk.at())
            .map(|(_, node)| *node)
    };
    let mut nodes: Vec<NodeId> = topology
        .nodes()
        .filter(|place| others().all(|other| other != place.node))
        .filter(|place| {
            others()
                .filter(|&other| rack_of(other) == Some(place.rack))
                .count()
                < per_rack
        })
        .map(|place| place.node)
        .collect();
    nodes.shuffle(rng);
    let room = placement.len() - 1;
    nodes.pop().ok_or(PlanError::NoRoom {
        chunks: placement.len(),
        per_rack,
        room,
    })
}
