//! Rack-aware path selection: the helpers and their order, such that a chain enters and leaves each rack at most once
//! and crosses as few racks as possible. `ECPipe` section 4.2, algorithm 1.

use crate::{PlanError, Stripe};
use gabion_layout::{ChunkIndex, NodeId, RackId, Topology};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The helpers of a chain that repairs `lost` onto `requestor`, in the chain's order: those of the
/// requestor's rack come last, before them those of the remote rack that has most, and so on. For
/// codes that prefer some chunks, as LRC its local groups, the code's choice comes before the racks'.
/// `helpers` lists the chunks that may help, the preferred ones of a rack first.
///
/// # Errors
/// [`PlanError::NotEnoughHelpers`] when the chunks named do not determine the lost one.
pub fn rack_aware_path(
    stripe: &Stripe<'_>,
    lost: ChunkIndex,
    requestor: NodeId,
    helpers: &[ChunkIndex],
    topology: &Topology,
) -> Result<Vec<ChunkIndex>, PlanError> {
    let may_help = |chunk: &ChunkIndex| !stripe.lost.contains(chunk) && *chunk != lost;
    let candidates: Vec<ChunkIndex> = helpers.iter().copied().filter(may_help).collect();
    let nearest = from_requestor(stripe, requestor, &candidates, topology);
    let order: Vec<usize> = nearest.iter().map(|chunk| chunk.at()).collect();
    let equations = stripe.code.repair_equations(lost.at(), &order)?;
    let chosen: Vec<ChunkIndex> = equations[0]
        .helpers
        .iter()
        .map(|&at| ChunkIndex::new(at))
        .collect();
    // Racks are ordered anew by the helpers that the code has chosen of them.
    let mut path = from_requestor(stripe, requestor, &chosen, topology);
    path.reverse();
    Ok(path)
}

/// The chunks from the requestor's rack outwards, remote racks with many of them first.
fn from_requestor(
    stripe: &Stripe<'_>,
    requestor: NodeId,
    chunks: &[ChunkIndex],
    topology: &Topology,
) -> Vec<ChunkIndex> {
    let rack_of = |chunk: &ChunkIndex| topology.rack_of(stripe.node_of(*chunk));
    let home = topology.rack_of(requestor);
    let mut counts: BTreeMap<Option<RackId>, usize> = BTreeMap::new();
    for chunk in chunks {
        *counts.entry(rack_of(chunk)).or_default() += 1;
    }
    let mut ordered = chunks.to_vec();
    ordered.sort_by_key(|chunk| {
        let rack = rack_of(chunk);
        (rack != home, Reverse(counts[&rack]), rack)
    });
    ordered
}
