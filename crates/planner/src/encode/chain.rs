//! Pipelined encoding of replicas, our own, for stripes without a core rack: no node gets all `k` data chunks. Partial
//! parities pass along a chain of nodes with data chunks, and each node adds the contribution of its chunks. Repair
//! pipelining does the same (`ECPipe` section 3.2), but here for all parity chunks at once.
//!
//! The busiest link carries `m` chunks instead of `k`, so a lone encoding of RS(10,4) takes 4 block times where a
//! gathering node takes 10. It saves no bytes: `m` chunks cross for each rack after the first, which is more than with
//! gathering if replicas are spread over many racks.

use super::replicas::{ReplicaEncoding, Replicas};
use crate::{PlanError, Stripe};
use gabion_layout::{ChunkIndex, NodeId, RackId, Topology};
use gabion_plan::{PlanBuilder, ValueId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Plans the encoding of replicas along a chain through as few racks as a greedy choice finds. Data
/// chunks that have no replica at their place are moved there by the same plan.
///
/// # Errors
/// [`PlanError::Layout`] unless each data chunk has a replica.
///
/// # Panics
/// When the stripe's placement, geometry and code do not fit together.
pub fn chain(
    stripe: &Stripe<'_>,
    replicas: &[Vec<NodeId>],
    topology: &Topology,
    slice_bytes: u64,
) -> Result<ReplicaEncoding, PlanError> {
    let replicas = Replicas::new(stripe, replicas, topology, slice_bytes)?;
    let g = stripe.geometry;
    let mut b = stripe.builder();
    // One partial sum for each row of each parity chunk, where the chain has come to.
    let mut sums: Vec<Option<ValueId>> = vec![None; g.m() * g.sub_chunks()];
    for (node, chunks) in links(stripe, &replicas, topology) {
        let reads = read_all(&mut b, stripe, &replicas, node, &chunks);
        for (at, sum) in sums.iter_mut().enumerate() {
            let (parity, row) = (g.k() + at / g.sub_chunks(), at % g.sub_chunks());
            let mut terms: Vec<(u8, ValueId)> = reads
                .iter()
                .map(|&(data, data_row, value)| {
                    (stripe.code.coefficient(parity, row, data, data_row), value)
                })
                .filter(|&(coefficient, _)| coefficient != 0)
                .collect();
            if terms.is_empty() {
                continue;
            }
            if let Some(sum) = *sum {
                terms.push((1, b.send(sum, node)));
            }
            *sum = Some(b.combine(node, &terms));
        }
    }
    for (at, sum) in sums.into_iter().enumerate() {
        let (parity, row) = (
            ChunkIndex::new(g.k() + at / g.sub_chunks()),
            at % g.sub_chunks(),
        );
        let sum = sum.expect("a parity row depends on some data");
        let there = b.send(sum, stripe.node_of(parity));
        b.write(parity, replicas.row(row), there);
    }
    replicas.relocate(&mut b);
    Ok(replicas.finish(b))
}

/// All rows of these chunks, read at a node.
fn read_all(
    b: &mut PlanBuilder,
    stripe: &Stripe<'_>,
    replicas: &Replicas<'_>,
    node: NodeId,
    chunks: &[ChunkIndex],
) -> Vec<(usize, usize, ValueId)> {
    let rows = 0..stripe.geometry.sub_chunks();
    let parts = chunks
        .iter()
        .flat_map(|&chunk| rows.clone().map(move |row| (chunk, row)));
    parts
        .map(|(chunk, row)| {
            (
                chunk.at(),
                row,
                b.read_replica(node, chunk, replicas.row(row)),
            )
        })
        .collect()
}

/// A node of the chain and the data chunks that it adds.
type Link = (NodeId, Vec<ChunkIndex>);

/// The chain's links: rack by rack, the rack that most chunks can be
/// read in first, and the racks of parity last, where the sums are to go.
fn links(stripe: &Stripe<'_>, replicas: &Replicas<'_>, topology: &Topology) -> Vec<Link> {
    let mut left: BTreeSet<ChunkIndex> = stripe.geometry.data_chunks().collect();
    let parity_racks: Vec<Option<RackId>> = stripe
        .geometry
        .parity_chunks()
        .map(|chunk| topology.rack_of(stripe.node_of(chunk)))
        .collect();
    let parity_count = |rack: Option<RackId>| parity_racks.iter().filter(|&&r| r == rack).count();
    let mut racks: Vec<(usize, Vec<Link>)> = Vec::new();
    while !left.is_empty() {
        let mut found: BTreeMap<Option<RackId>, BTreeMap<ChunkIndex, NodeId>> = BTreeMap::new();
        for &chunk in &left {
            for &node in replicas.of(chunk) {
                let rack = found.entry(topology.rack_of(node)).or_default();
                rack.entry(chunk).or_insert(node);
            }
        }
        let most = found
            .into_iter()
            .min_by_key(|(rack, chunks)| (Reverse(chunks.len()), Reverse(parity_count(*rack))));
        let (rack, chunks) = most.expect("each chunk has a replica");
        let mut nodes: BTreeMap<NodeId, Vec<ChunkIndex>> = BTreeMap::new();
        for (chunk, node) in chunks {
            left.remove(&chunk);
            nodes.entry(node).or_default().push(chunk);
        }
        racks.push((parity_count(rack), nodes.into_iter().collect()));
    }
    racks.sort_by_key(|(parity_count, _)| *parity_count);
    racks.into_iter().flat_map(|(_, nodes)| nodes).collect()
}
